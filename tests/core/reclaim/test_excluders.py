"""Borrowers whose anti-affinity keeps a guaranteed pod off nodes go like those that hold its room, and no others."""

import pytest

from tests.core.support.make import node, resident
from tests.core.support.scenes import APART, APP, NOW, causes, gone, like, scene, victim, waiting
from webhook.core.model.policy import LabelSelector
from webhook.core.model.topology import EVERY_NAMESPACE, AffinityRule
from webhook.core.placement.pod_counts import PlacedPod, PodCounts
from webhook.core.reclaim.excluders import MOST
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_plan import NoPlan
from webhook.core.reclaim.trial import Trial
from webhook.core.reclaim.victims import GuardId

FROM_ALL = AffinityRule(("host",), True, LabelSelector(()), EVERY_NAMESPACE)
BY_ZONE = AffinityRule(("zone",), True, LabelSelector(()), EVERY_NAMESPACE)


def excluding(*pods, rule=FROM_ALL):
    """These pods, of any tier, exclude others by a rule."""
    found = PodCounts()
    there = [
        resident(uid=each.uid, namespace=each.namespace, node=each.node, anti_affinity_rules=(rule,)) for each in pods
    ]
    found.sources.append(lambda namespace: [PlacedPod(pod, pod.node) for pod in there if pod.namespace == namespace])
    for each in there:
        found.change(each, each.node, 1)
    return found


def test_a_borrower_that_excludes_the_pod_goes_though_its_room_is_not_needed():
    shield, other = victim("shield"), victim("other", 3)
    found = plan([waiting(count=4)], scene([shield, other], pod_counts=excluding(shield)))
    assert gone(found) == ["shield"]


def test_those_that_exclude_it_go_first_and_then_as_many_as_its_room_needs():
    shields, others = [victim("s0"), victim("s1")], [victim("cheap", 3, saved=NOW), victim("dear", 3)]
    found = plan([waiting(count=4)], scene([*shields, *others], pod_counts=excluding(*shields)))
    assert sorted(gone(found)) == ["cheap", "s0", "s1"]


@pytest.mark.parametrize(("saved", "want"), [(0, ["honest"]), (NOW, ["shield"])])
def test_the_cheapest_node_is_chosen_among_those_that_it_may_use_and_those_it_could(saved, want):
    shield, honest = victim("shield", 8, saved=saved), victim("honest", 8, on="n1", saved=NOW - 1)
    assert gone(plan([waiting()], scene([shield, honest], nodes=2, pod_counts=excluding(shield)))) == want


def test_a_node_stays_closed_where_one_that_excludes_it_is_no_possible_victim():
    shield, guaranteed = victim("shield"), victim("guaranteed")
    there = scene([shield], others=[guaranteed], pod_counts=excluding(shield, guaranteed))
    found = plan([waiting()], there)
    assert (found.moves, causes(found)) == ((), {"b": NoPlan.TOPOLOGY_UNMET})
    spared = scene([shield], pod_counts=excluding(shield), spared={shield.uid})
    assert causes(plan([waiting()], spared)) == {"b": NoPlan.NOT_ENOUGH_VICTIMS}


def test_the_pods_own_rules_are_kept():
    there = like("n0")
    assert causes(plan([waiting(labels=APP, topology=(APART,))], scene([victim("s-n0")], pod_counts=there))) == {
        "b": NoPlan.TOPOLOGY_UNMET
    }


def test_one_on_another_node_of_the_domain_goes_too():
    shield = victim("shield", on="n1")
    there = scene([shield, victim("full", 8)], nodes=2, pod_counts=excluding(shield, rule=BY_ZONE))
    for name in ("n0", "n1"):
        there.fleet.set(node(name, gpus=8, labels={"host": name, "zone": "z"}))
    (move,) = plan([waiting(count=8)], there).moves
    assert (move.node, [each.name for each in move.victims]) == ("n1", ["shield"])
    there.fleet.set(node("n1", gpus=4, labels={"host": "n1", "zone": "z"}))
    (move,) = plan([waiting(count=8)], there).moves
    assert (move.node, sorted(each.name for each in move.victims)) == ("n0", ["full", "shield"])


def test_its_whole_gang_goes_and_budgets_count():
    gang = [victim("g0", gang="g"), victim("g1", on="n1", gang="g")]
    there = scene(gang, nodes=2, pod_counts=excluding(*gang))
    (move,) = plan([waiting()], there).moves
    assert sorted(each.name for each in move.victims) == ["g0", "g1"]
    kept = victim("kept", guards=(GuardId("one"),))
    for left, want in ((0, []), (1, ["kept"])):
        assert gone(plan([waiting()], scene([kept], pod_counts=excluding(kept), left={GuardId("one"): left}))) == want


def test_the_next_pod_of_a_round_uses_the_node_that_was_opened_and_all_is_undone():
    shield = victim("shield")
    there = scene([shield], pod_counts=excluding(shield))
    found = plan([waiting("b0"), waiting("b1", since=1)], there)
    assert [[each.name for each in move.victims] for move in found.moves] == [["shield"], []]
    trial = Trial(there)
    trial.place(waiting("b0"))
    trial.undo(0)
    assert not trial.has_room(waiting("b1"), -1)


def test_only_some_of_many_nodes_are_searched_those_with_the_fewest_first():
    shields = [victim(f"s{n:03}", on=f"n{n // 2}") for n in range(2 * MOST + 1)]
    there = scene(shields, nodes=MOST + 1, pod_counts=excluding(*shields))
    assert gone(plan([waiting()], there)) == [shields[-1].name]
