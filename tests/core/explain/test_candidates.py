"""The costs of nodes for a pod, and why the others have no room."""

from dataclasses import replace

from tests.core.support.make import GPU, demand, node, requirement, resident, world
from webhook.core.admission.why_not import Cause, NodeRequest
from webhook.core.explain.candidates import Filtered, NodeSearch
from webhook.core.model.amounts import Uid
from webhook.core.model.constraints import HELD, Constraints, Effect, Taint, Tier, pack
from webhook.core.model.policy import LabelSelector
from webhook.core.model.topology import AffinityRule, SpreadRule
from webhook.core.placement.best_nodes import best_nodes
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.rejecting_nodes import AvoidedNodes
from webhook.core.placement.topology_rules import TopologyRequest, evaluate_topology

ANY = Constraints()


def fleet(*nodes) -> Fleet:
    made = Fleet()
    made.track(GPU)
    for each in nodes:
        made.set(each)
    return made


def found_in(nodes, asked, constraints, **more):
    """Return the candidates for a guaranteed pod."""
    return NodeSearch(nodes, NodeRequest(asked, constraints, **more), Tier.GUARANTEED).candidates()


def test_the_best_nodes_come_in_the_order_of_the_decision_with_their_costs():
    place = fleet(*(node(f"n{i}", gpus=8) for i in range(8)))
    for i in range(4):
        place.take(f"n{i}", demand(i + 1))
    result = found_in(place, demand(2), ANY)
    assert [each.node for each in result.best] == list(best_nodes(place, demand(2), place.matching(ANY), count=5))
    totals = [sum(each.cost) for each in result.best]
    assert totals == sorted(totals)
    assert all(part >= 0 for each in result.best for part in each.cost)
    assert (result.with_room, result.filtered) == (8, ())


def test_a_node_that_loses_its_last_place_for_eight_costs_more():
    place = fleet(node("open", gpus=8), node("used", gpus=8))
    place.take("used", demand(4))
    used, opened = found_in(place, demand(2), ANY).best
    assert (used.node, opened.node) == ("used", "open")
    assert used.cost.useless < opened.cost.useless
    assert used.cost.gpus_left < opened.cost.gpus_left


def test_every_other_node_is_counted_under_its_first_obstacle():
    place = fleet(
        node("room", gpus=8),
        node("small", gpus=2),
        node("plugin-restarts", gpus=0, at_best={GPU: 8}),
        node("full", gpus=8),
        node("full-too", gpus=8),
        node("few-cores", gpus=8),
        node("down", gpus=8, is_ready=False),
        node("drained", gpus=8, is_cordoned=True),
        replace(node("tainted", gpus=8), taints=(Taint("maintenance", Effect.NO_SCHEDULE),)),
        replace(node("held", gpus=8), taints=(Taint(HELD, Effect.NO_SCHEDULE, "h1"),)),
    )
    for name in ("full", "full-too"):
        place.take(name, demand(6))
    place.take("few-cores", demand(1, cpu=60_000))
    result = found_in(place, demand(4), ANY)
    assert [each.node for each in result.best] == ["room"]
    assert result.filtered == (
        Filtered("too little nvidia.com/gpu free", ("full", "full-too")),
        Filtered("cordoned", ("drained",)),
        Filtered("not ready", ("down",)),
        Filtered(Cause.LESSENED, ("plugin-restarts",)),
        Filtered(Cause.HELD, ("held",)),
        Filtered(Cause.CONSTRAINTS, ("tainted",)),
        Filtered("too little cpu free", ("few-cores",)),
        Filtered(Cause.NEVER, ("small",)),
    )


def test_nodes_are_named_in_natural_order():
    names = [f"gpu-{number}" for number in (10, 9, 2, 1)]
    result = found_in(fleet(*(node(name, gpus=2) for name in names)), demand(4), ANY)
    assert result.filtered == (Filtered(Cause.NEVER, ("gpu-1", "gpu-2", "gpu-9", "gpu-10")),)


def test_costs_are_the_same_whether_the_largest_node_came_first_or_last():
    nodes = [node("small", gpus=2, cpu=8000), node("large", gpus=16, cpu=256_000)]
    early, late = fleet(*nodes), fleet(nodes[0])
    found_in(late, demand(1), ANY)
    late.set(nodes[1])
    found = [found_in(each, demand(1), ANY) for each in (early, late)]
    assert found[0] == found[1]


def test_the_other_tiers_node_costs_more_than_a_whole_one():
    place = fleet(node("open", gpus=8), node("shared", gpus=8))
    place.set_borrowed(Uid("b"), demand(4), is_borrowed=True)
    place.take("shared", demand(4), holder=Uid("b"))
    opened, shared = found_in(place, demand(4), ANY).best
    assert (opened.node, shared.node) == ("open", "shared")
    assert shared.cost.mixing > sum(opened.cost) > opened.cost.mixing == 0


def test_nodes_excluded_by_topology_spread_are_named_by_its_key():
    nodes = [node(name, labels={"zone": name[0]}) for name in ("a0", "a1", "b0")]
    there = resident(uid="u", node="a0", packed=pack({"app": "web"}))
    place = world(nodes=[*nodes, node("nowhere")], residents=[there])
    rule = SpreadRule("zone", 1, True, LabelSelector((requirement("app", "In", "web"),)))
    spread = evaluate_topology(TopologyRequest("team-a", {"app": "web"}, (rule,), ANY), place.fleet, place.pod_counts)
    result = found_in(place.fleet, demand(2), ANY, spread=spread)
    assert [each.node for each in result.best] == ["b0"]
    assert result.filtered == (
        Filtered("too many matching pods in its zone", ("a0", "a1")),
        Filtered("no label zone, the topology key of a spread constraint", ("nowhere",)),
    )


def test_nodes_excluded_by_inter_pod_affinity_are_named_by_its_key():
    nodes = [node(name, labels={"zone": name[0], "host": name}) for name in ("a0", "a1", "b0")]
    there = resident(uid="u", node="a0", packed=pack({"app": "web"}))
    place = world(nodes=nodes, residents=[there])
    of_web = LabelSelector((requirement("app", "In", "web"),))
    rules = (AffinityRule(("zone",), False, of_web), AffinityRule(("host",), True, of_web))
    spread = evaluate_topology(TopologyRequest("team-a", {}, rules, ANY), place.fleet, place.pod_counts)
    result = found_in(place.fleet, demand(2), ANY, spread=spread)
    assert [each.node for each in result.best] == ["a1"]
    assert result.filtered == (
        Filtered("no pod of the pod's affinity in its zone", ("b0",)),
        Filtered("pods of the pod's anti-affinity in its host", ("a0",)),
    )


def test_the_excluding_rule_is_named_by_its_key():
    of_web = LabelSelector((requirement("app", "In", "web"),))
    existing = resident(uid="u", node="a0", anti_affinity_rules=(AffinityRule(("host",), True, of_web),))
    place = world(nodes=[node(name, labels={"host": name}) for name in ("a0", "b0")], residents=[existing])
    spread = evaluate_topology(TopologyRequest("team-a", {"app": "web"}, (), ANY), place.fleet, place.pod_counts)
    result = found_in(place.fleet, demand(2), ANY, spread=spread)
    assert result.filtered == (Filtered("pods with anti-affinity to the pod in its host", ("a0",)),)


def test_nodes_that_reject_the_teams_pods_are_named_and_those_that_others_rejected_come_last():
    nodes = fleet(node("n0"), node("n1"), node("n2"))
    found = found_in(nodes, demand(1), ANY)
    assert [each.node for each in found.best] == ["n0", "n1", "n2"]
    avoided = AvoidedNodes(closed=nodes.bit("n1"), last=nodes.bit("n0"))
    found = found_in(nodes, demand(1), ANY, avoided=avoided)
    assert [each.node for each in found.best] == ["n2", "n0"]
    assert found.with_room == 2
    assert found.filtered == ((Cause.REJECTS, ("n1",)),)
