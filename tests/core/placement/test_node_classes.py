"""Node classes: after any change, members and the sets of slots are those of a plain mapping of slots to classes."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from webhook.core.model.demand import Shape
from webhook.core.placement.devices import DeviceStates
from webhook.core.placement.fragmentation import DeviceState, Fragmentation, NodeRoom, Scarcity
from webhook.core.placement.score import NodeClasses, NodeClassKey

MIX = {Shape(1, cpu=4): 20, Shape(2, cpu=8): 10, Shape(8, cpu=8): 1}
SLOTS = st.integers(0, 9)
KEYS = st.builds(
    lambda free, cpu, capacity, tiers: NodeClassKey(
        DeviceState(free), cpu, 0, capacity if free == capacity else 0, tiers
    ),
    st.sampled_from([0, 2, 8]),
    st.integers(0, 2),
    st.sampled_from([2, 8]),
    st.integers(0, 3),
)


@given(st.lists(st.tuples(SLOTS, st.none() | KEYS), max_size=30))
def test_members_are_those_of_a_plain_mapping(changes):
    fragmentation = Fragmentation(MIX)
    empty = [NodeRoom(DeviceState(8), 2, 0), *[NodeRoom(DeviceState(2), 2, 0)] * 9]
    scarcity = Scarcity(fragmentation, Counter(empty))
    classes, key_of = NodeClasses(fragmentation, DeviceStates(fragmentation), scarcity), {}
    for slot, key in changes:
        if key is None:
            classes.drop(slot, 1 << slot)
            key_of.pop(slot, None)
        else:
            classes.change(slot, 1 << slot, key)
            key_of[slot] = key
        members = {each.kind: each.members for each in classes.all if each.members}
        assert members == {key: bits(s for s in key_of if key_of[s] == key) for key in key_of.values()}
        assert classes.live == bits(number for number, each in enumerate(classes.all) if each.members)
        assert classes.filled - classes.emptied == len(members)
        assert classes.whole == bits(slot for slot, key in key_of.items() if key.capacity)
        for group, slots in enumerate(classes.slots_with_room):
            assert slots == bits(
                s for each in classes.all for s in key_of if each.kind == key_of[s] and each.scarce >> group & 1
            )
        numbers = {next(n for n, each in enumerate(classes.all) if each.kind == key_of[s]) for s in key_of}
        assert classes.numbers((1 << 10) - 1) == numbers | ({-1} if len(key_of) < 10 else set())


def bits(slots):
    return sum(1 << slot for slot in slots)
