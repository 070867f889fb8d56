"""Why a pod would not go to one node: every cause, with what it requests and what the node has."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import GPU, demand, node, requirement, resident, world
from webhook.core.admission.why_not import NodeRequest, why_not
from webhook.core.model.constraints import HELD, NO_CONSTRAINTS, Constraints, Effect, NodeTerm, Taint, pack
from webhook.core.model.policy import LabelSelector
from webhook.core.model.topology import SpreadRule
from webhook.core.placement.topology_rules import TopologyRequest, evaluate_topology

A100 = {"model": "A100"}
TAINTS = (
    Taint("maintenance", Effect.NO_SCHEDULE, "yes"),
    Taint(HELD, Effect.NO_SCHEDULE, "h1"),
    Taint("slow", Effect.PREFER_NO_SCHEDULE),
)


def obstacles_of(one, asked=None, constraints=NO_CONSTRAINTS, held=0):
    place = world(nodes=[one], residents=[resident(held, node="n")] if held else [])
    return texts(one, NodeRequest(asked or demand(4), constraints), place)


def texts(one, request, place):
    return tuple(each.text for each in why_not(one, request, place.fleet))


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
        "it is reserved for waiting pods",
    )
    assert obstacles_of(replace(node("n"), taints=TAINTS)) == want


def test_all_obstacles_are_listed():
    found = obstacles_of(node("n", gpus=2, cpu=64_000, is_ready=False, is_cordoned=True), demand(4, cpu=200_000))
    assert found == (
        "it is not ready",
        "it is cordoned",
        "the pod asks for cpu 200, the node has 64",
        "the pod asks for nvidia.com/gpu 4, the node has 2",
    )


@pytest.mark.parametrize(
    ("has", "asked", "want"),
    [
        pytest.param(2013 << 30, 2 << 40, "the pod asks for memory 2Ti, the node has 2013Gi", id="another unit"),
        pytest.param(500 << 30, 600 << 30, "the pod asks for memory 600Gi, the node has 500Gi", id="one unit"),
        pytest.param(
            1_056_270_164 << 10,
            1_056_270_200 << 10,
            "the pod asks for memory 1056270200Ki, the node has 1056270164Ki",
            id="the same when rounded",
        ),
    ],
)
def test_amounts_that_differ_read_differently(has, asked, want):
    assert obstacles_of(node("n", memory=has), demand(1, memory=asked)) == (want,)


def test_missing_resources_are_named():
    assert obstacles_of(node("n"), demand(1, **{"example.com/nic": 1})) == ("the node has no example.com/nic",)


@given(
    st.integers(1, 9),
    st.lists(
        st.tuples(st.integers(0, 9), st.booleans(), st.sampled_from(["", HELD, "other"]), st.integers(0, 9)),
        min_size=1,
        max_size=4,
    ),
)
def test_a_node_has_no_cause_where_the_decision_may_place_a_pod(asked, rows):
    nodes = [
        replace(
            node(f"n{number}", gpus=gpus, is_ready=is_ready),
            taints=(Taint(key, Effect.NO_SCHEDULE, "x"),) if key else (),
        )
        for number, (gpus, is_ready, key, _) in enumerate(rows)
    ]
    residents = [resident(row[3], uid=f"u{number}", node=f"n{number}") for number, row in enumerate(rows) if row[3]]
    place = world(nodes=nodes, residents=residents)
    free = place.fleet.with_room(demand(asked), place.fleet.matching(NO_CONSTRAINTS) & place.fleet.open_bits)
    for each in nodes:
        assert bool(texts(each, NodeRequest(demand(asked)), place)) != bool(free & place.fleet.bit(each.name))


def test_other_pods_are_the_last_cause():
    nodes = [node(name, labels={"zone": name}) for name in ("a", "b")]
    there = resident(uid="u", node="a", packed=pack({"app": "web"}))
    place = world(nodes=nodes, residents=[there])
    rule = SpreadRule("zone", 1, True, LabelSelector((requirement("app", "In", "web"),)))
    spread = evaluate_topology(
        TopologyRequest("team-a", {"app": "web"}, (rule,), NO_CONSTRAINTS), place.fleet, place.pod_counts
    )
    want = ("too many matching pods in its zone",)
    request = NodeRequest(demand(1), spread=spread)
    assert (texts(nodes[0], request, place), texts(nodes[1], request, place)) == (want, ())


@pytest.mark.parametrize(("offered", "asked"), [(0, 4), (7, 8)])
def test_devices_that_are_not_offered_now_are_named(offered, asked):
    one = node("n", gpus=offered, at_best={GPU: 8})
    want = f"the pod asks for nvidia.com/gpu {asked}, the node offers {offered} of 8 now"
    assert obstacles_of(one, demand(asked)) == (want,)
