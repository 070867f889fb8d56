"""Which resource names look like GPUs, and which known name a misspelled one means.

No resource is counted because of its name: the name only decides what must not pass unnoticed.
"""

import re
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

PATTERN: Final = (
    r"(?i)(gpu|gaudi|neuron|ascend|vcuda|(^|[^a-z])(tpu|npu|dcu|gcu|xpu|v?mlu|mig[.-])"
    # KubeVirt names the devices of virtual machines by chip or product: nvidia.com/GA102GL_A10, GRID_T4-1Q
    r"|nvidia\.com/(grid|nvidia|quadro|rtx|tesla|tu[0-9]|ad[0-9]|g[abhkmpv][0-9]|[abhlptv][0-9]))"
)
"""Valid in RE2's syntax as well: the webhook's CEL conditions use it."""

_GPU_NAME: Final = re.compile(PATTERN)


def looks_like_gpu(text: str) -> bool:
    """Whether the name of a resource or DeviceClass, or the text that selects its devices, mentions GPUs."""
    return _cached(text) if len(text) <= _LONGEST_NAME else _matches(text)


def _matches(text: str) -> bool:
    return _GPU_NAME.search(text) is not None


_LONGEST_NAME: Final = 512
_cached = lru_cache(maxsize=1024)(_matches)

_LONGEST_TYPO: Final = 64
"""Longer names are not compared: the time of a comparison grows with the product of the lengths."""

_MIN_SIMILARITY: Final = 0.85


@lru_cache(maxsize=1024)
def closest_name(name: str, known: tuple[str, ...]) -> str | None:
    """Return the known name that is closest to a misspelled one; None where none is close."""
    if len(name) > _LONGEST_TYPO:
        return None
    return next(iter(get_close_matches(name.lower(), known, n=1, cutoff=_MIN_SIMILARITY)), None)
