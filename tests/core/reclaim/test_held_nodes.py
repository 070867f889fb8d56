"""Which nodes hold their room, for which pods, and which other pods are excluded."""

from tests.core.support import make
from webhook.core.model.amounts import Namespace, NodeName, Uid
from webhook.core.model.constraints import Operator, Requirement
from webhook.core.model.policy import Defaults, LabelSelector, UnknownTeam
from webhook.core.reclaim.holds import Beneficiary, EvictionTarget, NodeHold, held_nodes

SELECTOR = LabelSelector((Requirement("team", Operator.IN, ("b",)),))


def claim(uid):
    return Beneficiary(Uid(uid), Namespace("team-a"), uid)


def node_hold(node, *claims, targets=()):
    return NodeHold("h", NodeName(node), 0, tuple(map(claim, claims)), targets)


def test_each_node_is_held_for_all_its_beneficiaries():
    found = held_nodes([node_hold("n0", "u2", "u1"), node_hold("n1", "u3")], make.policy())
    assert found.nodes == {"n0": ("u1", "u2"), "n1": ("u3",)}


def test_a_node_that_only_waits_for_the_rest_of_a_gang_holds_nothing():
    target = EvictionTarget(Uid("t"), Namespace("team-a"), "t", Uid("u"), 0)
    assert held_nodes([node_hold("n0", targets=(target,))], make.policy()).nodes == {}


def test_the_namespaces_are_those_of_teams():
    teams = (make.team(namespaces=("b-*", "a")), make.team("team-b", namespaces=(), namespace_selector=SELECTOR))
    found = held_nodes([], make.policy(*teams, exempt_namespaces=("ci-*",), operator_namespaces=("gpu-operator",)))
    assert (found.namespaces, found.selectors, found.exempt) == (("a", "b-*"), (SELECTOR,), ("ci-*", "gpu-operator"))


def test_where_every_namespace_may_borrow_all_are():
    found = held_nodes([], make.policy(defaults=Defaults(unknown_team=UnknownTeam.PREEMPTIBLE)))
    assert (found.namespaces, found.selectors) == (("*",), ())


def state(*holds, **more):
    return held_nodes(holds, make.policy(**more))


def test_a_state_covers_a_later_one_in_which_fewer_pods_need_their_room():
    both = state(node_hold("n0", "u1", "u2"))
    assert both.covers(both)
    assert both.covers(state(node_hold("n0", "u2")))


def test_a_state_covers_no_other_nodes_pods_or_namespaces():
    both = state(node_hold("n0", "u1", "u2"))
    assert not state(node_hold("n0", "u2")).covers(both)
    assert not both.covers(state(node_hold("n0", "u1", "u3")))
    assert not both.covers(state())
    assert not both.covers(state(node_hold("n0", "u1"), node_hold("n1", "u2")))
    assert not both.covers(state(node_hold("n0", "u1"), exempt_namespaces=("ci-*",)))
