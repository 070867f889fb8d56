"""Which Events are worth a write: equal ones become one with a count, and writes per object are limited. Pure.

After client-go's EventCorrelator: its token bucket is per source and object, this one per object and reason, so that
a reason that repeats does not suppress another one.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from webhook.cluster.writes.rate_limit import Recent, TokenBucket
from webhook.kube.objects.events import Event, EventReason, Identity, ObjectRef

BURST: Final = 25
"""Writes for one object and reason in a burst; client-go's value …"""

REFILL_SECONDS: Final = 300.0
"""… as is the time after which one more is allowed."""

REMEMBERED: Final = 4096
"""Events and buckets remembered; client-go's value."""


@dataclass(slots=True)
class EventRecord:
    """How often an event happened, first and last time; `is_written`: the API server has it."""

    event: Event
    first: datetime
    last: datetime
    count: int = 0
    is_written: bool = False


class Correlator:
    """Counts events and limits their writes."""

    def __init__(self) -> None:
        self._records: Recent[Identity, EventRecord] = Recent(REMEMBERED)
        self._buckets: Recent[tuple[ObjectRef, EventReason], TokenBucket] = Recent(REMEMBERED)

    def count(self, event: Event, *, now: float, wall: datetime, times: int = 1) -> EventRecord | None:
        """Count an event that happened `times` times; None if its object had too many writes for this reason.

        A repeat that is held back is in the count of the next one that is not. `now` is monotonic, `wall` is shown.
        """
        record = self._records.get(event.identity, lambda: EventRecord(event, wall, wall))
        record.event = event
        record.count += times
        record.last = wall
        bucket = self._buckets.get(
            (event.about, event.reason), lambda: TokenBucket.full(BURST, REFILL_SECONDS, now=now)
        )
        return record if bucket.take(now) else None
