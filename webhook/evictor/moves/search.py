"""Seeks the next plan of moves that policy allows, and says for which waiting pods there is none."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from webhook.core.defragment.defragment import Movement, grow, separate_plans
from webhook.core.defragment.free_room import free_room
from webhook.core.defragment.movable_pod import Stays
from webhook.core.defragment.move_bounds import Bound, bound_on, moved_pods, moves_left
from webhook.core.defragment.move_plan import NoMoves, NotPlanned, Room
from webhook.core.model.names import Uid
from webhook.core.reclaim.cost_scale import STEPS
from webhook.evictor.cluster_view import ClusterView
from webhook.evictor.moves.candidates import Candidates
from webhook.evictor.moves.move_reporter import NotMade
from webhook.evictor.moves.record import MoveRecord
from webhook.evictor.moves.wanted import Wanted

SEARCH_SECONDS: Final = 0.3
"""A search goes on with the next pods in the next look after so long: reclaim must not wait for it."""

STEPS_OF_A_PLAN: Final = STEPS // 10
"""The bound of work for one plan, which takes some tenths of a second."""

NO_POD: Final = Uid("")


@dataclass(frozen=True, slots=True)
class Found:
    """A plan, and the waiting pods that it is for, by the names that it has for them; none in a window."""

    room: Room
    wanted: dict[str, Wanted]

    @property
    def names(self) -> str:
        """The pods that it makes room for."""
        return ", ".join(place.target.name for place in self.room.places)

    def uid_of(self, name: str) -> Uid:
        """Return the UID of such a pod; NO_POD for one that does not exist."""
        return self.wanted[name].uid if name in self.wanted else NO_POD


class MoveSearch:
    """Makes one plan at a time, from what is there; `report` takes the pods for which there is none, and who stays."""

    def __init__(
        self,
        cluster_view: ClusterView,
        candidates: Candidates,
        record: MoveRecord,
        *,
        report: Callable[[Iterable[NotMade], Mapping[Stays, int]], None],
        clock: Callable[[], float],
    ) -> None:
        self._world = cluster_view.world
        self._candidates = candidates
        self._report = report
        self._record = record
        self._clock = clock
        self._sought: set[str] = set()  # no moves were found for these since the last pass over all

    async def next(self) -> Found | None:
        """Return the first plan that policy allows now. Raises ClusterError."""
        now, rules = int(self._clock()), self._world.policy.defragment
        await self._record.read()
        wanted = await self._candidates.wanted(now=now) if rules.on_demand else []
        is_open = rules.window is not None and rules.window.is_open(now) and self._could_grow()
        if not (wanted or is_open):
            self._report((), {})
            return None
        away, teams = self._record.away.paused(), self._record.teams.paused()
        movable = await self._candidates.movable(now=now, away=away, teams=teams)
        movement = Movement(
            fleet=self._world.fleet,
            movable=movable.pods,
            now=now,
            left=movable.left,
            weights=self._world.policy.resources,
            per_workload=rules.moves_per_workload,
            levels=self._world.policy.topology.levels,
            held=self._candidates.held,
            moved=moved_pods(self._record.past, now=now),
        )
        left = moves_left(self._record.past, rules, now=now)
        by_name = {each.target.name: each for each in wanted}
        refused: list[NotMade] = []
        room = self._first(by_name, movement, left, refused)
        if room is None and is_open:
            room = self._grown(movement, left)
        self._report(refused, movable.stays)
        if room is None:
            return None
        named = {place.target.name for place in room.places}
        return Found(room, {name: each for name, each in by_name.items() if name in named})

    def _first(self, by_name: dict[str, Wanted], movement: Movement, left: int, refused: list[NotMade]) -> Room | None:
        """Return the first plan for waiting pods that policy allows; add the others to `refused`."""
        rules, clock = self._world.policy.defragment, asyncio.get_running_loop().time
        began = clock()
        self._sought &= by_name.keys()
        if self._sought == by_name.keys():
            self._sought.clear()
        targets = [each.target for name, each in by_name.items() if name not in self._sought]
        for found in separate_plans(targets, movement, steps=STEPS_OF_A_PLAN):
            cause: NoMoves | Bound
            if isinstance(found, NotPlanned):
                several, cause = found.targets, found.cause
            elif not found.moves:
                continue
            elif (bound := bound_on(found, rules, now=movement.now, left=left)) is not None:
                several, cause = tuple([place.target for place in found.places]), bound
            else:
                return found
            refused.append(NotMade(tuple([by_name[each.name] for each in several]), cause))
            self._sought |= {each.name for each in several}
            if clock() > began + SEARCH_SECONDS:
                return None
        self._sought.clear()
        return None

    def _could_grow(self) -> bool:
        """Whether a node could have more devices free than any has now; often one has all of them."""
        fleet, weights = self._world.fleet, self._world.policy.resources
        usable = fleet.open_bits & ~(self._candidates.held | fleet.held_bits)
        free = free_room(fleet, weights, among=usable)
        return any(fleet.largest_amount(name, usable) > free.largest(name) for name in weights)

    def _grown(self, movement: Movement, left: int) -> Room | None:
        """Return the moves after which one node has more devices free than any has now, if policy allows them."""
        for resource in sorted(name for name in movement.weights if movement.fleet.offers(name)):
            rooms = grow(resource, movement, steps=STEPS_OF_A_PLAN).rooms
            if rooms and bound_on(rooms[0], self._world.policy.defragment, now=movement.now, left=left) is None:
                return rooms[0]
        return None
