"""The terms of a search for victims: which may go, and what they cost together."""

from tests.core.support.make import GPU, gpus
from tests.core.support.scenes import NOW, victim
from webhook.core.model.amounts import TeamName
from webhook.core.model.policy import ReclaimCost
from webhook.core.reclaim.costs import CostScale, Effort, Need
from webhook.core.reclaim.victims import FailureLimits, Remaining, WorkloadId

OVER = {TeamName("team-a"): gpus(2), TeamName("team-c"): gpus(5)}


def scale(**more):
    return CostScale(now=NOW, over_share=OVER, order=tuple(ReclaimCost), left=None, **{"gone": set(), **more})


def test_those_that_are_gone_spared_or_of_an_exhausted_team_may_not_go():
    found = scale(gone={"a"}, spared={"b"}, exhausted={TeamName("team-c")})
    there = [victim("a"), victim("b"), victim("c", team="team-c"), victim("d")]
    assert [each.name for each in there if found.may_go(each)] == ["d"]


def test_a_minimum_runtime_ends_and_does_not_count_where_it_began_after_a_moment():
    assert scale().is_past_minimum_runtime(victim("a", until=NOW))
    young = victim("a", started=NOW - 5, until=NOW + 1)
    assert not scale().is_past_minimum_runtime(young)
    assert scale(no_minimum_after=NOW - 6).is_past_minimum_runtime(young)
    assert not scale(no_minimum_after=NOW - 5).is_past_minimum_runtime(young)


def test_costs_of_several_add_up():
    job = WorkloadId("job")
    counted = victim("b", 3, team="team-c", started=NOW - 7, workload=job, is_counted=True)
    found = scale(failure_limits=FailureLimits({job: Remaining(4, 9)}, may_break=False), departments={counted.team: 2})
    cost = found.cost_of([victim("a", 1, started=NOW - 10, saved=NOW - 4), counted], gangs=1)
    assert (cost.departments, cost.gangs, cost.surplus) == (gpus(3) * 2, 1, 0)
    assert cost.lost_work == gpus(1) * 4 + gpus(3) * 7
    assert cost.failures == 1000 // 5
    assert cost.over_share == gpus(1) * gpus(3)
    assert cost.age == 17


def test_what_a_pod_frees_counts_on_its_own_node():
    need = Need({("n0", GPU): 2, ("n1", GPU): 1}, gpus(3))
    assert need.freed_by(victim("a", 2).demand, "n0") == (2, 0)
    assert need.freed_by(victim("a", 2).demand, "n1") == (0, 2)


def test_effort_ends_after_its_steps():
    effort = Effort(2)
    assert [effort.is_spent() for _ in range(4)] == [False, False, True, True]
