"""Inter-pod affinity and anti-affinity: kube-scheduler's rule, and where pods go by it."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import ALICE, mutated, node, pod, policy, requirement, resident, team, world
from tests.core.support.zones import APP, LABELS, OF_APP, SELECTORS, zoned
from webhook.core.admission.admission import admit
from webhook.core.admission.verification import verify
from webhook.core.model.constraints import NO_CONSTRAINTS, pack
from webhook.core.model.decision import Admit, Retry
from webhook.core.model.pod import NamespaceFacts, Owner
from webhook.core.model.policy import LabelSelector, Mode
from webhook.core.model.topology import EVERY_NAMESPACE, AffinityRule, SpreadRule
from webhook.core.placement.pod_counts import PlacedPod
from webhook.core.placement.topology_rules import TopologyRequest, evaluate_topology

APART = AffinityRule(("host",), True, OF_APP)
APART_FROM_ALL = AffinityRule(("zone",), True, LabelSelector(()), EVERY_NAMESPACE)
TOGETHER = AffinityRule(("zone",), False, OF_APP)


def place(*residents, nodes=None):
    return world(policy(team(guaranteed=100, limit_=None)), nodes or zoned("a", "b"), list(residents))


def on(name, labels=APP, **more):
    return resident(1, node=name, packed=pack(labels), **more)


def web(*rules, count=1, labels=APP):
    return pod(count, labels=labels, owner=Owner("Job", "web"), topology=rules)


def node_choice_of(found, asked):
    decision = admit(asked, ALICE, found)
    assert isinstance(decision, Admit), decision
    return decision.node_choice


# -- the rule, against a transcription of kube-scheduler's


@dataclass(frozen=True)
class Term:
    """A term of the transcription."""

    key: str
    selector: LabelSelector | None
    namespaces: tuple[str, ...]

    def matches(self, placed):
        return (
            placed.namespace in self.namespaces and self.selector is not None and self.selector.matches(placed.labels)
        )


@dataclass(frozen=True)
class Placed:
    """A pod of the transcription."""

    namespace: str
    labels: dict
    node: str
    unwanted: tuple[Term, ...] = ()


def plugin_admits(me, wanted, unwanted, nodes, placed):
    """filtering.go of kube-scheduler 1.37 line by line: which nodes pass, by name."""
    affinity_counts, anti_affinity_counts = {}, {}
    existing_anti_affinity_counts = {
        (term.key, n.labels[term.key])
        for n in nodes
        for existing in placed
        if existing.node == n.name
        for term in existing.unwanted
        if term.matches(me) and term.key in n.labels
    }
    for n in nodes:
        for existing in placed:
            if existing.node != n.name:
                continue
            if wanted and all(term.matches(existing) for term in wanted):
                for term in wanted:
                    if term.key in n.labels:
                        pair = (term.key, n.labels[term.key])
                        affinity_counts[pair] = affinity_counts.get(pair, 0) + 1
            for term in unwanted:
                if term.matches(existing) and term.key in n.labels:
                    pair = (term.key, n.labels[term.key])
                    anti_affinity_counts.setdefault(term, {})[pair] = 1
    return {
        n.name
        for n in nodes
        if satisfies_affinity(me, wanted, n, affinity_counts)
        and not any(
            (term.key, n.labels[term.key]) in anti_affinity_counts.get(term, {})
            for term in unwanted
            if term.key in n.labels
        )
        and not any(pair in existing_anti_affinity_counts for pair in n.labels.items())
    }


def satisfies_affinity(me, wanted, n, counts):
    pods_exist = True
    for term in wanted:
        if term.key not in n.labels:
            return False
        if counts.get((term.key, n.labels[term.key]), 0) <= 0:
            pods_exist = False
    return pods_exist or (not counts and all(term.matches(me) for term in wanted))


NAMES = [f"n{i}" for i in range(5)]
NAMESPACES = st.sampled_from([("team-a",), ("team-b",), ("team-a", "team-b")])
KEYS = st.sampled_from(["zone", "rack", "host"])
WEIGHED_TERMS = st.lists(
    st.tuples(st.builds(Term, KEYS, SELECTORS, NAMESPACES), st.integers(1, 100)), min_size=1, max_size=2
)
TERMS = st.lists(st.builds(Term, KEYS, SELECTORS, NAMESPACES), max_size=2)
NODES = st.tuples(
    *(
        st.fixed_dictionaries({}, optional={"zone": st.sampled_from("ab"), "rack": st.sampled_from("12")}).map(
            lambda labels, name=name: node(name, labels={"host": name} | labels)
        )
        for name in NAMES
    )
)
PLACED = st.lists(
    st.builds(
        Placed, st.sampled_from(["team-a", "team-b"]), LABELS, st.sampled_from([*NAMES, "gone"]), TERMS.map(tuple)
    ),
    max_size=10,
)


def anti(term):
    return AffinityRule((term.key,), True, term.selector, term.namespaces)


def joint(terms):
    """All terms of an affinity as one rule."""
    selectors = [term.selector for term in terms]
    chosen = None
    if None not in selectors:
        chosen = LabelSelector(tuple(r for selector in selectors for r in selector.requirements))
    return AffinityRule(tuple(term.key for term in terms), False, chosen, terms[0].namespaces)


@given(NODES, PLACED, st.tuples(TERMS, TERMS), LABELS, st.integers(0, 3))
def test_rules_allow_what_kube_scheduler_allows(nodes, placed, terms, labels, joining):
    wanted, unwanted = terms
    if wanted:
        wanted = [Term(term.key, term.selector, wanted[0].namespaces) for term in wanted]
    rules = [*map(anti, unwanted), *([joint(wanted)] if wanted else [])]
    there = [
        resident(
            uid=f"u{i}",
            namespace=p.namespace,
            node=p.node,
            packed=pack(p.labels),
            anti_affinity_rules=tuple(map(anti, p.unwanted)),
        )
        for i, p in enumerate(placed)
    ]
    found = world(nodes=list(nodes), residents=there[joining:])
    joined = tuple(PlacedPod(each, each.node) for each in there[:joining])
    asker = TopologyRequest("team-a", labels, tuple(rules), NO_CONSTRAINTS, joined=joined)
    allowed = evaluate_topology(asker, found.fleet, found.pod_counts).allowed
    want = plugin_admits(Placed("team-a", labels, ""), wanted, unwanted, nodes, placed)
    assert {name for name in NAMES if found.fleet.bit(name) & allowed} == want


# -- where pods go


def test_pods_with_anti_affinity_get_required_lists_on_separate_nodes():
    found, hosts = place(), []
    for _ in range(4):
        asked = web(APART)
        node_choice = node_choice_of(found, asked)
        assert node_choice.mode is Mode.AUTO
        found.tentative.reserve(found.fleet, node_choice.nodes[0], asked, now=0.0)
        hosts.append(node_choice.nodes[0])
    assert sorted(hosts) == ["a0", "a1", "b0", "b1"]
    node_choice = node_choice_of(found, web(APART))
    assert node_choice.mode is Mode.PREFER, "no node is left: kube-scheduler decides"


def test_a_list_has_no_node_that_kube_scheduler_would_reject():
    assert node_choice_of(place(on("a0"), on("b1")), web(APART)).nodes == ("a1", "b0")


def test_pods_with_affinity_follow_the_first():
    assert set(node_choice_of(place(on("b0")), web(TOGETHER)).nodes) == {"b0", "b1"}
    assert {name[0] for name in node_choice_of(place(), web(TOGETHER)).nodes} == {"a", "b"}, "the first goes anywhere"
    assert node_choice_of(place(), web(TOGETHER, labels={})).mode is Mode.PREFER, "unless it is none of them itself"


def test_spread_and_affinity_hold_together():
    by_zone = SpreadRule("zone", 1, True, OF_APP)
    assert node_choice_of(place(on("a0"), on("b0")), web(APART, by_zone)).nodes[0] in ("a1", "b1")
    assert node_choice_of(place(on("a0")), web(APART, by_zone)).nodes[0][0] == "b"


@pytest.mark.parametrize("other", [on("a0", namespace="team-b"), on("a0", labels={"app": "db"}), on("gone")])
def test_pods_outside_its_anti_affinity(other):
    assert node_choice_of(place(other), web(APART)).nodes[0] == "a0"


def test_pods_of_other_namespaces_that_are_named():
    elsewhere = APART._replace(namespaces=("team-b", "team-c"))
    found = place(on("a0", namespace="team-b"), on("a1", uid="u1", namespace="team-c"), on("b0", uid="u2"))
    assert set(node_choice_of(found, web(elsewhere)).nodes) == {"b0", "b1"}


AWAY, NEAR = APART._replace(weight=10), TOGETHER._replace(weight=5)


def test_preferences_hold_while_there_is_room_and_the_largest_weight_first():
    assert node_choice_of(place(on("a0")), web(AWAY)).nodes[0] != "a0"
    assert node_choice_of(place(on("b0")), web(NEAR)).nodes[0][0] == "b"
    assert node_choice_of(place(on("b0")), web(NEAR, AWAY)).nodes == ("b1",)
    crowded = place(on("a0"), on("a1", uid="u1"), on("b1", uid="u2"), nodes=[*zoned("a"), *zoned("b", gpus=0)])
    assert node_choice_of(crowded, web(AWAY)).nodes[0] in ("a0", "a1"), "and is dropped where there is none"
    near_first = node_choice_of(place(on("b0"), on("b1", uid="u1")), web(NEAR._replace(weight=20), AWAY))
    assert near_first.nodes[0][0] == "b"
    assert node_choice_of(place(on("b0"), on("b1", uid="u1")), web(NEAR, AWAY)).nodes[0][0] == "a"


@given(NODES, PLACED, WEIGHED_TERMS, LABELS)
def test_on_a_list_kube_scheduler_prefers_none_to_the_first(nodes, placed, weighed, labels):
    """scoring.go of kube-scheduler 1.37: for each pod and term that meet, the weight for every node of the domain."""
    there = [
        resident(0, uid=f"u{i}", namespace=p.namespace, node=p.node, packed=pack(p.labels))
        for i, p in enumerate(placed)
    ]
    found = world(policy(team(guaranteed=100)), list(nodes), there)
    rules = [
        AffinityRule((term.key,), weight % 2 == 0, term.selector, term.namespaces, weight) for term, weight in weighed
    ]
    by_name = {n.name: n.labels for n in nodes}

    def score(name):
        return sum(
            (-1 if rule.is_anti else 1) * rule.weight
            for rule, (term, _) in zip(rules, weighed, strict=True)
            for p in placed
            if p.node in by_name and term.matches(p) and rule.keys[0] in by_name[name]
            if by_name[p.node].get(rule.keys[0]) == by_name[name][rule.keys[0]]
        )

    node_choice = node_choice_of(found, pod(1, labels=labels, owner=Owner("Job", "x"), topology=tuple(rules)))
    assert node_choice.mode is Mode.AUTO
    assert all(score(name) <= score(node_choice.nodes[0]) for name in node_choice.nodes)


def test_anti_affinity_of_running_pods_excludes_pods_without_rules():
    existing = on("a0", labels={}, anti_affinity_rules=(APART,))
    assert node_choice_of(place(existing), web()).nodes == ("a1", "b0", "b1")
    assert node_choice_of(place(existing), web(labels={"app": "db"})).nodes[0] == "a0"
    wide = on("a0", labels={}, anti_affinity_rules=(APART._replace(keys=("zone",)),))
    assert node_choice_of(place(wide), web()).nodes == ("b0", "b1")


def test_anti_affinity_to_all_namespaces_excludes_pods_of_others_until_its_pod_ends():
    found = place(on("a0", labels={}, uid="x", namespace="other", anti_affinity_rules=(APART_FROM_ALL,)))
    assert node_choice_of(found, web()).nodes == ("b0", "b1")
    assert node_choice_of(found, web(labels={"app": "db"})).nodes == ("b0", "b1")
    found.remove_pod("x")
    assert "a0" in node_choice_of(found, web()).nodes


def test_anti_affinity_by_the_labels_of_namespaces_excludes_the_pods_of_those():
    of_a = APART_FROM_ALL._replace(
        namespaces=("named", *EVERY_NAMESPACE), where=LabelSelector((requirement("team", "In", "a"),))
    )
    found = place(on("a0", labels={}, uid="x", namespace="other", anti_affinity_rules=(of_a,)))
    assert "a0" in node_choice_of(found, web()).nodes
    found.set_namespace(NamespaceFacts(web().namespace, labels={"team": "a"}))
    assert node_choice_of(found, web()).nodes == ("b0", "b1")


def test_anti_affinity_of_assumed_pods_excludes_others():
    found = place()
    found.tentative.reserve(found.fleet, "a0", web(APART, labels={}), now=0.0)
    assert "a0" not in node_choice_of(found, web()).nodes
    found.tentative.clear(found.fleet)
    assert "a0" in node_choice_of(found, web()).nodes


def test_a_pod_excluded_by_a_new_pods_anti_affinity_is_retried():
    found = place(nodes=zoned("a", per_zone=1))
    decision = admit(web(), ALICE, found)
    found.set_pod(on("a0", labels={}, anti_affinity_rules=(APART,)))
    assert isinstance(verify(mutated(web(), decision, uid="u1"), ALICE, found), Retry)


def test_a_pod_is_retried_where_its_anti_affinity_excludes_a_new_pod():
    found = place(nodes=zoned("a", per_zone=1))
    asked = web(APART)
    decision = admit(asked, ALICE, found)
    found.set_pod(on("a0"))
    verified = verify(mutated(asked, decision, uid="u1"), ALICE, found)
    assert isinstance(verified, Retry)
    assert "no longer meet the pod's topology rules" in verified.reason.text
