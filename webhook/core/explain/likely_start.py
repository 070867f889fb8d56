"""When a waiting pod is likely to start: a range from a forecast, or why none can be given. Never a promise."""

from collections.abc import Callable
from typing import Final, NamedTuple

from webhook.core.model.amount import Units
from webhook.core.model.names import TeamName, Uid, User

MAX_SECONDS: Final = 365 * 86_400
"""A start that may be further away than this is not known."""


class Run(NamedTuple):
    """A pod that ran, or runs (`ended` is 0): since when and until when, in seconds of Unix time.

    `gpus` and `user` say which later pods are like it.
    """

    uid: Uid
    team: TeamName
    started: int
    ended: int = 0
    gpus: Units = 0
    user: User | None = None


class StartRange(NamedTuple):
    """The earliest and the latest likely start, in seconds from now: of ten starts, eight lie between them."""

    earliest: int
    latest: int


class UnknownStart(NamedTuple):
    """Why the likely start is not known."""

    reason: str


LikelyStart = StartRange | UnknownStart

Starts = Callable[[Uid], LikelyStart]
"""Returns when a waiting pod is likely to start."""


def no_forecast(_uid: Uid) -> LikelyStart:
    """Return that nothing was forecast."""
    return UnknownStart("nothing was forecast")
