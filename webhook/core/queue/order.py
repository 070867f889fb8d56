"""The fair order: whose turn it is between teams, entry after entry, while the caller finds out what may start.

It follows from the queue and the standings alone. Ties end at the entries' age, so neither the order in which entries
were added nor the replica that asks makes a difference.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heappop, heapreplace
from itertools import chain
from typing import NamedTuple

from webhook.core.model.names import TeamName
from webhook.core.queue.pod_queue import ROWS_PER_USER, Lane, LaneKey, LotNumber, PodQueue, RowHead, TeamQueue
from webhook.core.queue.queued_pod import Age, Lot
from webhook.core.queue.standing import NO_GUARANTEE, Rank, Standings, rank


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
    """A team's next entry of one class; `rest` are those that follow."""

    rank: Rank
    age: Age
    head: RowHead
    team: TeamQueue
    rest: Iterator[RowHead]


class _KnownLanes(NamedTuple):
    team: TeamQueue
    version: int
    lanes: list[Lane]


class Order:
    """The order of one pass, in which nothing changes but by the starts that it finds."""

    def __init__(self, queue: PodQueue, standings: Standings) -> None:
        self._queue = queue
        self._standings = standings
        self._lanes: dict[TeamName, _KnownLanes] = {}

    def walk(self, skipped: Skipped) -> Iterator[Turn]:
        """Yield the first entry of every row in the order in which they are to start."""
        turns = list(chain.from_iterable(self._turns(team, skipped) for team in self._queue.teams()))
        heapify(turns)
        while turns:
            turn = turns[0]
            if turn.head.lot not in skipped.lots and turn.team.team not in skipped.teams:
                yield turn
            following = None if skipped.has(turn.team) else next(turn.rest, None)
            if following is None:
                heappop(turns)
            else:
                heapreplace(turns, turn._replace(age=following.entry.age, head=following))

    def _turns(self, team: TeamQueue, skipped: Skipped) -> Iterator[Turn]:
        """Yield the first turn of each class of a team's entries."""
        standing = self._standings.of(team.team)
        lanes = self._lanes_of(team)
        classes = {}
        if standing.has_guarantee_for(team.smallest):
            classes = {number: standing.rank_class(lot) for number, lot in _lots(team, lanes)}
        found = set(classes.values()) or {NO_GUARANTEE}
        for rank_class in found:
            heads = _heads(lanes, skipped)
            rest = heads if len(found) == 1 else _of_class(heads, rank_class, classes)
            head = next(rest, None)
            if head is not None:
                yield Turn(rank(standing, rank_class), head.entry.age, head, team, rest)

    def _lanes_of(self, team: TeamQueue) -> list[Lane]:
        """Return a team's lanes in order; what its users hold changes only where an entry started."""
        known = self._lanes.get(team.team)
        if known is None or known.team is not team or known.version != team.version:
            lanes = team.lanes(partial(self._standings.held, team.team))
            known = self._lanes[team.team] = _KnownLanes(team, team.version, lanes)
        return known.lanes


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


def _of_class(heads: Iterator[RowHead], rank_class: int, classes: dict[LotNumber, int]) -> Iterator[RowHead]:
    return (head for head in heads if classes[head.lot] == rank_class)
