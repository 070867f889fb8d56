"""Translates a pod of the API into a pod of reclaim: gang, times, notice, and where it may run."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from webhook.core.model.demand import Weights
from webhook.core.model.pod import NO_KEYS
from webhook.core.reclaim.failures import Loss
from webhook.core.reclaim.reclaim_pod import Controller, ReclaimPod, SchedulerReport
from webhook.kube.kinds.controllers import loss_of
from webhook.kube.kinds.job_failures import workload_id
from webhook.kube.objects import keys, objects
from webhook.kube.objects.owners import controller_of
from webhook.kube.pod.constraints import Placement, read_placement, with_volumes
from webhook.kube.pod.domain_requests import domain_request
from webhook.kube.pod.existing_pods import chosen_nodes, to_resident
from webhook.kube.pod.gangs import declared_size
from webhook.kube.pod.pods import controller_reference, grace_seconds, scheduler_of, unix_seconds
from webhook.kube.pod.unbound import read_condition
from webhook.kube.pod.work import work_of
from webhook.kube.reclaim.victim_gangs import victim_gang

_PLACED: Final = Placement()


def to_reclaim_pod(pod: objects.Pod, weights: Weights) -> ReclaimPod | None:
    """Return a pod that exists; None where it holds nothing that counts. Raises ValueError as to_resident does.

    The node that the webhook chose is left out: for reclaim, only pods on a node take room there.
    """
    resident = to_resident(pod, weights)
    if resident is None:
        return None
    metadata, spec = pod.metadata, pod.spec
    annotations = metadata.annotations or NO_KEYS
    is_decided = resident.team_label is not None
    placement = read_placement(spec) if resident.node is None else _PLACED
    labels = resident.labels
    controller, work = controller_reference(metadata), work_of(pod)
    return ReclaimPod(
        pod=resident.for_reclaim,
        labels=labels,
        constraints=placement.constraints
        if resident.node is not None
        else with_volumes(placement.constraints, spec, resident.namespace),
        topology=placement.topology(labels),
        gang=resident.gang,
        gang_size=declared_size(annotations),
        goes_with=None if resident.gang is None else victim_gang(metadata, spec, namespace=resident.namespace),
        is_grouped=spec.scheduling_group is not None,
        started_at=unix_seconds(pod.status.start_time or "") if pod.status is not None else 0,
        runtime_from=work.runtime_from,
        works_since=work.since,
        is_working=work.is_working,
        saved_at=_time(annotations, keys.CHECKPOINTED) or 0,
        asks_to_stay=_asks_to_stay(annotations),
        leaves_at=unix_seconds(metadata.deletion_timestamp) if metadata.deletion_timestamp else None,
        leave_seconds=metadata.deletion_grace_period_seconds or 0,
        grace_seconds=grace_seconds(spec),
        is_gated=bool(spec.scheduling_gates or placement.excess),  # no plan is made for what cannot be read
        chosen=chosen_nodes(annotations, placement.constraints) if is_decided and resident.node is None else (),
        report=_report(pod.status) if resident.node is None else None,
        controller=_controller(metadata),
        workload=None if controller is None else workload_id(resident.namespace, controller.uid),
        loss=Loss.COUNTED if controller is None else loss_of(controller.api_version, controller.kind, labels),
        domain=domain_request(annotations) if resident.gang is not None and resident.node is None else None,
        scheduler=scheduler_of(spec),
        priority=spec.priority or 0,
        is_movable=annotations.get(keys.MOVABLE) == "true",
        is_starting=resident.node is not None and pod.status is not None and pod.status.phase == "Pending",
    )


def _controller(metadata: objects.ObjectMeta) -> Controller | None:
    """Return the controller of a pod; the pods of one controller share one object."""
    found = controller_of(metadata, namespace=metadata.namespace)
    return None if found is None else _known_controller(found.api_version, found.kind, found.name, found.uid)


@lru_cache(maxsize=4096)
def _known_controller(api_version: str, kind: str, name: str, uid: str) -> Controller:
    return Controller(api_version, kind, name, uid)


def _report(status: objects.PodStatus | None) -> SchedulerReport | None:
    """Return why kube-scheduler cannot place a pod."""
    found = read_condition(status)
    if found is None or not found.is_unschedulable:
        return None
    return SchedulerReport(
        unix_seconds(found.since),
        found.is_for_room,
        found.is_for_taints,
        is_for_zone=found.is_for_zone,
        is_for_peers=found.is_for_peers,
        why=found.text,
    )


def _asks_to_stay(annotations: Mapping[str, str]) -> bool:
    """Whether an annotation asks other products to leave the pod where it is, as those read it.

    The descheduler looks for the key alone (pkg/descheduler/evictions/utils). Karpenter takes "true", or for how long.
    """
    return (
        annotations.get(keys.SAFE_TO_EVICT) == "false"
        or annotations.get(keys.DO_NOT_DISRUPT, "false") != "false"
        or keys.PREFER_NO_EVICTION in annotations
    )


def _time(annotations: Mapping[str, str], key: str) -> int | None:
    return unix_seconds(annotations[key]) if key in annotations else None
