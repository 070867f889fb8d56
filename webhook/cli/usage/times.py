"""Times on the command line: an age such as 7d, or a time of day such as 2026-11-23T08:00:00Z."""

import re
from datetime import UTC, datetime
from typing import Final

_AGE: Final = re.compile(r"([0-9]{1,6})([smhdw])")
_LONGEST: Final = 60
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def parse_time(text: str, *, now: float) -> float:
    """Return a time in seconds of Unix time. Raises ValueError with the expected forms."""
    if text == "now":
        return now
    if (age := _AGE.fullmatch(text)) is not None:
        return now - int(age[1]) * _SECONDS[age[2]]
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=found.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        expected = "an age such as 7d, 24h or 30m, or a time such as 2026-11-23T08:00:00Z"
        raise ValueError(f"expected {expected}, got {text[:_LONGEST]!r}") from None


def time_text(time: float) -> str:
    """Return a time in UTC, as RFC 3339 has it."""
    return datetime.fromtimestamp(int(time), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
