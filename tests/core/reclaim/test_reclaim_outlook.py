"""What reclaim can do for one pod: the plan in progress, a possible plan, or why there is none."""

from dataclasses import replace

import pytest

from tests.core.support.make import node, policy, team, world
from tests.core.support.reclaim_pods import reclaim_pod
from webhook.core.model.constraints import Tier
from webhook.core.model.policy import Enforcement
from webhook.core.reclaim.holds import Beneficiary, EvictionTarget, NodeHold
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_plan import NoPlan
from webhook.core.reclaim.reclaim_pods import SchedulerReport
from webhook.core.reclaim.snapshot import WHY_NOT, Impossible, Possible, RoomKept, outlook

NOW = 1000
FULL = SchedulerReport(900, is_for_room=True)


def scene(*pods, guaranteed=8):
    rules = policy(team("team-a", guaranteed=0), team("team-b", guaranteed=guaranteed))
    place, reclaim_index = world(rules, nodes=[node("n0", gpus=8)]), ReclaimIndex(rules.reclaim)
    for each in pods:
        place.set_pod(each.pod)
        reclaim_index.set(each)
    return place, reclaim_index


def borrower(name="v", gpus=8):
    return reclaim_pod(name, gpus, on="n0", team="team-a", tier=Tier.PREEMPTIBLE)


def asker(name="w", gpus=8, report=FULL, tier=Tier.GUARANTEED):
    return replace(reclaim_pod(name, gpus, on=None, team="team-b", tier=tier), report=report)


def outlook_of(place, reclaim_index, waiting, node_holds=()):
    for node_hold in node_holds:
        reclaim_index.evictions.pick_up(node_hold, noticed=lambda _: False)
    return outlook(waiting, reclaim_index, place, now=NOW)


def test_a_possible_plan_names_its_victims():
    waiting = asker()
    found = outlook_of(*scene(borrower(), waiting), waiting)
    assert isinstance(found, Possible)
    assert (found.move.node, [(v.team, v.name) for v in found.move.victims]) == ("n0", [("team-a", "v")])


def test_a_pod_that_would_be_created_now_is_planned_for_like_one_that_waits():
    asked = reclaim_pod("new", 8, on=None, team="team-b", tier="guaranteed", created=NOW)
    assert isinstance(outlook_of(*scene(borrower()), asked), Possible)


def test_a_plan_under_way_names_its_own_victims_alone():
    waiting = asker()
    mine = EvictionTarget("v", "team-a", "v", "w", 1010)
    others = EvictionTarget("x", "team-a", "x", "other", 1010)
    node_hold = NodeHold("h", "n0", 1100, (Beneficiary("w", "team-b", "w"),), (mine, others), since=990)
    assert outlook_of(*scene(borrower(), waiting), waiting, [node_hold]) == RoomKept(node_hold, (mine,))


def test_those_that_wait_longer_come_first():
    first, second = asker("first"), asker("second")
    first = replace(first, pod=first.pod._replace(created=1))
    second = replace(second, pod=second.pod._replace(created=2))
    place, reclaim_index = scene(borrower(), first, second, guaranteed=16)
    assert isinstance(outlook_of(place, reclaim_index, first), Possible)
    assert outlook_of(place, reclaim_index, second) == Impossible(
        WHY_NOT[NoPlan.NOT_ENOUGH_VICTIMS], NoPlan.NOT_ENOUGH_VICTIMS
    )


@pytest.mark.parametrize(
    ("waiting", "guaranteed", "want"),
    [
        pytest.param(asker(report=None), 8, "kube-scheduler has not reported yet", id="no report"),
        pytest.param(asker(report=SchedulerReport(900)), 8, WHY_NOT[NoPlan.NOT_FOR_ROOM], id="another report"),
        pytest.param(asker(tier=Tier.PREEMPTIBLE), 8, "it borrows", id="a borrower"),
        pytest.param(asker(), 0, "guaranteed share no longer has room", id="a share that was lowered"),
        pytest.param(asker(gpus=16), 16, WHY_NOT[NoPlan.NO_NODE], id="too large for any node"),
    ],
)
def test_an_impossible_plan_has_a_reason(waiting, guaranteed, want):
    found = outlook_of(*scene(borrower(), waiting, guaranteed=guaranteed), waiting)
    assert isinstance(found, Impossible)
    assert want in found.why


def test_nothing_is_evicted_while_policy_is_not_enforced():
    waiting = asker()
    place, reclaim_index = scene(borrower(), waiting)
    place.set_policy(replace(place.policy, enforce=Enforcement.WARN))
    assert outlook_of(place, reclaim_index, waiting) == Impossible("policy is not enforced, so nothing is evicted")


def test_an_outlook_changes_nothing():
    waiting = asker()
    place, reclaim_index = scene(borrower(), waiting)
    assert outlook_of(place, reclaim_index, waiting) == outlook_of(place, reclaim_index, waiting)
    assert place.fleet.free("n0", "nvidia.com/gpu") == 0
