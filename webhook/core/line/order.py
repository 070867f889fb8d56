"""Who is next: shares, standing.

For which entries the share of their team accumulates: else others of lower priority would use it up without end.

An entry that asks for more than is left of its team's share borrows, so it comes after all that fits inside the share,
also after entries of its own team that have a lower priority. Once it has waited for long, those are behind it again.

Where starts take all the time there is, no pass comes to an entry that borrows. So one that waits for long is presumed
to claim the share, until it is judged to wait for something that the share does not help with.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush, heapreplace
from itertools import count, islice
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from webhook.core.line.entries import Age, Fits, Lot, NoRoom, OverLimit, QueueEntry, Verdict
from webhook.core.line.pod_queue import ROWS_PER_USER, Lane, LaneKey, LotNumber, PodQueue, RowHead, TeamQueue
from webhook.core.model.amounts import GpuModel, TeamName, Units, User
from webhook.core.model.constraints import Tier

_NONE: frozenset[Hashable] = frozenset()


def waits_for_share(verdict: Verdict | None, counts_all: Callable[[Hashable], bool]) -> bool | None:
    """Whether what an entry waits for may come of its team's share: room, or a limit that counts all of the team.

    None where it waits for nothing, or was not judged. `counts_all` says whether a limit does.
    """
    match verdict:
        case Fits() | None:
            return None
        case NoRoom():
            return True
        case OverLimit(limit):
            return counts_all(limit)
        case _:
            return False


class ShareClaims:
    """The keys of these entries by team, one pass after the other; `denied` are those that wait for something else."""

    def __init__(self) -> None:
        self._claims: dict[TeamName, set[Hashable]] = {}
        self._denied: dict[TeamName, set[Hashable]] = {}

    def of(self, team: TeamName) -> Set[Hashable]:
        """Return the keys of a team's entries."""
        return self._claims.get(team, _NONE)

    def keep(self, queue: PodQueue, team: TeamName) -> None:
        """Keep those of a team that still are in the queue."""
        for sets in (self._claims, self._denied):
            if (keys := sets.get(team)) is not None:
                keys.difference_update([key for key in keys if queue.get(key) is None])
                if not keys:
                    del sets[team]

    def keep_teams(self, teams: Container[TeamName]) -> None:
        """Forget those of all other teams."""
        for sets in (self._claims, self._denied):
            for team in [team for team in sets if team not in teams]:
                del sets[team]

    def presume(self, entry: QueueEntry) -> bool:
        """Record a claim of an entry that has waited for long, unless it is denied; return whether that is news."""
        return entry.key not in self._denied.get(entry.team, _NONE) and self.note(entry, is_claim=True)

    def note(self, entry: QueueEntry, *, is_claim: bool, is_denied: bool = False) -> bool:
        """Record what was judged of an entry; return whether that is news."""
        _record(self._denied, entry, is_in=is_denied)
        return _record(self._claims, entry, is_in=is_claim)


def _record(sets: dict[TeamName, set[Hashable]], entry: QueueEntry, *, is_in: bool) -> bool:
    """Record whether an entry is in the set of its team; return whether that is news."""
    if is_in is (entry.key in sets.get(entry.team, _NONE)):
        return False
    if is_in:
        sets.setdefault(entry.team, set()).add(entry.key)
    else:
        sets[entry.team].remove(entry.key)
    return True


# Where a team stands among the others: how much it has of its guaranteed share, and of what is borrowed.
#
# The order between teams follows from these numbers alone. They are integers and fractions, never floats.


_ONE: Final = 1 << 64
_NO_MODELS: Final[Mapping[GpuModel, "ModelShare"]] = MappingProxyType({})

NO_GUARANTEE: Final = 1_000
"""The class of entries for which no guarantee has room, whatever the depth of departments."""


class ModelShare(NamedTuple):
    """A guaranteed share of one GPU model, and how much of it is used."""

    guaranteed: int
    used: Units


class DepartmentStanding(NamedTuple):
    """A department above a team: the same numbers for all teams in it together. `weight` counts among its siblings."""

    guaranteed: int = 0
    used: Units = 0
    borrowed: Units = 0
    weight: Units = 1
    name: str = ""


class Standing(NamedTuple):
    """A team's shares in GPU units: `used` of the guaranteed share, `borrowed` beyond it, or by choice.

    `past` is what it borrowed on average before (`past_use.average`), 0 where past use does not count. `departments`
    are those above it, the nearest first.
    """

    team: TeamName
    guaranteed: int = 0
    used: Units = 0
    borrowed: Units = 0
    weight: Units = 1
    past: Units = 0
    models: Mapping[GpuModel, ModelShare] = _NO_MODELS
    departments: tuple[DepartmentStanding, ...] = ()

    def has_share_for(self, lot: Lot) -> bool:
        """Whether an entry fits inside the guaranteed share, and inside that of its model where there is one."""
        if lot.requested_tier is Tier.PREEMPTIBLE or self.used + lot.gpus > self.guaranteed:
            return False
        share = self.models.get(lot.model) if lot.model is not None else None
        return share is None or share.used + lot.gpus <= share.guaranteed

    def could_have_share_for(self, lot: Lot) -> bool:
        """Whether an entry would fit inside the guaranteed share if none of it were used."""
        models = {model: share._replace(used=0) for model, share in self.models.items()}
        return self._replace(used=0, models=models).has_share_for(lot)

    def has_guarantee_for(self, gpus: Units) -> bool:
        """Whether any guarantee has room for an entry of this size, the team's own or that of a department."""
        if self.used + gpus <= self.guaranteed:
            return True
        return any(level.used + gpus <= level.guaranteed for level in self.departments)

    def rank_class(self, lot: Lot) -> int:
        """Return how near the guarantee is that an entry uses: 0 its team's own, 1 its department's, and so on."""
        if self.has_share_for(lot):
            return 0
        for number, level in enumerate(self.departments, start=1):
            if level.used + lot.gpus <= level.guaranteed:
                return number
        return NO_GUARANTEE


Rank = tuple[int, tuple[int, ...]]
"""Teams by this, the smallest first: whose guarantee, and how much the team has for its share."""


def rank(standing: Standing, rank_class: int) -> Rank:
    """Return the place of a team among the others for its entries of one class.

    Inside a guarantee goes first who has used the smallest part of it. What no guarantee covers goes to who borrows
    least for its weight, compared from the highest department down to the team.
    """
    if rank_class == 0:
        return 0, (_ratio(standing.used, standing.guaranteed),)
    own = _ratio(standing.borrowed + standing.past, standing.weight)
    if rank_class != NO_GUARANTEE:
        level = standing.departments[rank_class - 1]
        return rank_class, (_ratio(level.used, level.guaranteed), own)
    above = (_ratio(level.borrowed, level.weight) for level in reversed(standing.departments))
    return NO_GUARANTEE, (*above, own)


def _ratio(part: Units, whole: Units) -> int:
    """Return a ratio in 2^-64ths: comparing fractions is slow, and no two shares of a cluster are so close."""
    return int(part * _ONE // whole)


class Version(NamedTuple):
    """Stands for a state: `own` of a team and its users, `above` of the departments above it."""

    own: Hashable
    above: int = 0


class Standings(Protocol):
    """What the order is made from: the standing of each team, and what each of its users holds."""

    def version(self, team: TeamName) -> Version:
        """Return what differs once the standing of a team, or what its users hold, has changed."""

    def of(self, team: TeamName) -> Standing:
        """Return a team's standing."""

    def held(self, team: TeamName, user: User | None) -> Units:
        """Return the GPU units of one user's pods in a team; for None, of pods whose user is not known."""


# The fair order: whose turn it is between teams, entry after entry, while the caller finds out what may start.
#
# It follows from the queue and the standings alone. Ties end at the entries' age, so neither the order in which entries
# were added nor the replica that asks makes a difference.


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
    """A team's next entry of one class, of the state of the team that is `known`.

    `serial` is different for every turn. `rest` are those that follow, None before the first of them is looked at.
    """

    rank: Rank
    age: Age
    serial: int
    head: RowHead
    known: "_KnownTeam"
    rest: Iterator[RowHead] | None = None

    @property
    def team(self) -> TeamQueue:
        """Return the entries of its team."""
        return self.known.queue


class _Claim(NamedTuple):
    """The priority of the first entry for which the share of its team accumulates, and its class."""

    priority: int
    rank_class: int


@dataclass(slots=True)
class _KnownTeam:
    """A team as it was looked at: its lanes in order, the class of each lot, and the first turn of each class.

    With a `claim` entries of lower priority are of no better class.
    """

    queue: TeamQueue
    queue_version: int
    version: Version
    lanes: list[Lane]
    classes: Mapping[LotNumber, int]
    departments: tuple[str, ...]
    claim: _Claim | None
    firsts: list[Turn] = field(default_factory=list)

    @property
    def is_in_own_share(self) -> bool:
        """Whether all that waits fits inside the team's own share, so that no department matters."""
        return not self.firsts[-1].rank[0]

    def has(self, queue: TeamQueue | None) -> bool:
        """Whether the entries are still these."""
        return queue is self.queue and queue.version == self.queue_version

    def heads(self, rank_class: int, skipped: Skipped) -> Iterator[RowHead]:
        """Return the first entry of each row of a class, in the order of the lanes."""
        heads = _heads(self.lanes, skipped)
        if not self.classes:
            return heads
        if self.claim is None:
            return (head for head in heads if self.classes[head.lot] == rank_class)
        return (head for head in heads if self._behind(head, self.claim) == rank_class)

    def _behind(self, head: RowHead, claim: _Claim) -> int:
        own = self.classes[head.lot]
        return own if own or head.entry.priority >= claim.priority else claim.rank_class


class Order:
    """The order between the teams of a queue, kept from pass to pass: only teams that changed are looked at again.

    `look` before each pass, in parts where others are to have a turn in between. During a pass nothing changes but by
    the starts that it finds: where their own team stands (`note_start`), and the teams below the same departments.
    """

    def __init__(self, queue: PodQueue, standings: Standings) -> None:
        self.queue = queue
        self.claims = ShareClaims()
        self._standings = standings
        self._known: dict[TeamName, _KnownTeam] = {}
        self._below: dict[str, set[TeamName]] = {}
        self._firsts: list[Turn] = []  # of all known teams, in order
        self._changed: set[TeamName] = set()  # to be looked at again before the next walk
        self._behind: set[TeamName] = set()  # to be looked at again once it would be their turn
        self._serials = count()

    def look(self, *, most: int | None = None) -> bool:
        """Look again at the teams of which something changed, at `most` so many; return whether at all of them."""
        changed = [name for name, known in self._known.items() if not self._is_current(known)]
        self._behind.clear()  # those are among them
        return self._look_at(changed, most=most)

    def look_at_entries(self) -> None:
        """Look again at the teams whose entries changed; where others stand is taken as it was."""
        teams = self.queue.teams()
        self._look_at([name for name, known in self._known.items() if not known.has(teams.get(name))])

    def _look_at(self, changed: Iterable[TeamName], *, most: int | None = None) -> bool:
        teams = self.queue.teams()
        self.claims.keep_teams(teams)
        self._changed.update(changed)
        self._changed.update(teams.keys() - self._known.keys())
        for team in self._take(self._changed, most=most):
            self._look(team)
        return not self._changed

    def walk(self, skipped: Skipped) -> Iterator[Turn]:
        """Yield the first entry of every row in the order in which they are to start."""
        for team in self._take(self._changed):
            self._look(team)
        turns = self._firsts.copy()  # sorted, so it is a heap
        while turns:
            turn = turns[0]
            name = turn.team.team
            if self._known.get(name) is not turn.known:
                heappop(turns)
                continue
            if name in self._behind:
                self._behind.discard(name)
                for found in self._look(turn.team).firsts:
                    heappush(turns, found)
                continue
            if turn.head.lot not in skipped.lots and name not in skipped.teams:
                yield turn
            rest = turn.rest or self._rest(turn, skipped)
            following = None if skipped.has(turn.team) else next(rest, None)
            if following is None:
                heappop(turns)
            else:
                heapreplace(turns, turn._replace(age=following.entry.age, head=following, rest=rest))

    def note_start(self, team: TeamName) -> None:
        """Note that an entry of a team starts: the caller charges and removes it, or only removes it.

        A charge improves the rank of no team: those below the same departments come no earlier than they would before.
        """
        if (known := self._known.get(team)) is None:
            return
        for name in set[TeamName]().union(*(self._below[each] for each in known.departments)):
            if not self._known[name].is_in_own_share:
                self._behind.add(name)
        self._changed.add(team)

    def note_claim(self, entry: QueueEntry, *, is_claim: bool, is_denied: bool = False) -> None:
        """Note whether an entry waits for long, so that its team's share accumulates for it if it could have it.

        `is_denied`: it waits for something that the share does not help with.
        """
        if self.claims.note(entry, is_claim=is_claim, is_denied=is_denied):
            self._changed.add(entry.team)

    def presume_claim(self, entry: QueueEntry) -> None:
        """Note the claim of an entry that waits for long, unless it was denied."""
        if self.claims.presume(entry):
            self._changed.add(entry.team)

    def firsts(self) -> Iterator[QueueEntry]:
        """Yield the first entries of all teams, in order, as they were looked at last."""
        return (turn.head.entry for turn in [*self._firsts])

    def outside_shares(self) -> Iterator[QueueEntry]:
        """Yield the first entries outside of their team's share, to which a pass may never come."""
        first = bisect_left(self._firsts, 1, key=lambda turn: turn.rank[0])
        return (turn.head.entry for turn in self._firsts[first:])

    def _is_current(self, known: _KnownTeam) -> bool:
        name, seen = known.queue.team, known.version
        if not known.has(self.queue.teams().get(name)):
            return False
        version = self._standings.version(name)
        return version.own == seen.own and (version.above == seen.above or known.is_in_own_share)

    def _take(self, names: set[TeamName], *, most: int | None = None) -> Iterator[TeamQueue]:
        """Take these names out, at `most` so many, and yield the teams that have entries; the others are forgotten."""
        for name in [*islice(names, most)]:
            names.discard(name)
            self._behind.discard(name)
            team = self.queue.teams().get(name)
            if team is not None:
                yield team
            elif (known := self._known.pop(name, None)) is not None:
                self._forget(known)

    def _forget(self, known: _KnownTeam) -> None:
        for department in known.departments:
            self._below[department].discard(known.queue.team)
        for turn in known.firsts:
            del self._firsts[bisect_left(self._firsts, turn)]
        known.firsts.clear()  # a turn has its team: such a circle would stay in memory

    def _look(self, team: TeamQueue) -> _KnownTeam:
        name = team.team
        standing, version = self._standings.of(name), self._standings.version(name)
        before = self._known.pop(name, None)
        if before is not None:
            self._forget(before)
        if before is not None and before.has(team) and before.version.own == version.own:
            lanes = before.lanes
        else:
            lanes = team.lanes(partial(self._standings.held, name))
        classes = {}
        if standing.has_guarantee_for(team.smallest):
            classes = {number: standing.rank_class(lot) for number, lot in _lots(team, lanes)}
        names = tuple([level.name for level in standing.departments])
        claim = self._claim(lanes, classes, standing)
        known = self._known[name] = _KnownTeam(team, team.version, version, lanes, classes, names, claim)
        for department in names:
            self._below.setdefault(department, set()).add(name)
        for rank_class in sorted(set(classes.values())) or (NO_GUARANTEE,):
            head = next(known.heads(rank_class, Skipped()), None)
            if head is not None:
                turn = Turn(rank(standing, rank_class), head.entry.age, next(self._serials), head, known)
                known.firsts.append(turn)
                insort(self._firsts, turn)
        return known

    def _claim(self, lanes: Sequence[Lane], classes: Mapping[LotNumber, int], standing: Standing) -> _Claim | None:
        """Return the claim on the team's share, where anything else would use it."""
        self.claims.keep(self.queue, standing.team)
        claimants = self.claims.of(standing.team)
        if not claimants or 0 not in classes.values():
            return None
        for head in islice(_heads(lanes, Skipped()), CLAIMS):
            entry, own = head.entry, classes[head.lot]
            if own and entry.key in claimants and standing.could_have_share_for(entry.lot):
                return _Claim(entry.priority, own)
        return None

    def _rest(self, turn: Turn, skipped: Skipped) -> Iterator[RowHead]:
        """Return the entries of a first turn's class that follow."""
        heads = turn.known.heads(turn.rank[0], skipped)
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
