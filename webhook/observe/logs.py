"""Logs: one line per decision and one per event, as JSON or for a console; each line is written whole.

All lines go through one LineWriter, so that lines of decisions, of events and of libraries never mix. A decision's
line bypasses structlog's processors, which cost three times the rest of it (15 us against 5 on one machine).
"""

import asyncio
import logging
import os
import select
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec
import structlog
from structlog.typing import EventDict, WrappedLogger

from webhook.core.model.pod import Pod, Resident
from webhook.core.model.text import printable, printable_lines

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
