"""When a waiting pod is likely to start: a range from a forecast, or why none can be given. Never a promise."""

from collections.abc import Callable
from typing import NamedTuple

from webhook.core.model.amount import Units
from webhook.core.model.names import TeamName, Uid, User
from webhook.core.model.run_time import NO_RUN_TIME, RunTime


class Run(NamedTuple):
    """A pod that ran, or runs (`ended` is 0): since when and until when, in seconds of Unix time.

    `gpus` and `user` say which later pods are like it. `run_time` is what its user said of it, `created` when it came;
    0 where that is not known.
    """

    uid: Uid
    team: TeamName
    started: int
    ended: int = 0
    gpus: Units = 0
    user: User | None = None
    run_time: RunTime = NO_RUN_TIME
    created: int = 0


class StartRange(NamedTuple):
    """The earliest and the latest likely start, in seconds from now: of ten starts, eight lie between them."""

    earliest: int
    latest: int


class UnknownStart(NamedTuple):
    """Why the likely start is not known."""

    reason: str


LikelyStart = StartRange | UnknownStart


class Said(NamedTuple):
    """What the user of a waiting pod said of its run, in seconds, and in how many of their runs what they said held.

    Where these were the larger part of their time, it `is_believed`.
    """

    seconds: int
    held: int
    tried: int
    is_believed: bool


Starts = Callable[[Uid], LikelyStart]
"""Returns when a waiting pod is likely to start."""


def no_forecast(_uid: Uid) -> LikelyStart:
    """Return that nothing was forecast."""
    return UnknownStart("nothing was forecast")
