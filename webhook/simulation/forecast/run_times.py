"""How long pods run: stated, learned, seen.

The distribution of lengths that were seen, some of them not to their end (Nelson and Aalen), and rests drawn of it.

Lengths are whole numbers of any unit: seconds of a run, thousandths of what its user stated.
"""

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from random import Random
from statistics import median
from typing import Final, NamedTuple, TypeVar

from webhook.core.explain.line_places import Run
from webhook.core.model.amounts import TeamName, Uid, Units, User, bounded, even
from webhook.core.model.pod import MAX_SECONDS, NO_RUN_TIME, RunTime

_NEAR: Final = 0.9
"""A length like an earlier one is at least so much of it."""


class Seen(NamedTuple):
    """A length that was seen from `entered` on; whether it ended there, or goes on."""

    length: int
    has_ended: bool
    entered: int = 0


class Curve:
    """The hazard summed over lengths: how often one would have ended by then, if it could end several times."""

    def __init__(self, seen: Iterable[Seen]) -> None:
        known = [*seen]
        entries = sorted(each.entered for each in known)
        exits = sorted(each.length for each in known)
        counts: dict[int, int] = {}
        for each in known:
            if each.has_ended:
                length = max(1, each.length)
                counts[length] = counts.get(length, 0) + 1
        self._lengths = sorted(counts)
        at_risk = [bisect_left(entries, length) - bisect_left(exits, length) for length in self._lengths]
        hazards = (_hazard(counts[each], risk) for each, risk in zip(self._lengths, at_risk, strict=True))
        self._sums = list(accumulate(hazards))

    def left(self, age: int, dice: Random) -> int:
        """Return a drawn rest; past the longest length, half of those that remain are as long again."""
        index = bisect_right(self._lengths, age)
        target = (self._sums[index - 1] if index else 0.0) - math.log(1.0 - dice.random())
        found = bisect_left(self._sums, target, lo=index)
        if found < len(self._lengths):
            most = self._lengths[found]
            low = max(age, self._lengths[found - 1] if found else 0, _NEAR * most)
            length = low + dice.random() * (most - low)
        else:
            last = self._sums[-1] if self._sums else 0.0
            base = max(age, self._lengths[-1] if self._lengths else 1)
            length = base * math.exp(min(target - last, 20.0))
        return max(1, min(MAX_SECONDS, round(length) - age))


def _hazard(ended: int, at_risk: int) -> float:
    """Return the hazard of a length at which several ended, as if one had ended just after the other."""
    return sum(1 / (max(at_risk, ended) - before) for before in range(ended))


# Which pods run times are learned from: no team, and no user in it, may fill them by many short pods.
#
# Of each the latest are taken. What is known of a user's pods may be cut: earlier ones are left out here, or were
# forgotten by what the runs were read from. Its pods that came before then are counted from then on only.


MAX_RUNS: Final = 10_000
"""Pods that are learned from: more cost time and add nothing."""

OF_GROUP: Final = 20
"""Ended pods of a group without which a larger group is drawn from; so many of a team or user always count."""


_IS_CUT: Final = 50
_SPAN: Final = 10
"""Where so many pods of a user ended over so many times as long as they ran, those that ended earlier are taken to be
missing. Of a user with fewer pods that is taken from those of the team."""


class Learned(NamedTuple):
    """A run, and since when all ends of its user's pods are known; 0 where nothing says that any are missing."""

    run: Run
    since: int = 0


_T = TypeVar("_T")


def latest(runs: Iterable[Run], *, now: int) -> list[Learned]:
    """Return at most MAX_RUNS runs, the latest first: as many of each team, and of each of its users, as of the others.

    None is left out while another team or user keeps more.
    """
    ordered = sorted(runs, key=lambda run: (run.ended or now, run.started, run.uid), reverse=True)
    found = _by_user(ordered, of=lambda run: run)
    users = {team: {user: len(those) for user, those in each.items()} for team, each in found.items()}
    teams = even({team: sum(counts.values()) for team, counts in users.items()}, MAX_RUNS)
    taken: list[Learned] = []
    for team, each in found.items():
        kept = {user: each[user][:most] for user, most in even(users[team], teams[team]).items()}
        of_team = _since(chain.from_iterable(kept.values()), now=now) or 0
        for those in kept.values():
            own = _since(those, now=now)
            taken += [Learned(run, of_team if own is None else own) for run in those]
    return sorted(taken, key=lambda each: (each.run.ended or now, each.run.started, each.run.uid), reverse=True)


def _since(runs: Iterable[Run], *, now: int) -> int | None:
    """Return since when all ends are known; 0 where nothing says that any are missing, None where too few are known."""
    ended = [run for run in runs if run.ended]
    if len(ended) < _IS_CUT:
        return None
    since = min(run.ended for run in ended)
    return since if now - since >= _SPAN * median(run.ended - run.started for run in ended) else 0


def balanced(learned: Sequence[Learned]) -> list[Learned]:
    """Return those of a group of which no team has more than the others on average, and no user than other users.

    What is left out is spread evenly over those of a user, so that ended and running ones remain in proportion.
    """
    found = _by_user(learned, of=lambda each: each.run)
    users = {
        team: bounded({user: len(those) for user, those in each.items()}, floor=OF_GROUP)
        for team, each in found.items()
    }
    teams = bounded({team: sum(counts.values()) for team, counts in users.items()}, floor=OF_GROUP)
    return [
        each[user][index * len(each[user]) // most]
        for team, each in found.items()
        for user, most in even(users[team], teams[team]).items()
        for index in range(most)
    ]


def _by_user(items: Iterable[_T], *, of: Callable[[_T], Run]) -> dict[TeamName, dict[User | None, list[_T]]]:
    found: dict[TeamName, dict[User | None, list[_T]]] = {}
    for item in items:
        run = of(item)
        found.setdefault(run.team, {}).setdefault(run.user, []).append(item)
    return found


# How long pods ran so far, as a watch shows it: what a process remembers to forecast from.


ENDED: Final = 1_000
"""Runs that are remembered of pods that ended, shared by teams and users: one with many forgets its own first."""


class SeenRuns:
    """How long pods ran so far: those that run, and the latest that ended."""

    def __init__(self) -> None:
        self._running: dict[Uid, Run] = {}
        self._ended: dict[TeamName, dict[User | None, deque[Run]]] = {}
        self._number: Counter[TeamName] = Counter()

    def __iter__(self) -> Iterator[Run]:
        yield from self._running.values()
        for users in self._ended.values():
            yield from chain.from_iterable(users.values())

    def __contains__(self, uid: Uid) -> bool:
        return uid in self._running

    def add(self, run: Run | None) -> None:
        """Add a pod that runs, or that ended; None changes nothing."""
        if run is not None and run.ended:
            self._remember(run)
        elif run is not None:
            self._running[run.uid] = run

    def end(self, uid: Uid, *, now: int) -> None:
        """Note that a pod ended or was deleted, if it ran."""
        run = self._running.pop(uid, None)
        if run is not None:
            self._remember(run._replace(ended=max(now, run.started)))

    def _remember(self, run: Run) -> None:
        self._ended.setdefault(run.team, {}).setdefault(run.user, deque()).append(run)
        self._number[run.team] += 1
        if self._number.total() > ENDED:
            team = max(self._number, key=self._number.__getitem__)
            users = self._ended[team]
            user = max(users, key=lambda each: len(users[each]))
            users[user].popleft()
            self._number[team] -= 1
            if not users[user]:
                del users[user]


# What users said of their pods' run times, as far as that held so far. No statement is believed for its own sake.
#
# A user is believed whose pods ran, for at least half of all their time, between half and twice as long as was stated:
# counted by time, so that no number of short pods makes a statement on a long one credible. Of a user without a known
# run the statements of the team count: new names are free. What is drawn then are times as much longer or shorter than
# stated as earlier ones were, so that a habit of stating too much is allowed for. A pod that has run for twice its
# statement is drawn as if there were none.


HELD: Final = 2
"""A statement holds of a run that is at most so many times longer or shorter."""

_PARTS: Final = 1000
"""Ratios of times to statements are counted in thousandths."""

_FIRST: Final = tuple(Seen(part, has_ended=True) for part in (200, 400, 600, 700, 800, 900, 1000, 1100, 1400, 2000))
"""Ratios that are assumed as long as too few are known."""

_SLACK: Final = 1.1
_SLACK_SECONDS: Final = 60
"""How much longer than its deadline a pod runs that is ended by it."""

_Who = tuple[TeamName, User | None]


class Record(NamedTuple):
    """How a user's statements held: in seconds of runs, and in runs that ended."""

    held_seconds: int = 0
    seconds: int = 0
    held: int = 0
    ended: int = 0
    keeps_deadlines: bool = True

    @property
    def is_believed(self) -> bool:
        """Whether statements count; those do of which none has been tried yet."""
        return 2 * self.held_seconds >= self.seconds


NO_RECORD: Final = Record()


class Statements:
    """The statements of runs that ended, or have lasted longer than stated, by user."""

    def __init__(self, learned: Sequence[Learned], *, now: int) -> None:
        stated: dict[_Who, list[Learned]] = defaultdict(list)
        self._records: dict[_Who, Record] = {}
        self._teams: dict[TeamName, Record] = {}
        for each in learned:
            run = each.run
            if run.run_time.stated or run.run_time.most:
                who = (run.team, run.user)
                stated[who].append(each)
                self._records[who] = _noted(self._records.get(who, NO_RECORD), each, now=now)
                self._teams[run.team] = _noted(self._teams.get(run.team, NO_RECORD), each, now=now)
        believed = [each for who, those in stated.items() if self._records[who].is_believed for each in those]
        ratios = [_seen(each, now=now) for each in balanced(believed) if each.run.run_time.stated]
        if sum(each.has_ended for each in ratios) < OF_GROUP:
            ratios += _FIRST
        self._all = Curve(ratios)
        common = ratios[:: max(1, len(ratios) // len(_FIRST))]
        self._own = {
            who: _user_curve([_seen(each, now=now) for each in those if each.run.run_time.stated], common)
            for who, those in stated.items()
        }

    def record(self, team: TeamName, user: User | None) -> Record:
        """Return how a user's statements held; those of the team where none of theirs was tried yet."""
        own = self._records.get((team, user), NO_RECORD)
        return own if own.seconds or not own.keeps_deadlines else self._teams.get(team, NO_RECORD)

    def left(self, team: TeamName, user: User | None, stated: int, *, age: int, dice: Random) -> int | None:
        """Return for how many seconds a pod runs on that has run for `age` seconds; None where that is not believed."""
        if not stated or age > HELD * stated or not self.record(team, user).is_believed:
            return None
        curve = self._own.get((team, user), self._all)
        return max(1, curve.left(age * _PARTS // stated, dice) * stated // _PARTS)

    def deadline(self, team: TeamName, user: User | None, run_time: RunTime, *, age: int) -> int:
        """Return in how many seconds a pod is ended at the latest; 0 where that is not known, or not kept to."""
        is_kept = run_time.most and self.record(team, user).keeps_deadlines and not _is_past(age, run_time.most)
        return max(1, run_time.most - age) if is_kept else 0


def _user_curve(own: list[Seen], common: Iterable[Seen]) -> Curve:
    """Return the curve of a user's own ratios, with some of others where they are few."""
    return Curve(own if sum(each.has_ended for each in own) >= OF_GROUP else [*own, *common])


def _noted(record: Record, learned: Learned, *, now: int) -> Record:
    """Return a record with one more run, which says nothing while it may still hold."""
    run = learned.run
    length, stated = max(1, (run.ended or now) - run.started), run.run_time.stated
    keeps = record.keeps_deadlines and not (run.run_time.most and _is_past(length, run.run_time.most))
    record = record._replace(keeps_deadlines=keeps)
    if not stated or not (run.ended or length > HELD * stated):
        return record
    held = length <= HELD * stated and stated <= HELD * length
    return record._replace(
        held_seconds=record.held_seconds + held * length,
        seconds=record.seconds + length,
        held=record.held + held,
        ended=record.ended + 1,
    )


def _is_past(length: int, deadline: int) -> bool:
    return length > _SLACK * deadline + _SLACK_SECONDS


def _seen(learned: Learned, *, now: int) -> Seen:
    """Return the ratio of a run to its statement."""
    run, stated = learned.run, learned.run.run_time.stated
    length, entered = max(0, (run.ended or now) - run.started), max(0, learned.since - run.started - 1)
    return Seen(length * _PARTS // stated, bool(run.ended), entered * _PARTS // stated)


# How long pods run: learned from those that ended and those that run, drawn for those that run or wait.
#
# For each age the share of pods that ended at it is estimated among those that were seen to reach it, so a
# pod that runs still counts for what it has run, and one that has run for long is drawn longer. Pods are drawn like
# earlier ones of their user, team and size; where too few of these ended, like those of a larger group, in which no
# team counts for more pods than the others on average. What a user states of a pod goes before, as
# far as it held so far.


MIN_ENDED: Final = 5
"""Ended pods without which nothing is known of run times."""

STATED_FASTER: Final = 0.25
STATED_LEFT: Final = 0.5
"""How far, as exponents, stated times follow a pace below 1, and one above 1 where the pod runs already: they say what
pods of one kind or week have in common. Of pods that wait they follow a pace above 1 as others do, since pods that come
later and go first delay a start as much."""


class Likeness(NamedTuple):
    """What pods that run equally long have in common."""

    team: TeamName
    gpus: Units
    user: User | None = None


class RunTimes:
    """Draws how long pods run. `ended` is the number of pods that it was learned from and that ended."""

    def __init__(self, runs: Iterable[Run], *, now: int) -> None:
        known = latest(runs, now=now)
        self.ended = sum(bool(each.run.ended) for each in known)
        self.statements = Statements(known, now=now)
        self._all = _group_curve(known, now=now)
        groups: dict[Hashable, list[Learned]] = {}
        for each in known:
            run = each.run
            for group in _groups(Likeness(run.team, run.gpus, run.user)):
                groups.setdefault(group, []).append(each)
        self._curves = {
            group: _group_curve(found, now=now)
            for group, found in groups.items()
            if sum(bool(each.run.ended) for each in found) >= OF_GROUP
        }

    @property
    def is_known(self) -> bool:
        """Whether enough pods have ended."""
        return self.ended >= MIN_ENDED

    def says(self, likeness: Likeness, run_time: RunTime) -> bool:
        """Whether what a user said of a new pod is believed."""
        stated = run_time.stated and self.statements.record(likeness.team, likeness.user).is_believed
        return bool(stated or self.statements.deadline(likeness.team, likeness.user, run_time, age=0))

    def left(
        self,
        likeness: Likeness,
        *,
        age: int,
        dice: Random,
        pace: float = 1.0,
        run_time: RunTime = NO_RUN_TIME,
        is_fastest: bool = False,
    ) -> int:
        """Return for how many seconds a pod runs on that has run for `age` seconds; at least one.

        Pods without GPUs run for good where none of them ended: they are not a team's work, but the cluster's own. So
        do pods of which nothing is known, unless this is the draw of the shortest times.
        """
        team, user = likeness.team, likeness.user
        deadline = self.statements.deadline(team, user, run_time, age=age)
        stated = self.statements.left(team, user, run_time.stated, age=age, dice=dice)
        if stated is not None:
            slower = STATED_LEFT if age else 1.0
            found = math.pow(pace, slower if pace > 1 else STATED_FASTER) * stated
        elif self.is_known:
            curve = next((self._curves[group] for group in _groups(likeness) if group in self._curves), self._all)
            found = pace * (MAX_SECONDS if curve is self._all and not likeness.gpus else curve.left(age, dice))
        else:
            found = 1 if is_fastest and likeness.gpus else MAX_SECONDS
        return max(1, min(deadline or MAX_SECONDS, round(found)))

    def scaled(self, pace: float, dice: Random, *, is_fastest: bool = False) -> "DrawnTimes":
        """Return times that are all longer or shorter than those of earlier pods."""
        return DrawnTimes(self, pace, dice, is_fastest=is_fastest)


class DrawnTimes:
    """Draws the times of one sample. Times longer than `MAX_SECONDS` are cut."""

    def __init__(self, run_times: RunTimes, pace: float, dice: Random, *, is_fastest: bool) -> None:
        self._run_times = run_times
        self._pace = pace
        self._dice = dice
        self._is_fastest = is_fastest

    def left(self, likeness: Likeness, age: int, run_time: RunTime = NO_RUN_TIME) -> int:
        """Return for how many seconds a pod runs on that has run for `age` seconds; at least one."""
        return self._run_times.left(
            likeness, age=age, dice=self._dice, pace=self._pace, run_time=run_time, is_fastest=self._is_fastest
        )


def _groups(likeness: Likeness) -> Iterator[Hashable]:
    """Yield the groups of a pod, the smallest first."""
    team, gpus, user = likeness
    if user is not None:
        yield team, gpus, user
    yield team, gpus
    yield gpus
    yield team


def _group_curve(learned: list[Learned], *, now: int) -> Curve:
    """Return the run times of a group."""
    return Curve(
        Seen(
            max(0, (each.run.ended or now) - each.run.started),
            bool(each.run.ended),
            max(0, each.since - each.run.started - 1),
        )
        for each in balanced(learned)
    )
