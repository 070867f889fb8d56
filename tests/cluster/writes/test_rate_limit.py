"""Token buckets and the cache of what was used last."""

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from webhook.cluster.writes.events import Recent, TokenBucket


@given(st.integers(1, 5), st.lists(st.integers(0, 30), max_size=40))
@examples()
def test_no_span_of_time_has_more_than_a_burst_and_what_was_refilled(burst, pauses):
    bucket, now, taken = TokenBucket.full(burst, 8, now=0.0), 0.0, []
    for pause in pauses:
        now += pause
        if bucket.take(now):
            taken.append(now)
    for first, start in enumerate(taken):
        for last, end in enumerate(taken[first:], first):
            assert last - first + 1 <= burst + (end - start) / 8


def test_an_action_is_allowed_when_its_wait_is_over():
    bucket = TokenBucket.full(2, 8, now=0.0)
    assert [bucket.take(0.0) for _ in range(3)] == [True, True, False]
    assert bucket.wait_seconds(2.0) == 6.0
    assert not bucket.take(7.0)
    assert bucket.take(8.0)
    assert bucket.wait_seconds(100.0) == 0.0, "no more than a burst is saved up"
    assert [bucket.take(100.0) for _ in range(3)] == [True, True, False]


def test_the_entry_whose_use_is_longest_ago_is_dropped():
    made = []

    def entry(key):
        return recent.get(key, lambda: made.append(key) or key.upper())

    recent = Recent(2)
    assert [entry(key) for key in ("a", "b", "a", "c", "a", "b")] == ["A", "B", "A", "C", "A", "B"]
    assert made == ["a", "b", "c", "b"]
