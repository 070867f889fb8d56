"""Reports when the event loop was blocked, for how long, and by what: meanwhile no request is answered.

A timer runs repeatedly and measures how late it is. While it is late, a thread samples the stack of the loop's
thread, which would not be known afterwards.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Final, NamedTuple

from webhook.observe.logs import Logs
from webhook.observe.process import ProcessMetrics

INTERVAL_SECONDS: Final = 0.05
BLOCKED_SECONDS: Final = 0.05
"""Delays from which on they are counted. Those twice as long are logged, too …"""

STALL_LOGGED_SECONDS: Final = 1.0
"""… and from here on those in which the process got no CPU time: on a busy machine there are several a second."""

OTHER: Final = "other"
STALL: Final = "stall"
"""The value of `by` if the process got no CPU time."""

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
class _StackSample:
    """What the loop's thread ran: the part of Fairgate, and the stack, the innermost frame last."""

    by: str
    stack: tuple[str, ...]


class _Delay(NamedTuple):
    """By how much the loop was late, and the CPU time that its thread got meanwhile."""

    seconds: float
    cpu_seconds: float


class Watchdog:
    """Watches the event loop that `run` runs on."""

    def __init__(self, metrics: ProcessMetrics, logs: Logs) -> None:
        self._metrics = metrics
        self._logs = logs
        self._thread_id = threading.get_ident()
        self._due = time.monotonic()
        self._sample: _StackSample | None = None
        self._is_over = False

    async def run(self) -> None:
        """Watch until cancelled."""
        threading.Thread(target=self._sample_when_late, name="watchdog", daemon=True).start()
        try:
            while True:
                delay: asyncio.Future[_Delay] = asyncio.get_running_loop().create_future()
                self._watch(delay)
                self._report(await delay)
        finally:
            self._is_over = True

    def _watch(self, delay: "asyncio.Future[_Delay]") -> None:
        """Set the next delay as a result. A timer costs half of a task that sleeps, 20 times a second all day."""
        self._sample = None
        self._due = time.monotonic() + INTERVAL_SECONDS
        delay.get_loop().call_later(INTERVAL_SECONDS, self._look, delay, time.thread_time())

    def _look(self, delay: "asyncio.Future[_Delay]", cpu: float) -> None:
        if delay.done():
            return
        if (late := time.monotonic() - self._due) >= BLOCKED_SECONDS:
            delay.set_result(_Delay(late, time.thread_time() - cpu))
        else:
            self._watch(delay)

    def _sample_when_late(self) -> None:
        while not self._is_over:
            time.sleep(INTERVAL_SECONDS)  # half of what waiting for an Event costs
            if self._sample is None and time.monotonic() - self._due >= BLOCKED_SECONDS / 2:
                frame = sys._current_frames().get(self._thread_id)
                self._sample = None if frame is None else _sample_of(frame)

    def _report(self, delay: _Delay) -> None:
        seconds, cpu_seconds = delay
        sample = self._sample or _StackSample(OTHER, ())
        by = STALL if cpu_seconds < BLOCKED_SECONDS else sample.by
        self._metrics.loop_blocked(by, seconds)
        if seconds >= (STALL_LOGGED_SECONDS if by == STALL else 2 * BLOCKED_SECONDS):
            self._logs.event.warning(
                "event loop blocked",
                seconds=round(seconds, 3),
                cpu_seconds=round(cpu_seconds, 3),
                by=by,
                where=" > ".join(sample.stack),
            )


def _sample_of(frame: FrameType) -> _StackSample:
    frames = list(_outwards(frame))
    by = next((name for each in reversed(frames) if (name := _part(each)) is not None), OTHER)
    stack = [f"{_module(each)}.{each.f_code.co_name}:{each.f_lineno}" for each in frames[:_FRAMES]]
    return _StackSample(by, tuple(reversed(stack)))


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _part(frame: FrameType) -> str | None:
    module, function = _module(frame), frame.f_code.co_name
    for prefix, named, by in _BY:
        if module.startswith(prefix) and named in ("", function):
            return by
    return None


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "?"))
