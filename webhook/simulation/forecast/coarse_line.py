"""The line played on without the decisions on single pods: order between teams, limits, and room on nodes.

It continues a simulation of which the work that may be spent is over: a start costs a tenth here. Ranks between teams
and room on nodes are the core's, the order inside a team is that of its line. Left out are departments, limits of users
and models, gangs, and reclaim.
"""

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush, nsmallest
from typing import Final, NamedTuple

from webhook.core.model.amount import Units, Unlimited
from webhook.core.model.demand import Demand
from webhook.core.model.names import NodeName, TeamName, Uid
from webhook.core.model.policy import NO_TEAM, Policy
from webhook.core.placement.fleet import Fleet
from webhook.core.queue.queued_pod import Lot
from webhook.core.queue.standing import Rank, Standing, rank

ROWS: Final = 32
"""Kinds of pods of each team that are looked at: the first of each may start ahead of others that do not fit."""

COMPARED: Final = 64
"""Nodes with room among which the fullest is taken."""

_ANY_LOT: Final = Lot(None, 0, None, None, None, is_evictable=True)


class CoarsePod(NamedTuple):
    """A pod that waits: `nodes` are the slots of the fleet that it may use; `seconds` is how long it will run."""

    uid: Uid
    team: TeamName
    demand: Demand
    nodes: int
    seconds: int


class CoarseRun(NamedTuple):
    """A pod that runs until a time; `node` is None where it is on none that is known."""

    uid: Uid
    ends: int
    team: TeamName
    demand: Demand
    node: NodeName | None


_Row = tuple[TeamName, Demand, int]


def _row(pod: CoarsePod) -> _Row:
    """Return what pods have in common that fit, or do not fit, alike."""
    return pod.team, pod.demand, pod.nodes


class _Place(NamedTuple):
    """A pod by its number in line, which no other pod has."""

    number: int
    pod: CoarsePod


class _Team:
    """What a team holds, and its line: rows of equal pods, each in the order of the line."""

    def __init__(self, name: TeamName, policy: Policy) -> None:
        shares = policy.team(name) or NO_TEAM
        self._standing = Standing(name, guaranteed=shares.gpus.guaranteed, weight=shares.weight)
        self._limit = None if isinstance(shares.gpus.limit, Unlimited) else shares.gpus.limit
        self.held: Units = 0
        self.rows: dict[_Row, deque[_Place]] = {}

    def add(self, place: _Place) -> None:
        """Add a pod behind the others."""
        self.rows.setdefault(_row(place.pod), deque()).append(place)

    def take(self, pod: CoarsePod) -> None:
        """Take the first pod of a row out of the line."""
        row = self.rows[_row(pod)]
        row.popleft()
        if not row:
            del self.rows[_row(pod)]

    def rank(self, pod: CoarsePod) -> Rank:
        """Return the place of the team among the others, if this pod is its next."""
        inside = min(self.held, self._standing.guaranteed)
        standing = self._standing._replace(used=inside, borrowed=self.held - inside)
        return rank(standing, standing.rank_class(_ANY_LOT._replace(gpus=pod.demand.gpus)))

    def has_room(self, pod: CoarsePod) -> bool:
        """Whether the limit of the team has room for a pod."""
        return self._limit is None or self.held + pod.demand.gpus <= self._limit


class CoarseLine:
    """Pods in line and pods that run on the nodes of a fleet, which it changes; `undo` sets it back."""

    def __init__(
        self,
        policy: Policy,
        fleet: Fleet,
        *,
        running: Iterable[CoarseRun],
        line: Iterable[CoarsePod],
    ) -> None:
        self._policy = policy
        self._fleet = fleet
        self._teams: dict[TeamName, _Team] = {}
        self._ends: list[tuple[int, int, CoarseRun]] = []
        self._number = 0
        self._changes: dict[Uid, tuple[CoarseRun, int]] = {}
        self.is_cut = False
        for run in running:
            self._team(run.team).held += run.demand.gpus
            self._push(run)
        for number, pod in enumerate(line):
            self._team(pod.team).add(_Place(number, pod))

    def starts(self, *, now: int, until: int, most: int) -> dict[Uid, int]:
        """Return when the pods in line start, by a time and after at most so many ends; the others are left out.

        `is_cut` says afterwards whether there were more ends.
        """
        found: dict[Uid, int] = {}
        for _ in range(most):
            found |= {pod.uid: now for pod in self._start(now)}
            if not (self._ends and any(team.rows for team in self._teams.values())) or self._ends[0][0] > until:
                return found
            now = self._ends[0][0]
            while self._ends and self._ends[0][0] <= now:
                run = heappop(self._ends)[2]
                self._team(run.team).held -= run.demand.gpus
                self._use(run, -1)
        self.is_cut = True
        return found

    def undo(self) -> None:
        """Set the fleet back."""
        for run, sign in self._changes.values():
            if sign and run.node is not None:
                self._fleet.take(run.node, run.demand, sign=-sign, holder=run.uid)
        self._changes.clear()

    def _use(self, run: CoarseRun, sign: int) -> None:
        """Take the room of a pod on its node, or give it back."""
        if run.node is not None:
            self._fleet.take(run.node, run.demand, sign=sign, holder=run.uid)
            before = self._changes.get(run.uid, (run, 0))[1]
            self._changes[run.uid] = run, before + sign

    def _start(self, now: int) -> list[CoarsePod]:
        """Start what fits, team after team by rank; return it."""
        started: list[CoarsePod] = []
        kept = 0
        blocked: set[_Row] = set()
        turns = self._turns(self._teams, blocked)
        while turns:
            pod = turns.pop(0)[2]
            team = self._teams[pod.team]
            room = self._fleet.with_room(pod.demand, pod.nodes & self._fleet.open_bits) if team.has_room(pod) else 0
            if not room & ~kept:
                blocked.add(_row(pod))
                if not room and team.has_room(pod):
                    kept |= self._next_free(pod, kept)
                continue
            team.take(pod)
            team.held += pod.demand.gpus
            run = CoarseRun(pod.uid, now + pod.seconds, pod.team, pod.demand, self._fullest(pod, room & ~kept))
            self._use(run, 1)
            self._push(run)
            started.append(pod)
            others = [turn for turn in turns if turn[2].team != pod.team]
            turns = sorted(others + self._turns((pod.team,), blocked))
        return started

    def _turns(self, teams: Iterable[TeamName], blocked: set[_Row]) -> list[tuple[Rank, int, CoarsePod]]:
        """Return the first pods of the rows of these teams, in their order."""
        found = []
        for name in teams:
            team = self._teams[name]
            heads = nsmallest(ROWS, (row[0] for row in team.rows.values()))
            found += [(team.rank(pod), number, pod) for number, pod in heads if _row(pod) not in blocked]
        return sorted(found)

    def _fullest(self, pod: CoarsePod, room: int) -> NodeName:
        """Return the node with the fewest free devices, of the first that have room."""
        fleet = self._fleet
        slots = fleet.slots_of(room)[:COMPARED]
        names = fleet.names(slots)
        if not pod.demand.devices:
            return names[0]
        free = fleet.free_at(slots, pod.demand.devices[0][0])
        return min(zip(free, names, strict=True))[1]

    def _next_free(self, pod: CoarsePod, kept: int) -> int:
        """Return the slot of the node that is to be free first for a pod that fits nowhere."""
        fleet = self._fleet
        able = fleet.with_capacity(pod.demand, pod.nodes & fleet.open_bits) & ~kept
        slots = fleet.slots_of(able)
        if not slots or not pod.demand.devices:
            return 0
        free = fleet.free_at(slots, pod.demand.devices[0][0])
        best = max(range(len(slots)), key=lambda index: (free[index], -index))
        return 1 << slots[best]

    def _team(self, name: TeamName) -> _Team:
        found = self._teams.get(name)
        if found is None:
            found = self._teams[name] = _Team(name, self._policy)
        return found

    def _push(self, run: CoarseRun) -> None:
        self._number += 1
        heappush(self._ends, (run.ends, self._number, run))
