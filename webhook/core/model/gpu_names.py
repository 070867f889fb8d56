"""Which resource names look like GPUs. Nothing is counted by its looks: they only say what must not pass unnoticed.

And which name was meant by one that is misspelled.
"""

import re
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

PATTERN: Final = (
    r"(?i)(gpu|gaudi|neuron|ascend|vcuda|(^|[^a-z])(tpu|npu|dcu|gcu|xpu|v?mlu|mig[.-])"
    # what KubeVirt hands to virtual machines goes by the chip or the product: nvidia.com/GA102GL_A10, GRID_T4-1Q
    r"|nvidia\.com/(grid|nvidia|quadro|rtx|tesla|tu[0-9]|ad[0-9]|g[abhkmpv][0-9]|[abhlptv][0-9]))"
)
"""In RE2's syntax as well: the webhook's CEL conditions use it."""

_LOOKS: Final = re.compile(PATTERN)


def looks_like_gpu(text: str) -> bool:
    """Tell whether a resource's or a DeviceClass's name, or what selects its devices, speaks of GPUs."""
    return _known(text) if len(text) <= _LONGEST_NAME else _looks(text)


def _looks(text: str) -> bool:
    return _LOOKS.search(text) is not None


_LONGEST_NAME: Final = 512
_known = lru_cache(maxsize=1024)(_looks)

_LONGEST_TYPO: Final = 64
"""Longer names are not compared: a comparison takes time by the product of the lengths."""

_LIKENESS: Final = 0.85


@lru_cache(maxsize=1024)
def closest_name(name: str, known: tuple[str, ...]) -> str | None:
    """Find the known name that a misspelled one is most like; None where none is close."""
    if len(name) > _LONGEST_TYPO:
        return None
    return next(iter(get_close_matches(name.lower(), known, n=1, cutoff=_LIKENESS)), None)
