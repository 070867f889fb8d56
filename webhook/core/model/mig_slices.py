"""MIG devices that a node offers under the name of whole GPUs, as NVIDIA's device plugin does with strategy `single`.

On such a node each piece of `nvidia.com/gpu` is one MIG device, and the product label ends in its profile:
`NVIDIA-A100-SXM4-40GB-MIG-1g.5gb`, with `-SHARED` behind it where the plugin also shares devices over time. A piece
counts what policy says for `nvidia.com/mig-PROFILE`; a profile that policy does not weigh counts a whole GPU.

A pod counts by slices only where the product that it gets is certain: its required node affinity or nodeSelector names
products of such nodes and no others, or it is on such a node. Every other pod may be handed whole GPUs: it counts them.
"""

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Final

from webhook.core.model.amount import Units
from webhook.core.model.gpu_shares import DEVICE
from webhook.core.model.names import ResourceName

PRODUCT: Final = "nvidia.com/gpu.product"
"""The node label that names the product."""

_LONGEST_LABEL: Final = 63
_PRODUCT: Final = re.compile(r".+-MIG-([0-9][0-9a-z.]*)(?:-SHARED)?")


def slice_of(product: str) -> ResourceName | None:
    """Name the MIG resource that a piece of `nvidia.com/gpu` is on nodes of this product; None where it is a GPU."""
    return _slice_of(product) if len(product) <= _LONGEST_LABEL else None


def slices_of(products: Collection[str]) -> tuple[ResourceName, ...]:
    """Name the MIG resources of several products; none where one of them is no product of slices."""
    found = {slice_of(product) for product in products}
    return () if None in found else tuple(sorted(filter(None, found)))


def piece_weight(slices: Collection[ResourceName], weights: Mapping[ResourceName, Units]) -> Units:
    """Tell what a piece of `nvidia.com/gpu` counts that may be any of these: the most that it may be."""
    whole = weights.get(DEVICE, 0)
    return max((weights.get(name, whole) for name in slices), default=whole)


def weight_at(resource: ResourceName, product: str, weights: Mapping[ResourceName, Units]) -> Units:
    """Tell what a piece of a resource counts on nodes of a product; 0 for what is no GPU."""
    name = slice_of(product) if resource == DEVICE and resource in weights else None
    return weights.get(resource, 0) if name is None else piece_weight((name,), weights)


@lru_cache(maxsize=1024)
def _slice_of(product: str) -> ResourceName | None:
    found = _PRODUCT.fullmatch(product) if "-MIG-" in product else None
    return None if found is None else ResourceName(f"nvidia.com/mig-{found[1]}")
