"""Failures that workloads have left, as evictions and their status become known."""

from tests.core.support import make
from tests.core.support.reclaim_pods import NOW, asker, borrower, evict, indexed, reclaim_pod
from webhook.core.model.amounts import GangId, Uid
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.snapshot import pods_within_share, select_pods, take_snapshot
from webhook.core.reclaim.victims import FailureBudget, Loss, Remaining, WorkloadId

JOB, OTHER = WorkloadId("job"), WorkloadId("other")


def remaining(reclaim_index, *chosen):
    return reclaim_index.failures(map(Uid, chosen))


def of_job(uid, **more):
    return borrower(uid, workload=JOB, **more)


def test_the_remaining_budget_is_the_limit_less_counted_failures():
    reclaim_index, _ = indexed(of_job("p"), of_job("q"))
    assert remaining(reclaim_index) == {}
    reclaim_index.set_failure_budget(JOB, FailureBudget(6, 2))
    assert remaining(reclaim_index) == {JOB: Remaining(4, 2)}
    reclaim_index.set_failure_budget(JOB, None)
    assert remaining(reclaim_index) == {}


def test_an_eviction_counts_before_the_job_shows_it():
    reclaim_index, _ = indexed(*(of_job(f"p{n}") for n in range(5)))
    reclaim_index.set_failure_budget(JOB, FailureBudget(6))
    evict(reclaim_index, Uid("p0"))
    evict(reclaim_index, Uid("p1"))
    assert remaining(reclaim_index, "p2") == {JOB: Remaining(3, 2)}, "p2 is planned, and counts as well"
    reclaim_index.remove(Uid("p0"))
    reclaim_index.set_failure_budget(JOB, FailureBudget(6, 1))
    assert remaining(reclaim_index) == {JOB: Remaining(4, 3)}
    reclaim_index.remove(Uid("p1"))
    reclaim_index.set_failure_budget(JOB, FailureBudget(6, 3))
    assert remaining(reclaim_index) == {JOB: Remaining(3, 3)}, "one failed without an eviction"


def test_guaranteed_pods_of_a_job_are_counted_as_staying():
    firm = reclaim_pod("g", on="n0", team="team-a", tier="guaranteed", workload=JOB)
    reclaim_index, _ = indexed(firm, of_job("p"), of_job("q", is_terminating=True, leaves_at=NOW))
    reclaim_index.set_failure_budget(JOB, FailureBudget(0))
    assert remaining(reclaim_index) == {JOB: Remaining(0, 2)}
    reclaim_index.remove(Uid("g"))
    assert remaining(reclaim_index) == {JOB: Remaining(0, 1)}


def test_the_head_of_a_cluster_counts_and_its_workers_do_not():
    cluster = {"workload": OTHER, "gang": GangId("ray")}
    head = borrower("head", loss=Loss.FATAL, **cluster)
    reclaim_index, _ = indexed(head, borrower("worker", loss=Loss.HARMLESS, **cluster))
    assert [(each.name, each.is_counted) for each in reclaim_index.victim_index.of_workload(OTHER)] == [
        ("head", True), ("worker", False)
    ]  # fmt: skip
    assert remaining(reclaim_index) == {OTHER: Remaining(0, 2)}


def test_a_pod_that_changes_its_owner_is_counted_there():
    reclaim_index, _ = indexed(of_job("p"), of_job("q"))
    reclaim_index.set_failure_budget(JOB, FailureBudget(1))
    reclaim_index.set_failure_budget(OTHER, FailureBudget(2))
    reclaim_index.set(borrower("q", workload=OTHER))
    assert remaining(reclaim_index) == {JOB: Remaining(1, 1), OTHER: Remaining(2, 1)}


JOB, OTHER = WorkloadId("job"), WorkloadId("other")


def gone(round_):
    return sorted(each.name for move in round_.moves for each in move.victims)


def test_a_plan_is_made_from_what_is_left():
    other = [borrower(f"o{n}", on="n1", saved_at=1) for n in range(10)]
    lending = make.policy(make.team(guaranteed=0), make.team("team-b"))
    mine = [of_job(f"p{n}", saved_at=NOW) for n in range(10)]
    reclaim_index, world = indexed(*mine, *other, asker("b", 8), nodes=2, policy=lending)
    asked = select_pods(pods_within_share(reclaim_index, world), reclaim_index, now=NOW)
    assert gone(plan(asked.waiting, take_snapshot(reclaim_index, world, now=NOW)))[0].startswith("p")
    reclaim_index.set_failure_budget(JOB, FailureBudget(7))
    assert gone(plan(asked.waiting, take_snapshot(reclaim_index, world, now=NOW))) == [f"o{n}" for n in range(8)]
