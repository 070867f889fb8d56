"""Durations as Go writes them, in whole seconds: 30s, 10m, 1h30m. Policies and annotations have the same."""

import re
from fractions import Fraction
from typing import Final

PATTERN: Final = r"([0-9]+(\.[0-9]+)?(h|m|s))+|0"
_MAX_CHARACTERS: Final = 40
_SECONDS: Final = {"h": 3600, "m": 60, "s": 1}


def parse_seconds(text: str) -> int:
    """Return a duration in seconds. Raises ValueError, with what is expected."""
    if len(text) > _MAX_CHARACTERS or not re.fullmatch(PATTERN, text):
        raise ValueError("expected a duration such as 30s, 10m or 1h30m")
    parts = re.findall(r"([0-9.]+)([hms])", text)
    total = sum((Fraction(number) * _SECONDS[unit] for number, unit in parts), Fraction(0))
    if total.denominator != 1:
        raise ValueError("expected whole seconds")
    return int(total)
