"""Shares of single devices, as in HAMi: a number of devices, and of each an amount of memory and cores.

A container that requests two `nvidia.com/gpu` with `nvidia.com/gpumem` 3000 gets 3,000 MiB on each of two devices. That
is not a product of resource amounts, so such devices are counted under a name that includes their shape.

A share takes effect only where HAMi's scheduler places the pod. Everywhere else the device plugin assigns whole
devices, independent of the requested share, so that is what a shape counts until policy names the scheduler. Nothing
else may live here.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from webhook.core.model.amount import Units
from webhook.core.model.names import ResourceName

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
