"""Why a pod would not go to one node: every cause, with what it requests and what the node has."""

from dataclasses import replace

import pytest

from tests.core.support.make import GPU, demand, node, requirement, resident, world
from webhook.core.explain.obstacles import obstacles
from webhook.core.model.labels import pack
from webhook.core.model.policy import LabelSelector
from webhook.core.model.selector import HELD, NO_CONSTRAINTS, Constraints, Effect, NodeTerm, Taint
from webhook.core.model.topology import SpreadRule
from webhook.core.peers.topology_filter import NO_SPREAD, TopologyRequest, evaluate_topology

A100 = {"model": "A100"}
TAINTS = (
    Taint("maintenance", Effect.NO_SCHEDULE, "yes"),
    Taint(HELD, Effect.NO_SCHEDULE, "h1"),
    Taint("slow", Effect.PREFER_NO_SCHEDULE),
)


def obstacles_of(one, asked=None, constraints=NO_CONSTRAINTS, held=0):
    place = world(nodes=[one], residents=[resident(held, node="n")] if held else [])
    return obstacles(place.fleet, one, asked or demand(4), constraints, spread=NO_SPREAD)


@pytest.mark.parametrize(
    ("constraints", "want"),
    [
        pytest.param(
            Constraints((("model", "H100"),)),
            ("the node selector asks for model: H100, the node has A100",),
            id="label",
        ),
        pytest.param(
            Constraints((("zone", "a"),)),
            ("the node selector asks for zone: a, the node has no label zone",),
            id="none",
        ),
        pytest.param(
            Constraints(terms=(NodeTerm((requirement("memory", "Gt", "75000"), requirement("model", "Exists"))),)),
            ("the node affinity asks for memory Gt 75000, the node has no label memory",),
            id="one term shows its unmet requirement",
        ),
        pytest.param(
            Constraints(terms=(NodeTerm(fields=(requirement("metadata.name", "In", "other"),)),)),
            ("the node affinity asks for metadata.name In other, its name is n",),
            id="a node by name",
        ),
        pytest.param(
            Constraints(terms=(NodeTerm((requirement("a", "Exists"),)), NodeTerm((requirement("b", "Exists"),)))),
            ("the node affinity has 2 terms, and it meets none of them",),
            id="several terms",
        ),
    ],
)
def test_conditions_on_labels_name_what_is_there(constraints, want):
    assert obstacles_of(node("n", labels=A100), constraints=constraints) == want


def test_taints_are_named_except_those_without_effect():
    want = (
        "it has taint maintenance=yes:NoSchedule, which the pod does not tolerate",
        "its room is held for waiting pods",
    )
    assert obstacles_of(replace(node("n"), taints=TAINTS)) == want


def test_all_obstacles_are_listed():
    found = obstacles_of(node("n", gpus=2, cpu=64_000, is_ready=False, is_cordoned=True), demand(4, cpu=200_000))
    assert found == (
        "it is not ready",
        "it is cordoned",
        "the pod asks for 200 cpu, it has 64 in all",
        "the pod asks for 4 nvidia.com/gpu, it has 2 in all",
    )


def test_memory_is_in_gib_and_missing_resources_are_named():
    found = obstacles_of(node("n"), demand(1, memory=1 << 60))
    assert any(each.startswith("the pod asks for 1.07e+09 GiB of memory") for each in found)
    assert obstacles_of(node("n"), demand(1, **{"example.com/nic": 1})) == ("it offers no example.com/nic",)


def test_other_pods_are_the_last_cause():
    nodes = [node(name, labels={"zone": name}) for name in ("a", "b")]
    there = resident(uid="u", node="a", packed=pack({"app": "web"}))
    place = world(nodes=nodes, residents=[there])
    rule = SpreadRule("zone", 1, True, LabelSelector((requirement("app", "In", "web"),)))
    spread = evaluate_topology(
        TopologyRequest("team-a", {"app": "web"}, (rule,), NO_CONSTRAINTS), place.fleet, place.pod_counts
    )
    want = ("too many matching pods in its zone",)
    assert obstacles(place.fleet, nodes[0], demand(1), NO_CONSTRAINTS, spread=spread) == want
    assert obstacles(place.fleet, nodes[1], demand(1), NO_CONSTRAINTS, spread=spread) == ()


@pytest.mark.parametrize(("offered", "asked"), [(0, 4), (7, 8)])
def test_devices_that_are_not_offered_now_are_named(offered, asked):
    one = node("n", gpus=offered, at_best={GPU: 8})
    want = f"the pod asks for {asked} nvidia.com/gpu, it offers {offered} of 8 now"
    assert obstacles_of(one, demand(asked)) == (want,)
