"""Which events are worth a write: the same ones become one with a count, and nobody floods an object. Pure.

After client-go's EventCorrelator: its token bucket is per source and object, this one per object and reason, so that a
reason that repeats hides no other.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, TypeVar

from webhook.kube.objects.events import Event, EventReason, Identity, ObjectRef

BURST: Final = 25
"""Writes that an object and reason may cause at once; client-go's value …"""

REFILL_SECONDS: Final = 300.0
"""… as is the time after which there may be one more."""

REMEMBERED: Final = 4096
"""Events and buckets remembered; client-go's value."""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class Told:
    """How often an event happened, from when to when; `is_written`: the API server has it."""

    event: Event
    first: datetime
    last: datetime
    count: int = 0
    is_written: bool = False


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float

    def take(self, now: float) -> bool:
        self.tokens = min(BURST, self.tokens + (now - self.filled_at) / REFILL_SECONDS)
        self.filled_at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class Correlator:
    """Remembers what was told."""

    def __init__(self) -> None:
        self._told: _Recent[Identity, Told] = _Recent()
        self._buckets: _Recent[tuple[ObjectRef, EventReason], _Bucket] = _Recent()

    def take(self, event: Event, *, now: float, wall: datetime, times: int = 1) -> Told | None:
        """Count an event that happened so often; None where its object has had too many for this reason.

        A repeat that is held back is in the count of the next one that is not. `now` is monotonic, `wall` for people.
        """
        told = self._told.get(event.identity, lambda: Told(event, wall, wall))
        told.event = event
        told.count += times
        told.last = wall
        bucket = self._buckets.get((event.about, event.reason), lambda: _Bucket(BURST, now))
        return told if bucket.take(now) else None


class _Recent(Generic[K, V]):
    """Keeps what was asked for lately."""

    def __init__(self) -> None:
        self._kept: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Give what is kept under a key, or make it; what was not asked for for longest makes room."""
        if key not in self._kept:
            self._kept[key] = make()
            if len(self._kept) > REMEMBERED:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]
