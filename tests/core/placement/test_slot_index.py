"""Bitmaps of nodes: the lowest slots, however far apart they are."""

from hypothesis import given
from hypothesis import strategies as st

from webhook.core.model.amounts import HOST_PORT
from webhook.core.placement.devices import AmountIndexes, lowest_slots, with_amounts

SLOTS = st.sets(st.one_of(st.integers(0, 40), st.integers(500, 530), st.integers(0, 30_000)), max_size=40)


@given(wanted=SLOTS, count=st.integers(0, 50), had=st.lists(st.integers(), max_size=3))
def test_the_lowest_slots_are_added_until_there_are_enough(wanted, count, had):
    slots = list(had)
    lowest_slots(sum(1 << slot for slot in wanted), max(count, len(had)), slots)
    assert slots == had + sorted(wanted)[: max(0, count - len(had))]


def test_every_node_has_each_host_port_once():
    indexes = AmountIndexes()
    port = f"{HOST_PORT}8080 (TCP)"
    assert with_amounts(indexes, [(port, 1)], 0b111) == 0b111
    indexes[port].change(1, 0b010, 0)
    assert with_amounts(indexes, [(port, 1)], 0b111) == 0b101
    assert [indexes[port].held(slot) for slot in (0, 1, 2)] == [1, 0, 1]
    indexes[port].change(1, 0b010, 1)
    assert with_amounts(indexes, [(port, 1)], 0b111) == 0b111
    assert with_amounts(indexes, [(port, 2)], 0b111) == 0
