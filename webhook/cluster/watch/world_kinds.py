"""The kinds that a world is made from: nodes, pods, claims, scalers.

The watched kinds of DRA (resource.k8s.io), and the PodGroups whose pods share claims or are in one domain.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from webhook.cluster.watch.kinds import (
    LosePod,
    PodStore,
    T,
    WatchedKind,
    disruption_kind,
    failed_pod_kind,
    failure_kinds,
    grouped_kind,
    ledger_kind,
    namespace_kind,
    node_kind,
    path_of,
    pod_kind,
    priority_class_kind,
    split_path,
    volume_kind,
)
from webhook.core.devices.claim_users import ClaimKey
from webhook.core.model.amounts import NodeName, Uid
from webhook.core.model.demand import Weights
from webhook.core.model.node import Node
from webhook.core.model.pod import Resident
from webhook.core.placement.rejecting_nodes import Rejection, Start
from webhook.core.quota.charges import InFlightCharge
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.core.world.listed_charges import ListedCharges
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World
from webhook.kube.ledger.team_ledger import TeamLedger, reclaiming
from webhook.kube.nodes.nodes import to_node
from webhook.kube.objects import keys, objects
from webhook.kube.pod import devices, slices
from webhook.kube.pod.existing import to_reclaim_pod, to_resident
from webhook.kube.pod.gangs import gang_of_pod_group
from webhook.kube.pod.outcomes import to_rejection, to_start
from webhook.kube.pod.waiting import recovered_pod, to_waiting
from webhook.kube.workloads.unknown_kinds import SCALER_API, SCALERS, Autoscaler, scaling_of
from webhook.kube.world_file.world_file import keep_group


def device_kinds(world: World) -> tuple[WatchedKind[Any], ...]:
    """Return the kinds that keep a world's device classes, claims, templates, slices and PodGroups current."""
    return (*_capacity_kinds(world), *_claim_kinds(world))


def _capacity_kinds(world: World) -> tuple[WatchedKind[Any], ...]:
    return (
        grouped_kind(
            "deviceclasses",
            keys.DEVICES_API,
            slices.DeviceClassObject,
            apply=lambda found: _set_class(world, found),
            remove=lambda name: world.set_device_class(name, None),
        ),
        grouped_kind(
            "resourceslices",
            keys.DEVICES_API,
            slices.ResourceSlice,
            apply=lambda found: _set_slice(world, found),
            remove=lambda name: world.set_slice(name, None),
        ),
        grouped_kind(
            "devicetaintrules",
            keys.DEVICES_API,
            slices.DeviceTaintRule,
            apply=lambda found: _set_taint_rule(world, found),
            remove=lambda name: world.set_taint_rule(name, None),
            needs_right=False,
        ),
    )


def _claim_kinds(world: World) -> tuple[WatchedKind[Any], ...]:
    return (
        grouped_kind(
            "resourceclaims",
            keys.DEVICES_API,
            devices.ResourceClaim,
            apply=lambda found: _set_claim(world, found),
            remove=lambda path: world.set_claim(_key("claim", path), None),
        ),
        grouped_kind(
            "resourceclaimtemplates",
            keys.DEVICES_API,
            devices.ResourceClaimTemplate,
            apply=lambda found: _set_template(world, found),
            remove=lambda path: world.set_claim(_key("template", path), None),
        ),
        grouped_kind(
            "podgroups",
            keys.GROUPS_API,
            devices.PodGroup,
            apply=lambda found: keep_group(found, world),
            remove=lambda path: _remove_group(world, path),
        ),
    )


def _set_class(world: World, found: slices.DeviceClassObject) -> bool:
    world.set_device_class(found.metadata.name, slices.to_class(found), *slices.conditions_of(found))
    return True


def _set_claim(world: World, found: devices.ResourceClaim) -> bool:
    key = devices.claim_key(found.metadata)
    world.set_claim(key, devices.to_claim(found), found.metadata.uid, allocated=devices.allocated_at(found))
    return True


def _set_template(world: World, found: devices.ResourceClaimTemplate) -> bool:
    world.set_claim(devices.template_key(found.metadata), devices.to_template(found))
    return True


def _set_slice(world: World, found: slices.ResourceSlice) -> bool:
    world.set_slice(found.metadata.name, slices.to_slice(found))
    return True


def _set_taint_rule(world: World, found: slices.DeviceTaintRule) -> bool:
    rule = slices.to_taint_rule(found)
    if rule is not None:
        world.set_taint_rule(found.metadata.name, rule)
    return rule is not None


def _remove_group(world: World, path: str) -> None:
    world.set_group(_key("group", path), None)
    gang = gang_of_pod_group(*split_path(path))
    world.group_domains.pop(gang, None)
    if world.minimums.remove_scaler(gang):
        world.on_usage_changed()


def _key(kind: str, path: str) -> ClaimKey:
    return ClaimKey(kind, *split_path(path))


# What scales workloads, from which their minimums are read.


def scaler_kind(world: World) -> WatchedKind[Autoscaler]:
    """Watch HorizontalPodAutoscalers: a minimum has its team's share first, so what changes of one may change tiers."""
    minimums = world.minimums

    def apply(found: Autoscaler) -> bool:
        scaling = scaling_of(found)
        if scaling is not None and minimums.set_scaler(path_of(found), *scaling):
            world.on_usage_changed()
        return scaling is not None

    def remove(handle: str) -> None:
        if minimums.remove_scaler(handle):
            world.on_usage_changed()

    return grouped_kind(SCALERS, SCALER_API, Autoscaler, apply=apply, remove=remove, needs_right=False)


# Everything that the server and the evictor watch: one list for both, and what only one of them needs.


Changed = Callable[[Any, str], None]
"""Receives an object that changed, None if it is removed, and its handle."""


def world_kinds(world: World, *, pods: PodStore[Resident], lose: LosePod | None = None) -> tuple[WatchedKind[Any], ...]:
    """Return what the server watches to keep a world; its pods go through `pods`, which may be the world itself.

    `lose` as in pod_kind; without it, failed pods are a kind of their own.
    """

    def weights() -> Weights:
        return world.policy.resources

    return (
        node_kind(world),
        namespace_kind(world),
        priority_class_kind(world),
        *device_kinds(world),
        scaler_kind(world),
        volume_kind(world),
        pod_kind(
            _Pods(world, pods),
            lambda pod: to_resident(pod, weights()) or to_waiting(pod, weights()),
            lose=lose,
            salvage=recovered_pod,
            note=partial(note_outcome, world),
        ),
        *([failed_pods(world)] if lose is None else []),
    )


def charges_kind(world: World) -> WatchedKind[TeamLedger]:
    """Return the TeamLedgers, whose charges count in a world that is only read; without the right to them none does."""
    charges = ListedCharges(world)
    kind = ledger_kind(
        lambda found: charges.set(found.metadata.name, found.record.flights),
        remove=lambda name: charges.set(name, {}),
        is_optional=True,
    )
    return replace(kind, handle=lambda found: found.metadata.name, needs_right=False)


def failed_pods(world: World) -> WatchedKind[objects.Pod]:
    """Return the failed pods, from which a world learns which nodes reject pods; some watches of pods have them."""
    return failed_pod_kind(partial(note_outcome, world))


def note_outcome(world: World, pod: objects.Pod) -> None:
    """Note what a kubelet did with a pod, where it matters for the nodes of others.

    Of a pod that runs nothing is read, its time neither, where a later start of its team is known: most events are so.
    """
    status, node, nodes = pod.status, pod.spec.node_name, world.rejecting_nodes
    if status is None or not node:
        return
    outcome: Rejection | Start | None
    if status.phase == "Failed":
        outcome = to_rejection(pod, world.policy.resources)
    elif nodes.has_started_since(NodeName(node), pod.metadata.namespace, status.start_time or ""):
        return
    else:
        outcome = to_start(pod, world.policy.resources)
    if outcome is not None:
        nodes.note(outcome)


class _Pods:
    """Stores pods that use GPUs or a node in a sink, and those that wait in line in the world."""

    def __init__(self, world: World, sink: PodStore[Resident]) -> None:
        self._world = world
        self._sink = sink

    def set_pod(self, pod: Resident | WaitingPod) -> None:
        """Store a pod."""
        if isinstance(pod, WaitingPod):
            self._world.set_waiting(pod)
        else:
            self._sink.set_pod(pod)

    def remove_pod(self, uid: Uid) -> None:
        """Remove a pod that ended or was deleted."""
        self._sink.remove_pod(uid)


def reclaim_kinds(
    world: World,
    reclaim_index: ReclaimIndex,
    *,
    pods: PodStore[ReclaimPod | WaitingPod],
    ledger: Callable[[str, Mapping[Uid, InFlightCharge]], None],
    node: Changed,
    device: Changed,
    other: Changed,
) -> tuple[WatchedKind[Any], ...]:
    """Return what the evictor watches to keep a world in which held nodes are open, an index of its pods, and the line.

    Each change calls `node`, `device` or `other` afterwards, by its kind; `pods` notes changes of pods itself, and
    `ledger` receives the charges of pods in line whose room reclaim makes, by the UID of their ledger.
    """
    bounds = (
        *failure_kinds(reclaim_index.set_failure_budget),
        disruption_kind(reclaim_index.set_disruption, reclaim_index.remove_disruption),
        scaler_kind(world),
        volume_kind(world),
    )
    return (
        followed(node_kind(world, _opened), node),
        followed(namespace_kind(world), other),
        *(followed(kind, device) for kind in device_kinds(world)),
        *(followed(kind, other) for kind in bounds),
        ledger_kind(
            lambda found: ledger(found.metadata.uid, reclaiming(found)),
            remove=lambda uid: ledger(uid, {}),
            is_optional=True,  # before the first server starts there are none
        ),
        pod_kind(
            pods,
            lambda pod: to_reclaim_pod(pod, world.policy.resources) or to_waiting(pod, world.policy.resources),
            note=partial(note_outcome, world),
        ),
        failed_pods(world),
    )


def followed(kind: WatchedKind[T], changed: Changed) -> WatchedKind[T]:
    """Return a kind that reports each change once it is applied."""

    def apply(found: T) -> bool:
        is_kept = kind.apply(found)
        if is_kept:
            changed(found, kind.handle(found))
        return is_kept

    def remove(handle: str) -> None:
        kind.remove(handle)
        changed(None, handle)

    def lose(handle: str, *, is_watched: bool) -> None:
        if kind.lose is not None:
            kind.lose(handle, is_watched=is_watched)
        changed(None, handle)

    return replace(kind, apply=apply, remove=remove, lose=None if kind.lose is None else lose)


def _opened(node: objects.Node) -> Node:
    """Translate a node without the evictor's own taint: the pods that it keeps off have no hold there."""
    made = to_node(node)
    return replace(made, taints=tuple(taint for taint in made.taints if taint.key != keys.HELD))
