"""From a pod as Kubernetes writes it to what the core decides on: Pod at the door, Resident in the cluster."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import Final, NamedTuple

import msgspec

from webhook.core.dra.dra_claims import ClaimRef
from webhook.core.model.amount import parse_amount
from webhook.core.model.demand import Weights
from webhook.core.model.labels import pack
from webhook.core.model.names import GpuModel, Labels, Namespace, NodeName, Uid, User
from webhook.core.model.pod import DEFAULT_GRACE_SECONDS, NO_LABELS, NO_UID, Admitted, Handling, Owner, Pod, Resident
from webhook.core.model.reason import Code, Reason
from webhook.core.model.selector import NO_CONSTRAINTS
from webhook.core.model.tier import TIERS
from webhook.kube.objects import bounds, keys, objects
from webhook.kube.pod.constraints import Placement, read_keeps_off, read_placement, read_slices
from webhook.kube.pod.demands import Reading, read_demand

_NO_KEYS: Final[Mapping[str, str]] = {}
_LONGEST_INDEX: Final = 3
_ENDED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class InvalidPod:
    """A pod that the API server would refuse, or that cannot be read: every problem, with what would be right.

    `excess` is what there is too much of. `is_foreign`: it asks for nothing that could be a GPU, and need not be read.
    """

    problems: tuple[str, ...]
    excess: tuple[str, ...] = ()
    is_foreign: bool = False

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Say why it is refused; of many problems the first, each short enough to be read."""
        told = [Reason(Code.TOO_LARGE, text) for text in self.excess]
        told += [Reason(Code.INVALID_REQUEST, text) for text in self.problems]
        return tuple([reason._replace(text=bounds.shortened(reason.text)) for reason in told[: bounds.PROBLEMS]])


class PodState(msgspec.Struct, frozen=True, gc=False):
    """What became of a pod: as much of one as tells whether it is there."""

    metadata: objects.ObjectMeta
    status: objects.PodStatus = objects.PodStatus()

    @property
    def uid(self) -> Uid:
        """Tell which pod it is: names are used again."""
        return self.metadata.uid

    @property
    def version(self) -> int:
        """Tell the resourceVersion at which it was read."""
        return int(self.metadata.resource_version)

    @property
    def has_ended(self) -> bool:
        """Tell whether it takes nothing any more."""
        return self.status.phase in _ENDED


class _Mark(msgspec.Struct, frozen=True, gc=False):
    user: User | None = None
    nodes: tuple[NodeName, ...] = ()
    asked: str = ""
    model: GpuModel | None = None
    gpus: str = ""
    policy: str = ""
    claims: tuple[Uid, ...] = ()


_NO_MARK: Final = _Mark()
_mark_decoder: Final = msgspec.json.Decoder(_Mark)
_fate_decoder: Final = msgspec.json.Decoder(PodState)


_SPREAD: Final = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})
"""Whose pods kube-scheduler spreads if they do not say how; others only where a Service selects them."""

_NO_CAPABILITIES: Final[frozenset[str]] = frozenset()
_kept_owner: Final = lru_cache(maxsize=4096)(Owner)
_LONGEST_KIND: Final = 63
_LONGEST_NAME: Final = 253
"""Characters of an owner that are kept: the API server takes any, and refusals name the largest holders."""
_MOST_LABELS, _MOST_CONTAINERS = bounds.LABELS, bounds.CONTAINERS
_LONGEST_TIME: Final = 64


def to_pod(
    pod: objects.Pod, *, namespace: Namespace, weights: Weights, name: str = "", uid: Uid = NO_UID
) -> Pod | InvalidPod:
    """Translate a pod under admission; `weights` as in read_demand.

    `name` and `uid` stand in where the pod has none yet: a copy of a frozen Pod costs as much as making it.
    """
    metadata, spec = pod.metadata, pod.spec
    labels, annotations = metadata.labels or _NO_KEYS, metadata.annotations or _NO_KEYS
    mark, requires, pool = annotations.get(keys.DECISION), annotations.get(keys.REQUIRES), annotations.get(keys.POOL)
    if (
        len(labels) > _MOST_LABELS
        or len(spec.containers) > _MOST_CONTAINERS
        or (spec.init_containers is not None and len(spec.init_containers) > _MOST_CONTAINERS - len(spec.containers))
        or (mark is not None and len(mark) > bounds.MARK_BYTES)
        or (requires is not None and len(requires) > bounds.ASKED_BYTES)
        or (pool is not None and len(pool) > bounds.ASKED_BYTES)
        or (spec.resource_claims is not None and len(spec.resource_claims) > bounds.CLAIMS)
    ):
        return InvalidPod((), tuple(_excess(spec, labels, annotations)))
    reading, placement = read_demand(spec, weights), read_placement(spec)
    demand = reading.demand
    unmarked = placement.unmarked if mark is None else ()
    if demand is None or reading.problems or placement.problems or reading.excess or placement.excess or unmarked:
        return _invalid(spec, reading, placement, unmarked)
    controller = _controller(metadata)
    return Pod(
        namespace=namespace,
        demand=demand,
        name=metadata.name or name,
        uid=metadata.uid or uid,
        labels=labels,
        annotations=annotations,
        owner=_owner_of(controller),
        constraints=placement.constraints,
        has_open_constraints=placement.is_open or _ties_itself(spec),
        topology=placement.topology(labels),
        is_spread_by_default=not placement.spreading.rules and controller is not None and controller.kind in _SPREAD,
        handling=_handling(spec, annotations, controller),
        node_name=spec.node_name or None,
        requires=_listed(requires) if requires else _NO_CAPABILITIES,
        pool=pool,
        team_label=labels.get(keys.TEAM),
        tier_label=labels.get(keys.TIER),
        mark=mark,
        priority_class=spec.priority_class_name,
        claims=_claims(spec, None) if spec.resource_claims else (),
        shares_by="" if demand.counted is None else _scheduler(spec),
        slices=placement.slices,
        grace_seconds=grace_seconds(spec),
    )


def to_resident(pod: objects.Pod, weights: Weights) -> Resident | None:
    """Translate a pod that exists; None where it takes nothing that counts.

    That is: it has ended, or it needs no GPU and sits on no node. Pods without GPUs that sit on a node stay, since
    they take its cpu and memory. What the door would refuse counts here as it stands, rounded up: the pod is there.
    Raises ValueError where its amounts cannot be read at all.
    """
    metadata, spec = pod.metadata, pod.spec
    if has_ended(pod):
        return None
    if len(spec.containers) + len(spec.init_containers or ()) > bounds.CONTAINERS:
        spec = _with_devices(spec)
    reading = read_demand(spec, weights)
    if reading.demand is None:
        raise ValueError("; ".join(reading.problems))
    if not (reading.demand.gpus or reading.demand.strange or spec.resource_claims or spec.node_name):
        return None
    labels, controller = metadata.labels or _NO_KEYS, _controller(metadata)
    namespace = intern(metadata.namespace or "default")
    mark = _read_mark((metadata.annotations or _NO_KEYS).get(keys.DECISION))
    is_ours = keys.TEAM in labels
    waits_at = _NOWHERE if spec.node_name else _bound_by(mark) if is_ours else _bound_by_itself(spec)
    return Resident(
        uid=Uid(metadata.uid) if metadata.uid else fallback_uid(namespace, metadata.name),
        namespace=Namespace(namespace),
        name=metadata.name,
        demand=reading.demand,
        node=NodeName(intern(spec.node_name)) if spec.node_name else None,
        owner=_owner_of(controller),
        team_label=_shared(labels.get(keys.TEAM)),
        tier_label=_shared(labels.get(keys.TIER)),
        user=mark.user,
        is_terminating=metadata.deletion_timestamp is not None,
        promised=waits_at.node,
        version=int(metadata.resource_version) if metadata.resource_version.isdecimal() else 0,
        requested_tier=TIERS.get(mark.asked),
        created=unix_seconds(metadata.creation_timestamp or ""),
        devices=_held_devices(metadata.annotations or _NO_KEYS),
        claims=_claims(spec, pod.status) if spec.resource_claims else (),
        handling=_handling(spec, metadata.annotations or _NO_KEYS, controller),
        packed=_packed(labels),
        anti_affinity_rules=read_keeps_off(spec),
        shares_by="" if reading.demand.counted is None else intern(_scheduler(spec)),
        slices=read_slices(spec),
        model=waits_at.model,
        admitted=_admitted(mark) if is_ours and spec.resource_claims else None,
        grace_seconds=max(grace_seconds(spec), metadata.deletion_grace_period_seconds or 0),
    )


def _packed(labels: Mapping[str, str]) -> Labels:
    """Keep a pod's labels; of more than any real pod has, only those that say whose it is."""
    if not labels:
        return NO_LABELS
    if len(labels) > bounds.LABELS or sum(map(len, labels.values())) + sum(map(len, labels)) > bounds.LABEL_BYTES:
        labels = {key: labels[key] for key in keys.GUARDED_LABELS if key in labels}
    return pack(labels)


def _admitted(mark: _Mark) -> Admitted | None:
    try:
        return Admitted(parse_amount(mark.gpus), mark.policy, mark.claims)
    except ValueError:
        return None  # it was labelled without a decision


class _Bound(NamedTuple):
    """What a pod that waits is bound to: by its decision, or by its own conditions."""

    node: NodeName | None = None
    model: GpuModel | None = None


_NOWHERE: Final = _Bound()


def _bound_by(mark: _Mark) -> _Bound:
    node = NodeName(intern(mark.nodes[0])) if mark.nodes else None
    return _Bound(node, None if mark.model is None else GpuModel(intern(mark.model)))


def _bound_by_itself(spec: objects.PodSpec) -> _Bound:
    constraints = read_placement(spec).constraints
    if constraints is NO_CONSTRAINTS:
        return _NOWHERE
    node = constraints.named_node
    model = next((value for key in keys.GPU_MODEL_LABELS if (value := constraints.demanded(key))), None)
    return _Bound(None if node is None else NodeName(intern(node)), None if model is None else GpuModel(intern(model)))


def grace_seconds(spec: objects.PodSpec) -> int:
    """Tell how long a pod may run after its deletion, as far as it says so itself."""
    grace = spec.termination_grace_period_seconds
    return DEFAULT_GRACE_SECONDS if grace is None else grace


def chosen_nodes(annotations: Mapping[str, str]) -> tuple[NodeName, ...]:
    """Read which nodes the gate chose for a pod; none where it chose none, or did not write this."""
    return _read_mark(annotations.get(keys.DECISION)).nodes


def decode_pod_state(body: bytes) -> PodState:
    """Read what became of a pod from the API server's answer."""
    return _fate_decoder.decode(body)


def _with_devices(spec: objects.PodSpec) -> objects.PodSpec:
    """Leave out the containers that ask for no device: of so many, cpu and memory are left to kube-scheduler.

    Raises ValueError where too many are left.
    """
    kept, init = (
        [each for each in listed or () if b"/" in bytes(each.resources)]
        for listed in (spec.containers, spec.init_containers)
    )
    if len(kept) + len(init) > bounds.CONTAINERS:
        raise ValueError(f"more than {bounds.CONTAINERS} containers ask for devices")
    return msgspec.structs.replace(spec, containers=kept, init_containers=init)


def has_ended(pod: objects.Pod) -> bool:
    """Tell whether a pod has run to its end: it stays for days and holds nothing."""
    return pod.status is not None and pod.status.phase in _ENDED


def fallback_uid(namespace: str, name: str) -> Uid:
    """Name a pod that has no UID: world files and reviews written by hand have none."""
    return Uid(f"{namespace}/{name}")


def _claims(spec: objects.PodSpec, status: objects.PodStatus | None) -> tuple[ClaimRef, ...]:
    made = {s.name: s.resource_claim_name or "" for s in (status and status.resource_claim_statuses) or ()}
    group = (spec.scheduling_group.pod_group_name or "") if spec.scheduling_group is not None else ""
    return tuple(
        ClaimRef(
            claim=entry.resource_claim_name or made.get(entry.name, ""),
            template=entry.resource_claim_template_name or "",
            group=group if entry.resource_claim_template_name else "",
            entry=entry.name,
        )
        for entry in spec.resource_claims or ()
    )


def _held_devices(annotations: Mapping[str, str]) -> tuple[int, ...]:
    """Read which devices gpushare gave a pod; -1 says that it found none."""
    index = annotations.get(keys.GPUSHARE_DEVICE, "")
    return (int(index),) if index.isdecimal() and len(index) <= _LONGEST_INDEX else ()


def _excess(spec: objects.PodSpec, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Iterator[str]:
    containers = len(spec.containers) + len(spec.init_containers or ())
    yield from bounds.excess("spec.containers: number", containers, bounds.CONTAINERS)
    yield from bounds.excess("metadata.labels: number", len(labels), bounds.LABELS)
    yield from bounds.excess("spec.resourceClaims: number", len(spec.resource_claims or ()), bounds.CLAIMS)
    for key, most in (
        (keys.DECISION, bounds.MARK_BYTES),
        (keys.REQUIRES, bounds.ASKED_BYTES),
        (keys.POOL, bounds.ASKED_BYTES),
    ):
        yield from bounds.excess(f"annotation {key}: length in characters", len(annotations.get(key, "")), most)


def _invalid(spec: objects.PodSpec, reading: Reading, placement: Placement, unmarked: tuple[str, ...]) -> InvalidPod:
    demand = reading.demand
    is_foreign = demand is not None and not (demand.gpus or demand.strange or spec.resource_claims)
    problems = reading.problems + placement.problems
    return InvalidPod(problems, reading.excess + placement.excess + unmarked, is_foreign)


def _controller(metadata: objects.ObjectMeta) -> objects.OwnerReference | None:
    for owner in metadata.owner_references or ():
        if owner.controller:
            return owner
    return None


def _owner_of(controller: objects.OwnerReference | None) -> Owner | None:
    if controller is None:
        return None
    return _kept_owner(controller.kind[:_LONGEST_KIND], controller.name[:_LONGEST_NAME])


def _handling(
    spec: objects.PodSpec, annotations: Mapping[str, str], controller: objects.OwnerReference | None
) -> Handling:
    if keys.MIRROR in annotations:
        return Handling.MIRROR
    if controller is not None and controller.kind == "DaemonSet" and controller.api_version.startswith("apps/"):
        return Handling.DAEMON_SET
    if spec.scheduler_name and spec.scheduler_name != keys.DEFAULT_SCHEDULER:
        return Handling.FOREIGN_SCHEDULER
    return Handling.NODE_NAME if spec.node_name else Handling.MANAGED


def _scheduler(spec: objects.PodSpec) -> str:
    return spec.scheduler_name or keys.DEFAULT_SCHEDULER


def _ties_itself(spec: objects.PodSpec) -> bool:
    """Tell whether host ports, bound volumes or device claims narrow the nodes in a way that we do not judge."""
    for volume in spec.volumes or ():
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
            return True
    return bool(spec.resource_claims) or _opens_host_port(spec.containers) or _opens_host_port(spec.init_containers)


def _opens_host_port(containers: list[objects.Container] | None) -> bool:
    for container in containers or ():
        if container.ports is not None:
            for port in container.ports:
                if port.host_port:
                    return True
    return False


def _listed(text: str) -> frozenset[str]:
    return frozenset(filter(None, map(str.strip, text.split(","))))


def _shared(text: str | None) -> str | None:
    """Let pods with the same label hold the same string."""
    return None if text is None else intern(text)


def _read_mark(mark: str | None) -> _Mark:
    """Read back what no label says: the user that is charged, the node that was promised, the tier that was asked."""
    if mark is None or len(mark) > bounds.MARK_BYTES:
        return _NO_MARK
    try:
        return _mark_decoder.decode(mark)
    except msgspec.MsgspecError:
        return _NO_MARK  # a mark that is not ours says nothing


def unix_seconds(timestamp: str) -> int:
    """Read an RFC 3339 time; 0 where it is none."""
    return _known_seconds(timestamp) if len(timestamp) <= _LONGEST_TIME else 0


@lru_cache(maxsize=4096)  # pods are made in bursts, and a relist brings the same times again
def _known_seconds(timestamp: str) -> int:
    try:
        return int(datetime.fromisoformat(timestamp).timestamp())
    except (ValueError, OverflowError):
        return 0
