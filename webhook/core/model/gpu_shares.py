"""Names of GPUs, and how much of one counts: shares, replicas, MIG slices.

Which resource names look like GPUs, and which known name a misspelled one means.

No resource is counted because of its name: the name only decides what must not pass unnoticed.
"""

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

from webhook.core.model.amounts import DEVICE_CLASS, ResourceName, Units, exact_units

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


# DeviceClasses: the device types that claims request, and the resource names of each.


class DeviceClass(NamedTuple):
    """A device type. `mentions_gpus`: its name, its resource or its selectors look like GPUs.

    `is_open`: its selectors do not name a driver, so a claim of this class may select GPUs.
    """

    name: str
    extended_resource: ResourceName | None = None
    made_at: str = ""
    mentions_gpus: bool = False
    is_open: bool = False

    def may_be_gpu(self, driver: str) -> bool:
        """Whether a device of this class that policy does not weigh counts as a GPU.

        It does unless the class or the claim names another driver: a device that may be a GPU counts as one until
        proven otherwise.
        """
        return self.is_open and not self.mentions_gpus and (not driver or looks_like_gpu(driver))

    @property
    def implicit_resource(self) -> ResourceName:
        """Return the extended resource that every class has."""
        return ResourceName(DEVICE_CLASS + self.name)


def age_order(device_class: DeviceClass) -> tuple[str, str]:
    """Sort key of classes by age, the newest last."""
    return device_class.made_at, device_class.name


# Shares of single devices, as in HAMi: a number of devices, and of each an amount of memory and cores.
#
# A container that requests two `nvidia.com/gpu` with `nvidia.com/gpumem` 3000 gets 3,000 MiB on each of two devices.
# That is not a product of resource amounts, so such devices are counted under a name that includes their shape.
#
# A share takes effect only where HAMi's scheduler places the pod. Everywhere else the device plugin assigns whole
# devices, independent of the requested share, so that is what a shape counts until policy names the scheduler. Nothing
# else may live here.


DEVICE: Final = ResourceName("nvidia.com/gpu")
_MEMORY: Final = ResourceName("nvidia.com/gpumem")
_MEMORY_PERCENT: Final = ResourceName("nvidia.com/gpumem-percentage")
_CORES: Final = ResourceName("nvidia.com/gpucores")
HAMI_SCHEDULER: Final = "hami-scheduler"
"""The default name of HAMi's scheduler."""

SHARES: Final = frozenset({_MEMORY, _MEMORY_PERCENT, _CORES})
"""Amounts that apply to each device of the same container."""


def shaped(requests: Mapping[ResourceName, int]) -> dict[ResourceName, int]:
    """Count a container's shared devices by their shape; without a number of devices it is one, as in HAMi.

    An amount of zero is absent: kube-scheduler skips it, and HAMi sets no bound by it.
    """
    parts = ",".join(f"{name}={requests[name]}" for name in sorted(SHARES & requests.keys()) if requests[name])
    if not parts:
        return unshared(requests)
    rest = {name: amount for name, amount in requests.items() if name not in SHARES and name != DEVICE}
    return {**rest, ResourceName(f"{DEVICE}[{parts}]"): requests.get(DEVICE) or 1}


def unshared(requests: Mapping[ResourceName, int]) -> dict[ResourceName, int]:
    """Count a container's shared devices as whole ones."""
    rest = {name: amount for name, amount in requests.items() if name not in SHARES}
    return {**rest, DEVICE: requests.get(DEVICE) or 1} if any(requests.get(name) for name in SHARES) else rest


def whole_weight_of(name: ResourceName, weights: Mapping[ResourceName, Units]) -> Units:
    """Return the units of one piece where its shape has no effect; 0 for a resource that is not a GPU."""
    known = weights.get(name)
    if known is not None:
        return known
    return weights.get(DEVICE, 0) if name.endswith("]") else 0


def weight_of(name: ResourceName, weights: Mapping[ResourceName, Units]) -> Units:
    """Return the units of one piece where its shape has effect; 0 for a resource other than a GPU.

    A shaped device counts the larger of its memory and its cores; memory that is not named, or not weighed, is all of
    it. Of two amounts of memory the absolute one applies.
    """
    known = weights.get(name)
    if known is not None:
        return known
    if not name.endswith("]"):
        return 0
    parts = _parts(name)
    whole = weights.get(DEVICE, 0)
    named = next((part for part in (_MEMORY, _MEMORY_PERCENT) if part in parts), None)
    memory = whole if named is None or named not in weights else parts[named] * weights[named]
    return max(memory, parts.get(_CORES, 0) * weights.get(_CORES, 0))


@lru_cache(maxsize=1024)
def _parts(name: ResourceName) -> dict[ResourceName, int]:
    listed = name.rpartition("[")[2].removesuffix("]").split(",")
    pairs = (part.partition("=") for part in listed)
    return {ResourceName(key): int(amount) for key, _, amount in pairs}


# Replicas of whole GPUs under their own name, as NVIDIA's device plugin offers them with time slicing or MPS.
#
# Without `renameByDefault` each piece of `nvidia.com/gpu` on such a node is one of several replicas of a GPU, and the
# label `nvidia.com/gpu.replicas` says of how many. Where policy counts by replicas, a piece is a slice of a GPU, as a
# MIG device is, under a name that only Fairgate uses: `nvidia.com/gpu/12`. Nothing else may live
# here.


REPLICAS: Final = "nvidia.com/gpu.replicas"
"""The node label with the number of replicas of each GPU, by GPU feature discovery; 1 where GPUs are not shared."""

_PREFIX: Final = f"{DEVICE}/"
_MAX_DIGITS: Final = 4


def replicas_by(labels: Mapping[str, str]) -> int:
    """Return how many pieces of `nvidia.com/gpu` a node offers for each GPU, by its labels."""
    return _number(labels.get(REPLICAS, ""))


def replica_slice(replicas: int) -> ResourceName:
    """Return the name of a GPU's part that is one of so many replicas."""
    return ResourceName(f"{_PREFIX}{replicas}")


def replicas_of(name: ResourceName) -> int:
    """Return of how many replicas a slice is one; 0 for a slice of another kind."""
    return int(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else 0


def replica_slices(values: Collection[str]) -> tuple[ResourceName, ...]:
    """Return the slices of nodes with these values of the label; none where one of them is of whole GPUs."""
    numbers = {_number(value) for value in values}
    return () if 1 in numbers else tuple(map(replica_slice, sorted(numbers)))


def _number(value: str) -> int:
    is_number = value.isascii() and value.isdecimal() and len(value) <= _MAX_DIGITS
    return int(value) if is_number and value[0] != "0" else 1


# MIG devices that a node offers as `nvidia.com/gpu`, as NVIDIA's device plugin does with strategy `single`.
#
# On such a node each piece of `nvidia.com/gpu` is one MIG device, and the product label ends in its profile:
# `NVIDIA-A100-SXM4-40GB-MIG-1g.5gb`, followed by `-SHARED` where the plugin also time-slices devices. A piece has the
# weight of `nvidia.com/mig-PROFILE` in policy; a profile without a weight counts a whole GPU.
#
# A pod counts by slices only where its product is certain: its required node affinity or nodeSelector names products of
# such nodes and no others, or it is on such a node. Every other pod may get whole GPUs, so it counts whole GPUs.
# Replicas of GPUs are slices as well.


PRODUCT: Final = "nvidia.com/gpu.product"
"""The node label with the product name."""

_MAX_LABEL: Final = 63
_PRODUCT: Final = re.compile(r".+-MIG-([0-9][0-9a-z.]*)(?:-SHARED)?")


def slice_of(product: str) -> ResourceName | None:
    """Return the MIG resource behind `nvidia.com/gpu` on nodes of this product; None where it is a whole GPU."""
    return _slice_of(product) if len(product) <= _MAX_LABEL else None


def slices_of(products: Collection[str]) -> tuple[ResourceName, ...]:
    """Return the MIG resources of several products; none where one of them is not a product of slices."""
    found = {slice_of(product) for product in products}
    return () if None in found else tuple(sorted(filter(None, found)))


def piece_weight(slices: Collection[ResourceName], weights: Mapping[ResourceName, Units]) -> Units:
    """Return the units of a piece of `nvidia.com/gpu` that may be any of these slices: the largest of their weights.

    A slice is a MIG device, or one of the replicas of a GPU.
    """
    whole = weights.get(DEVICE, 0)
    return max((_slice_weight(name, whole, weights) for name in slices), default=whole)


def weight_at(resource: ResourceName, piece: ResourceName | None, weights: Mapping[ResourceName, Units]) -> Units:
    """Return the units of a piece of a resource on a node; 0 for a resource that is not a GPU.

    `piece` is the slice that `nvidia.com/gpu` is there, None where it is a whole GPU.
    """
    if piece is None or resource != DEVICE or resource not in weights:
        return weights.get(resource, 0)
    return piece_weight((piece,), weights)


def _slice_weight(name: ResourceName, whole: Units, weights: Mapping[ResourceName, Units]) -> Units:
    replicas = replicas_of(name)
    return exact_units(Fraction(whole) / replicas) if replicas else weights.get(name, whole)


@lru_cache(maxsize=1024)
def _slice_of(product: str) -> ResourceName | None:
    found = _PRODUCT.fullmatch(product) if "-MIG-" in product else None
    return None if found is None else ResourceName(f"nvidia.com/mig-{found[1]}")
