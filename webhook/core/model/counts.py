"""Sums and members by key that are kept up to date, without the keys that have none."""

from typing import TypeVar

from webhook.core.model.amount import Units

_K = TypeVar("_K")
_Member = TypeVar("_Member")
_V = TypeVar("_V")
_Number = TypeVar("_Number", int, Units)


def add_to(sums: dict[_K, _Number], key: _K, number: _Number) -> None:
    """Add a number, which may be below 0, to the sum of a key."""
    left = sums.get(key, 0) + number
    if left:
        sums[key] = left
    else:
        sums.pop(key, None)


def drop_member(index: dict[_K, dict[_Member, _V]], key: _K, member: _Member) -> None:
    """Remove a member of a key, which must be there."""
    members = index[key]
    del members[member]
    if not members:
        del index[key]
