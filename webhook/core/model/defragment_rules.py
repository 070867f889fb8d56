"""The policy's rules for moves of running pods that make room: when they are made, and how many."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from webhook.core.model.amount import Limit

_MINUTES: Final = 60
UTC_NAME: Final = "UTC"
"""Known without the system's table of time zones."""


@dataclass(frozen=True, slots=True)
class Window:
    """A time of each day, in minutes after midnight in a time zone that exists: from `start` to before `end`.

    It goes over midnight where the end is not later than the start.
    """

    start: int
    end: int
    zone: str = UTC_NAME

    def is_open(self, now: int) -> bool:
        """Whether it is that time of day; `now` is in seconds of Unix time."""
        local = datetime.fromtimestamp(now, UTC if self.zone == UTC_NAME else ZoneInfo(self.zone))
        minute = local.hour * _MINUTES + local.minute
        if self.start < self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end

    def __str__(self) -> str:
        start, end = (f"{each // _MINUTES:02}:{each % _MINUTES:02}" for each in (self.start, self.end))
        return f"{start}-{end} {self.zone}"


@dataclass(frozen=True, slots=True)
class DefragmentRules:
    """Moves are made for pods that wait (`on_demand`), and in a `window` for the largest pod that may come.

    At most `moves_per_hour` in all, and `moves_per_workload` an hour of the pods of one controller. A plan may lose
    `lost_seconds_per_gpu` of GPU time for each GPU of the room that it makes. A pod runs at least
    `minimum_runtime_seconds` before it is moved. `notice_seconds` is None where that of reclaim applies.
    """

    on_demand: bool = False
    window: Window | None = None
    moves_per_hour: int = 10
    moves_per_workload: int = 1
    lost_seconds_per_gpu: Limit = 3600
    minimum_runtime_seconds: int = 600
    notice_seconds: int | None = None

    @property
    def is_on(self) -> bool:
        """Whether any moves are made."""
        return self.on_demand or self.window is not None
