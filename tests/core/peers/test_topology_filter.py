"""Pods spread over domains: kube-scheduler's rule, the resulting slots, and the nodes on a list."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import ALICE, flight, mutated, node, pod, policy, pool, requirement, resident, team, world
from tests.core.support.zones import APP, LABELS, OF_APP, SELECTORS, zoned
from webhook.core.admission.admission import admit
from webhook.core.admission.verification import verify
from webhook.core.model.constraints import Constraints, Effect, NodeTerm, Taint, Toleration, pack
from webhook.core.model.decision import Admit, Retry
from webhook.core.model.pod import Owner
from webhook.core.model.policy import Mode, PlacementRules
from webhook.core.model.topology import SpreadRule
from webhook.core.placement.topology_rules import TopologyRequest, evaluate_topology

WEB = Owner("ReplicaSet", "web")


def rule(key="zone", *, skew=1, is_hard=True, selector=OF_APP, **more):
    return SpreadRule(key, skew, is_hard, selector, **more)


def web(*rules, **more):
    return pod(more.pop("count", 1), labels=APP, owner=WEB, topology=rules, **more)


def on(name, **more):
    return resident(1, node=name, packed=pack(more.pop("labels", APP)), owner=WEB, **more)


def place(*residents, nodes=None, **rules):
    rich = team(guaranteed=100, limit_=None)
    return world(policy(rich, **rules), nodes or zoned("a", "b", "c"), list(residents))


def node_choice_of(world_, pod_):
    decision = admit(pod_, ALICE, world_)
    assert isinstance(decision, Admit), decision
    return decision.node_choice


# -- the rule, against a transcription of kube-scheduler's


@dataclass(frozen=True)
class Placed:
    """A pod in the transcription."""

    namespace: str
    labels: dict
    node: str
    is_terminating: bool


def plugin_admits(asker, rules, nodes, placed):
    """filtering.go of kube-scheduler 1.37 line by line: which nodes pass, by name."""
    nodes_with_keys = [n for n in nodes if all(r.key in n.labels for r in rules)]
    tp_value_to_match_num = []
    for each in rules:
        nums = {}
        for n in nodes_with_keys:
            own = asker.constraints
            if each.honors_affinity and not replace(own, tolerations=TOLERATES_ALL).admits(n.name, n.labels, n.taints):
                continue
            if each.honors_taints and not Constraints(tolerations=own.tolerations).admits(n.name, n.labels, n.taints):
                continue
            count = 0
            if each.selector is not None and each.selector.requirements:
                for p in placed:
                    if p.node != n.name or p.is_terminating or p.namespace != asker.namespace:
                        continue
                    count += each.selector.matches(p.labels)
            value = n.labels[each.key]
            nums[value] = nums.get(value, 0) + count
        tp_value_to_match_num.append(nums)
    return {n.name for n in nodes if passes(asker, rules, tp_value_to_match_num, n)}


def passes(asker, rules, tp_value_to_match_num, n):
    for each, nums in zip(rules, tp_value_to_match_num, strict=True):
        if each.key not in n.labels:
            return False
        min_match_num = min(nums.values(), default=0)
        if len(nums) < each.min_domains:
            min_match_num = 0
        self_match_num = 1 if each.selector is not None and each.selector.matches(asker.labels) else 0
        if nums.get(n.labels[each.key], 0) + self_match_num - min_match_num > each.max_skew:
            return False
    return True


TOLERATES_ALL = (Toleration(exists=True),)
NAMES = [f"n{i}" for i in range(6)]
RULES = st.lists(
    st.builds(
        SpreadRule,
        st.sampled_from(["zone", "rack", "host"]),
        st.integers(1, 3),
        st.just(value=True),
        SELECTORS,
        st.integers(1, 4),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=3,
)
TAINT = Taint("team", Effect.NO_SCHEDULE, "x")
NODES = st.tuples(
    *(
        st.builds(
            lambda labels, taints, name=name: node(name, labels={"host": name} | labels, taints=taints),
            st.fixed_dictionaries(
                {}, optional={"zone": st.sampled_from("abc"), "rack": st.sampled_from("12"), "pool": st.just("gpu")}
            ),
            st.sampled_from([(), (TAINT,)]),
        )
        for name in NAMES
    )
)
PLACED = st.lists(
    st.builds(Placed, st.sampled_from(["team-a", "team-b"]), LABELS, st.sampled_from([*NAMES, "gone"]), st.booleans()),
    max_size=14,
)
CONSTRAINTS = st.builds(
    Constraints,
    st.sampled_from([(), (("pool", "gpu"),)]),
    st.sampled_from([None, (NodeTerm(labels=(requirement("zone", "In", "a", "b"),)),)]),
    st.sampled_from([(), (Toleration("team", exists=True),)]),
)


@given(NODES, PLACED, RULES, CONSTRAINTS, LABELS)
def test_hard_rules_allow_what_kube_scheduler_allows(nodes, placed, rules, constraints, labels):
    there = [
        resident(
            uid=f"u{i}", namespace=p.namespace, node=p.node, packed=pack(p.labels), is_terminating=p.is_terminating
        )
        for i, p in enumerate(placed)
    ]
    found = world(nodes=list(nodes), residents=there)
    asker = TopologyRequest("team-a", labels, tuple(rules), constraints)
    allowed = evaluate_topology(asker, found.fleet, found.pod_counts).allowed
    assert {name for name in NAMES if found.fleet.bit(name) & allowed} == plugin_admits(asker, rules, nodes, placed)


@given(NODES, PLACED, RULES, LABELS)
def test_on_the_list_that_is_made_kube_scheduler_allows_the_first(nodes, placed, rules, labels):
    there = [
        resident(0, uid=f"u{i}", namespace=p.namespace, node=p.node, packed=pack(p.labels))
        for i, p in enumerate(placed)
        if not p.is_terminating
    ]
    found = world(policy(team(guaranteed=100)), list(nodes), there)
    asked = pod(1, labels=labels, topology=tuple(rules))
    node_choice = node_choice_of(found, asked)
    if node_choice.mode is not Mode.AUTO or not node_choice.nodes:
        return
    terms = tuple(NodeTerm(fields=(requirement("metadata.name", "In", name),)) for name in node_choice.nodes)
    bound = TopologyRequest("team-a", labels, tuple(rules), Constraints(terms=terms))
    placed = [p for p in placed if not p.is_terminating]
    assert node_choice.nodes[0] in plugin_admits(bound, rules, nodes, placed)


# -- where pods go


def test_concurrent_pods_are_spread_over_zones_and_then_packed():
    found = place(nodes=zoned("a", "b", "c"))
    zones = []
    for _ in range(9):
        asked = web(rule())
        node_choice = node_choice_of(found, asked)
        assert node_choice.mode is Mode.AUTO
        assert len({name[0] for name in node_choice.nodes}) == 1, "one zone cannot become uneven"
        found.tentative.reserve(found.fleet, node_choice.nodes[0], asked, now=0.0)
        zones.append(node_choice.nodes[0])
    assert zones == ["a0", "b0", "c0"] * 3


def test_expired_reservations_no_longer_count():
    found = place()
    asked = web(rule())
    found.tentative.reserve(found.fleet, "a0", asked, now=0.0)
    assert node_choice_of(found, asked).nodes[0] == "b0"
    found.tentative.clear(found.fleet)
    assert node_choice_of(found, asked).nodes[0] == "a0"


@pytest.mark.parametrize(
    "other",
    [
        on("a0", is_terminating=True),
        on("a0", namespace="team-b"),
        on("a0", labels={"app": "db"}),
        on("gone"),
    ],
    ids=["terminating", "of another namespace", "not selected", "on a node that is not there"],
)
def test_pods_that_do_not_count(other):
    assert node_choice_of(place(other), web(rule())).nodes[0].startswith("a")


def test_a_pod_whose_labels_change_is_counted_by_the_new_ones():
    found = place(on("a0", uid="u"))
    assert node_choice_of(found, web(rule())).nodes[0].startswith("b")
    found.set_pod(on("a0", uid="u", labels={"app": "db"}))
    assert node_choice_of(found, web(rule())).nodes[0].startswith("a")


def test_a_node_that_changes_its_zone_moves_its_pods():
    found = place(on("a0"))
    assert node_choice_of(found, web(rule())).nodes[0].startswith("b")
    found.set_node(node("a0", labels={"zone": "b"}))
    assert node_choice_of(found, web(rule())).nodes[0] == "a1"


def test_a_soft_rule_holds_while_there_is_room():
    host = rule("host", is_hard=False)
    found = place(on("a0"), on("a1"), nodes=zoned("a", "b"))
    assert node_choice_of(found, web(host)).nodes == ("b0", "b1")
    full = place(on("a0"), on("a1"), nodes=[*zoned("a"), *zoned("b", gpus=0)])
    assert node_choice_of(full, web(host)).nodes == ("a0", "a1"), "and is dropped where there is none"


def test_on_the_list_of_a_soft_rule_no_node_has_fewer_matching_pods_than_the_first():
    host = rule("host", is_hard=False, skew=3)
    found = place(on("a0"), on("b0"), nodes=zoned("a", "b"))
    assert node_choice_of(found, web(host)).nodes == ("a0", "b0")


def test_of_several_soft_rules_the_satisfiable_ones_hold():
    found = place(on("a0"), on("b0"), on("b1"), nodes=zoned("a", "b"))
    zone, host = rule(is_hard=False), rule("host", is_hard=False)
    assert node_choice_of(found, web(zone, host)).nodes == ("a1",)


def test_a_hard_rule_that_no_node_with_room_meets_becomes_a_preference():
    found = place(on("a0"), nodes=[*zoned("a"), *zoned("b", gpus=0)])
    node_choice = node_choice_of(found, web(rule()))
    assert (node_choice.mode, node_choice.nodes[0]) == (Mode.PREFER, "a0")


def test_rules_with_min_domains_are_left_to_kube_scheduler():
    node_choice = node_choice_of(place(on("a0")), web(rule(min_domains=3)))
    assert (node_choice.mode, node_choice.nodes[0]) == (Mode.PREFER, "b0")
    ignoring = node_choice_of(place(on("a0")), web(rule(min_domains=3, honors_affinity=False)))
    assert (ignoring.mode, ignoring.nodes[0]) == (Mode.AUTO, "b0")


def test_a_list_spans_zones_where_kube_scheduler_counts_beyond_it():
    node_choice = node_choice_of(place(on("a0")), web(rule(honors_affinity=False)))
    assert {name[0] for name in node_choice.nodes} == {"b", "c"}


def test_zones_are_counted_within_the_pool_that_a_pod_is_sent_to():
    nodes = [
        replace(n, labels=dict(n.labels) | {"pool": "x" if n.name[0] in "ab" else "y"}) for n in zoned("a", "b", "c")
    ]
    pools = (pool("x", node_selector=(("pool", "x"),)),)
    found = place(on("a0"), on("b0"), nodes=nodes, pools=pools)
    assert node_choice_of(found, web(rule())).nodes == ("a0", "a1"), "zone c is empty and does not count"


def test_one_node_is_required_where_policy_wants_that():
    found = place(on("a0"), placement=PlacementRules(mode=Mode.REQUIRE))
    assert node_choice_of(found, web(rule())) == node_choice_of(found, web(rule()))._replace(
        mode=Mode.REQUIRE, nodes=("b0",)
    )


# -- the commit


def committed(found, asked, *, uid, others=()):
    decision = admit(asked, ALICE, found)
    found.tentative.reserve(found.fleet, decision.node_choice.nodes[0], asked, now=0.0)
    for each in others:
        found.set_pod(each)
    return verify(mutated(asked, decision, uid=uid), ALICE, found)


def test_a_pods_own_reservation_does_not_count_against_it():
    assert isinstance(committed(place(), web(rule()), uid="u1"), Admit)


def test_a_pod_is_retried_where_others_came_first():
    decision = committed(place(), web(rule()), uid="u1", others=[on("a1")])
    assert isinstance(decision, Retry)
    assert "no longer meet the pod's topology rules" in decision.reason.text


def test_what_another_replica_committed_counts_before_it_is_seen():
    found, other = place(), place()
    one = committed(other, web(rule()), uid="u1")
    decision = admit(web(rule()), ALICE, found)
    made = flight(web(rule()), one.charge, one.node_choice.nodes[0])
    found.assume(made._replace(pod=made.pod._replace(uid="u1", packed=pack(APP))))
    assert isinstance(verify(mutated(web(rule()), decision, uid="u2"), ALICE, found), Retry)


def test_a_preference_is_not_verified():
    found = place(on("a0"), nodes=[*zoned("a"), *zoned("b", gpus=0)])
    assert isinstance(committed(found, web(rule()), uid="u1", others=[on("a1")]), Admit)


def test_open_reservations_do_not_count_at_the_commit():
    found = place(on("a0"), on("c0"))
    found.tentative.reserve(found.fleet, "b0", web(rule()), now=0.0)
    assert isinstance(committed(found, web(rule()), uid="u1"), Retry)
