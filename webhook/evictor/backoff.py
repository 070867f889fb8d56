"""Who is left alone for a while: victims that may not go now, waiting pods and teams that did not use their room."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

_K = TypeVar("_K", bound=str)

TRIES: Final = 5
"""How often in a row room is made in vain for one pod, before it is left alone for long."""

REST_SECONDS: Final = 5.0
"""Rest after the second vain try; it doubles with each."""

LONG_SECONDS: Final = 600.0
"""Rest after the last: something is wrong that evictions do not mend."""

TOGETHER_SECONDS: Final = 1.0
"""Evictions that turn out vain within so long count as one: a Job that is deleted takes all of its pods along."""

FREE_TRIES: Final = 2
"""Vain tries of a team that cost it nothing: people change their minds."""


@dataclass(slots=True)
class PodBackoff(Generic[_K]):
    """Counts tries, and remembers until when somebody rests, by the clock that it is given."""

    clock: Callable[[], float]
    _until: dict[_K, float] = field(default_factory=dict)
    _tries: dict[_K, int] = field(default_factory=dict)

    def rest(self, key: _K, seconds: float) -> None:
        """Leave somebody alone."""
        self._until[key] = self.clock() + seconds

    def resting(self) -> frozenset[_K]:
        """List who is left alone now."""
        now = self.clock()
        self._until = {key: until for key, until in self._until.items() if until > now}
        return frozenset(self._until)

    def next_end(self) -> float | None:
        """Tell when the next one is looked at again; None where nobody rests."""
        return min(self._until.values(), default=None)

    def fail(self, key: _K, *, is_own_fault: bool) -> float | None:
        """Count a vain try; gives the rest where it is the long one, None where it is not.

        Where others took the room, the rests grow no further than to the last short one.
        """
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        if tries >= TRIES and is_own_fault:
            del self._tries[key]
            self.rest(key, LONG_SECONDS)
            return LONG_SECONDS
        if tries > 1:
            self.rest(key, REST_SECONDS * 2 ** min(tries - 2, TRIES - 2))
        return None

    def forget(self, key: _K) -> None:
        """Forget about somebody: it has what it wanted, or is gone."""
        self._until.pop(key, None)
        self._tries.pop(key, None)


@dataclass(slots=True)
class TeamBackoff(Generic[_K]):
    """Lets who wastes evictions wait longer with each: neither a new name nor a success in between starts it again.

    What was wasted is forgotten by time alone, one for each of the longest rests.
    """

    clock: Callable[[], float]
    _until: dict[_K, float] = field(default_factory=dict)
    _wasted: dict[_K, tuple[float, float]] = field(default_factory=dict)

    def fail(self, key: _K) -> float:
        """Count evictions that served no pod; gives the rest that follows, 0 where none does or it has begun."""
        now = self.clock()
        at, before = self._wasted.get(key, (now, 0.0))
        if before and now - at < TOGETHER_SECONDS:
            return 0.0
        wasted = max(0.0, before - (now - at) / LONG_SECONDS) + 1
        self._wasted[key] = now, wasted
        seconds = min(LONG_SECONDS, REST_SECONDS * 2 ** (wasted - FREE_TRIES - 1)) if wasted > FREE_TRIES else 0.0
        self._until[key] = max(self._until.get(key, 0.0), now + seconds)
        return seconds

    def resting(self) -> frozenset[_K]:
        """List who is to wait now."""
        now = self.clock()
        return frozenset(key for key, until in self._until.items() if until > now)

    def next_end(self) -> float | None:
        """Tell when the next one need not wait any more; None where nobody waits."""
        now = self.clock()
        return min((until for until in self._until.values() if until > now), default=None)
