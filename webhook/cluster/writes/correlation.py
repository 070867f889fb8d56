"""Which Events are worth a write: equal ones become one with a count, and writes per object are limited. Pure.

After client-go's EventCorrelator: its token bucket is per source and object, this one per object and reason, so that
a reason that repeats does not suppress another one.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, TypeVar

from webhook.kube.objects.events import Event, EventReason, Identity, ObjectRef

BURST: Final = 25
"""Writes for one object and reason in a burst; client-go's value …"""

REFILL_SECONDS: Final = 300.0
"""… as is the time after which one more is allowed."""

REMEMBERED: Final = 4096
"""Events and buckets remembered; client-go's value."""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class EventRecord:
    """How often an event happened, first and last time; `is_written`: the API server has it."""

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
    """Counts events and limits their writes."""

    def __init__(self) -> None:
        self._records: _Recent[Identity, EventRecord] = _Recent()
        self._buckets: _Recent[tuple[ObjectRef, EventReason], _Bucket] = _Recent()

    def count(self, event: Event, *, now: float, wall: datetime, times: int = 1) -> EventRecord | None:
        """Count an event that happened `times` times; None if its object had too many writes for this reason.

        A repeat that is held back is in the count of the next one that is not. `now` is monotonic, `wall` is shown.
        """
        record = self._records.get(event.identity, lambda: EventRecord(event, wall, wall))
        record.event = event
        record.count += times
        record.last = wall
        bucket = self._buckets.get((event.about, event.reason), lambda: _Bucket(BURST, now))
        return record if bucket.take(now) else None


class _Recent(Generic[K, V]):
    """An LRU cache of REMEMBERED entries."""

    def __init__(self) -> None:
        self._kept: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return the entry of a key, or make it; the least recently used entry is dropped to make room."""
        if key not in self._kept:
            self._kept[key] = make()
            if len(self._kept) > REMEMBERED:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]
