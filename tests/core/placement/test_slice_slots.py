"""Which nodes offer parts of GPUs as `nvidia.com/gpu`, kept up to date."""

from tests.core.support.make import node
from webhook.core.model.names import GpuModel
from webhook.core.placement.slice_slots import SliceSlots

WHOLE, THIN, REPLICAS = node(), node(model=GpuModel("A100-MIG-1g.5gb")), node(replicas=4)


def test_slots_follow_what_their_nodes_offer():
    slots = SliceSlots()
    slots.change(0b001, None, WHOLE)
    slots.change(0b010, None, THIN)
    slots.change(0b100, None, REPLICAS)
    assert (slots.slots, slots.by_name) == (0b110, {"nvidia.com/mig-1g.5gb": 0b010, "nvidia.com/gpu/4": 0b100})
    slots.change(0b010, THIN, REPLICAS)
    assert (slots.slots, slots.by_name) == (0b110, {"nvidia.com/gpu/4": 0b110})
    slots.change(0b100, REPLICAS, WHOLE)
    assert (slots.slots, slots.by_name) == (0b010, {"nvidia.com/gpu/4": 0b010})


def test_slices_among_some_slots_are_those_that_any_of_them_has():
    slots = SliceSlots()
    slots.change(0b01, None, THIN)
    slots.change(0b10, None, REPLICAS)
    assert slots.among(0b110) == {"nvidia.com/gpu/4": 0b10}
    assert slots.among(0b100) == {}
