"""A clock of Unix time that runs evenly: a step of the system's clock is taken over only when the caller asks."""

import time
from collections.abc import Callable
from typing import Final

_STEP_SECONDS: Final = 1.0
"""A difference from which on the system's clock was set; smaller ones are slewed by the system itself."""


class SteadyClock:
    """Returns Unix time that advances with the monotonic clock."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._offset = wall() - monotonic()

    def __call__(self) -> float:
        """Return the time."""
        return self._monotonic() + self._offset

    def has_been_set(self) -> bool:
        """Whether the system's clock was set since the last call; the time is then the system's again."""
        offset = self._wall() - self._monotonic()
        if abs(offset - self._offset) < _STEP_SECONDS:
            return False
        self._offset = offset
        return True
