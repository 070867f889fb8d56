"""The GPUs of a node as rows: its devices, and which pods have them. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from webhook.core.model.amount import ONE_GPU, Units, exact_units
from webhook.core.model.mig_slices import weight_at
from webhook.core.model.names import DEVICE_CLASS, GpuModel, NodeName, ResourceName, TeamName
from webhook.core.model.node import Node
from webhook.core.model.pod import Resident
from webhook.core.model.tier import TIERS, Tier
from webhook.core.placement.rejecting_nodes import ClosedNode
from webhook.core.world.world import World

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
    yet, `shut` those whose counters other devices have.
    """

    resource: ResourceName
    devices: tuple[DeviceRow, ...]
    over: int = 0
    is_packed: bool = False
    weight: Units = 0
    promised: int = 0
    shut: int = 0

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
        return max(0, self.pieces - self.used - self.promised - self.shut)

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
    by_name = _by_name(_sizes(node, resource, offered, world), in_order)
    shut = 0
    if (open_pieces := _open_pieces(node, resource, world)) is not None:
        shut = max(0, offered - sum(part.pieces for part in in_order) - promised - open_pieces)
    return DeviceGroup(resource, *by_name, weight=weight, promised=promised, shut=shut)


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
