"""Which resource names look like GPUs. Nothing is counted by its looks: they only say what must not pass unnoticed."""

import re
from functools import lru_cache
from typing import Final

PATTERN: Final = r"(?i)(gpu|gaudi|neuron|ascend|vcuda|(^|[^a-z])(tpu|npu|dcu|gcu|xpu|vmlu|mig[.-]))"
"""In RE2's syntax as well: the webhook's CEL conditions use it."""

_LOOKS: Final = re.compile(PATTERN)


@lru_cache(maxsize=1024)
def looks_like_gpu(text: str) -> bool:
    """Tell whether a resource's or a DeviceClass's name, or what selects its devices, speaks of GPUs."""
    return _LOOKS.search(text) is not None
