"""Candidates and searches of a live evictor, preview.

The moves of the last day, and which workloads and teams are left alone since their pods did not come back.

The moves are kept in a Report, so that the bounds of an hour hold for the next leader, too.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from itertools import islice
from typing import Final, NamedTuple, TypeVar

import msgspec

from webhook.addons.moves.candidates import (
    HOUR_SECONDS,
    Allowances,
    Bound,
    MovablePods,
    NoMoves,
    NotPlanned,
    PastMove,
    Room,
    Stays,
    bound_on,
    free_room,
    movable_pod,
    moved_pods,
    moves_left,
    stays_early,
)
from webhook.addons.moves.move_reporter import NotMade, Wanted, moves_text
from webhook.addons.moves.targets import Movement, grow, separate_plans, target_in_line, target_of_scheduler
from webhook.cluster.api.client import ApiConnection, ApiError, ClusterError
from webhook.cluster.api.requests import pod_path, read
from webhook.cluster.writes.reports import read_report, write_report
from webhook.core.model.amounts import NodeName, TeamName, Uid
from webhook.core.model.decision import as_asked
from webhook.core.model.node import KeptPlace, controller_key
from webhook.core.model.pod import Pod
from webhook.core.model.reasons import Code
from webhook.core.reclaim.costs import STEPS
from webhook.core.reclaim.holds import NodeHold
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.core.reclaim.snapshot import is_growing
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World
from webhook.evictor.cluster_view import ClusterView
from webhook.evictor.unevictable import PodBackoff, TeamBackoff
from webhook.kube.admission.templates import Template, read_template
from webhook.kube.ledger import reports
from webhook.kube.ledger.reports import MoveEntry

AWAY_SECONDS: Final = 6.0 * HOUR_SECONDS
"""How long the pods of a controller are not moved after one of them did not come back."""

KEPT_SECONDS: Final = 24 * HOUR_SECONDS
"""How long moves are shown …"""

SHOWN: Final = 100
"""… and how many, besides those of the last hour."""


class MoveRecord:
    """What was moved, and what did not come back. `clock` gives seconds of Unix time."""

    def __init__(self, connection: ApiConnection, clock: Callable[[], float]) -> None:
        self.away: PodBackoff[str] = PodBackoff(clock)
        self.teams: TeamBackoff[TeamName] = TeamBackoff(clock)
        self._connection = connection
        self._clock = clock
        self._entries: list[MoveEntry] = []
        self._is_read = False

    @property
    def past(self) -> list[PastMove]:
        """The moves as bounds read them."""
        return [PastMove(int(reports.read_at(each.at) or 0), each.workload) for each in self._entries]

    def of(self, pod: str) -> MoveEntry | None:
        """Return the latest move of a pod, by its name with its namespace."""
        return next((each for each in reversed(self._entries) if each.pod == pod), None)

    async def read(self) -> None:
        """Read what an earlier leader wrote, once. Raises ClusterError."""
        if self._is_read:
            return
        try:
            self._entries = list((await read_report(self._connection, reports.MOVES)).moves)
        except ApiError as error:
            if not error.is_missing:
                raise
        self._is_read = True

    async def add(self, moves: Iterable[MoveEntry]) -> None:
        """Write moves before they are made. Raises ClusterError; then none of them may be made."""
        now = self._clock()
        kept = [each for each in self._entries if (reports.read_at(each.at) or 0) > now - KEPT_SECONDS]
        hour = sum((reports.read_at(each.at) or 0) > now - HOUR_SECONDS for each in kept)
        entries = [*kept[-max(SHOWN, hour) :], *moves]
        await write_report(self._connection, reports.MOVES, reports.moves_patch(entries))
        self._entries = entries

    def lost(self, place: KeptPlace) -> None:
        """Record that a moved pod did not come back: its controller's pods are left alone, and then its team's."""
        self.away.pause(place.key, AWAY_SECONDS)
        self.teams.fail(place.team)


# Pods as their controllers would create them now: read once from the API, and kept as long as the pods exist.


READ_AT_ONCE: Final = 200
"""Pods that are read for one plan; the others stay where they are until a later one."""

_AT_ONCE: Final = 16


class Templates:
    """What the index of pods does not keep of them: constraints, rules and volumes. None: it cannot be read."""

    def __init__(self, connection: ApiConnection, world: World) -> None:
        self._connection = connection
        self._world = world
        self._found: dict[Uid, Pod | None] = {}
        self._policy = ""

    def get(self, uid: Uid) -> Pod | None:
        """Return a pod that was read."""
        return self._found.get(uid)

    async def read(self, wanted: Iterable[ReclaimPod], *, kept: Iterable[Uid] = ()) -> None:
        """Read those of these pods that are not known yet, and forget all others but `kept`. Raises ClusterError."""
        pods = list(wanted)
        if self._policy != self._world.policy.hash:
            self._found, self._policy = {}, self._world.policy.hash
        known = {each.uid for each in pods}.union(kept)
        self._found = {uid: pod for uid, pod in self._found.items() if uid in known}
        slots = asyncio.Semaphore(_AT_ONCE)
        new = islice((each for each in pods if each.uid not in self._found), READ_AT_ONCE)
        await asyncio.gather(*(self._read(each, slots) for each in new))

    async def _read(self, gpu_pod: ReclaimPod, slots: asyncio.Semaphore) -> None:
        async with slots:
            path = pod_path(gpu_pod.namespace, gpu_pod.name)
            written = await read(self._connection, path, msgspec.json.decode, action="get pods")
        if not isinstance(written, dict):
            if written is not None:
                raise ClusterError("cannot get pods: the response is not an object")
            return
        found = read_template(written, namespace=gpu_pod.namespace, world=self._world)
        self._found[gpu_pod.uid] = None
        if isinstance(found, Template) and found.found.metadata.uid == gpu_pod.uid:
            self._found[gpu_pod.uid] = as_asked(found.pod, self._world.policy)


# What a plan of moves is made from in the evictor: the pods that wait for room, and those that may move.


T = TypeVar("T")

OF_A_TEAM: Final = 20
"""Waiting pods of one team that moves are sought for at once, the oldest ones: a tenant may create any number."""

PODS_AT_ONCE: Final = 250
"""Pods that are judged in one turn of the event loop: 5,000 take 0.3 s, and a turn of them 0.02 s."""


class LeftAlone(NamedTuple):
    """The holds that are there, and what is left alone for a while: pods on nodes, waiting pods, teams."""

    holds: Mapping[NodeName, NodeHold]
    pods: Set[Uid] = frozenset()
    waiting: Set[Uid] = frozenset()
    teams: Set[TeamName] = frozenset()


class Candidates:
    """Reads them from the evictor's view."""

    def __init__(self, cluster_view: ClusterView, left_alone: Callable[[], LeftAlone], templates: Templates) -> None:
        self._view = cluster_view
        self._left_alone = left_alone
        self._templates = templates

    @property
    def held(self) -> int:
        """The slots of the nodes that keep room already."""
        found = 0
        for node in {**self._left_alone().holds, **self._view.marked}:
            found |= self._view.world.fleet.bit(node)
        return found

    async def wanted(self, *, now: int) -> list[Wanted]:
        """Return the pods that wait for nothing but room, without those that have it already. Raises ClusterError."""
        world, held, apart = self._view.world, self.held, self._left_alone()
        left_alone = apart.waiting | {each.uid for hold in apart.holds.values() for each in hold.beneficiaries}
        teams = apart.teams
        in_scheduler = [
            each
            for each in self._oldest(self._view.reclaim_index.unplaced(), teams)
            if each.uid not in left_alone and each.in_line is None and self._is_whole(each, now)
        ]
        await self._templates.read(in_scheduler, kept=(each.uid for each in self._view.reclaim_index.on_nodes()))
        found: list[Wanted] = []
        for gpu_pod in in_scheduler:
            template = self._templates.get(gpu_pod.uid)
            made = None if template is None else target_of_scheduler(gpu_pod, template, world, held=held)
            if made is not None:  # it is bound to what was written on it
                slots = made.slots & world.fleet.matching(gpu_pod.constraints)
                found.append(Wanted(made._replace(slots=slots), gpu_pod=gpu_pod))
        for waiting in self._in_line(teams):
            made = None if waiting.uid in left_alone else target_in_line(waiting, world, held=held)
            if made is not None:
                found.append(Wanted(made, waiting=waiting))
        return found

    async def movable(self, *, now: int, away: Collection[str], teams: Collection[TeamName]) -> MovablePods:
        """Return the pods that may move now, without those whose controllers or teams are `away`.

        Raises ClusterError.
        """
        index, world = self._view.reclaim_index, self._view.world
        refused = self._left_alone().pods | index.evictions.listed() | index.evictions.listed_for_limits()
        gpu_pods = [
            each for each in index.on_nodes() if not (each.uid in refused or each.team in teams or key_of(each) in away)
        ]
        able = [
            each
            async for each in _in_turns(gpu_pods)
            if stays_early(each, index.evictable(each), world, now=now) is None
        ]
        await self._templates.read(able, kept=(each.uid for each in index.unplaced()))
        template, held = self._templates.get, self.held
        judged = [
            (each, movable_pod(each, index.evictable(each), partial(template, each.uid), world, now=now, held=held))
            async for each in _in_turns(gpu_pods)
        ]
        allowances = Allowances(index, world)  # of what is there by now
        there = [
            allowances.bounded(*each) async for each in _in_turns(judged) if index.staying(each[0].uid) is not None
        ]
        return MovablePods.of(there, allowances.left)

    def _oldest(self, gpu_pods: Iterable[ReclaimPod], without: Collection[TeamName]) -> Iterator[ReclaimPod]:
        by_team: dict[TeamName, list[ReclaimPod]] = {}
        for each in gpu_pods:
            if each.report is not None and each.report.is_for_room and each.team not in without:
                by_team.setdefault(each.team, []).append(each)
        for several in by_team.values():
            yield from nsmallest(OF_A_TEAM, several, key=lambda each: (each.pod.created, each.uid))

    def _in_line(self, without: Collection[TeamName]) -> Iterator[WaitingPod]:
        line = self._view.world.waiting
        for team in [each for each in line.teams() if each not in without]:
            able = (
                each for each in line.of(team) if each.reason is not None and each.reason.code is Code.WAITS_FOR_ROOM
            )
            yield from nsmallest(OF_A_TEAM, able, key=lambda each: (each.created, each.uid))

    def _is_whole(self, gpu_pod: ReclaimPod, now: int) -> bool:
        """Whether all pods of its gang exist."""
        if gpu_pod.gang is None:
            return True
        members = list(self._view.reclaim_index.members(gpu_pod.gang))
        return len(members) >= max(each.gang_size for each in members) and not is_growing(members, now=now)


async def _in_turns(pods: Iterable[T]) -> AsyncIterator[T]:
    """Yield pods, PODS_AT_ONCE in one turn of the event loop."""
    for number, each in enumerate(pods, 1):
        yield each
        if number % PODS_AT_ONCE == 0:
            await asyncio.sleep(0)


def key_of(gpu_pod: ReclaimPod) -> str:
    """Return the key of the next pod of a pod's controller; "" where it has none."""
    made_by = gpu_pod.controller
    return "" if made_by is None else controller_key(made_by.kind, gpu_pod.namespace, made_by.name)


# Seeks the next plan of moves that policy allows, and says for which waiting pods there is none.


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


# The moves that an evictor would make now, as lines: the next plan as the mover would find it, without any action.


LOOK_SECONDS: Final = 10.0
"""Between two searches; a search takes tenths of a second in a large cluster."""


class MovePreview:
    """Looks for moves now and then, and shows what was found last in between."""

    def __init__(self, cluster_view: ClusterView, connection: ApiConnection, *, clock: Callable[[], float]) -> None:
        self._view = cluster_view
        self._connection = connection
        self._clock = clock
        self._candidates = Candidates(cluster_view, self._left_alone, Templates(connection, cluster_view.world))
        self._lines: list[str] = []
        self._next_at = 0.0

    async def lines(self) -> list[str]:
        """Return the plan that comes first, and why there is none for other pods; nothing where policy has no moves."""
        if not self._view.world.policy.defragment.is_on:
            return []
        clock = asyncio.get_running_loop().time
        if clock() >= self._next_at:
            self._lines = await self._look()
            self._next_at = clock() + LOOK_SECONDS
        return self._lines

    async def _look(self) -> list[str]:
        if any(hold.has_moves for hold in self._left_alone().holds.values()):
            return ["moves are under way: the next ones are planned after them"]
        lines: list[str] = []

        def note(refused: Iterable[NotMade], _stays: Mapping[Stays, int]) -> None:
            lines.extend(
                f"{', '.join(each.target.name for each in found.wanted)}: no pods would be moved for it: {found.why}"
                for found in refused
            )

        record = MoveRecord(self._connection, self._clock)
        try:
            found = await MoveSearch(self._view, self._candidates, record, report=note, clock=self._clock).next()
        except ClusterError as error:
            return [f"no moves are planned: {error}"]
        if found is not None:
            node, moves = found.room.places[0].node, moves_text(found.room)
            lines.insert(0, f"{found.names}: would get room on {node} by {moves}")
        return lines

    def _left_alone(self) -> LeftAlone:
        """Return what an evictor that leads now holds; which pods it leaves alone for a while only that one knows."""
        return LeftAlone({node: hold for node, hold in self._view.marked.items() if hold is not None})
