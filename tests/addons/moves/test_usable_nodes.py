"""The nodes that a pod may use, full or not."""

from tests.core.support.make import ALICE, node, pod, requirement, resident, world
from webhook.addons.moves.candidates import usable_nodes
from webhook.core.admission.assessment import assess
from webhook.core.model.constraints import HELD, Effect, Taint, pack
from webhook.core.model.policy import LabelSelector
from webhook.core.model.topology import AffinityRule

APART = AffinityRule(("host",), True, LabelSelector((requirement("app", "In", "web"),)))


def usable(cluster, wanted):
    return cluster.fleet.names_of(usable_nodes(assess(wanted, ALICE, cluster), cluster))


def test_full_nodes_are_usable_and_held_ones_are_not():
    cluster = world(nodes=[node("n0"), node("n1", taints=(Taint(HELD, Effect.NO_SCHEDULE, "x"),)), node("n2")])
    cluster.set_pod(resident(10, node="n0"))
    assert usable(cluster, pod(4)) == ["n0", "n2"]


def test_nothing_is_usable_for_a_pod_that_is_not_placed():
    assert usable(world(), pod(namespace="unknown")) == []


def test_its_own_rules_exclude_nodes():
    cluster = world(nodes=[node(f"n{n}", labels={"host": f"n{n}"}) for n in range(2)])
    cluster.set_pod(resident(uid="w", node="n0", packed=pack({"app": "web"})))
    assert usable(cluster, pod(topology=(APART,))) == ["n1"]
