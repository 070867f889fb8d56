"""The GPUs of the nodes, by model and resource, and how useful the free ones are for future pods.

Read from the classes that placement keeps by events, so that no scan is needed.
"""

from collections.abc import Iterator
from typing import NamedTuple

from webhook.core.model.amount import ONE_GPU
from webhook.core.model.mig_slices import weight_at
from webhook.core.model.names import GpuModel, ResourceName
from webhook.core.model.policy import Policy
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.fragmentation import WHOLE
from webhook.core.placement.gpu_index import GpuView


class GpuInventory(NamedTuple):
    """The GPUs of one model under one resource name, in GPU units.

    `closed` are on nodes that are cordoned or not ready; the other fields are about open nodes. Of the free GPUs,
    `fragmented` are useless to future pods by the fragmentation measure; their share is the fragment rate of "Beware of
    Fragmentation". `largest` is free for one pod on one node; `whole_nodes` have all of their GPUs free.
    """

    model: GpuModel
    resource: ResourceName
    capacity: int
    closed: int
    free: int
    fragmented: int
    largest: int
    whole_nodes: int


class _Free(NamedTuple):
    """Free devices in thousandths; `useful` by the fragmentation measure."""

    devices: int = 0
    useful: int = 0
    largest: int = 0


def gpu_inventory(fleet: Fleet, policy: Policy) -> Iterator[GpuInventory]:
    """Return the GPUs of all nodes; resources without a weight in policy are left out."""
    members = _members(fleet)
    free: dict[ResourceName, dict[GpuModel, _Free]] = {}
    for (model, resource, is_packed), (capacity, closed) in fleet.gpus.numbers.items():
        weight = ONE_GPU if is_packed else weight_at(resource, model, policy.resources)
        if not weight:
            continue
        view = fleet.gpus.latest(resource)
        if resource not in free:
            free[resource] = _free(view, members, fleet.open_bits)
        devices, useful, largest = free[resource].get(model, _Free())
        yield GpuInventory(
            model,
            resource,
            capacity=int(capacity * weight),
            closed=int(closed * weight),
            free=int(devices * weight) // WHOLE,
            fragmented=int((devices - useful // view.fragmentation.total) * weight) // WHOLE,
            largest=int(largest * weight) // WHOLE,
            whole_nodes=(view.classes.whole & members[model] & fleet.open_bits).bit_count(),
        )


def _members(fleet: Fleet) -> dict[GpuModel, int]:
    members: dict[GpuModel, int] = {}
    for (model, _), bits in fleet.by_model().items():
        members[model] = members.get(model, 0) | bits
    return members


def _free(view: GpuView, members: dict[GpuModel, int], open_bits: int) -> dict[GpuModel, _Free]:
    found = dict.fromkeys(members, _Free())
    for each in view.classes.all:
        left = each.members & open_bits
        devices = each.kind.devices
        for model, bits in members.items() if left else ():
            if number := (left & bits).bit_count():
                total, useful, largest = found[model]
                found[model] = _Free(
                    total + number * (devices.whole * WHOLE + sum(devices.partly)),
                    useful + number * each.useful,
                    max(largest, devices.whole * WHOLE, *devices.partly),
                )
                left &= ~bits
                if not left:
                    break
    return found
