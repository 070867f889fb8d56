"""NodeRow, FreeRow, cluster use.

How well the GPUs of a cluster are used: four ratios from a few amounts, which also add up over time.

The names are those of the field; the definitions are Fairgate's own (docs/tasks/usage.md#ratios).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, NamedTuple

from webhook.core.model.amounts import (
    DEVICE_CLASS,
    ONE_GPU,
    GangId,
    GpuModel,
    NodeName,
    ResourceName,
    TeamName,
    Uid,
    Units,
    exact_units,
)
from webhook.core.model.constraints import TIERS, Tier
from webhook.core.model.gpu_shares import weight_at
from webhook.core.model.node import Node
from webhook.core.model.pod import Resident
from webhook.core.model.policy import Policy
from webhook.core.placement.rejecting_nodes import ClosedNode
from webhook.core.world.world import World


class PodUse(NamedTuple):
    """A pod on a node: the GPU units that it holds, and the gang that it is a member of."""

    node: NodeName
    gpus: Units
    gang: GangId | None = None


class ClusterUse(NamedTuple):
    """Amounts of one moment; each times seconds, added up, is the same of a time range.

    `gpus` are the GPUs of all nodes, `held` those that pods hold. `nodes` are the nodes that have GPUs, `partly` those
    of them of which pods hold a part. `spread` are the GPUs that gangs of several pods hold, and `beyond` those GPUs
    times the part of the gang's nodes beyond the fewest that could hold it.
    """

    gpus: float = 0.0
    held: float = 0.0
    nodes: float = 0.0
    partly: float = 0.0
    spread: float = 0.0
    beyond: float = 0.0

    @property
    def allocation(self) -> float:
        """Return the held part of the GPUs: of the sums of a time range it is the occupancy."""
        return _ratio(self.held, self.gpus)

    @property
    def fragmentation(self) -> float:
        """Return the part of the nodes of which a part is held."""
        return _ratio(self.partly, self.nodes)

    @property
    def beyond_fewest(self) -> float:
        """Return the part of a gang's nodes beyond the fewest that could hold it, over all GPUs that gangs hold."""
        return _ratio(self.beyond, self.spread)


def _ratio(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else 0.0


def capacities(nodes: Iterable[Node], policy: Policy) -> dict[NodeName, Units]:
    """Return the GPU units of the nodes that have some, as policy weighs them."""
    return {node.name: units for node in nodes if (units := node.gpus(policy.resources)) > 0}


class PodsOnNodes:
    """What pods hold on nodes, by node and by gang, kept by changes."""

    def __init__(self) -> None:
        self.held_on: dict[NodeName, Units] = {}
        self._pods: dict[Uid, PodUse] = {}
        self._gangs: dict[GangId, dict[Uid, PodUse]] = {}
        self._beyond: dict[GangId, tuple[Units, Units, float]] = {}

    def set(self, uid: Uid, pod: PodUse | None) -> None:
        """Add a pod, or what it is now; None if it is on no node any more."""
        before = self._pods.pop(uid, None)
        if before is not None:
            self._count(uid, before, -1)
        if pod is not None and pod.gpus > 0:
            self._pods[uid] = pod
            self._count(uid, pod, 1)

    def use(self, gpus: Mapping[NodeName, Units]) -> ClusterUse:
        """Return the amounts of this moment, with the GPU units of each node."""
        held = {node: min(units, gpus[node]) for node, units in self.held_on.items() if node in gpus}
        largest = max(gpus.values(), default=0)
        gangs = [self._of_gang(gang, largest) for gang, members in self._gangs.items() if len(members) > 1]
        return ClusterUse(
            gpus=float(sum(gpus.values()) / ONE_GPU),
            held=float(sum(held.values()) / ONE_GPU),
            nodes=float(len(gpus)),
            partly=float(sum(units < gpus[node] for node, units in held.items())),
            spread=float(sum(units for units, _ in gangs) / ONE_GPU),
            beyond=float(sum(float(units) * part for units, part in gangs) / ONE_GPU),
        )

    def _count(self, uid: Uid, pod: PodUse, sign: int) -> None:
        left = self.held_on.get(pod.node, 0) + sign * pod.gpus
        if left:
            self.held_on[pod.node] = left
        else:
            self.held_on.pop(pod.node, None)
        if pod.gang is not None:
            members = self._gangs.setdefault(pod.gang, {})
            if sign > 0:
                members[uid] = pod
            else:
                del members[uid]
            if not members:
                del self._gangs[pod.gang]
            self._beyond.pop(pod.gang, None)

    def _of_gang(self, gang: GangId, largest: Units) -> tuple[Units, float]:
        """Return the GPU units of a gang, and the part of its nodes beyond the fewest; found again after a change."""
        known = self._beyond.get(gang)
        if known is None or known[0] != largest:
            members = self._gangs[gang].values()
            units: Units = sum(each.gpus for each in members)
            part = beyond_fewest([each.gpus for each in members], len({each.node for each in members}), largest)
            known = self._beyond[gang] = largest, units, part
        return known[1:]


def beyond_fewest(pods: Iterable[Units], nodes: int, largest: Units) -> float:
    """Return the part of `nodes` beyond the fewest that could hold these pods, were all as large as the largest.

    Pods of one size fill nodes as far as whole ones fit; of several sizes only the sum counts.
    """
    sizes = list(pods)
    if not sizes or not nodes or largest <= 0:
        return 0.0
    size, per_node = max(sizes), largest // max(sizes)
    is_even = min(sizes) == size and per_node > 0
    fewest = -(-len(sizes) // per_node) if is_even else -(-sum(sizes) // largest)
    return max(0.0, float(nodes - fewest) / nodes)


# The GPUs of a node as rows: its devices, and which pods have them. Pure.


_MIG: Final = "nvidia.com/mig-"
_SHARED: Final = ".shared"
_MAX_DEVICES: Final = 256


@dataclass(frozen=True, slots=True)
class HeldPart:
    """A pod's part of a device, in pieces."""

    pod: str
    team: TeamName
    tier: Tier
    pieces: int


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One GPU, or one instance of a partitioned GPU; a whole GPU has a single piece.

    `shut` are the pieces that no pod has, and none can get: other devices have the counters that they share.
    """

    pieces: int
    allocations: tuple[HeldPart, ...] = ()
    shut: int = 0

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
        """Pieces that no pod has, none is promised, and a new pod can get."""
        return max(0, self.pieces - self.used - self.promised - sum(device.shut for device in self.devices))

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

    `rejecting` are the teams whose pods it rejected: those keep off it, other teams take it last. `arriving` are the
    pods that move there, by the names that they had.
    """

    name: NodeName
    model: GpuModel
    state: str
    groups: tuple[DeviceGroup, ...]
    rejecting: tuple[ClosedNode, ...] = ()
    is_held: bool = False
    arriving: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether its free GPUs are for any new pod."""
        return not (self.state or self.is_held)


def node_row(node: Node, pods: Iterable[Resident], world: World) -> NodeRow:
    """Return the GPUs of a node; `pods` are those on it."""
    on_node = sorted(pods, key=lambda pod: (pod.namespace, pod.name))
    held = {resource for pod in on_node for resource, _ in pod.demand.held if resource in world.policy.resources}
    groups = (
        _group(node, resource, on_node, world)
        for resource in sorted({offer.resource for offer in node.offers(world.policy.resources)} | held)
    )
    rejecting = tuple(world.rejecting_nodes.on(node.name))
    return NodeRow(
        node.name,
        node.model,
        node.why_closed,
        tuple(groups),
        rejecting=rejecting,
        is_held=node.is_held,
        arriving=tuple([place.name for place in node.kept if place.replaces]),
    )


def _group(node: Node, resource: ResourceName, pods: list[Resident], world: World) -> DeviceGroup:
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
    offered = node.allocatable.get(resource, 0)
    devices, over = _by_name(_sizes(node, resource, offered, world), in_order)
    if (open_pieces := _open_pieces(node, resource, world)) is not None:
        shut = offered - sum(part.pieces for part in in_order) - promised - open_pieces
        devices = _with_shut(devices, max(0, shut))
    return DeviceGroup(resource, devices, over, weight=weight, promised=promised)


def _with_shut(devices: tuple[DeviceRow, ...], pieces: int) -> tuple[DeviceRow, ...]:
    """Return devices so many free pieces of which are shut, the last first, as pods are shown on the first."""
    found = []
    for device in reversed(devices):
        shut = min(pieces, device.pieces - device.used)
        pieces -= shut
        found.append(replace(device, shut=shut))
    return tuple(reversed(found))


def _open_pieces(node: Node, resource: ResourceName, world: World) -> int | None:
    """Return how many more devices may be used beside those that share counters with them; None where none does."""
    facts = world.claims.classes.facts_of(resource.removeprefix(DEVICE_CLASS), ())
    return min((max(0, world.fleet.free(node.name, name)) // amount for name, amount in facts.consumes), default=None)


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
