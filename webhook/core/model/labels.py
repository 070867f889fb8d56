"""Labels of many pods, kept small: as one shared text, read only when somebody asks for them."""

from collections.abc import Mapping
from functools import lru_cache
from itertools import chain
from sys import intern
from typing import Final

from webhook.core.model.names import Labels

_KEPT_CHARACTERS: Final = 1024
"""Longer labels are read again each time: those of a template have some 200."""


def pack(labels: Mapping[str, str]) -> Labels:
    """Keep labels as one text; pods of one template share it."""
    return Labels(intern("\0".join(chain.from_iterable(labels.items()))))


def unpack(packed: Labels) -> Mapping[str, str]:
    """Read them back."""
    return _kept(packed) if len(packed) <= _KEPT_CHARACTERS else _read(packed)


def _read(packed: Labels) -> Mapping[str, str]:
    parts = packed.split("\0")
    return dict(zip(parts[::2], parts[1::2], strict=False))


_kept = lru_cache(maxsize=4096)(_read)
