"""Backoff: victims that cannot be evicted now, and waiting pods and teams that did not use their room."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

_K = TypeVar("_K", bound=str)

TRIES: Final = 2
"""How often room is made for one pod that does not use it, before the long pause: what its scheduler knows and Fairgate
does not see costs others no more than that."""

PAUSE_SECONDS: Final = 5.0
"""Pause after the second try whose room others took; it doubles with each …"""

SHORT_PAUSES: Final = 3
"""… so often."""

LONG_SECONDS: Final = 600.0
"""Pause after the last: something is wrong that evictions do not solve. It doubles with each further try …"""

LONGEST_SECONDS: Final = 4 * 3600.0
"""… up to this."""

TOGETHER_SECONDS: Final = 1.0
"""Failed tries within so long count as one: the deletion of a Job deletes all of its pods."""

FREE_TRIES: Final = 2
"""Failed tries of a team without a pause: users change their minds."""


@dataclass(slots=True)
class _Pauses(Generic[_K]):
    """Until when each key pauses, by the given clock."""

    clock: Callable[[], float]
    _until: dict[_K, float] = field(default_factory=dict)

    def pause(self, key: _K, seconds: float) -> None:
        """Pause a key; a longer pause of it ends."""
        self._until[key] = self.clock() + seconds

    def paused(self) -> frozenset[_K]:
        """Return the keys that pause now."""
        now = self.clock()
        self._until = {key: until for key, until in self._until.items() if until > now}
        return frozenset(self._until)

    def next_end(self) -> float | None:
        """Return when the next pause ends; None where none does."""
        return min(self._until.values(), default=None)


@dataclass(slots=True)
class PodBackoff(_Pauses[_K]):
    """Counts failed tries by key."""

    _tries: dict[_K, int] = field(default_factory=dict)
    _unused: dict[_K, int] = field(default_factory=dict)

    def fail(self, key: _K, *, is_own_fault: bool) -> float | None:
        """Count a failed try; return the pause if it is the long one, else None.

        Where other pods took the room, pauses are short.
        """
        if is_own_fault:
            unused = self._unused[key] = self._unused.get(key, 0) + 1
            if unused < TRIES:
                return None
            seconds = min(LONGEST_SECONDS, LONG_SECONDS * 2.0 ** min(unused - TRIES, 20))
            self.pause(key, seconds)
            return seconds
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        if tries > 1:
            self.pause(key, PAUSE_SECONDS * 2 ** min(tries - 2, SHORT_PAUSES))
        return None

    def given_up(self) -> list[_K]:
        """Return the keys that have the long pause, or are tried once more after it."""
        return [key for key, unused in self._unused.items() if unused >= TRIES]

    def forget(self, key: _K) -> None:
        """Forget a key: the pod is placed or gone."""
        self._until.pop(key, None)
        self._tries.pop(key, None)
        self._unused.pop(key, None)


@dataclass(slots=True)
class TeamBackoff(_Pauses[_K]):
    """Makes teams that waste evictions wait longer with each; new pod names or successes do not reset it.

    Wasted evictions are forgotten by time only, one for each LONG_SECONDS.
    """

    _wasted: dict[_K, tuple[float, float]] = field(default_factory=dict)

    def fail(self, key: _K) -> float:
        """Count evictions that served no pod; return the pause that follows, 0 where none does or it has begun."""
        now = self.clock()
        at, before = self._wasted.get(key, (now, 0.0))
        if before and now - at < TOGETHER_SECONDS:
            return 0.0
        wasted = max(0.0, before - (now - at) / LONG_SECONDS) + 1
        self._wasted[key] = now, wasted
        seconds = min(LONG_SECONDS, PAUSE_SECONDS * 2 ** (wasted - FREE_TRIES - 1)) if wasted > FREE_TRIES else 0.0
        if seconds:
            self._until[key] = max(self._until.get(key, 0.0), now + seconds)
        return seconds
