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

    `closed` are on nodes that are cordoned, not ready or in maintenance; the other fields are about open nodes. `held`
    are free where they are kept for waiting pods, `free` those that any pod may take. Of these, `fragmented` are
    useless to future pods by the fragmentation measure; their share is the fragment rate of "Beware of Fragmentation".
    `largest` is free for one pod on one node; `whole_nodes` have all of their GPUs free.
    """

    model: GpuModel
    resource: ResourceName
    capacity: int
    closed: int
    held: int
    free: int
    fragmented: int
    largest: int
    whole_nodes: int


_Kind = tuple[GpuModel, ResourceName | None]
"""A GPU model, and the slice that a piece of `nvidia.com/gpu` is on its nodes."""


class _Free(NamedTuple):
    """Free devices in thousandths; `useful` by the fragmentation measure."""

    devices: int = 0
    useful: int = 0
    largest: int = 0


def gpu_inventory(fleet: Fleet, policy: Policy) -> Iterator[GpuInventory]:
    """Return the GPUs of all nodes; resources without a weight in policy are left out."""
    members = _members(fleet)
    held_bits = fleet.open_bits & fleet.held_bits
    usable = fleet.open_bits & ~held_bits
    free: dict[ResourceName, dict[_Kind, _Free]] = {}
    held: dict[ResourceName, dict[_Kind, _Free]] = {}
    found: dict[tuple[GpuModel, ResourceName], GpuInventory] = {}
    for (model, resource, is_packed, piece), (capacity, closed) in fleet.gpus.numbers.items():
        weight = ONE_GPU if is_packed else weight_at(resource, piece, policy.resources)
        if not weight:
            continue
        view, kind = fleet.gpus.latest(resource), (model, piece)
        if resource not in free:
            free[resource] = _free(view, members, usable)
            held[resource] = _free(view, members, held_bits)
        devices, useful, largest = free[resource].get(kind, _Free())
        part = GpuInventory(
            model,
            resource,
            capacity=int(capacity * weight),
            closed=int(closed * weight),
            held=int(held[resource].get(kind, _Free()).devices * weight) // WHOLE,
            free=int(devices * weight) // WHOLE,
            fragmented=int((devices - useful // view.fragmentation.total) * weight) // WHOLE,
            largest=int(largest * weight) // WHOLE,
            whole_nodes=(view.classes.whole & members[kind] & usable).bit_count(),
        )
        known = found.get((model, resource))
        found[model, resource] = part if known is None else _sum(known, part)
    yield from found.values()


def _sum(one: GpuInventory, other: GpuInventory) -> GpuInventory:
    """Return the GPUs of one model that some nodes offer whole, and others in parts."""
    return GpuInventory(
        one.model,
        one.resource,
        capacity=one.capacity + other.capacity,
        closed=one.closed + other.closed,
        held=one.held + other.held,
        free=one.free + other.free,
        fragmented=one.fragmented + other.fragmented,
        largest=max(one.largest, other.largest),
        whole_nodes=one.whole_nodes + other.whole_nodes,
    )


def _members(fleet: Fleet) -> dict[_Kind, int]:
    members: dict[_Kind, int] = {}
    for (model, _), bits in fleet.by_model().items():
        parts: list[tuple[ResourceName | None, int]] = [(None, bits & ~fleet.slices.slots)]
        parts += fleet.slices.among(bits).items()
        for piece, slots in parts:
            members[model, piece] = members.get((model, piece), 0) | slots
    return members


def _free(view: GpuView, members: dict[_Kind, int], among: int) -> dict[_Kind, _Free]:
    found = dict.fromkeys(members, _Free())
    for each in view.classes.all if among else ():
        left = each.members & among
        devices = each.kind.devices
        for kind, bits in members.items() if left else ():
            if number := (left & bits).bit_count():
                total, useful, largest = found[kind]
                found[kind] = _Free(
                    total + number * (devices.whole * WHOLE + sum(devices.partly)),
                    useful + number * each.useful,
                    max(largest, devices.whole * WHOLE, *devices.partly),
                )
                left &= ~bits
                if not left:
                    break
    return found
