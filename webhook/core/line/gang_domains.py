"""The domains, such as racks, in which the members of a gang are tried together, in which order, and why."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from webhook.core.admission.domain_rules import gang_refusal, kinds_of, request_of
from webhook.core.line.entries import KeepableNode, Way
from webhook.core.line.judged_pod import BorrowedRoom
from webhook.core.model.amounts import NodeName, plural_gpus, printable, shortened
from webhook.core.model.constraints import (
    DomainLevel,
    DomainPlace,
    DomainRequest,
    Operator,
    Requirement,
    asked_levels,
    levels_to_try,
)
from webhook.core.model.policy import NO_TEAM
from webhook.core.model.reasons import Reason, Statement
from webhook.core.placement.domains import (
    DomainRoom,
    DomainRooms,
    EqualPods,
    FreeRoom,
    Supply,
    cluster_room,
    domain_of,
    domain_rooms,
)
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World

MAX_TRIES: Final = 3
"""Domains of a level that are tried: the first one holds equal pods, and a tenant may make all pods differ."""

_NAMED: Final = 3
_NAME_CHARACTERS: Final = 80
_MAX_WHY: Final = 400


class GangDomains:
    """The domains for members of one gang that wait together, on the present world.

    All members are in the domain that the oldest of them with a request asks for. Nodes that are `kept` for others do
    not count.
    """

    def __init__(self, members: Sequence[WaitingPod], world: World, *, kept: frozenset[NodeName]) -> None:
        self._world = world
        self._members = members
        self._number = len(members)
        self._kept = kept
        self._request = _request(members, world)
        self._levels = levels_to_try(self._request, world.policy.topology.levels)
        self._kinds: list[EqualPods] = []
        self._rooms = DomainRooms()  # free now, of the largest level
        self._short: list[str] = []  # the levels of which no domain has room

    @property
    def is_required(self) -> bool:
        """Whether the gang starts in one domain or not at all."""
        return self._request is not None and self._request.is_required

    @property
    def asked(self) -> tuple[DomainLevel, ...]:
        """The levels that the gang itself asks for."""
        return asked_levels(self._request, self._world.policy.topology.levels)

    def attempts(self, borrowed: BorrowedRoom, *, way: Way) -> Iterator[tuple[DomainPlace | None, BorrowedRoom | None]]:
        """Yield where to place the members, the best first, and what reclaim may take back for them there.

        None: anywhere. Free room counts before room that is taken back. There is always at least one.
        """
        if not self._levels:
            yield None, borrowed
            return
        self._kinds = self._found_kinds()
        has_tried = False
        for place in self._with_free_room():
            has_tried = True
            yield place, None
        if not self.is_required:
            yield self._anywhere(), None
        may_reclaim = way is Way.IN_TURN and self._has_share()
        for place in self._with_borrowed_room(borrowed) if may_reclaim else ():
            has_tried = True
            yield place, borrowed
        if not self.is_required:
            yield self._anywhere(), borrowed
        elif not has_tried:
            yield self._most_room(), None

    def has_place(self, coming: Supply) -> bool:
        """Whether nodes, or one domain where one is required, would hold all members with the room that comes."""
        fleet, kinds = self._world.fleet, self._found_kinds()
        if self.is_required:
            return any(domain_rooms(fleet, level, kinds, coming).enough for level in self._levels)
        return cluster_room(fleet, kinds, coming)[1]

    def never(self) -> Reason | None:
        """Return why the members can never start together; None if they could."""
        gang = self._members[0].pod.gang
        if gang is None:
            return None
        return gang_refusal([member.pod for member in self._members], gang, self._members[0].team, self._world)

    def waits_for(self) -> tuple[str, Statement | None]:
        """Return the label of the domain in which all start, and what the best one holds now; "", None: no matter.

        Domains are not named: which is the best changes often, and each change would be a write for each pod.
        """
        if self._request is None or not self.is_required:
            return "", None
        key, best, number = self._request.key, self._rooms.best, self._rooms.number
        if best is None or best.is_enough:
            return key, None
        words = (
            "the only one has room for {holds} of them now"
            if number == 1
            else "the best of {domains} has room for {holds} of them now"
        )
        return key, Statement(words, {"domains": number, "holds": best.holds})

    def to_keep(self, rooms: Sequence[KeepableNode], *, before: frozenset[NodeName]) -> Iterable[KeepableNode]:
        """Return those of the nodes that may be kept for the members: of one domain, if they require one.

        It is the domain of the nodes that were kept before if it is large enough, else that where the least is missing.
        """
        if not self.is_required:
            return rooms
        (level,) = self.asked
        needed = sum(kind.demand.gpus * kind.number for kind in self._kinds)
        domains: dict[str, list[KeepableNode]] = {}
        for room in rooms:
            node = self._world.fleet.get(room.name)
            if node is not None and (found := domain_of(node, level)) is not None:
                domains.setdefault(found[0], []).append(room)
        large = [name for name, of in domains.items() if sum(room.size for room in of) >= needed]

        def order(name: str) -> tuple[bool, object, str]:
            of = domains[name]
            return not any(room.name in before for room in of), max(0, needed - sum(room.free for room in of)), name

        return domains[min(large, key=order)] if large else ()

    def _has_share(self) -> bool:
        """Whether the guaranteed share of the team has room for any of the members: none is evicted for others."""
        team = self._members[0].team
        share = (self._world.policy.team(team) or NO_TEAM).gpus.guaranteed
        least = min((kind.demand.gpus for kind in self._kinds), default=0)
        return self._world.usage(team).guaranteed + least <= share

    def _found_kinds(self) -> list[EqualPods]:
        world = self._world
        kinds = kinds_of([member.pod for member in self._members], self._members[0].team, world)
        off = 0
        for name in self._kept:
            off |= world.fleet.bit(name)
        return [kind._replace(slots=kind.slots & ~off) for kind in kinds] if off else kinds

    def _with_free_room(self) -> Iterator[DomainPlace]:
        for level in self._levels:
            self._rooms = rooms = self._found_rooms(level, FreeRoom(self._world.fleet))
            for room in rooms.enough[:MAX_TRIES]:
                yield self._place(room, [why_chosen(room, rooms, self._number), *self._short])
            if not rooms.enough:
                self._short.append(f"no {printable(level.key)} has: {small_text(rooms)}")

    def _with_borrowed_room(self, borrowed: BorrowedRoom) -> Iterator[DomainPlace]:
        for level in self.asked:
            for room in self._found_rooms(level, borrowed).enough[:MAX_TRIES]:
                back = plural_gpus(room.missing)
                yield self._place(room, [f"{back} come back there for {self._number} pods that start together"])

    def _found_rooms(self, level: DomainLevel, supply: Supply) -> DomainRooms:
        return domain_rooms(self._world.fleet, level, self._kinds, supply)

    def _place(self, room: DomainRoom, why: Iterable[str]) -> DomainPlace:
        return DomainPlace(room.name, room.requirements, self.is_required, shortened("; ".join(why), _MAX_WHY))

    def _anywhere(self) -> DomainPlace:
        return DomainPlace("", (), why=shortened("; ".join(self._short), _MAX_WHY))

    def _most_room(self) -> DomainPlace:
        """Return the domain that is nearest to holding the members; its refusal is that of the gang."""
        if (best := self._rooms.best) is not None:
            return self._place(best, ())
        key = "" if self._request is None else self._request.key
        return DomainPlace(key, (Requirement(key, Operator.EXISTS),), is_required=True)


def why_chosen(chosen: DomainRoom, rooms: DomainRooms, number: int) -> str:
    """Return why a domain was chosen among those of its level, in numbers."""
    text = f"has room for {chosen.holds} of these pods, {number} start together"
    if rooms.enough_number > 1:
        text += f"; of {rooms.enough_number} domains that have, it leaves the least"
    return f"{text}; too small: {small_text(rooms)}" if rooms.small else text


def small_text(rooms: DomainRooms) -> str:
    """Return how many pods the largest of the domains hold that are too small, each by the value of its label."""
    if not rooms.small:
        return "no node has this label"
    largest = rooms.small[:_NAMED]
    names = [f"{shortened(printable(room.name.partition('=')[2]), _NAME_CHARACTERS)} {room.holds}" for room in largest]
    more = rooms.number - rooms.enough_number - len(largest)
    return f"{', '.join(names)}{f' and {more} more' if more else ''}"


def _request(members: Sequence[WaitingPod], world: World) -> DomainRequest | None:
    gangs = (member.pod.gang for member in members)
    found = (request_of(gang, world) for gang in gangs if gang is not None)
    return next((request for request in found if request is not None), None)
