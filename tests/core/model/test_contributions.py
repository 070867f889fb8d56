"""How much of a learned value comes from each contributor."""

from hypothesis import given
from hypothesis import strategies as st

from webhook.core.model.amounts import bounded, even

COUNTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 10_000), max_size=6)


def test_one_that_has_many_counts_as_the_others_do_on_average():
    assert bounded({"a": 9000, "b": 400, "c": 200}, floor=10) == {"a": 300, "b": 400, "c": 200}


def test_little_counts_in_full_and_so_does_one_that_is_alone():
    assert bounded({"a": 9000, "b": 4}, floor=100) == {"a": 100, "b": 4}
    assert bounded({"a": 9000}, floor=100) == {"a": 9000}
    assert bounded({}, floor=1) == {}


@given(COUNTS, st.integers(1, 9999), st.integers(1, 100))
def test_more_of_one_beyond_its_part_changes_nothing(counts, more, floor):
    """It counts the same, whatever it adds; others may count for more then, and never for less."""
    before = bounded(counts, floor=floor)
    for key in counts:
        if before[key] < counts[key]:
            after = bounded({**counts, key: counts[key] + more}, floor=floor)
            assert after[key] == before[key]
            assert all(after[other] >= before[other] for other in counts)


@given(COUNTS, st.integers(0, 20_000))
def test_taken_evenly_no_one_is_cut_while_another_keeps_more(counts, most):
    found = even(counts, most)
    assert sum(found.values()) <= most
    assert sum(found.values()) == min(most, sum(counts.values())) or max(counts.values()) > max(found.values())
    for key, taken in found.items():
        assert taken <= counts[key]
        if taken < counts[key]:
            assert all(other <= taken + 1 for other in found.values())
