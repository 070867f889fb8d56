"""What a waiting pod may override, the least first."""

from tests.core.support.scenes import NOW, scene, victim, waiting
from webhook.core.reclaim.reclaim_plan import NO_OVERRIDES, Overrides, overrides_of
from webhook.core.reclaim.victims import GuardId, Remaining, WorkloadId

GUARDED = {"left": {GuardId("pdb"): 0}, "budget_seconds": 300}


def how(since, **more):
    return list(overrides_of(waiting(reported_at=since), scene([victim("a", 8)], **more)))


def test_nothing_is_overridden_before_anything_protects():
    assert how(NOW - 10_000) == [NO_OVERRIDES]


def test_budgets_are_overridden_after_the_time_of_policy():
    assert how(NOW - 299, **GUARDED) == [NO_OVERRIDES]
    assert how(NOW - 300, **GUARDED) == [NO_OVERRIDES, Overrides(is_past_budgets=True)]
    assert how(0, **GUARDED) == [NO_OVERRIDES], "a pod that no scheduler reported has not waited"


def test_a_minimum_runtime_that_began_after_the_wait_does_not_count():
    assert how(NOW - 5, minimum_runtime=60) == [NO_OVERRIDES, Overrides(no_minimum_after=NOW - 5)]


def test_workloads_fail_last():
    failures = {WorkloadId("job"): Remaining(0, 8)}
    past = Overrides(is_past_budgets=True)
    want = [NO_OVERRIDES, past, Overrides(may_break=True), past._replace(may_break=True)]
    assert how(NOW - 300, failures=failures, **GUARDED) == want
    assert how(NOW, failures=failures) == [NO_OVERRIDES, Overrides(may_break=True)]
