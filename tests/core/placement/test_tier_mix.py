"""Guaranteed and borrowing pods are on separate nodes while there is a choice."""

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import ALICE, GPU, demand, node, pod, policy, resident, team, world
from tests.core.support.scenes import NOW, victim, waiting
from webhook.core.admission.admission import admit
from webhook.core.model.amounts import NodeName, Uid
from webhook.core.model.constraints import NO_CONSTRAINTS, Tier
from webhook.core.placement.best_nodes import best_nodes
from webhook.core.placement.fleet import Fleet
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_plan import ReclaimSnapshot
from webhook.core.reclaim.victims import VictimIndex

TIERS = st.sampled_from(list(Tier))
STEPS = st.lists(st.tuples(st.integers(0, 30), st.sampled_from([1, 2, 4, 8]), TIERS), max_size=60)


class Nodes:
    """Nodes with pods that come and go."""

    def __init__(self, nodes=5):
        self.fleet = Fleet()
        self.fleet.track(GPU)
        for number in range(nodes):
            self.fleet.set(node(f"n{number}", gpus=8))
        self.there: dict[Uid, tuple[NodeName, int, Tier]] = {}

    def best(self, count, tier):
        return best_nodes(self.fleet, demand(count), self.fleet.matching(NO_CONSTRAINTS), count=9, tier=tier)

    def tiers_on(self, name):
        return {tier for on, _, tier in self.there.values() if on == name}

    def put(self, uid, name, count, tier):
        self.fleet.set_borrowed(uid, demand(count), is_borrowed=tier is Tier.PREEMPTIBLE)
        self.fleet.take(name, demand(count), holder=uid)
        self.there[uid] = (name, count, tier)

    def leave(self, uid):
        name, count, _ = self.there.pop(uid)
        self.fleet.take(name, demand(count), sign=-1, holder=uid)
        self.fleet.set_borrowed(uid, demand(count), is_borrowed=False)

    def step(self, number, count, tier):
        """Place a pod on its best node, or remove it if it is placed."""
        uid = Uid(f"u{number}")
        if uid in self.there:
            self.leave(uid)
        elif found := self.best(count, tier):
            self.put(uid, found[0], count, tier)


@given(STEPS, TIERS)
def test_with_one_tier_tiers_have_no_effect(steps, only):
    nodes, blind = Nodes(), Fleet()
    blind.track(GPU)
    for each in nodes.fleet.nodes():
        blind.set(each)
    for number, count, _ in steps:
        want = best_nodes(blind, demand(count), blind.matching(NO_CONSTRAINTS), count=9)
        uid = Uid(f"u{number}")
        if uid not in nodes.there:
            assert nodes.best(count, only) == want
            if want:
                blind.take(want[0], demand(count), holder=uid)
        else:
            blind.take(nodes.there[uid][0], demand(nodes.there[uid][1]), sign=-1, holder=uid)
        nodes.step(number, count, only)


@given(STEPS)
def test_tiers_never_share_a_node_while_there_is_a_choice(steps):
    nodes = Nodes()
    for step in steps:
        nodes.step(*step)
    for tier in Tier:
        for count in (1, 2, 4, 8):
            mixed = [bool(nodes.tiers_on(name) - {tier}) for name in nodes.best(count, tier)]
            assert mixed == sorted(mixed), "nodes with only the own tier, or empty, come first"


@given(STEPS)
def test_a_mixed_node_is_used_before_another_becomes_mixed(steps):
    nodes = Nodes()
    for step in steps:
        nodes.step(*step)
    for tier in Tier:
        listed = [nodes.tiers_on(name) for name in nodes.best(1, tier)]
        mixed = [len(each) for each in listed if each - {tier}]
        assert mixed == sorted(mixed, reverse=True)


@given(STEPS, st.lists(st.integers(0, 30), max_size=10))
def test_pods_whose_tier_changes_count_by_the_new_tier(steps, changes):
    nodes = Nodes()
    for step in steps:
        nodes.step(*step)
    for number in changes:
        uid = Uid(f"u{number}")
        if uid in nodes.there:
            name, count, tier = nodes.there[uid]
            other = Tier.GUARANTEED if tier is Tier.PREEMPTIBLE else Tier.PREEMPTIBLE
            nodes.fleet.set_borrowed(uid, demand(count), is_borrowed=other is Tier.PREEMPTIBLE, on=name)
            nodes.there[uid] = (name, count, other)
    fresh = Nodes()
    for uid, (name, count, tier) in nodes.there.items():
        fresh.put(uid, name, count, tier)
    for tier in Tier:
        assert nodes.best(1, tier) == fresh.best(1, tier)


def test_small_pods_of_both_tiers_leave_a_node_that_reclaim_can_empty():
    nodes = Nodes(nodes=2)
    for number in range(8):
        nodes.step(number, 1, list(Tier)[number % 2])
    assert nodes.tiers_on("n0") == {Tier.GUARANTEED}
    assert nodes.tiers_on("n1") == {Tier.PREEMPTIBLE}


def test_a_pod_is_placed_even_if_every_node_has_the_other_tier():
    nodes = Nodes(nodes=1)
    nodes.put(Uid("a"), NodeName("n0"), 4, Tier.PREEMPTIBLE)
    assert nodes.best(4, Tier.GUARANTEED) == ("n0",)


def test_a_pod_without_gpus_conflicts_with_no_tier():
    nodes = Nodes(nodes=2)
    nodes.put(Uid("a"), NodeName("n0"), 4, Tier.GUARANTEED)
    nodes.put(Uid("b"), NodeName("n1"), 2, Tier.PREEMPTIBLE)
    assert nodes.best(0, Tier.GUARANTEED) == nodes.best(0, Tier.PREEMPTIBLE)


def test_a_plan_leaves_the_tiers_as_they_were():
    nodes = Nodes(nodes=3)
    victims = [victim(f"a{number}", on=f"n{number % 2}") for number in range(10)]
    for each in victims:
        nodes.put(each.uid, each.node, 1, Tier.PREEMPTIBLE)
    nodes.put(Uid("g"), NodeName("n1"), 1, Tier.GUARANTEED)
    nodes.put(Uid("h"), NodeName("n2"), 7, Tier.GUARANTEED)
    before = {tier: nodes.best(1, tier) for tier in Tier}
    (move,) = plan(
        [waiting(count=5)], ReclaimSnapshot(fleet=nodes.fleet, victim_index=VictimIndex(victims), now=NOW)
    ).moves
    assert move.victims
    assert {tier: nodes.best(1, tier) for tier in Tier} == before


# -- in a world


def small(*residents):
    rules = policy(team(guaranteed=4), team("team-b"))
    return world(rules, [node(f"n{number}", gpus=8) for number in range(3)], list(residents))


def nodes_for(asked, place):
    return admit(pod(1, tier_label=asked), ALICE, place).node_choice.nodes


def test_the_webhook_sends_each_tier_to_its_own_nodes():
    place = small(
        resident(1, uid="g", node="n2"), resident(1, uid="p", namespace="team-b", node="n1", tier="preemptible")
    )
    assert nodes_for(None, place)[0] == "n2"
    assert nodes_for("preemptible", place)[0] == "n1"


def test_a_pod_beyond_the_share_is_placed_with_borrowers():
    place = small(
        resident(4, uid="g", node="n2"), resident(1, uid="p", namespace="team-b", node="n1", tier="preemptible")
    )
    assert nodes_for(None, place)[0] == "n1"


def test_a_promoted_pod_is_guaranteed_for_placement_too():
    borrower = resident(1, uid="p", node="n1", tier="preemptible")
    place = small(resident(2, uid="q", namespace="team-b", node="n2", tier="preemptible"), borrower)
    assert nodes_for("preemptible", place)[:2] == ("n2", "n1")
    place.set_pod(borrower._replace(tier_label="guaranteed"))
    assert nodes_for("preemptible", place) == ("n2", "n0", "n1")
    assert nodes_for(None, place)[0] == "n1"


def test_a_pod_without_a_tier_may_not_be_evicted_and_counts_as_guaranteed():
    place = small(resident(1, uid="s", node="n1", tier=None))
    assert nodes_for("preemptible", place)[-1] == "n1"


def test_tiers_are_known_after_nodes_were_sorted():
    place = small(resident(1, uid="p", namespace="team-b", node="n1", tier="preemptible"))
    place.sort_nodes()
    assert nodes_for(None, place)[-1] == "n1"
