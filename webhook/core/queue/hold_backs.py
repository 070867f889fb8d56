"""For how long entries that find no room hold back those behind them: a bound, so that none does so forever.

An entry whose GPUs are free on a node that it may use waits for something else there, such as cpu. What is kept idle
for it then helps no one, so that is bounded closely.
"""

from collections.abc import Hashable
from typing import Final, NamedTuple

from webhook.core.model.amount import Limit, Unlimited
from webhook.core.queue.verdict import NoRoom

IDLE_SECONDS: Final = 600
"""How long GPUs that are free where an entry may go are kept idle for it, while something else is missing there."""


class _Since(NamedTuple):
    """When an entry began to hold others back, and since when its GPUs are free all the while; None if they are not."""

    begin: int
    idle: int | None


class HoldBacks:
    """When each entry began to hold others back, in Unix seconds, by its key. One pass after the other."""

    def __init__(self) -> None:
        self._since: dict[Hashable, _Since] = {}
        self._seen: dict[Hashable, _Since] = {}

    def begin(self) -> None:
        """Begin a pass: entries that did not wait for room in the one before start again."""
        self._since, self._seen = self._seen, {}

    def is_over(self, key: Hashable, verdict: NoRoom, *, now: int, bound_seconds: Limit) -> bool:
        """Whether an entry that waits for room has held others back for too long."""
        before = self._since.get(key) or self._seen.get(key)
        idle = None
        if verdict.has_devices:
            idle = now if before is None or before.idle is None else before.idle
        found = self._seen[key] = _Since(now if before is None else before.begin, idle)
        if idle is not None and idle + IDLE_SECONDS <= now:
            return True
        return not isinstance(bound_seconds, Unlimited) and found.begin + bound_seconds <= now
