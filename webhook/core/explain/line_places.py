"""The places of waiting queued pods: the fair order that follows if each pod starts in its turn.

The release of a pod changes the order of those behind it, so the starts are played through: each pod is charged to its
team, its user and its departments before the next turn is looked for. Limits, room and back-fill are left out, but for
the first pod of each team for which its share accumulates (webhook/core/line/order.py).
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from typing import NamedTuple

from webhook.core.line.entries import Age, QueueEntry, Verdict, entry_of
from webhook.core.line.line import WaitingEntries, queued_pod
from webhook.core.line.order import CLAIMS, DepartmentStanding, Rank, Standing, rank, waits_for_share
from webhook.core.line.pod_queue import ROWS_PER_USER
from webhook.core.model.amounts import DepartmentName, TeamName, Uid, Units, User
from webhook.core.model.policy import QueueRules
from webhook.core.world.world import World


class Place(NamedTuple):
    """A place in the queue, from 1: among the pods of its team, and among all."""

    of_team: int
    overall: int


Judge = Callable[[Uid], Verdict | None]
"""Returns the verdict on a waiting pod in the present world; None where it cannot be judged."""


def _unjudged(_uid: Uid) -> Verdict | None:
    return None


def places(world: World, judge: Judge = _unjudged, *, now: int = 0) -> dict[Uid, Place]:
    """Return the place of each pod that waits for its turn: not of those that others' gates hold, or that end.

    `judge` is asked about pods that may claim the share of their team at `now`, in Unix seconds; without it none does.
    """
    teams: dict[TeamName, list[QueueEntry]] = defaultdict(list)
    for pod in world.waiting.all():
        if pod.has_turn and not world.is_assumed(pod.uid):
            teams[pod.team].append(entry_of((queued_pod(pod, world),)))
    found: dict[Uid, Place] = {}
    ahead: dict[TeamName, int] = {}
    listener = world.waiting.on_change
    view = WaitingEntries(world)
    world.waiting.on_change = listener  # the view of a leader, or of a simulation, listens on
    claims = _Claims(view, world.policy.queue, now, judge)
    for number, entry in enumerate(_starts(teams, claims, world), start=1):
        of_team = ahead[entry.team] = ahead.get(entry.team, 0) + 1
        found[entry.pods[0].uid] = Place(of_team, number)
    return found


class _Turn(NamedTuple):
    rank: Rank
    age: Age
    entry: QueueEntry
    team: "_TeamLine"


class _TeamLine:
    """The entries of one team that come next, in its order: a smaller one may fit inside a guarantee before others.

    Until `claim` has started, those of lower priority do not.
    """

    def __init__(self, order: Iterator[QueueEntry], claim: QueueEntry | None) -> None:
        self._order = order
        self._claim = claim
        self._next = list(islice(order, ROWS_PER_USER))

    def turn(self, shares: "_Shares") -> _Turn | None:
        """Return the entry with the best rank, of equals the first; None if there is none."""
        if not self._next:
            return None
        rank, index = min((shares.rank(entry, self._claim), index) for index, entry in enumerate(self._next))
        entry = self._next[index]
        return _Turn(rank, entry.age, entry, self)

    def start(self, entry: QueueEntry) -> None:
        """Take an entry out."""
        if entry is self._claim:
            self._claim = None
        self._next.remove(entry)
        self._next += islice(self._order, 1)


@dataclass(frozen=True, slots=True)
class _Claims:
    """Finds the entry of each team for which its share accumulates."""

    view: WaitingEntries
    rules: QueueRules
    now: int
    judge: Judge

    def line_of(self, team: TeamName, entries: Sequence[QueueEntry]) -> _TeamLine:
        """Return the line of a team."""
        order = _team_order(team, entries, self.view)
        first, lowest = list(islice(order, CLAIMS)), min(entry.priority for entry in entries)
        old = [entry for entry in first if self.rules.is_strict_after(self.now - entry.age.created)]
        claim = self._claim([entry for entry in old if entry.priority > lowest], entries)
        return _TeamLine(chain(first, order), claim)

    def _claim(self, old: Sequence[QueueEntry], entries: Sequence[QueueEntry]) -> QueueEntry | None:
        """Return the first of a team's old entries that its share would have room for only if less of it were used."""
        if not old:
            return None
        standing = self.view.of(old[0].team)
        of_all = frozenset(entries[0].limits).intersection(*(entry.limits for entry in entries))
        for entry in old:
            is_outside = standing.rank_class(entry.lot) > 0 and standing.could_have_share_for(entry.lot)
            if is_outside and waits_for_share(self.judge(entry.pods[0].uid), of_all.__contains__):
                return entry
        return None


def _starts(teams: dict[TeamName, list[QueueEntry]], claims: _Claims, world: World) -> Iterator[QueueEntry]:
    """Yield the entries of all teams in order.

    A charge never improves the rank of a team, so a turn whose rank is still right when it comes up is the next one.
    """
    shares = _Shares(claims.view, world)
    lines = [claims.line_of(team, entries) for team, entries in teams.items()]
    turns = [turn for line in lines if (turn := line.turn(shares)) is not None]
    heapify(turns)
    while turns:
        turn = heappop(turns)
        now = turn.team.turn(shares)
        if now is not None and (now.rank, now.age) == (turn.rank, turn.age):
            yield turn.entry
            shares.charge(turn.entry)
            turn.team.start(turn.entry)
            now = turn.team.turn(shares)
        if now is not None:
            heappush(turns, now)


def _team_order(team: TeamName, entries: Sequence[QueueEntry], view: WaitingEntries) -> Iterator[QueueEntry]:
    """Yield the entries of one team: by priority, then of the user who holds least, then by age."""
    lanes: dict[int, dict[User | None, deque[QueueEntry]]] = defaultdict(lambda: defaultdict(deque))
    for entry in sorted(entries, key=lambda entry: entry.age):
        lanes[entry.priority][entry.user].append(entry)
    started: dict[User | None, Units] = defaultdict(int)
    for priority in sorted(lanes, reverse=True):
        heap = [
            (view.held(team, user) + started[user], line[0].age, user, line) for user, line in lanes[priority].items()
        ]
        heapify(heap)
        while heap:
            held, _, user, line = heappop(heap)
            entry = line.popleft()
            yield entry
            started[user] += entry.gpus
            held += entry.gpus
            if line:
                heappush(heap, (held, line[0].age, user, line))


class _Shares:
    """The standings of teams with what was charged on the way."""

    def __init__(self, view: WaitingEntries, world: World) -> None:
        self._world = world
        self._standings: dict[TeamName, Standing] = {}
        self._levels: dict[DepartmentName, DepartmentStanding] = {}
        self._view = view

    def rank(self, entry: QueueEntry, claim: QueueEntry | None) -> Rank:
        """Return the present rank of an entry among the teams; `claim` is what claims its team's share."""
        standing = self._of(entry.team)
        rank_class = standing.rank_class(entry.lot)
        if claim is not None and rank_class == 0 and entry.priority < claim.priority:
            rank_class = standing.rank_class(claim.lot)
        return rank(standing, rank_class)

    def charge(self, entry: QueueEntry) -> None:
        """Charge an entry to its team and to the departments above it."""
        standing, gpus = self._of(entry.team), entry.gpus
        is_inside = standing.has_share_for(entry.lot)
        used, borrowed = (gpus, 0) if is_inside else (0, gpus)
        self._standings[entry.team] = standing._replace(
            used=standing.used + used, borrowed=standing.borrowed + borrowed
        )
        for name, level in self._levels_of(entry.team):
            self._levels[name] = level._replace(used=level.used + used, borrowed=level.borrowed + borrowed)

    def _of(self, team: TeamName) -> Standing:
        standing = self._standings.get(team)
        if standing is None:
            standing = self._standings[team] = self._view.of(team)
        return standing._replace(departments=tuple(level for _, level in self._levels_of(team)))

    def _levels_of(self, team: TeamName) -> Iterator[tuple[DepartmentName, DepartmentStanding]]:
        """Yield the departments above a team, the nearest first."""
        for usage in self._world.usage(team).levels:
            own = usage.department
            level = DepartmentStanding(own.gpus.guaranteed, usage.guaranteed, usage.preemptible, own.weight)
            yield own.name, self._levels.setdefault(own.name, level)
