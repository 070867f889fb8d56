"""The reasons that refuse a pod on chosen nodes."""

from tests.core.support.make import ALICE, node, pod, policy, pool, resident, team, world
from webhook.core.admission.assessment import assess
from webhook.core.admission.node_choice import choose
from webhook.core.admission.queueing import objections, refusals
from webhook.core.model.reasons import Code


def objections_to(asked, place):
    assessed = assess(asked, ALICE, place)
    return [reason.code for reason in objections(assessed, choose(assessed, place), place)]


def test_a_pod_that_may_start_meets_none():
    assert objections_to(pod(1), world()) == []


def test_a_pinned_pool_without_room_refuses_and_any_other_lets_wait():
    full = [resident(10, node="n0", namespace="team-b")]
    pinned = world(policy(team(), team("team-b"), pools=(pool("a"),)), nodes=[node()], residents=full)
    assert objections_to(pod(1, pool="a"), pinned) == [Code.POOL_FULL]
    assert objections_to(pod(1), pinned) == []


def test_a_share_that_is_used_comes_with_what_would_happen_without_the_label():
    place = world(policy(team(guaranteed=0)))
    assessed = assess(pod(1, tier_label="guaranteed"), ALICE, place)
    (reason,) = objections(assessed, choose(assessed, place), place)
    assert reason.code is Code.GUARANTEED_SHARE_USED
    assert reason.text.endswith("and borrow idle GPUs now")


def test_refusals_on_every_node_name_limits_and_pools():
    place = world(policy(team(limit_=1), pools=(pool("a"),)))
    found = refusals(assess(pod(2, pool="b"), ALICE, place))
    assert [reason.code for reason in found] == [Code.TEAM_LIMIT_EXCEEDED, Code.UNKNOWN_POOL]
