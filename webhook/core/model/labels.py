"""Compact labels of many pods: one shared string, parsed on access."""

from collections.abc import Mapping
from functools import lru_cache
from itertools import chain
from sys import intern
from typing import Final

from webhook.core.model.names import Labels

_MAX_CACHED_CHARACTERS: Final = 1024
"""Longer labels are parsed each time: those of a template have some 200 characters."""


def pack(labels: Mapping[str, str]) -> Labels:
    """Return labels as one string; pods of one template share it."""
    return Labels(intern("\0".join(chain.from_iterable(labels.items()))))


def unpack(packed: Labels) -> Mapping[str, str]:
    """Return the labels of a packed string."""
    return _cached(packed) if len(packed) <= _MAX_CACHED_CHARACTERS else _read(packed)


def _read(packed: Labels) -> Mapping[str, str]:
    parts = packed.split("\0")
    return dict(zip(parts[::2], parts[1::2], strict=False))


_cached = lru_cache(maxsize=4096)(_read)
