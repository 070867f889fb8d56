"""The domains of one level that may hold pods together, in one pass over the nodes.

What a domain holds is an upper bound where pods differ or have rules about other pods: the caller places them one by
one and goes on to the next domain if that fails. For equal pods it is exact.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Final, NamedTuple, Protocol

from webhook.core.model.amounts import ResourceName, Units
from webhook.core.model.constraints import DomainLevel, Operator, Requirement
from webhook.core.model.demand import Demand
from webhook.core.model.node import Node
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.fragmentation import resource_of
from webhook.core.placement.node_labels import Path

MAX_ROOMS: Final = 32
"""Domains that are returned of those with room for all pods, and of the others: there may be as many as nodes."""


class EqualPods(NamedTuple):
    """Equal pods: what each needs, how many they are, and the slots that they may use, full or not."""

    demand: Demand
    number: int
    slots: int


class Supply(Protocol):
    """What counts as available on nodes."""

    def able(self, demand: Demand, among: int) -> int:
        """Return those of the slots where one pod has room."""
        ...

    def amounts(self, resource: ResourceName, slots: Sequence[int]) -> Sequence[int]:
        """Return the amounts of a resource on these slots, in their order."""
        ...


@dataclass(frozen=True, slots=True)
class FreeRoom:
    """What is free now, on open nodes."""

    fleet: Fleet

    def able(self, demand: Demand, among: int) -> int:
        """Return those of the slots where one pod has room."""
        return self.fleet.with_room(demand, among & self.fleet.open_bits)

    def amounts(self, resource: ResourceName, slots: Sequence[int]) -> Sequence[int]:
        """Return the free amounts on these slots."""
        return self.fleet.free_at(slots, resource)


@dataclass(frozen=True, slots=True)
class EmptyRoom:
    """What there would be if no pod ran, and every node offered all of its devices."""

    fleet: Fleet

    def able(self, demand: Demand, among: int) -> int:
        """Return those of the slots where one pod would have room."""
        return self.fleet.could_hold(demand, among)

    def amounts(self, resource: ResourceName, slots: Sequence[int]) -> Sequence[int]:
        """Return the amounts that these slots have at their best."""
        return self.fleet.amounts_at_best(slots, resource)


class DomainRoom(NamedTuple):
    """What a domain has for the pods: how many of them it `holds` at once, and whether that is all of them.

    `requirements` are what its nodes meet and no others. `missing` GPU units are not free there, though they count as
    available. `rest` is how useful its free GPUs are to all pods, in the unit of Fragmentation: of the domains that
    hold the pods, the one with the least leaves the most to others.
    """

    name: str
    requirements: tuple[Requirement, ...]
    holds: int
    is_enough: bool
    missing: Units = 0
    rest: int = 0


class DomainRooms(NamedTuple):
    """The best domains of a level, `MAX_ROOMS` of those with room for all pods, and as many of the others.

    `number` domains have a node that the pods may use, and `enough_number` of them have room for all pods.
    """

    enough: tuple[DomainRoom, ...] = ()
    small: tuple[DomainRoom, ...] = ()
    number: int = 0
    enough_number: int = 0

    @property
    def best(self) -> DomainRoom | None:
        """The best domain, or else the one that holds the most; None where there is none."""
        return next(iter(self.enough or self.small), None)


@dataclass(slots=True)
class _Tally:
    """The sums over the nodes of one domain: how many pods of each kind they hold, what these share, what is free."""

    counts: list[int]
    amounts: dict[ResourceName, int] = field(default_factory=dict)
    free: Units = 0
    rest: int = 0


def domain_rooms(fleet: Fleet, level: DomainLevel, kinds: Sequence[EqualPods], supply: Supply) -> DomainRooms:
    """Return the domains of a level with a node that the pods may use, the best first.

    First come those that hold all pods: where the least is missing, then the least rest, then by name. The others
    follow by what they hold. Nodes without the level's label are in no domain.
    """
    groups = fleet.groups(level.keys)
    kinds = [kind._replace(slots=kind.slots & groups.bits) for kind in kinds]
    slots = 0
    for kind in kinds:
        slots |= kind.slots
    usable = fleet.slots_of(slots)
    tallies = {group: _Tally([0] * len(kinds)) for group in set(map(groups.ids.__getitem__, usable))}
    _count(tallies, groups.ids, kinds, fleet, supply)
    enough = {group: tally for group, tally in tallies.items() if _is_enough(tally, kinds)}
    _add_rest(enough, groups.ids, usable, kinds, fleet)
    return _Ranked(level, kinds, groups.paths, tallies, enough).rooms()


def cluster_room(fleet: Fleet, kinds: Sequence[EqualPods], supply: Supply) -> tuple[int, bool]:
    """Return how many of some pods all nodes together hold, and whether that is all of them.

    As for a domain: an upper bound where pods differ.
    """
    tally = _Tally([0] * len(kinds))
    among = max((kind.slots.bit_length() for kind in kinds), default=0)
    _count({0: tally}, [0] * among, kinds, fleet, supply)
    wanted, is_enough = sum(kind.number for kind in kinds), _is_enough(tally, kinds)
    holds = sum(min(count, kind.number) for count, kind in zip(tally.counts, kinds, strict=True))
    return (wanted, True) if is_enough else (min(holds, wanted - 1), False)


@dataclass(frozen=True, slots=True)
class _Ranked:
    """The domains of a level by group, as they are ordered and shown."""

    level: DomainLevel
    kinds: Sequence[EqualPods]
    paths: Sequence[Path]
    tallies: Mapping[int, _Tally]
    enough: Mapping[int, _Tally]

    def rooms(self) -> DomainRooms:
        """Return the best of them."""
        values = Counter(self.paths[group][0] for group in self.tallies)
        best = nsmallest(MAX_ROOMS, self.enough, key=self._cost)
        small = nsmallest(MAX_ROOMS, self.tallies.keys() - self.enough.keys(), key=self._lack)
        found = [[self._room(group, values) for group in some] for some in (best, small)]
        return DomainRooms(tuple(found[0]), tuple(found[1]), len(self.tallies), len(self.enough))

    def _cost(self, group: int) -> tuple[Units, int, Path]:
        tally = self.tallies[group]
        return self._missing(tally), tally.rest, _sorted(self.paths[group])

    def _lack(self, group: int) -> tuple[int, Path]:
        return -self._holds(self.tallies[group], is_enough=False), _sorted(self.paths[group])

    def _missing(self, tally: _Tally) -> Units:
        return max(0, sum(kind.demand.gpus * kind.number for kind in self.kinds) - tally.free)

    def _holds(self, tally: _Tally, *, is_enough: bool) -> int:
        """Return how many of the pods a domain holds; of equal ones, how many it would."""
        if len(self.kinds) == 1:
            return tally.counts[0]
        holds = sum(min(count, kind.number) for count, kind in zip(tally.counts, self.kinds, strict=True))
        return holds if is_enough else min(holds, sum(kind.number for kind in self.kinds) - 1)

    def _room(self, group: int, values: Mapping[str | None, int]) -> DomainRoom:
        tally, path, level = self.tallies[group], self.paths[group], self.level
        is_enough, is_ambiguous = group in self.enough, values[path[0]] > 1
        return DomainRoom(
            _name(path, level) if is_ambiguous else f"{level.key}={path[0]}",
            _requirements(path if is_ambiguous else path[:1], level.keys),
            self._holds(tally, is_enough=is_enough),
            is_enough,
            self._missing(tally) if is_enough else 0,
            tally.rest,
        )


def domain_of(node: Node, level: DomainLevel) -> tuple[str, tuple[Requirement, ...]] | None:
    """Return the name of a node's domain and what its nodes meet; None for a node without the level's label."""
    labels = node.labels
    if level.key not in labels:
        return None
    path = (labels[level.key], *[labels.get(key) for key in level.above])
    return _name(path, level), _requirements(path, level.keys)


def _count(
    tallies: Mapping[int, _Tally], ids: Sequence[int], kinds: Sequence[EqualPods], fleet: Fleet, supply: Supply
) -> None:
    """Count how many pods of each kind the nodes of each domain hold, and add up what several kinds share."""
    for number, kind in enumerate(kinds):
        slots = fleet.slots_of(supply.able(kind.demand, kind.slots))
        wanted = kind.demand.requests
        columns = [supply.amounts(resource, slots) for resource, _ in wanted]
        pieces = [
            column if want == 1 else [have // want for have in column]
            for column, (_, want) in zip(columns, wanted, strict=True)
        ]
        for slot, count in zip(slots, map(min, *pieces) if len(pieces) > 1 else pieces[0], strict=True):
            tallies[ids[slot]].counts[number] += max(0, count)
    if len(kinds) > 1:
        able = [supply.able(kind.demand, kind.slots) for kind in kinds]
        for resource in {resource for kind in kinds for resource, _ in kind.demand.requests}:
            among = 0
            for kind, bits in zip(kinds, able, strict=True):
                among |= bits if any(name == resource for name, _ in kind.demand.requests) else 0
            slots = fleet.slots_of(among)
            for slot, amount in zip(slots, supply.amounts(resource, slots), strict=True):
                amounts = tallies[ids[slot]].amounts
                amounts[resource] = amounts.get(resource, 0) + max(0, amount)


def _is_enough(tally: _Tally, kinds: Sequence[EqualPods]) -> bool:
    if any(count < kind.number for count, kind in zip(tally.counts, kinds, strict=True)):
        return False
    if len(kinds) == 1:
        return True
    wanted: Counter[ResourceName] = Counter()
    for kind in kinds:
        for resource, amount in kind.demand.requests:
            wanted[resource] += amount * kind.number
    return all(tally.amounts.get(resource, 0) >= amount for resource, amount in wanted.items())


def _add_rest(
    tallies: Mapping[int, _Tally], ids: Sequence[int], usable: Sequence[int], kinds: Sequence[EqualPods], fleet: Fleet
) -> None:
    """Add up the free GPUs of the resource that most pods are placed by, and how useful these are."""
    largest = max(kinds, key=lambda kind: kind.demand.gpus * kind.number, default=None)
    if not tallies or largest is None or (resource := resource_of(largest.demand)) is None:
        return
    each = largest.demand.gpus // max(1, dict(largest.demand.requests).get(resource, 1))
    slots = [slot for slot in usable if ids[slot] in tallies]
    useful = fleet.gpus.view(resource).classes.useful_at(slots)
    for slot, free, rest in zip(slots, fleet.free_at(slots, resource), useful, strict=True):
        tally = tallies[ids[slot]]
        tally.free += max(0, free) * each
        tally.rest += rest


def _name(path: Path, level: DomainLevel) -> str:
    above = [f"{key}={value}" for key, value in zip(level.above, path[1:], strict=True) if value is not None]
    return ",".join((f"{level.key}={path[0]}", *reversed(above)))


def _requirements(path: Path, keys: Sequence[str]) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(key, Operator.DOES_NOT_EXIST) if value is None else Requirement(key, Operator.IN, (value,))
        for key, value in zip(keys, path, strict=False)
    )


def _sorted(path: Path) -> Path:
    return tuple([value or "" for value in path])
