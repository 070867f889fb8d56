"""Which nodes have what, such as parts of GPUs in place of whole ones, kept up to date."""

from webhook.core.placement.devices import KeyedSlots

MIG, QUARTER = "nvidia.com/mig-1g.5gb", "nvidia.com/gpu/4"


def test_slots_follow_what_their_nodes_offer():
    slots = KeyedSlots()
    slots.change(0b001, None, None)
    slots.change(0b010, None, MIG)
    slots.change(0b100, None, QUARTER)
    assert (slots.slots, slots.by_key) == (0b110, {MIG: 0b010, QUARTER: 0b100})
    slots.change(0b010, MIG, QUARTER)
    assert (slots.slots, slots.by_key) == (0b110, {QUARTER: 0b110})
    slots.change(0b100, QUARTER, None)
    assert (slots.slots, slots.by_key) == (0b010, {QUARTER: 0b010})


def test_keys_among_some_slots_are_those_that_any_of_them_has():
    slots = KeyedSlots()
    slots.change(0b01, None, MIG)
    slots.change(0b10, None, QUARTER)
    assert slots.among(0b110) == {QUARTER: 0b10}
    assert slots.among(0b100) == {}
