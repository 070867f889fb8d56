"""The cost of victims: each criterion of the policy ranks by what its name says, whatever the order of any list."""

import pytest

from tests.core.support.make import gpus
from tests.core.support.scenes import NOW, gone, scene, victim, waiting
from webhook.core.model.amounts import TeamName
from webhook.core.model.policy import ReclaimCost
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.victims import Remaining, VictimCost, WorkloadId

JOB = WorkloadId("job")
OVER_SHARE = {TeamName("far"): gpus(9), TeamName("near"): gpus(1)}


def expensive(name, by):
    """Victims of one GPU that is needed, which cost more than others by these criteria only."""
    started = 0 if ReclaimCost.AGE in by else NOW - 10
    members = 2 if ReclaimCost.GANGS in by else 1
    return [
        victim(
            f"{name}{number}",
            4 if ReclaimCost.SURPLUS in by else 1,
            team="near" if ReclaimCost.OVER_SHARE in by else "far",
            started=started,
            saved=started if ReclaimCost.LOST_WORK in by else NOW,
            gang=name if members > 1 else None,
            workload=JOB,
            is_counted=ReclaimCost.FAILURES in by,
        )
        for number in range(members)
    ]


@pytest.mark.parametrize("criterion", ReclaimCost)
def test_a_criterion_counts_as_early_as_policy_says(criterion):
    rest = tuple(each for each in ReclaimCost if each is not criterion)
    one, other = expensive("one", {criterion}), expensive("other", {*rest})
    size = sum(each.demand.gpus for each in (*one, *other)) // gpus(1)

    def evicted(order):
        there = scene([*one, *other], size=size, over_share=OVER_SHARE, failures={JOB: Remaining(9, 50)}, order=order)
        return sorted(gone(plan([waiting()], there)))

    assert evicted((criterion, *rest)) == [each.name for each in other]
    assert evicted((*rest, criterion)) == [each.name for each in one]


def test_departments_come_before_every_criterion():
    cheap, dear = VictimCost(departments=1), VictimCost(gangs=9, age=9, surplus=9)
    assert dear.ranked(tuple(ReclaimCost)) < cheap.ranked(tuple(ReclaimCost))


def test_costs_add_up_part_by_part():
    parts = [VictimCost(age=1, gangs=2), VictimCost(age=3, over_share=4), VictimCost()]
    assert parts[0].plus(parts[1]) == VictimCost.total(parts) == VictimCost(age=4, gangs=2, over_share=4)
    assert VictimCost.total([]) == VictimCost()
