"""How much of a value that is learned from many may come from each of them. Pure."""

from collections.abc import Hashable, Mapping
from typing import Final, TypeVar

_K = TypeVar("_K", bound=Hashable)

_ALONE: Final = 1


def bounded(counts: Mapping[_K, int], *, floor: int) -> dict[_K, int]:
    """Return how much each contributor counts: at most as much as the others on average, or `floor` if that is more.

    So no number of pods gives one of them more than an equal part where the others are known well. One that is alone
    counts in full.
    """
    if len(counts) <= _ALONE:
        return dict(counts)
    total, others = sum(counts.values()), len(counts) - 1
    return {key: min(count, max(floor, (total - count) // others)) for key, count in counts.items()}


def even(counts: Mapping[_K, int], most: int) -> dict[_K, int]:
    """Return how many to take of each, `most` together: none is cut while another one keeps more."""
    found = dict.fromkeys(counts, 0)
    left = most
    for before, key in enumerate(sorted(counts, key=counts.__getitem__)):
        found[key] = min(counts[key], left // (len(counts) - before))
        left -= found[key]
    return found
