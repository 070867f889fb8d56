"""GPU pods in reclaim: possible victims and what protects them."""

from dataclasses import replace

import pytest

from tests.core.support.reclaim_pods import borrower, reclaim_pod
from webhook.core.model.amounts import Namespace
from webhook.core.model.constraints import Operator, Requirement
from webhook.core.model.policy import LabelSelector, ReclaimCost, ReclaimRules
from webhook.core.reclaim.costs import CostScale
from webhook.core.reclaim.reclaim_pods import STAY_SECONDS, TWO_BUDGETS, Disruption, is_protected, victim_of
from webhook.core.reclaim.victims import NEVER, NOWHERE, GuardId, Loss, WorkloadId

APP = LabelSelector((Requirement("app", Operator.IN, ("kept",)),))
NO_RULES = ReclaimRules()


def test_a_long_grace_period_is_cut_and_costs():
    """It counts as lost work, up to the grace period of the victim."""
    short, long = (victim_of(borrower("p", grace_seconds=s), rules=NO_RULES, guards=()) for s in (30, 86_400 * 365))
    bound = NO_RULES.longest_grace_seconds
    assert (short.grace_seconds, long.grace_seconds) == (None, bound)
    assert short.saved_at - long.saved_at == bound - 30


def test_a_request_to_stay_counts_as_an_hour_of_work_and_protects_from_nothing_else():
    """Whatever the pod did: so it goes after pods that lose nearly as much, and before those that lose more."""
    rules = ReclaimRules(minimum_runtime_seconds=60)
    asks, other = (
        victim_of(borrower("p", started_at=50, asks_to_stay=stays), rules=rules, guards=()) for stays in (True, False)
    )
    assert asks == other._replace(saved_at=other.saved_at - STAY_SECONDS)
    unbound = victim_of(borrower("p", on=None, asks_to_stay=True), rules=rules, guards=())
    assert unbound == victim_of(borrower("p", on=None), rules=rules, guards=())


GUARD = GuardId("pdb team-a/one")


def victim(pod, rules=NO_RULES, **more):
    return victim_of(pod, rules=rules, **{"guards": ()} | more)


@pytest.mark.parametrize(
    "never",
    [
        pytest.param(reclaim_pod("p", on="n0", team="team-a", tier="guaranteed"), id="guaranteed"),
        pytest.param(reclaim_pod("p", on="n0", team="team-a", tier=None), id="without a decision"),
        pytest.param(borrower("p", on=None, is_terminating=True), id="on no node and deleted"),
        pytest.param(borrower("p", is_terminating=True), id="leaving"),
    ],
)
def test_a_pod_is_no_victim(never):
    assert victim(never) is None


def test_a_pod_without_a_node_loses_no_work_and_nothing_covers_it():
    """The API server deletes a pending pod whatever its budgets say, and at once."""
    unbound = victim(borrower("p", on=None, created=5), ReclaimRules(minimum_runtime_seconds=600), guards=(GUARD,))
    scale = CostScale(now=10_000, over_share={}, order=tuple(ReclaimCost), left={}, gone=frozenset())
    assert (unbound.node, unbound.guards, unbound.grace_seconds) == (NOWHERE, (), None)
    assert scale.is_past_minimum_runtime(unbound)
    cost = scale.cost_of((unbound,), gangs=0)
    assert (cost.lost_work, cost.age) == (0, 0)


@pytest.mark.parametrize(
    "rules",
    [ReclaimRules(protected_namespaces=("team-*",)), ReclaimRules(protected_selectors=(APP,))],
    ids=["namespace", "label"],
)
def test_policy_protects_by(rules):
    labeled = borrower("p", labels={"app": "kept"})
    assert is_protected(labeled, rules)
    assert victim(labeled, rules) is None
    assert not is_protected(labeled, NO_RULES)


def test_work_is_lost_since_the_start_or_the_last_checkpoint():
    grace = borrower("p").grace_seconds
    assert victim(borrower("p", created=5, started_at=50)).saved_at == 50 - grace
    assert victim(borrower("p", created=5, started_at=50, saved_at=70)).saved_at == 70 - grace
    assert victim(borrower("p", created=5)).started_at == 5, "a pod that has not started is as old as it exists"


def test_a_minimum_runtime_counts_from_the_start():
    assert victim(borrower("p", started_at=50), ReclaimRules(minimum_runtime_seconds=60)).until == 110
    assert victim(borrower("p", started_at=50), ReclaimRules(minimum_runtime_seconds=0)).until == 0


def test_work_is_that_of_the_present_containers_and_none_without_them():
    restarted = borrower("p", started_at=50, runtime_from=60, works_since=90, saved_at=70, grace_seconds=0)
    assert (restarted.lost_seconds(100), victim(restarted).saved_at, victim(restarted).started_at) == (10, 90, 50)
    assert victim(restarted, ReclaimRules(minimum_runtime_seconds=60)).until == 120
    broken = replace(restarted, is_working=False)
    found = victim(broken, ReclaimRules(minimum_runtime_seconds=60))
    assert (broken.lost_seconds(100), found.saved_at, found.workless) == (0, NEVER, found.demand.gpus)
    assert found.until == 120, "a pod that starts has its minimum runtime"


def test_several_budgets_forbid_an_eviction():
    assert victim(borrower("p"), guards=(GUARD,)).guards == (GUARD,)
    assert TWO_BUDGETS in victim(borrower("p"), guards=(GUARD, GuardId("pdb team-a/two"))).guards


@pytest.mark.parametrize(
    ("has_budget", "loss", "want"),
    [(False, Loss.COUNTED, (None, False)), (True, Loss.COUNTED, ("job", True)), (True, Loss.HARMLESS, ("job", False))],
)
def test_a_workload_matters_where_its_failures_count(has_budget, loss, want):
    found = victim(borrower("p", workload=WorkloadId("job"), loss=loss), has_budget=has_budget)
    assert (found.workload, found.is_counted) == want


def test_a_budget_covers_pods_of_its_own_namespace_by_label():
    budget = Disruption(Namespace("team-a"), "one", APP, allowed=1)
    assert budget.guard == GUARD
    assert budget.covers(borrower("p", labels={"app": "kept"}))
    assert not budget.covers(borrower("p", labels={"app": "other"}))
    assert not budget.covers(borrower("p", team="team-b", labels={"app": "kept"}))
