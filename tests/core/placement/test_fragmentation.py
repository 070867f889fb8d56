"""How useful free GPUs are: rounding loses no fit, devices are taken exactly, less room is never more useful."""

from hypothesis import given
from hypothesis import strategies as st

from webhook.core.model.demand import Shape
from webhook.core.placement.fragmentation import WEIGHT, WHOLE, DeviceState, Fragmentation, Steps, after, useful

SHARES = st.sampled_from([100, 250, 300, 500, 1000])
SHAPES = st.one_of(
    st.builds(Shape, st.integers(1, 8), st.just(1), st.just(1), st.integers(0, 9), st.integers(0, 9)),
    st.builds(Shape, st.integers(1, 3), SHARES, st.just(1000), st.integers(0, 9), st.integers(0, 9)),
)
MIXES = st.dictionaries(SHAPES, st.integers(1, 99), min_size=1, max_size=6)
STATES = st.builds(
    DeviceState, st.integers(0, 8), st.lists(st.integers(1, 999), max_size=4).map(sorted).map(tuple), st.just(1000)
)


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 9)), max_size=20), st.integers(1, 6), st.integers(0, 500))
def test_a_free_amount_and_its_mark_fit_the_same_steps_before_and_after_a_pod(sizes, most, free):
    steps = Steps(sizes, most)
    assert len(steps.steps) <= most
    mark = steps.marks[steps.mark(free)]
    assert mark <= free
    assert steps.fitting(mark) == steps.fitting(free)
    for size in steps.steps:
        if size <= free:
            assert steps.fitting(mark - size) == steps.fitting(free - size)


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 9)), max_size=20), st.integers(1, 6), st.integers(0, 300))
def test_a_requested_amount_is_never_rounded_down(sizes, most, size):
    steps = Steps(sizes, most)
    rounded = steps.step(size)
    assert rounded >= size
    assert rounded == size or rounded == min(step for step in steps.steps if step >= size)


@given(MIXES, STATES, st.integers(0, 6), st.integers(0, 6), SHAPES)
def test_less_room_is_never_more_useful(mix, state, cpu, memory, shape):
    fragmentation = Fragmentation(mix)
    now = useful(state, fragmentation.profile(state.size, cpu, memory))
    left = after(state, shape)
    assert 0 <= now <= (state.whole * WHOLE + sum(state.partly)) * WEIGHT
    assert left is None or useful(left, fragmentation.profile(state.size, cpu, memory)) <= now
    assert useful(state, fragmentation.profile(state.size, cpu + 1, memory)) >= now
    assert useful(state, fragmentation.profile(state.size, cpu, memory + 1)) >= now


@given(MIXES, STATES)
def test_devices_are_as_useful_as_a_plain_sum_over_shapes_says(mix, state):
    fragmentation = Fragmentation(mix)
    devices = [*state.partly, *[WHOLE] * state.whole]
    want = 0
    for shape, arrivals in mix.items():
        weight = arrivals * WEIGHT // sum(mix.values())
        share = shape.amount * WHOLE // shape.parts
        if shape.number == 1:
            want += weight * sum(free for free in devices if free >= share)
        elif shape.number <= state.whole:
            want += weight * WHOLE * state.whole
    assert useful(state, fragmentation.profile(state.size, 99, 99)) == want


@given(STATES, SHAPES)
def test_a_shape_takes_the_fullest_devices_that_fit(state, shape):
    share, found = shape.amount * WHOLE // shape.parts, after(state, shape)
    able = sorted(free for free in [*state.partly, *[WHOLE] * state.whole] if free >= share)
    if len(able) < shape.number:
        assert found is None
        return
    others = [free for free in state.partly if free < share]
    want = sorted(others + [free - share for free in able[: shape.number]] + able[shape.number :])
    assert sorted([*found.partly, *[WHOLE] * found.whole]) == [free for free in want if free]
    assert list(found.partly) == sorted(found.partly)


def test_a_shape_without_devices_leaves_them():
    assert after(DeviceState(2), Shape(0)) == DeviceState(2)
