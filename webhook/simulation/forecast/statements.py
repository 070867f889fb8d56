"""What users said of their pods' run times, as far as that held so far. No statement is believed for its own sake.

A user is believed whose pods ran, for at least half of all their time, between half and twice as long as was stated:
counted by time, so that no number of short pods makes a statement on a long one credible. Of a user without a known run
the statements of the team count: new names are free. What is drawn then are times as much longer or shorter than
stated as earlier ones were, so that a habit of stating too much is allowed for. A pod that has run for twice its
statement is drawn as if there were none.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from random import Random
from typing import Final, NamedTuple

from webhook.core.model.names import TeamName, User
from webhook.core.model.run_time import RunTime
from webhook.simulation.forecast.hazard import Curve, Seen
from webhook.simulation.forecast.learned_runs import OF_GROUP, Learned, balanced

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
            who: _curve([_seen(each, now=now) for each in those if each.run.run_time.stated], common)
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


def _curve(own: list[Seen], common: Iterable[Seen]) -> Curve:
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
