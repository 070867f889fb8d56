"""Replicas of whole GPUs under their own name, as NVIDIA's device plugin offers them with time slicing or MPS.

Without `renameByDefault` each piece of `nvidia.com/gpu` on such a node is one of several replicas of a GPU, and the
label `nvidia.com/gpu.replicas` says of how many. Where policy counts by replicas, a piece is a slice of a GPU, as a MIG
device is (see mig_slices.py), under a name that only Fairgate uses: `nvidia.com/gpu/12`. Nothing else may live here.
"""

from collections.abc import Collection, Mapping
from typing import Final

from webhook.core.model.gpu_shares import DEVICE
from webhook.core.model.names import ResourceName

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
