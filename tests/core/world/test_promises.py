"""Promises of room to pods without a node: each ends, however its pod behaves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import resident
from tests.kept import kept
from webhook.core.model.pod import Stage
from webhook.core.model.policy import ReclaimRules
from webhook.core.world.pod_index import (
    BORROWING_SECONDS,
    RECLAIM_SECONDS,
    STALLED_SECONDS,
    UNREPORTED_SECONDS,
    Promises,
)

RULES = ReclaimRules(notice_seconds=30, longest_grace_seconds=600)
OF_RECLAIM = 30 + 600 + RECLAIM_SECONDS
NOW = 1_000_000
POD = resident(uid="p", tier="preemptible")
OWNED = resident(uid="p", tier="guaranteed")


def asked(promises, stage, now, pod=POD):
    return promises.node_of(pod, "n0", stage, now=now, rules=RULES)


@pytest.mark.parametrize(
    ("pod", "stage", "seconds"),
    [
        (POD, Stage.ADMITTED, UNREPORTED_SECONDS),
        (OWNED, Stage.ADMITTED, UNREPORTED_SECONDS),
        (POD, Stage.WAITS, BORROWING_SECONDS),
        (OWNED, Stage.WAITS, OF_RECLAIM),
        (POD, Stage.STALLED, STALLED_SECONDS),
        (OWNED, Stage.STALLED, STALLED_SECONDS),
    ],
)
def test_a_promise_lasts_so_long(pod, stage, seconds):
    promises = Promises()
    assert asked(promises, stage, NOW, pod) == "n0"
    assert promises.due(NOW + seconds - 1) == []
    assert asked(promises, stage, NOW + seconds - 1, pod) == "n0"
    assert promises.due(NOW + seconds) == ["p"]
    assert asked(promises, stage, NOW + seconds, pod) is None
    assert asked(promises, Stage.ADMITTED, NOW + seconds, pod) is None, "a promise that is over does not come back"


def test_a_pod_whose_claims_are_made_a_moment_after_it_keeps_its_promise():
    promises = Promises()
    assert asked(promises, Stage.STALLED, NOW) == "n0"
    assert asked(promises, Stage.WAITS, NOW + 2) == "n0"
    assert asked(promises, Stage.WAITS, NOW + STALLED_SECONDS + 1) == "n0"


def test_where_the_time_is_not_known_a_stalled_pod_has_no_promise_and_others_have():
    promises = Promises()
    assert asked(promises, Stage.STALLED, 0) is None
    assert promises.node_of(POD._replace(uid="q"), "n0", Stage.WAITS, now=0, rules=RULES) == "n0"


def test_nothing_is_promised_where_no_node_was_chosen():
    promises = Promises()
    assert promises.node_of(POD, None, Stage.ADMITTED, now=NOW, rules=RULES) is None
    assert len(promises) == 0


def test_a_pod_that_is_gone_is_forgotten_with_its_times():
    promises = Promises()
    asked(promises, Stage.WAITS, NOW)
    promises.end("p")
    assert (len(promises), promises.next_end(), promises.due(NOW + 10_000)) == (0, None, [])


STAGES = st.sampled_from([Stage.ADMITTED, Stage.WAITS, Stage.STALLED])


@given(steps=st.lists(st.tuples(st.integers(0, 200), STAGES), max_size=60), pod=st.sampled_from([POD, OWNED]))
def test_a_promise_ends_within_a_bound_whatever_its_pod_does(steps, pod):
    promises, now = Promises(), NOW
    asked(promises, Stage.ADMITTED, now, pod)
    for seconds, stage in steps:
        now += seconds
        promises.due(now)
        held = asked(promises, stage, now, pod)
        assert held is None or now < NOW + UNREPORTED_SECONDS + OF_RECLAIM


@given(st.lists(STAGES, min_size=1, max_size=200))
def test_events_of_a_pod_do_not_add_up(stages):
    """A tenant may change a pod without end: what is kept of it grows with its stages only."""
    promises = Promises()
    for stage in stages:
        asked(promises, stage, NOW)
        size = kept(promises)
        for _ in range(3):
            asked(promises, stage, NOW)
        assert kept(promises) == size
