"""Sums by key that are kept up to date, without the keys whose sum is 0."""

from typing import TypeVar

from webhook.core.model.amount import Units

_K = TypeVar("_K")
_Number = TypeVar("_Number", int, Units)


def add_to(sums: dict[_K, _Number], key: _K, number: _Number) -> None:
    """Add a number, which may be below 0, to the sum of a key."""
    left = sums.get(key, 0) + number
    if left:
        sums[key] = left
    else:
        sums.pop(key, None)
