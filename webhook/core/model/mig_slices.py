"""MIG devices that a node offers as `nvidia.com/gpu`, as NVIDIA's device plugin does with strategy `single`.

On such a node each piece of `nvidia.com/gpu` is one MIG device, and the product label ends in its profile:
`NVIDIA-A100-SXM4-40GB-MIG-1g.5gb`, followed by `-SHARED` where the plugin also time-slices devices. A piece has the
weight of `nvidia.com/mig-PROFILE` in policy; a profile without a weight counts a whole GPU.

A pod counts by slices only where its product is certain: its required node affinity or nodeSelector names products of
such nodes and no others, or it is on such a node. Every other pod may get whole GPUs, so it counts whole GPUs.
Replicas of GPUs (replicas.py) are slices as well.
"""

import re
from collections.abc import Collection, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Final

from webhook.core.model.amount import Units, exact_units
from webhook.core.model.gpu_shares import DEVICE
from webhook.core.model.names import ResourceName
from webhook.core.model.replicas import replicas_of

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
