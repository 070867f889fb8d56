"""A world as people look at it: teams, the GPUs of every node one by one, and what would fit now. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

from webhook.core.model.amount import ONE_GPU, Limit, Units
from webhook.core.model.names import PODS, GpuModel, NodeName, ResourceName, TeamName
from webhook.core.model.node import Node
from webhook.core.model.pod import Resident
from webhook.core.model.policy import ReclaimRules, Team
from webhook.core.model.tier import TIERS, Tier
from webhook.core.quota.usage import TeamUsage
from webhook.core.world.world import World

_MIG: Final = "nvidia.com/mig-"
_SHARED: Final = ".shared"
_MOST_DEVICES: Final = 256
_DIGITS: Final = re.compile(r"([0-9]+)")


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A team's share of one GPU model, and what of it is taken."""

    model: GpuModel
    guaranteed: int
    limit: Limit
    used: Units
    used_guaranteed: Units


@dataclass(frozen=True, slots=True)
class TeamRow:
    """A team's share and what is taken of it, in GPU units.

    `used` is all that is charged, `borrowed` what of it is preemptible, `waiting` what is on no node yet.
    """

    name: TeamName
    guaranteed: int
    limit: Limit
    used: Units
    borrowed: Units
    waiting: Units
    holders: tuple[tuple[str, Units], ...]
    models: tuple[ModelRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """What one pod has of a device, in pieces."""

    pod: str
    team: TeamName
    tier: Tier
    pieces: int


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU, or one instance that a GPU was cut into; a whole GPU has a single piece."""

    pieces: int
    holds: tuple[Hold, ...] = ()

    @property
    def used(self) -> int:
        """Pieces that are held."""
        return sum(hold.pieces for hold in self.holds)


@dataclass(frozen=True, slots=True)
class Bank:
    """The devices of one resource on a node.

    `over` are pieces that pods hold and the node does not offer (any more). `is_packed`: a pod's share lies on one
    device, and it is known on which; else pieces are only counted, and shown in the order of the pods' names.
    """

    resource: ResourceName
    devices: tuple[Device, ...]
    over: int = 0
    is_packed: bool = False

    @property
    def pieces(self) -> int:
        """What the node offers."""
        return sum(device.pieces for device in self.devices)

    @property
    def used(self) -> int:
        """What pods hold, what is not offered included."""
        return sum(device.used for device in self.devices) + self.over


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node with GPUs. `state` says why no pod may come, "" where pods may."""

    name: NodeName
    model: GpuModel
    state: str
    banks: tuple[Bank, ...]


@dataclass(frozen=True, slots=True)
class FreeRow:
    """What is free of one resource and model, in its own pieces.

    `largest` is the largest pod that a node could take now and `at_once` how many of them; `seat` and `seats` are the
    same for a guaranteed pod, once reclaim had sent away all who borrow there. `closed` is free on nodes that take no
    pods. By GPUs alone: cpu and memory are not looked at.
    """

    resource: ResourceName
    model: GpuModel
    pieces: int
    free: int
    largest: int
    at_once: int
    seat: int
    seats: int
    closed: int
    whole_nodes: int


@dataclass(frozen=True, slots=True)
class Board:
    """All of it. `plain_nodes` have no GPUs."""

    teams: tuple[TeamRow, ...]
    nodes: tuple[NodeRow, ...]
    free: tuple[FreeRow, ...]
    plain_nodes: int = 0


def board_of(world: World, *, holders: int = 3) -> Board:
    """Look at a world; each team with its largest holders."""
    by_node: dict[NodeName, list[Resident]] = defaultdict(list)
    for pod in world.pods():
        if pod.node is not None and pod.demand.devices:
            by_node[pod.node].append(pod)
    rows = [_node(node, by_node.get(node.name, ()), world) for node in world.fleet.nodes()]
    nodes = sorted((row for row in rows if row.banks), key=_natural)
    return Board(
        tuple(_teams(world, holders=holders)), tuple(nodes), tuple(_free(nodes, world)), len(rows) - len(nodes)
    )


def _teams(world: World, *, holders: int) -> Iterator[TeamRow]:
    known = {team.name: team for team in world.policy.teams}
    others = sorted(name for name, book in world.usage_by_team().items() if name not in known and len(book))
    for name in (*known, *others):
        yield _team(known.get(name, Team(name)), world.usage(name), holders=holders)


def _team(team: Team, book: TeamUsage, *, holders: int) -> TeamRow:
    models = tuple(
        ModelRow(model, share.guaranteed, share.limit, book.model(model), book.guaranteed_model(model))
        for model, share in team.models.items()
    )
    return TeamRow(
        team.name,
        team.gpus.guaranteed,
        team.gpus.limit,
        book.total,
        book.preemptible,
        book.waiting,
        tuple(book.largest_holders(holders)),
        models,
    )


def _node(node: Node, pods: Iterable[Resident], world: World) -> NodeRow:
    state = "not ready" if not node.is_ready else "cordoned" if node.is_cordoned else ""
    there = sorted(pods, key=lambda pod: (pod.namespace, pod.name))
    held = {resource for pod in there for resource, _ in pod.demand.devices if resource in world.policy.resources}
    banks = (
        _bank(node, resource, there, world)
        for resource in sorted({offer.resource for offer in node.offers(world.policy.resources)} | held)
    )
    return NodeRow(node.name, node.model, state, tuple(banks))


def _bank(node: Node, resource: ResourceName, pods: list[Resident], world: World) -> Bank:
    offered = node.allocatable.get(resource, 0)
    holds = [
        (pod, Hold(f"{pod.namespace}/{pod.name}", *_whose(pod, world), pieces))
        for pod in pods
        if (pieces := dict(pod.demand.devices).get(resource, 0))
    ]
    if resource == node.devices.resource:
        return Bank(resource, _packed(node, holds, world), is_packed=True)
    return Bank(resource, *_in_order(_sizes(node, resource, offered, world), [hold for _, hold in holds]))


def _whose(pod: Resident, world: World) -> tuple[TeamName, Tier]:
    """Tell whose a pod is and on what terms; one that never passed the gate counts against the guaranteed share."""
    charge = world.charge_of(pod.uid)
    team = world.tenancy(pod.namespace).team_name if charge is None else charge.team
    is_borrowed = TIERS.get(pod.tier_label or "") is Tier.PREEMPTIBLE
    return team, Tier.PREEMPTIBLE if is_borrowed else Tier.GUARANTEED


def _sizes(node: Node, resource: ResourceName, offered: int, world: World) -> list[int]:
    """Tell how many pieces each device has: instances of a GPU are devices of their own, shares are parts of one."""
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
    if whole > _MOST_DEVICES:  # nobody says how these pieces are cut
        return [offered]
    return [per_device] * whole + [rest] * bool(rest)


def _in_order(sizes: list[int], holds: list[Hold]) -> tuple[tuple[Device, ...], int]:
    """Deal pods to devices one after another: who counts pieces does not say which of them a pod has."""
    held: list[list[Hold]] = [[] for _ in sizes]
    index, left, over = 0, sizes[0] if sizes else 0, 0
    for hold in holds:
        pieces = hold.pieces
        while pieces and index < len(sizes):
            taken = min(pieces, left)
            held[index].append(Hold(hold.pod, hold.team, hold.tier, taken))
            pieces, left = pieces - taken, left - taken
            if not left:
                index += 1
                left = sizes[index] if index < len(sizes) else 0
        over += pieces
    return tuple(Device(size, tuple(each)) for size, each in zip(sizes, held, strict=True)), over


def _packed(node: Node, holds: list[tuple[Resident, Hold]], world: World) -> tuple[Device, ...]:
    """Show pods on the devices that they are known to have."""
    capacities = node.devices.capacities
    held: list[list[Hold]] = [[] for _ in capacities]
    for pod, hold in holds:
        ask = pod.demand.per_device
        for index in world.fleet.devices_of(node.name, pod.uid):
            if ask is not None:
                held[index].append(Hold(hold.pod, hold.team, hold.tier, ask.on(capacities[index])))
    return tuple(Device(size, tuple(each)) for size, each in zip(capacities, held, strict=True))


def _free(nodes: list[NodeRow], world: World) -> Iterator[FreeRow]:
    found: dict[tuple[GpuModel, ResourceName], list[tuple[NodeRow, Bank]]] = defaultdict(list)
    for row in nodes:
        for bank in row.banks:
            found[row.model, bank.resource].append((row, bank))
    for (model, resource), banks in sorted(found.items()):
        usable = [(row, bank) for row, bank in banks if not row.state]
        sizes = [_largest(bank) for row, bank in usable if world.fleet.free(row.name, PODS) > 0]
        seats = [_largest(_reclaimed(bank, world.policy.reclaim)) for _, bank in usable]
        largest, seat = max(sizes, default=0), max(seats, default=0)
        yield FreeRow(
            resource,
            model,
            sum(bank.pieces for _, bank in banks),
            sum(_left(bank) for _, bank in usable),
            largest,
            sizes.count(largest) if largest else 0,
            seat,
            seats.count(seat) if seat else 0,
            sum(_left(bank) for row, bank in banks if row.state),
            sum(1 for _, bank in usable if not bank.used),
        )


def _left(bank: Bank) -> int:
    return max(0, bank.pieces - bank.used)


def _largest(bank: Bank) -> int:
    """Tell the largest pod that the bank could take now."""
    if bank.is_packed:
        return max((device.pieces - device.used for device in bank.devices), default=0)
    return _left(bank)


def _reclaimed(bank: Bank, rules: ReclaimRules) -> Bank:
    """Leave out what borrowing pods hold, but for those whose namespace is protected."""

    def stays(hold: Hold) -> bool:
        namespace = hold.pod.partition("/")[0]
        return hold.tier is Tier.GUARANTEED or any(fnmatchcase(namespace, glob) for glob in rules.protected_namespaces)

    devices = tuple(replace(device, holds=tuple(filter(stays, device.holds))) for device in bank.devices)
    return replace(bank, devices=devices)


def _natural(row: NodeRow) -> list[tuple[int, str]]:
    """Order gpu-2 before gpu-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(row.name)]
