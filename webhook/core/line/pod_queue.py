"""Entries of one team, kept in order; past use.

Past use: GPU-seconds that fade, half of them within each half-life.

Every replica and every platform must come to the same numbers, so all of it is integer arithmetic: powers of two come
from a table of square roots, and the natural logarithm of two is a ratio.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from math import isqrt
from typing import Final, NamedTuple

from webhook.core.line.entries import Age, Lot, QueueEntry
from webhook.core.model.amounts import TeamName, Units, User, add_to

_BITS: Final = 40  # of the part of a half-life: a short interval needs many of them
_SCALE: Final = 1 << 64
_LN2_NUMERATOR: Final = 693_147_180_560
_LN2_DENOMINATOR: Final = 1_000_000_000_000


class PastUse(NamedTuple):
    """GPU units times seconds, faded up to the time `at` (Unix seconds)."""

    unit_seconds: int = 0
    at: int = 0


def accrue(use: PastUse, gpus: Units, *, now: int, half_life: int) -> PastUse:
    """Return the use after `gpus` units were held from `use.at` until now; a clock that went back adds nothing.

    What was held within the interval fades too, so it makes no difference into how many intervals a time is cut.
    """
    seconds = now - use.at
    if seconds <= 0:
        return use
    if not half_life:
        return PastUse(0, now)
    left = _remainder(seconds, half_life)
    # The integral of 2^(-t/h) over the interval is h/ln 2 * (1 - 2^(-seconds/h)).
    added = int(gpus * half_life * (_SCALE - left)) * _LN2_DENOMINATOR // (_LN2_NUMERATOR * _SCALE)
    return PastUse((use.unit_seconds * left >> 64) + added, now)


def average(use: PastUse, *, now: int, half_life: int) -> int:
    """Return the GPU units that were held on average, where recent time counts more: what is held forever, as it is."""
    if not half_life:
        return 0
    faded = use.unit_seconds * _remainder(max(0, now - use.at), half_life) >> 64
    return faded * _LN2_NUMERATOR // (half_life * _LN2_DENOMINATOR)


class PastUses:
    """What each team borrowed, from the first `note` on: it is not stored, so a new leader starts from nothing."""

    def __init__(self) -> None:
        self._uses: dict[TeamName, PastUse] = {}
        self._borrowed: dict[TeamName, Units] = {}
        self._averages: dict[TeamName, int] = {}

    def note(self, borrowed: Mapping[TeamName, Units], *, now: int, half_life: int) -> None:
        """Record what the teams borrow from now on; call it at each change, and from time to time."""
        for team in {**self._uses, **borrowed}:
            use = self._uses.get(team, PastUse(0, now))
            self._uses[team] = accrue(use, self._borrowed.get(team, 0), now=now, half_life=half_life)
        self._uses = {team: use for team, use in self._uses.items() if use.unit_seconds or borrowed.get(team)}
        self._borrowed = {team: gpus for team, gpus in borrowed.items() if gpus}
        self._averages = {team: average(use, now=now, half_life=half_life) for team, use in self._uses.items()}

    def average(self, team: TeamName) -> Units:
        """Return what a team borrowed on average, as of the last `note`."""
        return self._averages.get(team, 0)


def _remainder(seconds: int, half_life: int) -> int:
    """Return 2^(-seconds/half_life), of _SCALE."""
    whole, rest = divmod(seconds, half_life)
    left = _SCALE >> min(whole, 64)
    part = (rest << _BITS) // half_life
    for bit, root in enumerate(_ROOTS, start=1):
        if part >> (_BITS - bit) & 1:
            left = left * root >> 64
    return left


def _roots() -> tuple[int, ...]:
    """Return 2^(-1/2), 2^(-1/4), 2^(-1/8) and so on, of _SCALE."""
    found, power = [], _SCALE >> 1
    for _ in range(_BITS):
        power = isqrt(power * _SCALE)
        found.append(power)
    return tuple(found)


_ROOTS: Final = _roots()


# The waiting entries in the order inside each team, kept by events: a change costs the same however many wait.
#
# Entries that fit alike (`Lot`) stand in one row, and only the first of a row is looked at. Rows belong to a user of a
# team at one priority, so that the order of users can follow what they hold without sorting anything again.


ROWS_PER_USER: Final = 8
"""Rows of one user and priority that are looked at: a user who makes every pod another size costs no more than that."""


LotNumber = int
"""Stands for a lot in one queue: comparing what pods need is slow."""


class RowHead(NamedTuple):
    """The first entry of a row, and the number of its lot."""

    entry: QueueEntry
    lot: LotNumber


class LaneKey(NamedTuple):
    """Whose entries a lane has."""

    team: TeamName
    user: User | None
    priority: int


class Lane:
    """The entries of one user at one priority: rows by lot, and the first of each row by age."""

    __slots__ = ("heads", "key", "rows")

    def __init__(self, key: LaneKey) -> None:
        self.key = key
        self.rows: dict[LotNumber, list[QueueEntry]] = {}
        self.heads: list[RowHead] = []

    def add(self, entry: QueueEntry, lot: LotNumber) -> None:
        """Add an entry that is not there yet."""
        row = self.rows.setdefault(lot, [])
        before = row[0] if row else None
        insort(row, entry, key=_age)
        self._set_head(lot, before)

    def remove(self, entry: QueueEntry, lot: LotNumber) -> None:
        """Remove an entry that is there."""
        row = self.rows[lot]
        before = row[0]
        del row[bisect_left(row, entry.age, key=_age)]
        self._set_head(lot, before)

    def _set_head(self, lot: LotNumber, before: QueueEntry | None) -> None:
        row = self.rows[lot]
        first = row[0] if row else None
        if first is before:
            return
        if before is not None:
            del self.heads[bisect_left(self.heads, before.age, key=_head_age)]
        if first is not None:
            insort(self.heads, RowHead(first, lot), key=_head_age)
        else:
            del self.rows[lot]


class TeamQueue:
    """The entries of one team, with counts of what they need and of the limits that count them."""

    __slots__ = (
        "_lanes",
        "_limits",
        "_lot_counts",
        "_priorities",
        "_sizes",
        "_smallest",
        "lots",
        "size",
        "team",
        "version",
    )

    def __init__(self, team: TeamName) -> None:
        self.team = team
        self.size = 0
        self.version = 0  # changes with every entry that comes or goes
        self.lots: dict[LotNumber, Lot] = {}
        self._lot_counts: dict[LotNumber, int] = {}
        self._sizes: dict[Units, int] = {}
        self._smallest: Units | None = None
        self._limits: dict[Hashable, int] = {}
        self._lanes: dict[int, dict[User | None, Lane]] = {}
        self._priorities: list[int] = []  # the highest last

    @property
    def smallest(self) -> Units:
        """Return the GPU units of the smallest entry."""
        if self._smallest is None:
            self._smallest = min(self._sizes)
        return self._smallest

    def is_covered_by(self, limit: Hashable) -> bool:
        """Whether a limit counts every entry."""
        return self._limits.get(limit) == self.size

    def add(self, entry: QueueEntry, lot: LotNumber) -> None:
        """Add an entry that is not there yet."""
        users = self._lanes.get(entry.priority)
        if users is None:
            users = self._lanes[entry.priority] = {}
            insort(self._priorities, entry.priority)
        lane = users.get(entry.user)
        if lane is None:
            lane = users[entry.user] = Lane(LaneKey(entry.team, entry.user, entry.priority))
        lane.add(entry, lot)
        self._count(entry, lot, 1)

    def remove(self, entry: QueueEntry, lot: LotNumber) -> None:
        """Remove an entry that is there."""
        users = self._lanes[entry.priority]
        lane = users[entry.user]
        lane.remove(entry, lot)
        if not lane.rows:
            del users[entry.user]
        if not users:
            del self._lanes[entry.priority]
            self._priorities.remove(entry.priority)
        self._count(entry, lot, -1)

    def lanes(self, held: Callable[[User | None], Units]) -> list[Lane]:
        """Return the lanes in the order of the team: priority, then who holds least, then age."""
        found: list[Lane] = []
        for priority in reversed(self._priorities):
            users = self._lanes[priority]
            ranked = [(held(user), lane.heads[0].entry.age, lane) for user, lane in users.items()]
            found += [lane for _, _, lane in sorted(ranked)]
        return found

    def _count(self, entry: QueueEntry, lot: LotNumber, change: int) -> None:
        self.version += 1
        self.size += change
        add_to(self._lot_counts, lot, change)
        if lot in self._lot_counts:
            self.lots[lot] = entry.lot
        else:
            del self.lots[lot]
        add_to(self._sizes, entry.gpus, change)
        self._smallest = None
        for limit in entry.limits:
            add_to(self._limits, limit, change)


class PodQueue:
    """All entries by key, and those of each team in order."""

    def __init__(self, entries: Iterable[QueueEntry] = ()) -> None:
        self._entries: dict[Hashable, QueueEntry] = {}
        self._teams: dict[TeamName, TeamQueue] = {}
        self._lots: dict[Lot, LotNumber] = {}
        self._next_lot = 0
        for entry in entries:
            self.add(entry)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable) -> QueueEntry | None:
        """Find an entry."""
        return self._entries.get(key)

    def entries(self) -> Iterator[QueueEntry]:
        """Yield all entries, in no order."""
        yield from self._entries.values()

    def teams(self) -> Mapping[TeamName, TeamQueue]:
        """Return the teams that have entries."""
        return self._teams

    def add(self, entry: QueueEntry) -> None:
        """Add an entry; one with the same key, such as a gang that grew, is replaced."""
        self.remove(entry.key)
        self._entries[entry.key] = entry
        team = self._teams.get(entry.team)
        if team is None:
            team = self._teams[entry.team] = TeamQueue(entry.team)
        team.add(entry, self._lot_number(entry.lot))

    def remove(self, key: Hashable) -> QueueEntry | None:
        """Remove an entry and return it; None if it is not there."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            team = self._teams[entry.team]
            team.remove(entry, self._lots[entry.lot])
            if not team.size:
                del self._teams[entry.team]
        if not self._entries:
            self._lots.clear()
        return entry

    def _lot_number(self, lot: Lot) -> LotNumber:
        if len(self._lots) > 2 * len(self._entries):
            in_use = {entry.lot for entry in self._entries.values()}
            self._lots = {each: number for each, number in self._lots.items() if each in in_use}
        number = self._lots.get(lot)
        if number is None:
            self._next_lot += 1
            number = self._lots[lot] = self._next_lot
        return number


def _age(entry: QueueEntry) -> Age:
    return entry.age


def _head_age(head: RowHead) -> Age:
    return head.entry.age
