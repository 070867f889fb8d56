"""Past use fades by half within each half-life, in integers."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kept import kept
from webhook.core.line.pod_queue import PastUse, PastUses, accrue, average
from webhook.core.model.amounts import ONE_GPU

HOUR = 3600


def test_idle_use_halves_with_each_half_life():
    use = PastUse(1 << 60, 0)
    after = [accrue(use, 0, now=n * HOUR, half_life=HOUR).unit_seconds for n in range(4)]
    assert after == [1 << 60, 1 << 59, 1 << 58, 1 << 57]


def test_a_part_of_a_half_life_fades_by_its_power():
    got = accrue(PastUse(10**18, 0), 0, now=HOUR // 4, half_life=HOUR).unit_seconds
    assert abs(got - 10**18 * 2**-0.25) < 10**12


def test_what_is_held_forever_is_the_average():
    use = PastUse(0, 0)
    for now in range(HOUR, 40 * HOUR, HOUR):
        use = accrue(use, 5 * ONE_GPU, now=now, half_life=HOUR)
    assert abs(average(use, now=use.at, half_life=HOUR) - 5 * ONE_GPU) <= 2


def test_half_of_it_is_left_after_a_half_life_of_holding_nothing():
    use = accrue(PastUse(0, 0), 8 * ONE_GPU, now=1000 * HOUR, half_life=HOUR)
    assert abs(average(use, now=use.at + HOUR, half_life=HOUR) - 4 * ONE_GPU) <= 2


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=8), st.integers(0, 1000), st.integers(1, 10**6))
@examples()
def test_it_makes_no_difference_into_how_many_intervals_a_time_is_cut(steps, gpus, half_life):
    use, now = PastUse(0, 0), 0
    for step in steps:
        now += step
        use = accrue(use, gpus * ONE_GPU, now=now, half_life=half_life)
    at_once = accrue(PastUse(0, 0), gpus * ONE_GPU, now=now, half_life=half_life)
    tolerance = len(steps) * (1 + at_once.unit_seconds // 10**6)
    assert abs(use.unit_seconds - at_once.unit_seconds) <= tolerance


@given(st.integers(0, 10**15), st.integers(0, 10**7), st.integers(0, 10**7), st.integers(1, 10**6))
@examples()
def test_use_only_fades_and_more_use_stays_more(units, first, second, half_life):
    earlier, later = sorted((first, second))
    at = [average(PastUse(units, 0), now=now, half_life=half_life) for now in (earlier, later)]
    assert at[0] >= at[1] >= 0
    assert average(PastUse(units + 10**6, 0), now=earlier, half_life=half_life) >= at[0]


def test_parts_of_a_gpu_count():
    third = accrue(PastUse(0, 0), Fraction(ONE_GPU, 3), now=10**6, half_life=HOUR)
    assert abs(average(third, now=10**6, half_life=HOUR) * 3 - ONE_GPU) <= 6


def test_a_clock_that_goes_back_changes_nothing():
    use = PastUse(100, 50)
    assert accrue(use, 5, now=40, half_life=HOUR) == use
    assert average(use, now=40, half_life=1) == average(use, now=50, half_life=1)


def test_without_a_half_life_there_is_no_past():
    assert accrue(PastUse(100, 50), 5, now=60, half_life=0) == PastUse(0, 60)
    assert average(PastUse(100, 50), now=60, half_life=0) == 0


def test_what_teams_borrow_is_noted_as_it_changes_and_fades():
    uses = PastUses()
    uses.note({"a": 8, "b": 0}, now=0, half_life=100)
    assert uses.average("a") == 0, "it begins with the first look"
    uses.note({"a": 0}, now=100, half_life=100)
    half = uses.average("a")
    assert half in (3, 4)
    uses.note({}, now=200, half_life=100)
    assert uses.average("a") in (1, 2)
    uses.note({}, now=100_000, half_life=100)
    assert (uses.average("a"), uses.average("b")) == (0, 0)
    assert kept(uses) == kept(PastUses()), "a team that is gone takes no memory"


def test_without_a_half_life_past_use_does_not_count():
    uses = PastUses()
    uses.note({"a": 8}, now=0, half_life=0)
    uses.note({"a": 8}, now=1000, half_life=0)
    assert uses.average("a") == 0
