"""What an existing pod has besides: stage, room, reclaim.

From a Kubernetes pod that exists in the cluster to a core Resident, and to the state that a lookup returns.
"""

from collections.abc import Mapping
from functools import lru_cache
from sys import intern
from typing import Final, NamedTuple

import msgspec

from webhook.core.model.amounts import (
    GpuModel,
    Labels,
    Namespace,
    NodeName,
    Uid,
    User,
    parse_amount,
)
from webhook.core.model.constraints import NO_CONSTRAINTS, TIERS, Constraints, pack
from webhook.core.model.demand import Weights
from webhook.core.model.pod import NO_KEYS, NO_LABELS, Admitted, Resident
from webhook.core.model.reasons import Code
from webhook.core.reclaim.reclaim_pods import Controller, ReclaimPod, SchedulerReport
from webhook.core.reclaim.victims import Loss
from webhook.kube.kinds.job_failures import workload_id
from webhook.kube.kinds.table import loss_of
from webhook.kube.objects import bounds, keys, objects
from webhook.kube.objects.objects import controller_of
from webhook.kube.pod.constraints import Placement, read_anti_affinity, read_placement, read_slices, with_volumes
from webhook.kube.pod.demands import read_demand
from webhook.kube.pod.gangs import declared_size, domain_request, gang_id, is_ready, replica_of, victim_gang
from webhook.kube.pod.outcomes import is_acknowledged, work_of
from webhook.kube.pod.pods import (
    ENDED_PHASES,
    claim_refs,
    controller_reference,
    grace_seconds,
    handling_of,
    has_ended,
    is_queued,
    owner_of,
    scheduler_of,
    uid_of,
    unix_seconds,
)
from webhook.kube.pod.unbound import read_condition

_NO_KEYS: Final[Mapping[str, str]] = {}
_MAX_DIGITS: Final = 3


class PodState(msgspec.Struct, frozen=True, gc=False):
    """The fields of a pod that show whether it still exists."""

    metadata: objects.ObjectMeta
    spec: objects.PodGates = objects.PodGates()
    status: objects.PodStatus = objects.PodStatus()

    @property
    def is_queued(self) -> bool:
        """Whether it still has Fairgate's scheduling gate."""
        return is_queued(self.spec)

    @property
    def uid(self) -> Uid:
        """The pod's UID: names are reused."""
        return self.metadata.uid

    @property
    def version(self) -> int:
        """The resourceVersion at which it was read."""
        return int(self.metadata.resource_version)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended and uses nothing."""
        return self.status.phase in ENDED_PHASES


class _DecisionFields(msgspec.Struct, frozen=True, gc=False):
    user: User | None = None
    nodes: tuple[NodeName, ...] = ()
    listed: int = 0  # nodes that the pod's node affinity names, and `nodes` does not
    asked: str = ""
    model: GpuModel | None = None
    gpus: str = ""
    code: str = ""
    policy: str = ""
    claims: tuple[Uid, ...] = ()


_NO_DECISION: Final = _DecisionFields()
_decision_decoder: Final = msgspec.json.Decoder(_DecisionFields)
_fate_decoder: Final = msgspec.json.Decoder(PodState)


def to_resident(pod: objects.Pod, weights: Weights) -> Resident | None:
    """Translate an existing pod; None if it uses nothing that counts.

    Such pods have ended, wait in the queue, or have neither GPUs nor a node.

    Pods without GPUs on a node, or nominated to one, are kept, since they use its cpu and memory. Amounts that
    admission would refuse count as they are, rounded up. Raises ValueError if an amount cannot be parsed.
    """
    metadata, spec = pod.metadata, pod.spec
    if has_ended(pod) or (spec.scheduling_gates and not spec.node_name and is_queued(spec)):
        return None
    if len(spec.containers) + len(spec.init_containers or ()) > bounds.CONTAINERS:
        spec = _with_devices(spec)
    reading = read_demand(spec, weights, status=pod.status if spec.node_name else None)
    if reading.demand is None:
        raise ValueError("; ".join(reading.problems))
    nominated = "" if spec.node_name or pod.status is None else pod.status.nominated_node_name
    if not (reading.demand.gpus or reading.demand.strange or spec.resource_claims or spec.node_name or nominated):
        return None
    labels, controller = metadata.labels or _NO_KEYS, controller_reference(metadata)
    namespace = intern(metadata.namespace or "default")
    annotations = metadata.annotations or _NO_KEYS
    decision = _read_decision(annotations.get(keys.DECISION))
    is_ours = keys.TEAM in labels
    target = _NO_TARGET if spec.node_name else _target_of_decision(decision, spec) if is_ours else _target_of_spec(spec)
    report = None if spec.node_name else read_condition(pod.status)
    return Resident(
        uid=uid_of(metadata, namespace),
        namespace=Namespace(namespace),
        name=metadata.name,
        demand=reading.demand,
        node=NodeName(intern(spec.node_name)) if spec.node_name else None,
        owner=owner_of(controller),
        team_label=_shared(labels.get(keys.TEAM)),
        tier_label=_shared(labels.get(keys.TIER)),
        user=decision.user,
        is_terminating=metadata.deletion_timestamp is not None,
        promised=target.node,
        version=int(metadata.resource_version) if metadata.resource_version.isdecimal() else 0,
        requested_tier=TIERS.get(decision.asked),
        created=unix_seconds(metadata.creation_timestamp or ""),
        devices=_held_devices(annotations),
        claims=claim_refs(spec, pod.status) if spec.resource_claims else (),
        handling=handling_of(spec, annotations, controller),
        packed=_packed(labels),
        anti_affinity_rules=read_anti_affinity(spec),
        shares_by="" if reading.demand.counted is None else intern(scheduler_of(spec)),
        slices=read_slices(spec),
        model=target.model,
        admitted=_admitted(decision) if is_ours and spec.resource_claims else None,
        grace_seconds=max(grace_seconds(spec), metadata.deletion_grace_period_seconds or 0),
        is_backfill=is_ours and decision.code == Code.BACKFILLS,
        gang=gang_id(metadata, spec, namespace=namespace),
        deadline=0
        if metadata.deletion_timestamp is None
        else unix_seconds(metadata.deletion_timestamp) + (metadata.deletion_grace_period_seconds or 0),
        unbound=None if report is None else report.unbound,
        idle_since=unix_seconds(annotations.get(keys.IDLE_SINCE, "")),
        notice_at=unix_seconds(annotations.get(keys.EVICT_AT, "")),
        replica=replica_of(metadata, controller, namespace, spec.scheduling_group),
        is_ready=is_ready(pod.status),
        is_acknowledged=is_acknowledged(pod.status),
        nominated=NodeName(intern(nominated)) if nominated else None,
        has_decision=keys.DECISION in annotations,
    )


class EndedPod(NamedTuple):
    """A pod that asked for GPUs and has ended: it uses nothing, and says what comes again."""

    namespace: Namespace
    name: str


def to_ended(pod: objects.Pod, weights: Weights) -> EndedPod | None:
    """Translate a pod that has ended; None if it runs, waits, or asked for no GPUs that can be read."""
    if not has_ended(pod) or len(pod.spec.containers) + len(pod.spec.init_containers or ()) > bounds.CONTAINERS:
        return None
    demand = read_demand(pod.spec, weights, status=None).demand
    has_gpus = demand is not None and bool(demand.gpus)
    return EndedPod(Namespace(pod.metadata.namespace or "default"), pod.metadata.name) if has_gpus else None


def _packed(labels: Mapping[str, str]) -> Labels:
    """Return a pod's labels in packed form; if they exceed the bounds, only Fairgate's own."""
    if not labels:
        return NO_LABELS
    if len(labels) > bounds.LABELS or sum(map(len, labels.values())) + sum(map(len, labels)) > bounds.LABEL_BYTES:
        labels = {key: labels[key] for key in keys.GUARDED_LABELS if key in labels}
    return pack(labels)


def _admitted(decision: _DecisionFields) -> Admitted | None:
    try:
        return Admitted(parse_amount(decision.gpus), decision.policy, decision.claims)
    except ValueError:
        return None  # it was labeled without a decision


class _Target(NamedTuple):
    """The node and GPU model of a pending pod, from its decision or its own constraints."""

    node: NodeName | None = None
    model: GpuModel | None = None


_NO_TARGET: Final = _Target()


def _target_of_decision(decision: _DecisionFields, spec: objects.PodSpec) -> _Target:
    nodes = read_placement(spec).constraints.named_nodes if decision.listed else decision.nodes
    node = NodeName(intern(nodes[0])) if nodes else None
    return _Target(node, None if decision.model is None else GpuModel(intern(decision.model)))


def _target_of_spec(spec: objects.PodSpec) -> _Target:
    constraints = read_placement(spec).constraints
    if constraints is NO_CONSTRAINTS:
        return _NO_TARGET
    node = constraints.named_node
    model = next((value for key in keys.GPU_MODEL_LABELS if (value := constraints.demanded(key))), None)
    return _Target(None if node is None else NodeName(intern(node)), None if model is None else GpuModel(intern(model)))


def chosen_nodes(annotations: Mapping[str, str], constraints: Constraints) -> tuple[NodeName, ...]:
    """Return the nodes that the webhook chose for a pod; empty if it chose none or did not write the annotation."""
    decision = _read_decision(annotations.get(keys.DECISION))
    return tuple(map(NodeName, constraints.named_nodes)) if decision.listed else decision.nodes


def decode_pod_state(body: bytes) -> PodState:
    """Decode the state of a pod from the API server's response."""
    return _fate_decoder.decode(body)


def _with_devices(spec: objects.PodSpec) -> objects.PodSpec:
    """Return the spec with only the containers that request devices; kube-scheduler checks cpu and memory.

    Raises ValueError if too many remain.
    """
    kept, init = (
        [each for each in listed or () if b"/" in bytes(each.resources)]
        for listed in (spec.containers, spec.init_containers)
    )
    if len(kept) + len(init) > bounds.CONTAINERS:
        raise ValueError(f"more than {bounds.CONTAINERS} containers request devices")
    return msgspec.structs.replace(spec, containers=kept, init_containers=init)


def _held_devices(annotations: Mapping[str, str]) -> tuple[int, ...]:
    """Return the devices that gpushare assigned to a pod; -1 means that it found none."""
    index = annotations.get(keys.GPUSHARE_DEVICE, "")
    return (int(index),) if index.isdecimal() and len(index) <= _MAX_DIGITS else ()


def _shared(text: str | None) -> str | None:
    """Return the interned string, shared by pods with the same label."""
    return None if text is None else intern(text)


def _read_decision(annotation: str | None) -> _DecisionFields:
    """Return the decision fields that no label has: charged user, chosen nodes, requested tier."""
    if annotation is None or len(annotation) > bounds.DECISION_BYTES:
        return _NO_DECISION
    try:
        return _decision_decoder.decode(annotation)
    except msgspec.MsgspecError:
        return _NO_DECISION  # not written by Fairgate


# Translates a pod of the API into a pod of reclaim: gang, times, notice, and where it may run.


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
