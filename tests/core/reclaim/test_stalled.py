"""Pods that something else than room keeps off every node for too long."""

from tests.core.support.reclaim_pods import borrower
from webhook.core.model.amounts import UNLIMITED
from webhook.core.reclaim.reclaim_index import StalledPods

P, Q = borrower("p", on=None), borrower("q", on=None)


def names(found):
    return [each.name for each in found]


def test_the_time_counts_from_when_a_pod_was_first_seen_so():
    stalled = StalledPods()
    assert stalled.overdue([P], now=100, bound_seconds=60) == []
    assert stalled.overdue([P, Q], now=159, bound_seconds=60) == []
    assert names(stalled.overdue([Q, P], now=160, bound_seconds=60)) == ["p"]
    assert names(stalled.overdue([Q, P], now=219, bound_seconds=60)) == ["p", "q"]


def test_a_pod_that_could_be_bound_meanwhile_begins_again():
    stalled = StalledPods()
    stalled.overdue([P], now=100, bound_seconds=60)
    stalled.overdue([], now=130, bound_seconds=60)
    assert stalled.overdue([P], now=170, bound_seconds=60) == []
    assert names(stalled.overdue([P], now=230, bound_seconds=60)) == ["p"]


def test_without_a_bound_no_pod_is_overdue():
    stalled = StalledPods()
    stalled.overdue([P], now=0, bound_seconds=UNLIMITED)
    assert stalled.overdue([P], now=10**9, bound_seconds=UNLIMITED) == []
