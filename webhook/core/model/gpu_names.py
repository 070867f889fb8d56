"""Which resource names look like GPUs, and which known name a misspelled one means.

No resource is counted because of its name: the name only decides what must not pass unnoticed.
"""

import re
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

_WORDS: Final = "gpu|gaudi|neuron|ascend|vcuda|geforce|qaic"
_WHOLE_WORDS: Final = "tpu|npu|dcu|gcu|xpu|v?mlu|mig[.-]"

_GPU_DOMAINS: Final = (
    # https://github.com/HabanaAI, Intel Gaudi Base Operator; docs.graphcore.ai: Kubernetes IPU device plugin
    r"habana\.ai|graphcore\.ai"
    # github.com/furiosa-ai/furiosa-device-plugin (earlier alpha. and beta.furiosa.ai); rebellions.ai/ATOM; tt-operator
    r"|furiosa\.ai|rebellions\.ai|tenstorrent\.com"
    # github.com/Project-HAMi/HAMi: charts/hami/values.yaml and pkg/device
    r"|cambricon\.com|hygon\.com|metax-tech\.com|kunlunxin\.com|enflame\.com|mthreads\.com|iluvatar\.ai|birentech\.com"
)
"""Domains of vendors whose devices are all GPUs, or the like."""

PATTERN: Final = (
    rf"(?i)({_WORDS}|(^|[^a-z])({_WHOLE_WORDS})"
    # plugins name devices by chip or product: nvidia.com/gtx-1080-ti, nvidia.com/GA102GL_A10, amd.com/cpx_nps4
    rf"|^(nvidia|amd)\.com/|{_GPU_DOMAINS})"
)
"""Names and texts that mention GPUs. Valid in RE2's syntax as well: the webhook's CEL conditions use it."""

OTHER_DEVICES: Final = (
    r"(?i)^("
    # NVIDIA's network and DPF operators: nvidia.com/rdma_vf, sriov_rdma, hostdev, mlnxnics, resibs2f0, bf_sf, ib0
    r"nvidia\.com/(.*(rdma|roce|sr-?iov|hostdev|infiniband|connectx|mlnx|mlx|nic)"
    r"|(bf|cx|ib|sf|vf|pf|eth|net|res|dpu|imex|nvswitch))"
    # AMD's network operator, and the plugin for cards of Xilinx
    r"|amd\.com/([pv]?nic|ainic|xilinx|alveo|ama_|fpga)"
    # HAMi: a task's priority, and the cores and memory of devices that are counted under another name
    r"|nvidia\.com/priority$|(metax-tech\.com|iluvatar\.ai)/([^/]*[._-])?v(core|mem(ory)?)s?$)"
)
"""Names of other devices, and of parts, in the domains of GPU vendors. Valid in RE2's syntax as well."""

_GPU_NAME: Final = re.compile(PATTERN)
_OTHER_NAME: Final = re.compile(OTHER_DEVICES)


def looks_like_gpu(text: str) -> bool:
    """Whether the name of a resource or DeviceClass, or the text that selects its devices, mentions GPUs.

    Every resource in the domain of a GPU vendor does, but for those that are known to be something else.
    """
    return _cached(text) if len(text) <= _LONGEST_NAME else _matches(text)


def _matches(text: str) -> bool:
    return _GPU_NAME.search(text) is not None and _OTHER_NAME.search(text) is None


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
