"""The fair order: whose turn it is between teams, entry after entry, while the caller finds out what may start.

It follows from the queue and the standings alone. Ties end at the entries' age, so neither the order in which entries
were added nor the replica that asks makes a difference.
"""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heapreplace
from itertools import islice
from typing import Final, NamedTuple

from webhook.core.model.names import TeamName
from webhook.core.queue.pod_queue import ROWS_PER_USER, Lane, LaneKey, LotNumber, PodQueue, RowHead, TeamQueue
from webhook.core.queue.queued_pod import Age, Lot
from webhook.core.queue.share_claims import ShareClaims
from webhook.core.queue.standing import NO_GUARANTEE, Rank, Standing, Standings, rank

CLAIMS: Final = 256
"""Entries of a team among which one is looked for that its share accumulates for."""


@dataclass(slots=True)
class Skipped:
    """What needs no further look; the caller adds to it on the way. Of a lane that is the rest of it."""

    lots: set[LotNumber] = field(default_factory=set)
    teams: set[TeamName] = field(default_factory=set)
    lanes: set[LaneKey] = field(default_factory=set)

    def has(self, team: TeamQueue) -> bool:
        """Whether no entry of a team needs a look."""
        return team.team in self.teams or all(lot in self.lots for lot in team.lots)


class Turn(NamedTuple):
    """A team's next entry of one class; `rest` are those that follow, None before the first of them is looked at."""

    rank: Rank
    age: Age
    head: RowHead
    team: TeamQueue
    rest: Iterator[RowHead] | None = None


class _KnownTeam(NamedTuple):
    """A team as the pass left it: its lanes in order, the class of each lot, and the first turn of each class.

    Where the share accumulates for an entry, `claim` has what is ahead of it in the order of the team, and its class.
    """

    lanes: list[Lane]
    classes: Mapping[LotNumber, int]
    firsts: list[Turn]
    departments: frozenset[str]
    claim: tuple[frozenset[Hashable], int] | None

    @property
    def is_in_own_share(self) -> bool:
        """Whether all that waits fits inside the team's own share, so that no department matters."""
        return not any(turn.rank[0] for turn in self.firsts)

    def heads(self, rank_class: int, skipped: Skipped) -> Iterator[RowHead]:
        """Return the first entry of each row of a class, in the order of the lanes."""
        heads = _heads(self.lanes, skipped)
        if not self.classes:
            return heads
        if self.claim is None:
            return (head for head in heads if self.classes[head.lot] == rank_class)
        return (head for head in heads if self._behind_claim(head, *self.claim) == rank_class)

    def _behind_claim(self, head: RowHead, ahead: frozenset[Hashable], claimed: int) -> int:
        own = self.classes[head.lot]
        return own if own or head.entry.key in ahead else claimed


class Order:
    """The order of one pass, in which nothing changes but by the starts that it finds.

    A start changes where its own team stands, and those of its departments: the others are not looked at again.
    """

    def __init__(self, queue: PodQueue, standings: Standings, claims: ShareClaims | None = None) -> None:
        self._queue = queue
        self._standings = standings
        self._claims = claims or ShareClaims()
        self._known: dict[TeamName, _KnownTeam] = {}
        self._below: dict[str, set[TeamName]] = {}
        self._firsts: list[Turn] = []  # of all known teams, in order

    def walk(self, skipped: Skipped) -> Iterator[Turn]:
        """Yield the first entry of every row in the order in which they are to start."""
        turns = self._first_turns()  # sorted, so it is a heap
        while turns:
            turn = turns[0]
            if turn.head.lot not in skipped.lots and turn.team.team not in skipped.teams:
                yield turn
            rest = turn.rest or self._rest(turn, skipped)
            following = None if skipped.has(turn.team) else next(rest, None)
            if following is None:
                heappop(turns)
            else:
                heapreplace(turns, turn._replace(age=following.entry.age, head=following, rest=rest))

    def note_start(self, team: TeamName) -> None:
        """Note that an entry of a team starts: the caller charges and removes it, or only removes it."""
        if (known := self._known.get(team)) is None:
            return
        for name in {team}.union(*(self._below[name] for name in known.departments)):
            other = self._known.get(name)
            if other is None or (name != team and other.is_in_own_share):
                continue
            del self._known[name]
            for turn in other.firsts:
                del self._firsts[bisect_left(self._firsts, turn)]

    def _first_turns(self) -> list[Turn]:
        """Return the first turn of each class of each team, in order; the list is the caller's."""
        fresh = [team for team in self._queue.teams() if team.team not in self._known]
        for turn in (turn for team in fresh for turn in self._look(team).firsts):
            insort(self._firsts, turn)
        return self._firsts.copy()

    def _look(self, team: TeamQueue) -> _KnownTeam:
        standing = self._standings.of(team.team)
        lanes = team.lanes(partial(self._standings.held, team.team))
        classes = {}
        if standing.has_guarantee_for(team.smallest):
            classes = {number: standing.rank_class(lot) for number, lot in _lots(team, lanes)}
        names = frozenset(level.name for level in standing.departments)
        claim = self._claim(lanes, classes, standing)
        known = self._known[team.team] = _KnownTeam(lanes, classes, [], names, claim)
        for name in names:
            self._below.setdefault(name, set()).add(team.team)
        for rank_class in set(classes.values()) or {NO_GUARANTEE}:
            head = next(known.heads(rank_class, Skipped()), None)
            if head is not None:
                known.firsts.append(Turn(rank(standing, rank_class), head.entry.age, head, team))
        return known

    def _claim(
        self, lanes: Sequence[Lane], classes: Mapping[LotNumber, int], standing: Standing
    ) -> tuple[frozenset[Hashable], int] | None:
        """Return what is ahead of the first entry for which the team's share accumulates, and the class of that one."""
        claimants = self._claims.of(standing.team)
        if not claimants or 0 not in classes.values():
            return None
        ahead: set[Hashable] = set()
        for head in islice(_heads(lanes, Skipped()), CLAIMS):
            if head.entry.key in claimants and classes[head.lot] and standing.could_have_share_for(head.entry.lot):
                return frozenset(ahead), classes[head.lot]
            ahead.add(head.entry.key)
        return None

    def _rest(self, turn: Turn, skipped: Skipped) -> Iterator[RowHead]:
        """Return the entries of a first turn's class that follow."""
        heads = self._known[turn.team.team].heads(turn.rank[0], skipped)
        return (head for head in heads if head is not turn.head)


def _lots(team: TeamQueue, lanes: Sequence[Lane]) -> Iterable[tuple[LotNumber, Lot]]:
    """Return the lots of at least the entries that are looked at: of all, or of those where pods are of odd sizes."""
    if len(team.lots) <= ROWS_PER_USER * len(lanes):
        return team.lots.items()
    return ((head.lot, head.entry.lot) for head in _heads(lanes, Skipped()))


def _heads(lanes: Iterable[Lane], skipped: Skipped) -> Iterator[RowHead]:
    for lane in lanes:
        for head in lane.heads[:ROWS_PER_USER]:
            if skipped.lanes and lane.key in skipped.lanes:
                break
            if head.lot not in skipped.lots:
                yield head
