"""The kinds that a world is made from, one row each: its API, its fields, what takes it in and out, what files keep.

The server, the evictor, commands, the page and world files read the same rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Generic

import msgspec

from webhook.core.devices.claim_users import ClaimKey
from webhook.core.model.amounts import Namespace, NodeName, Uid
from webhook.core.model.demand import Weights
from webhook.core.model.pod import Resident
from webhook.core.placement.rejecting_nodes import Rejection, Start
from webhook.core.quota.charges import InFlightCharge
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.core.world.listed_charges import ListedCharges
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World
from webhook.kube.ledger.team_ledger import TeamLedger, reclaiming
from webhook.kube.nodes import holds, nodes
from webhook.kube.nodes.nodes import to_namespace, to_node, to_priority
from webhook.kube.objects import keys, objects
from webhook.kube.objects.objects import without_large_parts
from webhook.kube.pod import devices, slices
from webhook.kube.pod.existing import to_reclaim_pod, to_resident
from webhook.kube.pod.gangs import gang_of_pod_group
from webhook.kube.pod.outcomes import to_rejection, to_start
from webhook.kube.pod.waiting import recovered_pod, to_waiting
from webhook.kube.watched.kinds import (
    ALIVE,
    LosePod,
    ObjectT,
    PodStore,
    T,
    WatchedKind,
    failed_pod_kind,
    failure_kinds,
    ledger_kind,
    path_of,
    pod_kind,
    split_path,
)
from webhook.kube.workloads.unknown_kinds import KIND, SCALER_API, SCALERS, Autoscaler, scaling_of, scaling_of_group


class _Plain(msgspec.Struct, frozen=True, gc=False):
    """An object that a file keeps, and that nothing of a world is made of."""

    metadata: objects.ObjectMeta


def _ignore(_world: World, _found: Any) -> None:  # noqa: ANN401 - of any kind
    """Change nothing: of such an object nothing is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldKind(Generic[ObjectT]):
    """One kind of object: `api` is the version of its API, `older` are those that files may have, too.

    `apply` puts an object into a world; False means that there is nothing to store. It raises ValueError for a
    malformed one. `remove` takes it out again by namespace/name, or name. Such a kind with an API group may be missing
    from a server. `salvage` and `needs_right` are as in WatchedKind. `is_of_tenants`: namespace admins write them.
    """

    kind: str
    resource: str
    item: type[ObjectT]
    apply: Callable[[World, ObjectT], bool | None] = _ignore
    remove: Callable[[World, str], None] = _ignore
    api: str = keys.CORE_API
    older: tuple[str, ...] = ()
    selector: str = ""
    salvage: Callable[[ObjectT | bytes], ObjectT | None] | None = None
    needs_right: bool = True
    is_of_tenants: bool = True

    @property
    def path(self) -> str:
        """Where the API lists them."""
        return f"/api/v1/{self.resource}" if self.api == keys.CORE_API else f"/apis/{self.api}/{self.resource}"

    def watched(self, world: World) -> WatchedKind[ObjectT]:
        """Return how a watch keeps a world current."""
        return WatchedKind(
            name=self.resource,
            path=self.path,
            item=self.item,
            trim=without_large_parts if self.is_of_tenants else None,
            key=path_of,
            handle=path_of,
            apply=lambda found: self.apply(world, found) is not False,
            remove=lambda path: self.remove(world, path),
            is_optional=self.api not in (keys.CORE_API, keys.PRIORITY_API) or not self.needs_right,
            needs_right=self.needs_right,
        )


def _set_claim(world: World, found: devices.ResourceClaim) -> None:
    key = devices.claim_key(found.metadata)
    world.set_claim(key, devices.to_claim(found), found.metadata.uid, allocated=devices.allocated_at(found))


def _set_taint_rule(world: World, found: slices.DeviceTaintRule) -> bool:
    rule = slices.to_taint_rule(found)
    if rule is not None:
        world.set_taint_rule(found.metadata.name, rule)
    return rule is not None


def _set_group(world: World, found: devices.PodGroup) -> bool:
    """Set a PodGroup's shared claims, its domain, and how many of its pods must stay; return whether it has any."""
    entries, domain, scaling = devices.to_group(found), devices.domain_of_group(found), scaling_of_group(found)
    if entries:
        world.set_group(devices.group_key(found.metadata), entries)
    gang = gang_of_pod_group(found.metadata.namespace or "default", found.metadata.name)
    if domain is None:
        world.group_domains.pop(gang, None)
    else:
        world.group_domains[gang] = domain
    minimums = world.minimums
    if minimums.set_scaler(gang, *scaling) if scaling is not None else minimums.remove_scaler(gang):
        world.on_usage_changed()
    return bool(entries) or domain is not None or scaling is not None


def _remove_group(world: World, path: str) -> None:
    world.set_group(_key("group", path), None)
    gang = gang_of_pod_group(*split_path(path))
    world.group_domains.pop(gang, None)
    _remove_scaler(world, gang)


def _set_scaler(world: World, found: Autoscaler) -> bool:
    """Set a minimum, which has its team's share first: what changes of one may change tiers."""
    scaling = scaling_of(found)
    if scaling is not None and world.minimums.set_scaler(path_of(found), *scaling):
        world.on_usage_changed()
    return scaling is not None


def _remove_scaler(world: World, handle: str) -> None:
    if world.minimums.remove_scaler(handle):
        world.on_usage_changed()


def _set_volume(world: World, found: nodes.PersistentVolume) -> bool:
    """Keep a volume that is bound to some of the nodes."""
    volume = nodes.to_volume(found)
    if volume is not None:
        world.fleet.labels.set_volume(volume.name, volume.claim, volume.terms)
    return volume is not None


def _set_pod(world: World, found: objects.Pod) -> bool:
    """Take in a pod of a world file, whose author is trusted with what waiting pods say of themselves."""
    weights = world.policy.resources
    note_outcome(world, found)
    if (resident := to_resident(found, weights)) is not None:
        world.set_pod(resident)
    elif (waiting := to_waiting(found, weights, is_trusted=True)) is not None:
        world.set_waiting(waiting)
    else:
        return False
    return True


def _check_ledger(_world: World, found: TeamLedger) -> None:
    found.record  # noqa: B018 - a malformed one raises ValueError here, where its place is known


def _check_budget(_world: World, found: holds.DisruptionBudget) -> None:
    holds.to_disruption(found)


def _of_autoscaler(item: Any) -> WorldKind[Any]:  # noqa: ANN401 - a type of which the API has a row
    """Return what an autoscaler of nodes is found by."""
    api = nodes.API[item]
    return WorldKind(kind=api.kind, api=api.version, resource=api.plural, item=item)


def _key(kind: str, path: str) -> ClaimKey:
    return ClaimKey(kind, *split_path(path))


NAMESPACES: Final = WorldKind(
    kind="Namespace",
    resource="namespaces",
    item=objects.Namespace,
    apply=lambda world, found: world.set_namespace(to_namespace(found)),
    remove=lambda world, name: world.remove_namespace(Namespace(name)),
    is_of_tenants=False,
)
PRIORITY_CLASSES: Final = WorldKind(
    kind="PriorityClass",
    api=keys.PRIORITY_API,
    resource="priorityclasses",
    item=objects.PriorityClass,
    apply=lambda world, found: world.set_priority_class(to_priority(found)),
    remove=lambda world, name: world.remove_priority_class(name),
    is_of_tenants=False,
)
_OLDER_DEVICES: Final = tuple(f"{keys.DEVICES_GROUP}/{version}" for version in keys.DEVICES_VERSIONS)
DEVICES: Final[tuple[WorldKind[Any], ...]] = (
    WorldKind(
        kind="DeviceClass",
        api=keys.DEVICES_API,
        older=_OLDER_DEVICES,
        resource="deviceclasses",
        item=slices.DeviceClassObject,
        apply=lambda world, found: world.set_device_class(
            found.metadata.name, slices.to_class(found), *slices.conditions_of(found)
        ),
        remove=lambda world, name: world.set_device_class(name, None),
    ),
    WorldKind(
        kind="ResourceSlice",
        api=keys.DEVICES_API,
        older=_OLDER_DEVICES,
        resource="resourceslices",
        item=slices.ResourceSlice,
        apply=lambda world, found: world.set_slice(found.metadata.name, slices.to_slice(found)),
        remove=lambda world, name: world.set_slice(name, None),
    ),
    WorldKind(
        kind="DeviceTaintRule",
        api=keys.DEVICES_API,
        older=_OLDER_DEVICES,
        resource="devicetaintrules",
        item=slices.DeviceTaintRule,
        apply=_set_taint_rule,
        remove=lambda world, name: world.set_taint_rule(name, None),
        needs_right=False,
    ),
    WorldKind(
        kind="ResourceClaim",
        api=keys.DEVICES_API,
        older=_OLDER_DEVICES,
        resource="resourceclaims",
        item=devices.ResourceClaim,
        apply=_set_claim,
        remove=lambda world, path: world.set_claim(_key("claim", path), None),
    ),
    WorldKind(
        kind="ResourceClaimTemplate",
        api=keys.DEVICES_API,
        older=_OLDER_DEVICES,
        resource="resourceclaimtemplates",
        item=devices.ResourceClaimTemplate,
        apply=lambda world, found: world.set_claim(devices.template_key(found.metadata), devices.to_template(found)),
        remove=lambda world, path: world.set_claim(_key("template", path), None),
    ),
    WorldKind(
        kind="PodGroup",
        api=keys.GROUPS_API,
        resource="podgroups",
        item=devices.PodGroup,
        apply=_set_group,
        remove=_remove_group,
    ),
)
"""Device classes, devices, claims, and the PodGroups whose pods share claims or are in one domain."""
NODES: Final = WorldKind(
    kind="Node",
    resource="nodes",
    item=objects.Node,
    apply=lambda world, found: world.set_node(to_node(found)),
    remove=lambda world, name: world.remove_node(NodeName(name)),
    is_of_tenants=False,
)
AUTOSCALERS: Final = WorldKind(
    kind=KIND,
    api=SCALER_API,
    older=("autoscaling/v1",),
    resource=SCALERS,
    item=Autoscaler,
    apply=_set_scaler,
    remove=_remove_scaler,
    needs_right=False,
)
"""What scales workloads, from which their minimums are read."""
VOLUMES: Final = WorldKind(
    kind=nodes.KIND,
    resource=nodes.VOLUMES,
    item=nodes.PersistentVolume,
    apply=_set_volume,
    remove=lambda world, name: world.fleet.labels.remove_volume(name),
    needs_right=False,
    is_of_tenants=False,
)
PODS: Final = WorldKind(
    kind="Pod",
    resource="pods",
    item=objects.Pod,
    apply=_set_pod,
    selector=ALIVE["fieldSelector"],
    salvage=recovered_pod,
)
"""Pods of world files; watches take them in by `pod_kind`."""
WORLD_KINDS: Final[tuple[WorldKind[Any], ...]] = (
    NAMESPACES,
    PRIORITY_CLASSES,
    *DEVICES,
    NODES,
    AUTOSCALERS,
    VOLUMES,
    PODS,
)
"""What a world is made from, in the order in which it is read: pods are charged to the team of their namespace."""

BUDGETS: Final = WorldKind(
    kind="PodDisruptionBudget",
    api=keys.BUDGET_API,
    resource="poddisruptionbudgets",
    item=holds.DisruptionBudget,
    apply=_check_budget,
)
LIMIT_RANGES: Final = WorldKind(kind="LimitRange", resource="limitranges", item=_Plain)
LEDGERS: Final = WorldKind(
    kind=keys.TEAM_LEDGER, api=keys.OWN_API, resource=keys.TEAM_LEDGERS, item=TeamLedger, apply=_check_ledger
)
"""The charges that no pod shows yet; read after the pods, of which each may have become one meanwhile."""
SAVED_KINDS: Final[tuple[WorldKind[Any], ...]] = (BUDGETS, LIMIT_RANGES)
"""What a file has besides: of a live cluster these are read where they are needed."""
FILE_KINDS: Final[tuple[WorldKind[Any], ...]] = (
    *WORLD_KINDS,
    *SAVED_KINDS,
    LEDGERS,
    *(_of_autoscaler(item) for item in nodes.API),
)
"""Every kind that a world file may have."""


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
        *(row.watched(world) for row in WORLD_KINDS if row is not PODS),
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
    status, node, known = pod.status, pod.spec.node_name, world.rejecting_nodes
    if status is None or not node:
        return
    outcome: Rejection | Start | None
    if status.phase == "Failed":
        outcome = to_rejection(pod, world.policy.resources)
    elif known.has_started_since(NodeName(node), pod.metadata.namespace, status.start_time or ""):
        return
    else:
        outcome = to_start(pod, world.policy.resources)
    if outcome is not None:
        known.note(outcome)


class _Pods:
    """Stores pods that use GPUs or a node in a sink, and those that are queued in the world."""

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
    """Return what the evictor watches to keep a world in which held nodes are open, an index of pods, and the queue.

    Each change calls `node`, `device` or `other` afterwards, by its kind; `pods` notes changes of pods itself, and
    `ledger` receives the charges of queued pods whose room reclaim makes, by the UID of their ledger.
    """
    bounds = (
        *failure_kinds(reclaim_index.set_failure_budget),
        replace(
            BUDGETS,
            apply=lambda _, found: reclaim_index.set_disruption(holds.to_disruption(found)),
            remove=lambda _, path: reclaim_index.remove_disruption(*split_path(path)),
        ).watched(world),
        AUTOSCALERS.watched(world),
        VOLUMES.watched(world),
    )
    return (
        followed(replace(NODES, apply=_set_opened).watched(world), node),
        followed(NAMESPACES.watched(world), other),
        *(followed(row.watched(world), device) for row in DEVICES),
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


def _set_opened(world: World, found: objects.Node) -> None:
    """Take in a node without the evictor's own taint: the pods that it keeps off have no hold there."""
    made = to_node(found)
    world.set_node(replace(made, taints=tuple(taint for taint in made.taints if taint.key != keys.HELD)))
