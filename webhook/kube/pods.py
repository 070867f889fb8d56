"""From a pod as Kubernetes writes it to what the core decides on: Pod at the door, Resident in the cluster."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import Final

import msgspec

from webhook.core.claims import ClaimRef
from webhook.core.demand import Weights
from webhook.core.labels import pack
from webhook.core.names import Namespace, NodeName, Uid, User
from webhook.core.pod import NO_LABELS, NO_UID, Handling, Owner, Pod, Resident
from webhook.core.tier import TIERS
from webhook.kube import keys, objects
from webhook.kube.constraints import read_keeps_off, read_placement
from webhook.kube.demands import read_demand

_NO_KEYS: Final[Mapping[str, str]] = {}
_LONGEST_INDEX: Final = 3
_ENDED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class InvalidPod:
    """A pod that the API server would refuse, or that nobody could read: every problem, with what would be right."""

    problems: tuple[str, ...]


class Fate(msgspec.Struct, frozen=True, gc=False):
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


_NO_MARK: Final = _Mark()
_mark_decoder: Final = msgspec.json.Decoder(_Mark)
_fate_decoder: Final = msgspec.json.Decoder(Fate)

# on Python 3.11 each `Handling.X` costs 0.1 us
_MANAGED: Final = Handling.MANAGED
_DAEMON_SET: Final = Handling.DAEMON_SET
_MIRROR: Final = Handling.MIRROR
_NODE_NAME: Final = Handling.NODE_NAME
_FOREIGN_SCHEDULER: Final = Handling.FOREIGN_SCHEDULER

_MAYBE_MANAGED: Final = frozenset({Handling.MANAGED, Handling.NODE_NAME})  # later, every pod has the name of a node

_SPREAD: Final = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})
"""Whose pods kube-scheduler spreads if they do not say how; others only where a Service selects them."""

_NO_CAPABILITIES: Final[frozenset[str]] = frozenset()
_owner: Final = lru_cache(maxsize=4096)(Owner)


def to_pod(
    pod: objects.Pod, *, namespace: Namespace, weights: Weights, name: str = "", uid: Uid = NO_UID
) -> Pod | InvalidPod:
    """Translate a pod under admission; `weights` as in read_demand.

    `name` and `uid` stand in where the pod has none yet: a copy of a frozen Pod costs as much as making it.
    """
    metadata, spec = pod.metadata, pod.spec
    reading, placement = read_demand(spec, weights), read_placement(spec)
    demand = reading.demand
    if demand is None or reading.problems or placement.problems:
        return InvalidPod(reading.problems + placement.problems)
    labels, annotations = metadata.labels or _NO_KEYS, metadata.annotations or _NO_KEYS
    controller = _controller(metadata)
    requires = annotations.get(keys.REQUIRES)
    return Pod(
        namespace=namespace,
        demand=demand,
        name=metadata.name or name,
        uid=metadata.uid or uid,
        labels=labels,
        annotations=annotations,
        owner=None if controller is None else _owner(controller.kind, controller.name),
        constraints=placement.constraints,
        has_open_constraints=placement.is_open or _ties_itself(spec),
        topology=placement.topology(labels),
        is_spread_by_default=not placement.spreading.rules and controller is not None and controller.kind in _SPREAD,
        handling=_handling(spec, annotations, controller),
        node_name=spec.node_name or None,
        requires=_listed(requires) if requires else _NO_CAPABILITIES,
        pool=annotations.get(keys.POOL),
        team_label=labels.get(keys.TEAM),
        tier_label=labels.get(keys.TIER),
        mark=annotations.get(keys.DECISION),
        priority_class=spec.priority_class_name,
        claims=_claims(spec, None) if spec.resource_claims else (),
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
    reading = read_demand(spec, weights)
    if reading.demand is None:
        raise ValueError("; ".join(reading.problems))
    if not (reading.demand.gpus or reading.demand.strange or spec.resource_claims or spec.node_name):
        return None
    labels, controller = metadata.labels or _NO_KEYS, _controller(metadata)
    namespace = intern(metadata.namespace or "default")
    mark = _read_mark((metadata.annotations or _NO_KEYS).get(keys.DECISION))
    is_ours = keys.TEAM in labels
    return Resident(
        uid=Uid(metadata.uid) if metadata.uid else stand_in_uid(namespace, metadata.name),
        namespace=Namespace(namespace),
        name=metadata.name,
        demand=reading.demand,
        node=NodeName(intern(spec.node_name)) if spec.node_name else None,
        owner=None if controller is None else _owner(controller.kind, controller.name),
        team_label=_shared(labels.get(keys.TEAM)),
        tier_label=_shared(labels.get(keys.TIER)),
        user=mark.user,
        is_terminating=metadata.deletion_timestamp is not None,
        promised=NodeName(intern(mark.nodes[0])) if is_ours and mark.nodes and not spec.node_name else None,
        version=int(metadata.resource_version) if metadata.resource_version.isdecimal() else 0,
        asked_tier=TIERS.get(mark.asked),
        created=unix_seconds(metadata.creation_timestamp or ""),
        devices=_held_devices(metadata.annotations or _NO_KEYS),
        claims=_claims(spec, pod.status) if spec.resource_claims else (),
        is_managed=_handling(spec, metadata.annotations or _NO_KEYS, controller) in _MAYBE_MANAGED,
        packed=pack(labels) if labels else NO_LABELS,
        keeps_off=read_keeps_off(spec),
    )


def chosen_nodes(annotations: Mapping[str, str]) -> tuple[NodeName, ...]:
    """Read which nodes the gate chose for a pod; none where it chose none, or did not write this."""
    return _read_mark(annotations.get(keys.DECISION)).nodes


def decode_fate(body: bytes) -> Fate:
    """Read what became of a pod from the API server's answer."""
    return _fate_decoder.decode(body)


def has_ended(pod: objects.Pod) -> bool:
    """Tell whether a pod has run to its end: it stays for days and holds nothing."""
    return pod.status is not None and pod.status.phase in _ENDED


def stand_in_uid(namespace: str, name: str) -> Uid:
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


def _controller(metadata: objects.ObjectMeta) -> objects.OwnerReference | None:
    for owner in metadata.owner_references or ():
        if owner.controller:
            return owner
    return None


def _handling(
    spec: objects.PodSpec, annotations: Mapping[str, str], controller: objects.OwnerReference | None
) -> Handling:
    if keys.MIRROR in annotations:
        return _MIRROR
    if controller is not None and controller.kind == "DaemonSet" and controller.api_version.startswith("apps/"):
        return _DAEMON_SET
    if spec.scheduler_name and spec.scheduler_name != keys.DEFAULT_SCHEDULER:
        return _FOREIGN_SCHEDULER
    return _NODE_NAME if spec.node_name else _MANAGED


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
    if mark is None:
        return _NO_MARK
    try:
        return _mark_decoder.decode(mark)
    except msgspec.MsgspecError:
        return _NO_MARK  # a mark that is not ours says nothing


@lru_cache(maxsize=4096)  # pods are made in bursts, and a relist brings the same times again
def unix_seconds(timestamp: str) -> int:
    """Read an RFC 3339 time; 0 where it is none."""
    try:
        return int(datetime.fromisoformat(timestamp).timestamp())
    except (ValueError, OverflowError):
        return 0
