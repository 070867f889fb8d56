"""Token buckets, and a cache that keeps those used last. Pure: times are seconds of any monotonic clock."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class TokenBucket:
    """Allows `burst` actions at once, and one more after each `refill_seconds`."""

    burst: int
    refill_seconds: float
    tokens: float
    filled_at: float

    @classmethod
    def full(cls, burst: int, refill_seconds: float, *, now: float) -> "TokenBucket":
        """Return a bucket that nothing was taken from."""
        return cls(burst, refill_seconds, burst, now)

    def wait_seconds(self, now: float) -> float:
        """Return the time until an action is allowed, 0 if it is."""
        self.tokens = min(self.burst, self.tokens + (now - self.filled_at) / self.refill_seconds)
        self.filled_at = now
        return max(0.0, 1 - self.tokens) * self.refill_seconds

    def take(self, now: float) -> bool:
        """Count an action if it is allowed, and return whether it is."""
        if self.wait_seconds(now) > 0:
            return False
        self.tokens -= 1
        return True


class Recent(Generic[K, V]):
    """The entries that were used last, at most `size`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return the entry of a key, or make it; the one whose use is longest ago is dropped to make room."""
        if key not in self._kept:
            self._kept[key] = make()
            if len(self._kept) > self._size:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]
