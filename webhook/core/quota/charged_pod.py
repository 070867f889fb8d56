"""The record of a pod that was allowed and is not seen in the cluster yet: what it is charged and where it goes."""

from webhook.core.model import decision_annotation
from webhook.core.model.decision import Charge
from webhook.core.model.labels import pack
from webhook.core.model.names import NodeName
from webhook.core.model.pod import NO_LABELS, Pod, Resident
from webhook.core.model.topology import asked_labels
from webhook.core.quota.in_flight import InFlightCharge


def flight_of(pod: Pod, charge: Charge, *, nodes: tuple[NodeName, ...] = (), is_watched: bool = True) -> InFlightCharge:
    """Return the charge in flight of an allowed pod; it takes its room on the first of the nodes.

    `is_watched`: a watch will show the pod with all of its labels. Until then only those labels are kept by which its
    own rules select: replicas of one workload come in bursts, and are counted before they are seen. Where no watch
    shows it, all of its labels are kept.
    """
    if not is_watched:
        labels = pack(pod.labels)
    else:
        labels = pack(asked_labels(pod.topology, pod.labels)) if pod.topology else NO_LABELS
    resident = Resident(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        demand=pod.demand,
        node=pod.node_name,
        owner=pod.owner,
        team_label=pod.team_label,
        tier_label=pod.tier_label,
        user=charge.user,
        claims=pod.claims,
        shares_by=pod.shares_by,
        slices=pod.slices,
        admitted=annotation.admitted
        if pod.claims and (annotation := decision_annotation.read(pod.decision_annotation or "")) is not None
        else None,
        packed=labels,
        anti_affinity_rules=pod.anti_affinity_rules if pod.topology else (),
        gang=None if pod.gang is None else pod.gang.id,
        replica=pod.replica,
    )
    return InFlightCharge(resident, charge, pod.node_name or (nodes[0] if nodes else None))
