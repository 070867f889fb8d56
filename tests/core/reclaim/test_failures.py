"""No eviction fails a workload while another choice is left, and no small failure budget protects borrowed GPUs."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import GPU
from tests.core.support.reclaim_pods import NOW
from tests.core.support.scenes import scene, victim, waiting
from webhook.core.model.policy import ReclaimCost
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.victims import Remaining, WorkloadId

JOB, OTHER = WorkloadId("job"), WorkloadId("other")


def counted(name, count=1, workload=JOB, **more):
    return victim(name, count, workload=workload, is_counted=True, **more)


def gone(round_):
    return sorted(each.name for move in round_.moves for each in move.victims)


def test_a_job_loses_no_more_pods_than_may_fail():
    """The Job's pods are the cheaper victims, and the eighth of them would end its guaranteed pods."""
    job = [counted(f"j{n}", saved=NOW - 1) for n in range(8)]
    others = [victim(f"o{n}", on="n1") for n in range(8)]
    left = {JOB: Remaining(6, 28)}
    found = plan([waiting(count=8)], scene([*job, *others], nodes=2, failures=left))
    assert gone(found) == [f"o{n}" for n in range(8)]
    assert not found.moves[0].breaks_workloads
    assert gone(plan([waiting(count=6)], scene([*job, *others], nodes=2, failures=left))) == [f"j{n}" for n in range(6)]


def test_a_plan_uses_up_the_budget_of_the_next():
    job = [counted(f"j{n}", on=f"n{n % 2}", saved=NOW - 1) for n in range(6)]
    others = [victim(f"o{n}", on=f"n{n % 2}", saved=NOW - 9) for n in range(10)]
    asked = [waiting(f"b{n}", 2) for n in range(3)]
    found = plan(asked, scene([*job, *others], nodes=2, failures={JOB: Remaining(3, 20)}))
    assert len(found.moves) == 3
    assert sum(name.startswith("j") for name in gone(found)) <= 3


def test_a_job_that_borrows_all_its_gpus_is_evicted_whole_if_nothing_else_suffices():
    job = [counted(f"j{n}", on=f"n{n % 2}") for n in range(16)]
    found = plan([waiting(count=4)], scene(job, nodes=2, failures={JOB: Remaining(0, 16)}))
    (move,) = found.moves
    assert len(move.victims) == 16
    assert (move.breaks_workloads, move.cost.gangs) == (False, 1)


def test_a_whole_job_is_evicted_before_one_that_would_fail_guaranteed_pods():
    job = [counted(f"j{n}", saved=NOW - 500) for n in range(4)]
    mixed = [counted(f"m{n}", workload=OTHER, saved=NOW) for n in range(4)]
    left = {JOB: Remaining(0, 4), OTHER: Remaining(1, 9)}
    assert gone(plan([waiting(count=2)], scene([*job, *mixed], failures=left))) == ["j0", "j1", "j2", "j3"]


def test_a_failure_budget_of_zero_protects_no_pod():
    """A Job with backoffLimit 0 and a guaranteed pod: its borrowed pods are evicted once nothing else is left."""
    job = [counted(f"j{n}") for n in range(8)]
    found = plan([waiting(count=2)], scene(job, failures={JOB: Remaining(0, 9)}))
    assert len(gone(found)) == 2
    assert found.moves[0].breaks_workloads


def test_if_workloads_must_fail_the_fewest_do():
    """Each of the two may lose one more; three pods are needed, and the cheapest three would end both."""
    one = [counted(f"j{n}", saved=NOW - n) for n in range(4)]
    two = [counted(f"m{n}", workload=OTHER, saved=NOW - n) for n in range(4)]
    left = {JOB: Remaining(0, 9), OTHER: Remaining(0, 9)}
    found = plan([waiting(count=3)], scene([*one, *two], failures=left))
    assert len({name[0] for name in gone(found)}) == 1
    assert found.moves[0].cost.gangs == 1


def test_many_jobs_with_small_budgets_do_not_slow_a_plan():
    """On one node 56 shares of 28 Jobs, each of which may lose one: more combinations than could ever be tried."""
    jobs = [counted(f"j{n}-{m}", workload=WorkloadId(f"w{n}")) for n in range(28) for m in range(2)]
    left = {WorkloadId(f"w{n}"): Remaining(1, 2) for n in range(28)}
    found = plan([waiting(count=50)], scene(jobs, size=56, failures=left))
    assert len(gone(found)) >= 50


def test_a_gang_is_protected_by_a_guaranteed_member_that_would_fail_with_it():
    gang = [counted(f"g{n}", gang="train", saved=NOW) for n in range(4)]
    single = victim("s", 4, saved=0)
    mixed = scene([*gang, single], failures={JOB: Remaining(0, 5)})
    assert gone(plan([waiting(count=4)], mixed)) == ["s"]
    whole = scene([*gang, victim("s", 4, until=NOW + 1)], failures={JOB: Remaining(0, 4)})
    assert not plan([waiting(count=4)], whole).moves[0].breaks_workloads


def test_of_equal_workloads_the_one_with_the_larger_budget_loses_a_pod():
    jobs = [counted("j"), counted("m", workload=OTHER), *(victim(f"o{n}", started=0, saved=-9) for n in range(6))]
    left = {JOB: Remaining(2, 9), OTHER: Remaining(50, 9)}
    assert gone(plan([waiting()], scene(jobs, failures=left))) == ["m"]
    order = (ReclaimCost.FAILURES, *(part for part in ReclaimCost if part is not ReclaimCost.FAILURES))
    assert gone(plan([waiting()], scene(jobs, failures=left, order=order)))[0].startswith("o")


workloads = st.sampled_from([None, JOB, OTHER])


@st.composite
def crowds(draw):
    made = []
    for number in range(draw(st.integers(1, 8))):
        workload = draw(workloads)
        more = {} if workload is None else {"workload": workload, "is_counted": True}
        gang = draw(st.sampled_from([None, None, "g"]))
        on, saved = draw(st.sampled_from(["n0", "n1"])), draw(st.integers(0, 9))
        made.append(victim(f"v{number}", draw(st.integers(1, 2)), on=on, saved=saved, gang=gang, **more))
    here = {each: sum(v.workload == each for v in made) for each in (JOB, OTHER)}
    left = {each: Remaining(draw(st.integers(0, 3)), here[each] + draw(st.integers(0, 1))) for each in here}
    return scene(made, nodes=2, size=16, failures={key: value for key, value in left.items() if here[key]})


@given(crowds(), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_a_workload_fails_only_if_evicted_whole_or_as_planned(scene_, sizes):
    found = plan([waiting(f"b{n}", size, since=n) for n, size in enumerate(sizes)], _full(scene_))
    if any(move.breaks_workloads for move in found.moves):
        return
    went = [each for move in found.moves for each in move.victims]
    for workload, (left, pods) in scene_.failures.items():
        lost = sum(each.workload == workload for each in went)
        assert lost <= left or lost == pods


def test_a_workload_that_goes_whole_for_several_pods_leaves_none_of_its_pods():
    made = [victim(f"v{number}", 1, on="n0", workload=JOB, is_counted=True) for number in range(3)]
    there = _full(scene(made, nodes=2, size=16, failures={JOB: Remaining(0, 3)}))
    found = plan([waiting(f"b{number}", 1, since=number) for number in range(2)], there)
    went = {each.uid for move in found.moves for each in move.victims}
    assert len(went) == 3 or any(move.breaks_workloads for move in found.moves)


@given(crowds(), st.integers(1, 4))
def test_budgets_for_failures_never_keep_a_pod_from_its_room(scene_, count):
    full = _full(scene_)
    without = plan([waiting(count=count)], replace(full, failures={}))
    assert bool(plan([waiting(count=count)], full).moves) == bool(without.moves)


def _full(scene_):
    for name in ("n0", "n1"):
        free = scene_.fleet.free(name, GPU)
        filler = victim(f"full-{name}", free, on=name)
        if free:
            scene_.fleet.take(name, filler.demand, holder=filler.uid)
    return scene_
