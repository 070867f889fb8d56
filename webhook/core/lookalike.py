"""Which resource names look like GPUs. Nothing is counted by its looks: they only say what must not pass unnoticed."""

import re
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
