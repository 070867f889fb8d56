"""Parses a request's target: its path, and how long the caller waits. Pure."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import parse_qs

DEFAULT_TIMEOUT_SECONDS: Final = 10.0
"""Kubernetes' default of timeoutSeconds, for requests without a timeout."""

MAX_TIMEOUT_SECONDS: Final = 30.0
"""The largest timeoutSeconds that a webhook configuration allows."""

WORKING_SHARE: Final = 0.8
"""The share of the caller's timeout that may be used: the response has to arrive within it."""

_UNIT_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """A parsed target. `timeout_problem` is why its timeout is invalid; otherwise `work_seconds` may be used."""

    path: str
    work_seconds: float
    timeout_problem: str = ""


@lru_cache(maxsize=256)  # API servers repeat a few targets; others are evicted from the cache
def parse_target(raw: str) -> RequestTarget:
    """Split the raw target of a request line."""
    path, _, query = raw.partition("?")
    timeouts = parse_qs(query, keep_blank_values=True).get("timeout") if query else None
    if not timeouts:
        return RequestTarget(path=path, work_seconds=DEFAULT_TIMEOUT_SECONDS * WORKING_SHARE)
    try:
        seconds = parse_duration(timeouts[0])
    except ValueError as exc:
        return RequestTarget(path=path, work_seconds=0.0, timeout_problem=f"timeout: {exc}")
    return RequestTarget(path=path, work_seconds=min(seconds, MAX_TIMEOUT_SECONDS) * WORKING_SHARE)


def parse_duration(text: str) -> float:
    """Return the seconds of a positive Go duration such as 5s, 500ms or 1m30s. Raises ValueError."""
    seconds, at = 0.0, 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            break
        seconds += float(part[1]) * _UNIT_SECONDS[part[2]]
        at = part.end()
    if at < len(text) or seconds <= 0:
        raise ValueError(f"expected a positive duration such as 5s, 500ms or 1m30s, got {text[:40]!r}")
    return seconds
