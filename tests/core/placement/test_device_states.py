"""States of free devices by number: cached results are those of a computation without a cache."""

from hypothesis import given
from hypothesis import strategies as st

from tests.core.placement.test_fragmentation import MIXES, SHAPES, STATES
from webhook.core.placement.devices import DeviceStates, Remainder, free_of
from webhook.core.placement.fragmentation import DeviceState, Fragmentation, after, useful


def test_free_devices_add_up_in_thousandths():
    assert free_of(DeviceState(2, (250, 500))) == 2750


@given(MIXES, st.lists(STATES, min_size=1, max_size=6), SHAPES)
def test_results_are_those_without_a_cache(mix, states, shape):
    fragmentation = Fragmentation(mix)
    found = DeviceStates(fragmentation)
    for state in states * 2:
        number = found.number(state)
        assert number == found.number(state)
        assert found.usefulness(number, 1, 2) == useful(state, fragmentation.profile(state.size, 1, 2))
        left, rest = found.remainder(number, shape), after(state, shape)
        assert left == (None if rest is None else Remainder(found.number(rest), free_of(rest)))
    assert len({found.number(state) for state in states}) == len(set(states))


@given(MIXES, SHAPES)
def test_shapes_that_differ_in_cpu_and_memory_share_their_remainders(mix, shape):
    found = DeviceStates(Fragmentation(mix))
    assert found.remainders(shape) is found.remainders(shape._replace(cpu=1 + shape.cpu, memory=7))
