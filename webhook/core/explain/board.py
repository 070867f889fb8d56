"""The status of a world: teams, the GPUs of every node, and what would fit now. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Final

from webhook.core.explain.unusual_pods import UnusualPods, unusual_pods
from webhook.core.model.amount import ONE_GPU, Limit, Units, exact_units
from webhook.core.model.mig_slices import weight_at
from webhook.core.model.names import PODS, DepartmentName, GpuModel, NodeName, ResourceName, TeamName
from webhook.core.model.node import Node
from webhook.core.model.pod import Resident
from webhook.core.model.policy import ReclaimRules, Team
from webhook.core.model.text import natural_sort_key
from webhook.core.model.tier import TIERS, Tier
from webhook.core.placement.rejecting_nodes import ClosedNode
from webhook.core.quota.departments import DepartmentUsage
from webhook.core.quota.usage import TeamUsage
from webhook.core.world.world import World

_MIG: Final = "nvidia.com/mig-"
_SHARED: Final = ".shared"
_MAX_DEVICES: Final = 256


@dataclass(frozen=True, slots=True)
class ModelRow:
    """The share and usage of one GPU model, of a team or a department."""

    model: GpuModel
    guaranteed: int
    limit: Limit
    used: Units
    used_guaranteed: Units


@dataclass(frozen=True, slots=True)
class TeamRow:
    """A team's share and usage, in GPU units.

    `used` is everything charged, `borrowed` the preemptible part of it, `waiting` the part of pods without a node.
    `queued` are the pods that wait in line, which are not charged, and `queued_gpus` what they ask for.
    """

    name: TeamName
    guaranteed: int
    limit: Limit
    used: Units
    borrowed: Units
    waiting: Units
    holders: tuple[tuple[str, Units], ...]
    models: tuple[ModelRow, ...] = ()
    department: DepartmentName | None = None
    queued: int = 0
    queued_gpus: Units = 0


@dataclass(frozen=True, slots=True)
class DepartmentRow:
    """A department's share and usage, in GPU units; `borrowed` is what its teams hold beyond its guaranteed share."""

    name: DepartmentName
    parent: DepartmentName | None
    guaranteed: int
    limit: Limit
    used: Units
    borrowed: Units
    waiting: Units
    weight: int | Fraction
    models: tuple[ModelRow, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldPart:
    """A pod's part of a device, in pieces."""

    pod: str
    team: TeamName
    tier: Tier
    pieces: int


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One GPU, or one instance of a partitioned GPU; a whole GPU has a single piece."""

    pieces: int
    allocations: tuple[HeldPart, ...] = ()

    @property
    def used(self) -> int:
        """Allocated pieces."""
        return sum(allocation.pieces for allocation in self.allocations)


@dataclass(frozen=True, slots=True)
class DeviceGroup:
    """The devices of one resource on a node.

    `over` are pieces that pods have beyond the node's allocatable ones. `is_packed`: it is known which device a pod's
    share is on, and each device is a GPU; otherwise pieces are only counted, and shown in the order of the pods' names.
    `weight` are the GPU units of one piece then. `promised` are pieces for pods that were sent here and are on no node
    yet.
    """

    resource: ResourceName
    devices: tuple[DeviceRow, ...]
    over: int = 0
    is_packed: bool = False
    weight: Units = 0
    promised: int = 0

    @property
    def pieces(self) -> int:
        """Allocatable pieces."""
        return sum(device.pieces for device in self.devices)

    @property
    def used(self) -> int:
        """Pieces that pods have, `over` included."""
        return sum(device.used for device in self.devices) + self.over

    @property
    def free(self) -> int:
        """Pieces that no pod has, and none is promised."""
        return max(0, self.pieces - self.used - self.promised)

    @property
    def free_units(self) -> Units:
        """The same in GPU units."""
        if not self.is_packed:
            return exact_units(self.free * self.weight)
        parts = (Fraction(device.pieces - device.used, device.pieces) for device in self.devices if device.pieces)
        promised = Fraction(self.promised * len(self.devices), max(1, self.pieces))
        return exact_units(max(Fraction(0), sum(max(Fraction(0), part) for part in parts) - promised) * ONE_GPU)


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node with GPUs. `state` says why it takes no pods, "" if it does; `is_held`: only those that it is held for.

    `rejecting` are the teams whose pods it rejected: those keep off it, other teams take it last.
    """

    name: NodeName
    model: GpuModel
    state: str
    groups: tuple[DeviceGroup, ...]
    rejecting: tuple[ClosedNode, ...] = ()
    is_held: bool = False

    @property
    def is_open(self) -> bool:
        """Whether its free GPUs are for any new pod."""
        return not (self.state or self.is_held)


@dataclass(frozen=True, slots=True)
class FreeRow:
    """Free pieces of one resource and model.

    `largest` is the largest pod that a node could take now, `at_once` the number of such pods; `guaranteed_pod` and
    `guaranteed_at_once` are the same for a guaranteed pod if all borrowing pods were reclaimed. `closed` pieces are
    free on nodes that take no pods, `held` ones on nodes where they are kept for waiting pods. Only GPUs count, cpu and
    memory do not.
    """

    resource: ResourceName
    model: GpuModel
    pieces: int
    free: int
    largest: int
    at_once: int
    guaranteed_pod: int
    guaranteed_at_once: int
    closed: int
    held: int
    whole_nodes: int


@dataclass(frozen=True, slots=True)
class Board:
    """The whole status; `unusual` has pods whose charge may surprise."""

    teams: tuple[TeamRow, ...]
    nodes: tuple[NodeRow, ...]
    free: tuple[FreeRow, ...]
    departments: tuple[DepartmentRow, ...] = ()
    unusual: tuple[UnusualPods, ...] = ()

    def tree(self) -> Iterator[tuple[int, DepartmentRow | TeamRow]]:
        """Yield departments and teams with their depth, what is below a department after it; its departments first."""
        yield from self._below(None, 0)

    def _below(self, parent: DepartmentName | None, depth: int) -> Iterator[tuple[int, DepartmentRow | TeamRow]]:
        for row in self.departments:
            if row.parent == parent:
                yield depth, row
                yield from self._below(row.name, depth + 1)
        yield from ((depth, team) for team in self.teams if team.department == parent)


def shares_of(world: World, *, holders: int = 3) -> Board:
    """Return teams and departments alone; each team with its largest holders."""
    departments = tuple(_department(usage) for usage in world.departments())
    return Board(tuple(_teams(world, holders=holders)), (), (), departments=departments)


def board_of(world: World, *, holders: int = 3) -> Board:
    """Return the status of a world; each team with its largest holders."""
    by_node: dict[NodeName, list[Resident]] = defaultdict(list)
    for pod in world.pods():
        if pod.node is not None and pod.demand.devices:
            by_node[pod.node].append(pod)
    rows = [node_row(node, by_node.get(node.name, ()), world) for node in world.fleet.nodes()]
    nodes = sorted((row for row in rows if row.groups), key=lambda row: natural_sort_key(row.name))
    return replace(
        shares_of(world, holders=holders),
        nodes=tuple(nodes),
        free=tuple(_free(nodes, world)),
        unusual=tuple(unusual_pods(world)),
    )


def _department(usage: DepartmentUsage) -> DepartmentRow:
    own = usage.department
    models = (
        ModelRow(model, share.guaranteed, share.limit, usage.model(model), usage.guaranteed_model(model))
        for model, share in own.models.items()
    )
    return DepartmentRow(
        own.name,
        parent=own.parent,
        guaranteed=own.gpus.guaranteed,
        limit=own.gpus.limit,
        used=usage.total,
        borrowed=max(0, usage.total - own.gpus.guaranteed),
        waiting=usage.waiting,
        weight=own.weight,
        models=tuple(models),
    )


def _teams(world: World, *, holders: int) -> Iterator[TeamRow]:
    known = dict.fromkeys(team.name for team in world.policy.teams)
    holding = (name for name, book in world.usage_by_team().items() if len(book))
    others = sorted({*holding, *world.waiting.teams()} - known.keys())
    for name in (*known, *others):
        row = _team(world.policy.team(name) or Team(name), world.usage(name), holders=holders)
        yield replace(row, queued=world.waiting.size(name), queued_gpus=world.waiting.gpus(name))


def _team(team: Team, book: TeamUsage, *, holders: int) -> TeamRow:
    models = tuple(
        ModelRow(model, share.guaranteed, share.limit, book.model(model), book.guaranteed_model(model))
        for model, share in team.models.items()
    )
    return TeamRow(
        team.name,
        guaranteed=team.gpus.guaranteed,
        limit=team.gpus.limit,
        used=book.total,
        borrowed=book.preemptible,
        waiting=book.waiting,
        holders=tuple(book.largest_holders(holders)),
        models=models,
        department=team.departments[0].name if team.departments else None,
    )


def node_row(node: Node, pods: Iterable[Resident], world: World) -> NodeRow:
    """Return the GPUs of a node; `pods` are those on it."""
    on_node = sorted(pods, key=lambda pod: (pod.namespace, pod.name))
    held = {resource for pod in on_node for resource, _ in pod.demand.held if resource in world.policy.resources}
    groups = (
        _group(node, resource, on_node, world)
        for resource in sorted({offer.resource for offer in node.offers(world.policy.resources)} | held)
    )
    rejecting = tuple(world.rejecting_nodes.on(node.name))
    return NodeRow(node.name, node.model, node.why_closed, tuple(groups), rejecting=rejecting, is_held=node.is_held)


def _group(node: Node, resource: ResourceName, pods: list[Resident], world: World) -> DeviceGroup:
    offered = node.allocatable.get(resource, 0)
    allocations = [
        (pod, HeldPart(f"{pod.namespace}/{pod.name}", *_charged_as(pod, world), pieces))
        for pod in pods
        if (pieces := dict(pod.demand.held).get(resource, 0))
    ]
    promised = sum(dict(pod.demand.held).get(resource, 0) for pod in world.pods_on(node.name, is_expected=True))
    if resource == node.devices.resource:
        return DeviceGroup(resource, _by_device(node, allocations, world), is_packed=True, promised=promised)
    in_order = [allocation for _, allocation in allocations]
    weight = weight_at(resource, node.slice, world.policy.resources)
    by_name = _by_name(_sizes(node, resource, offered, world), in_order)
    return DeviceGroup(resource, *by_name, weight=weight, promised=promised)


def _charged_as(pod: Resident, world: World) -> tuple[TeamName, Tier]:
    """Return a pod's team and tier; a pod without a charge counts against the guaranteed share."""
    charge = world.charge_of(pod.uid)
    team = world.tenancy(pod.namespace).team_name if charge is None else charge.team
    is_borrowed = TIERS.get(pod.tier_label or "") is Tier.PREEMPTIBLE
    return team, Tier.PREEMPTIBLE if is_borrowed else Tier.GUARANTEED


def _sizes(node: Node, resource: ResourceName, offered: int, world: World) -> list[int]:
    """Return the pieces of each device: MIG instances are devices of their own, shares are parts of one."""
    per_device = 1
    weight = world.policy.resources[resource]
    replicas = node.labels.get(f"{resource.removesuffix(_SHARED)}.replicas", "")
    if resource.startswith(_MIG):
        per_device = 1
    elif 0 < weight < ONE_GPU:
        per_device = round(ONE_GPU / weight)
    elif replicas.isdecimal() and int(replicas):
        per_device = int(replicas)
    whole, rest = divmod(offered, per_device)
    if whole > _MAX_DEVICES:  # the size of a device is not known
        return [offered]
    return [per_device] * whole + [rest] * bool(rest)


def _by_name(sizes: list[int], allocations: list[HeldPart]) -> tuple[tuple[DeviceRow, ...], int]:
    """Assign pods to devices in order; their real devices are not known."""
    held: list[list[HeldPart]] = [[] for _ in sizes]
    index, left, over = 0, sizes[0] if sizes else 0, 0
    for allocation in allocations:
        pieces = allocation.pieces
        while pieces and index < len(sizes):
            taken = min(pieces, left)
            held[index].append(HeldPart(allocation.pod, allocation.team, allocation.tier, taken))
            pieces, left = pieces - taken, left - taken
            if not left:
                index += 1
                left = sizes[index] if index < len(sizes) else 0
        over += pieces
    return tuple(DeviceRow(size, tuple(each)) for size, each in zip(sizes, held, strict=True)), over


def _by_device(node: Node, allocations: list[tuple[Resident, HeldPart]], world: World) -> tuple[DeviceRow, ...]:
    """Assign pods to the devices that they are known to have."""
    capacities = node.devices.capacities
    held: list[list[HeldPart]] = [[] for _ in capacities]
    for pod, allocation in allocations:
        request = pod.demand.per_device
        for index in world.fleet.devices_of(node.name, pod.uid):
            if request is not None:
                pieces = request.on(capacities[index])
                held[index].append(HeldPart(allocation.pod, allocation.team, allocation.tier, pieces))
    return tuple(DeviceRow(size, tuple(each)) for size, each in zip(capacities, held, strict=True))


def _free(nodes: list[NodeRow], world: World) -> Iterator[FreeRow]:
    found: dict[tuple[GpuModel, ResourceName], list[tuple[NodeRow, DeviceGroup]]] = defaultdict(list)
    for row in nodes:
        for group in row.groups:
            found[row.model, group.resource].append((row, group))
    for (model, resource), groups in sorted(found.items()):
        usable = [(row, group) for row, group in groups if row.is_open]
        sizes = [_largest(group) for row, group in usable if world.fleet.free(row.name, PODS) > 0]
        reclaimed = [_largest(_without_borrowers(group, world.policy.reclaim)) for _, group in usable]
        largest, guaranteed_pod = max(sizes, default=0), max(reclaimed, default=0)
        yield FreeRow(
            resource=resource,
            model=model,
            pieces=sum(group.pieces for _, group in groups),
            free=sum(group.free for _, group in usable),
            largest=largest,
            at_once=sizes.count(largest) if largest else 0,
            guaranteed_pod=guaranteed_pod,
            guaranteed_at_once=reclaimed.count(guaranteed_pod) if guaranteed_pod else 0,
            closed=sum(group.free for row, group in groups if row.state),
            held=sum(group.free for row, group in groups if row.is_held and not row.state),
            whole_nodes=sum(1 for _, group in usable if not (group.used or group.promised)),
        )


def _largest(group: DeviceGroup) -> int:
    """Return the largest pod that the group could take now."""
    if group.is_packed:
        return min(group.free, max((device.pieces - device.used for device in group.devices), default=0))
    return group.free


def _without_borrowers(group: DeviceGroup, rules: ReclaimRules) -> DeviceGroup:
    """Return the group without the pods that reclaim could evict."""

    def stays(allocation: HeldPart) -> bool:
        namespace = allocation.pod.partition("/")[0]
        is_protected = any(fnmatchcase(namespace, glob) for glob in rules.protected_namespaces)
        return is_protected or allocation.tier is Tier.GUARANTEED

    devices = tuple(replace(device, allocations=tuple(filter(stays, device.allocations))) for device in group.devices)
    return replace(group, devices=devices)
