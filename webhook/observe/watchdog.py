"""Says when the event loop was held, for how long, and by what: while it is, no request is answered.

A task sleeps for a moment, again and again, and finds out how much later it woke. A thread looks, while it is late, at
what the loop's thread is doing: afterwards nobody could tell.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Final

from webhook.observe.logs import Logs
from webhook.observe.process import ProcessMetrics

BEAT_SECONDS: Final = 0.05
HELD_SECONDS: Final = 0.05
"""Turns of the loop that are counted. Those twice as long are logged, too."""

OTHER: Final = "other"
STALL: Final = "stall"
"""Who held the loop where it was not ours: the process got no processor."""

_FRAMES: Final = 12
_BY: Final = (
    ("webhook.server.review.reviewer", "mutate", "mutate"),
    ("webhook.server.review.reviewer", "validate", "validate"),
    ("webhook.server.review.reviewer", "workloads", "workloads"),
    ("webhook.cluster.watch.watch", "", "watch"),
    ("webhook.cluster.ledger.ledger_writer", "", "ledger"),
    ("webhook.cluster.ledger.ledger", "", "ledger"),
    ("webhook.server.http.handlers", "metrics", "metrics"),
    ("webhook.server.leader.leader", "", "leader"),
    ("webhook.evictor", "", "evictor"),
    ("webhook.policy", "", "policy"),
)


@dataclass(frozen=True, slots=True)
class _Sight:
    """What the loop's thread was doing: whose work that was, and where, the innermost frame last."""

    by: str
    stack: tuple[str, ...]


class Watchdog:
    """Watches the event loop that `run` runs on."""

    def __init__(self, metrics: ProcessMetrics, logs: Logs) -> None:
        self._metrics = metrics
        self._logs = logs
        self._thread_id = threading.get_ident()
        self._due = time.monotonic()
        self._seen: _Sight | None = None
        self._is_over = threading.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        threading.Thread(target=self._look, name="watchdog", daemon=True).start()
        try:
            while True:
                self._seen = None
                cpu = time.thread_time()
                self._due = time.monotonic() + BEAT_SECONDS
                await asyncio.sleep(BEAT_SECONDS)
                if (late := time.monotonic() - self._due) >= HELD_SECONDS:
                    self._tell(late, time.thread_time() - cpu)
        finally:
            self._is_over.set()

    def _look(self) -> None:
        while not self._is_over.wait(BEAT_SECONDS):
            if self._seen is None and time.monotonic() - self._due >= HELD_SECONDS / 2:
                frame = sys._current_frames().get(self._thread_id)
                self._seen = None if frame is None else _sight(frame)

    def _tell(self, seconds: float, cpu_seconds: float) -> None:
        seen = self._seen or _Sight(OTHER, ())
        by = STALL if cpu_seconds < HELD_SECONDS else seen.by
        self._metrics.loop_held(by, seconds)
        if seconds >= 2 * HELD_SECONDS:
            self._logs.event.warning(
                "event loop held",
                seconds=round(seconds, 3),
                cpu_seconds=round(cpu_seconds, 3),
                by=by,
                where=" > ".join(seen.stack),
            )


def _sight(frame: FrameType) -> _Sight:
    frames = list(_outwards(frame))
    by = next((name for each in reversed(frames) if (name := _holder(each)) is not None), OTHER)
    stack = [f"{_module(each)}.{each.f_code.co_name}:{each.f_lineno}" for each in frames[:_FRAMES]]
    return _Sight(by, tuple(reversed(stack)))


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _holder(frame: FrameType) -> str | None:
    module, function = _module(frame), frame.f_code.co_name
    for prefix, named, by in _BY:
        if module.startswith(prefix) and named in ("", function):
            return by
    return None


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "?"))
