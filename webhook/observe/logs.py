"""One line per decision.

Counts decisions and their durations.

Not the library's counter and histogram, which cost 1.9 us a decision with their locks; these cost 0.2 us, because only
the event loop's thread counts.
"""

import asyncio
import logging
import os
import select
import sys
import threading
import time
import traceback
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from types import FrameType
from typing import Any, Final, NamedTuple

import msgspec
import structlog
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from structlog.typing import EventDict, WrappedLogger

from webhook.core.model.amounts import printable, printable_lines
from webhook.core.model.pod import Pod, Resident
from webhook.core.model.reasons import Code
from webhook.observe.processes import ProcessMetrics

SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
"""Histogram bounds: a decision takes some 10 us; waiting for a ledger write takes milliseconds."""

OTHER_CODE: Final = "Other"
CODES: Final = frozenset(Code)


class Phase(StrEnum):
    """Which webhook was called."""

    MUTATE = "mutate"
    VALIDATE = "validate"
    WORKLOADS = "workloads"
    CLAIMS = "claims"
    JOBS = "jobs"
    GANGS = "gangs"


class Decisions(Collector):
    """Keeps plain integers, and exports them as metrics on each scrape."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str, str], int] = {}
        self._buckets = {phase: [0] * (len(SECONDS) + 1) for phase in Phase}
        self._sums = dict.fromkeys(Phase, 0.0)

    def add(self, phase: Phase, *, outcome: str, code: str, team: str, seconds: float) -> None:
        """Count a decision and its duration."""
        key = (phase, outcome, code if code in CODES else OTHER_CODE, team)
        self._counts[key] = self._counts.get(key, 0) + 1
        self._buckets[phase][bisect_left(SECONDS, seconds)] += 1
        self._sums[phase] += seconds

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        counts = CounterMetricFamily(
            "fairgate_decisions",
            "Decisions. `phase`: mutate, validate, workloads, claims, jobs, gangs. `outcome`: admit, warn, deny, "
            "retry, skip. `code`: a reason code, the first of several. "
            "`team`: empty if the request belongs to no team.",
            labels=["phase", "outcome", "code", "team"],
        )
        for key, count in self._counts.items():
            counts.add_metric(key, count)
        yield counts
        times = HistogramMetricFamily(
            "fairgate_decision_duration_seconds", "Time from the complete body to the response.", labels=["phase"]
        )
        bounds = [*(repr(bound) for bound in SECONDS), "+Inf"]
        for phase, buckets in self._buckets.items():
            cumulative = list(zip(bounds, map(float, accumulate(buckets)), strict=True))
            times.add_metric([phase], cumulative, self._sums[phase])
        yield times


# Logs: one line per decision and one per event, as JSON or for a console; each line is written whole.
#
# All lines go through one LineWriter, so that lines of decisions, of events and of libraries never mix. A decision's
# line bypasses structlog's processors, which cost three times the rest of it (15 us against 5 on one machine).


FLUSH_SECONDS: Final = 0.005
"""How long a decision's line may wait for others. A write wakes the log's reader: one write in 5 ms is enough."""


class LogFormat(StrEnum):
    """The format of lines: JSON for programs, console for people."""

    JSON = "json"
    CONSOLE = "console"


class LineWriter:
    """Writes whole lines to a file descriptor, in order. A log whose reader is gone never stops the server."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lines: list[bytes] = []

    def write(self, line: bytes) -> None:
        """Write a line now, after buffered ones."""
        self._lines.append(line)
        self.flush()

    def write_soon(self, line: bytes) -> None:
        """Buffer a line for the next milliseconds; needs a running event loop."""
        if not self._lines:
            asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
        self._lines.append(line)

    def flush(self) -> None:
        """Write all buffered lines."""
        if not self._lines:
            return
        data, self._lines = memoryview(b"".join(self._lines)), []
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:  # a terminal or pipe that another program made non-blocking
                select.select([], [self._fd], [])
            except OSError:
                return


class Logs:
    """The process's logger: `event` for events, `decision` for the line of a decision."""

    def __init__(self, writer: LineWriter, *, log_format: LogFormat) -> None:
        self._writer = writer
        self._clock = _Clock()
        self._encode = _encode_json if log_format is LogFormat.JSON else _console_encoder()
        processors: list[structlog.typing.Processor] = [
            structlog.processors.add_log_level,
            self._stamp,
            _traceback_text,
            self._render,
        ]
        self.event: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
            _Lines(writer), processors=processors, wrapper_class=structlog.make_filtering_bound_logger(logging.INFO)
        )

    def decision(self, fields: Mapping[str, object]) -> None:
        """Write the line of one decision."""
        line = {"time": self._clock.now(), "level": "info", "event": "decision", **fields}
        self._writer.write_soon(self._encode(line))

    def flush(self) -> None:
        """Write all buffered lines, before the process ends."""
        self._writer.flush()

    def stop_at_once(self, why: str) -> None:
        """Write that the process ends at once, by a second signal."""
        self.event.warning("stopping at once", signal=why)
        self.flush()

    def autoscalers(self, found: Iterable[str], why_unsure: str) -> None:
        """Write which autoscalers were found in the cluster, and which could not be looked for."""
        log = self.event.warning if why_unsure else self.event.info
        log("autoscalers", found=sorted(found), unsure=why_unsure)

    def capture_libraries(self) -> None:
        """Log what libraries log (warnings and worse), and Python's warnings, in the same way."""
        root = logging.getLogger()
        root.handlers[:] = [_LibraryHandler(self.event)]
        root.setLevel(logging.WARNING)
        logging.captureWarnings(capture=True)

    def _stamp(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {"time": self._clock.now(), "level": event.pop("level"), "event": event.pop("event"), **event}

    def _render(self, _logger: WrappedLogger, _method: str, event: EventDict) -> bytes:
        return self._encode(event)


def open_logs(log_format: LogFormat, *, fd: int | None = None) -> Logs:
    """Log to a file descriptor; by default standard error, because standard output is for commands' results."""
    return Logs(LineWriter(sys.stderr.fileno() if fd is None else fd), log_format=log_format)


def pod_fields(pod: Resident | Pod) -> dict[str, str]:
    """Return the fields of a log line that name a pod."""
    return {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}


_encoder: Final = msgspec.json.Encoder(enc_hook=str)


class _Lines:
    """What structlog calls with a rendered line, at any level."""

    def __init__(self, writer: LineWriter) -> None:
        self.debug = self.info = self.warning = self.error = self.critical = writer.write


class _LibraryHandler(logging.Handler):
    def __init__(self, event: structlog.typing.FilteringBoundLogger) -> None:
        super().__init__()
        self._event = event

    def emit(self, record: logging.LogRecord) -> None:
        self._event.log(
            record.levelno, "library", logger=record.name, message=record.getMessage(), exc_info=record.exc_info
        )


class _Clock:
    """RFC 3339 in UTC with milliseconds; the text of a second is cached (saves 2 us on each line)."""

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def now(self) -> str:
        milliseconds = time.time_ns() // 1_000_000
        second, rest = divmod(milliseconds, 1000)
        if second != self._second:
            self._second, self._text = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._text}.{rest:03d}Z"


def _encode_json(event: Mapping[str, Any]) -> bytes:
    return _encoder.encode(event) + b"\n"


def _console_encoder() -> Callable[[Mapping[str, Any]], bytes]:
    render = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), timestamp_key="time", sort_keys=False)

    def encode(event: Mapping[str, Any]) -> bytes:
        text = render(None, "", {key: _shown(key, value) for key, value in event.items()})
        return text.encode(errors="backslashreplace") + b"\n"

    return encode


def _shown(key: str, value: object) -> object:
    """Escape control characters, so that a name cannot control a terminal; a traceback keeps its lines."""
    if not isinstance(value, str):
        return value
    return printable_lines(value) if key == "traceback" else printable(value)


def _traceback_text(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace exc_info with the traceback's text."""
    info = event.pop("exc_info", None)
    if info is True:
        info = sys.exc_info()
    if isinstance(info, BaseException):
        info = (type(info), info, info.__traceback__)
    if info and info[0] is not None:
        event["traceback"] = "".join(traceback.format_exception(*info)).rstrip()
    return event


# Reports when the event loop was blocked, for how long, and by what: meanwhile no request is answered.
#
# A timer runs repeatedly and measures how late it is. While it is late, a thread samples the stack of the loop's
# thread, which would not be known afterwards.


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
