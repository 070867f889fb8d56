"""For any pod and decision: the patch equals a simple reference implementation, and applying it again is empty."""

import copy
import json
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tests import builders as b
from tests.core.support.make import decision_annotation_of
from tests.examples import examples
from tests.kube.conftest import admit_of
from tests.kube.support.patching import (
    NOW,
    PREFERRED,
    REQUIRED,
    expression,
    named,
    node_affinity,
    patch_of,
    patched,
)
from webhook.core.model import decision
from webhook.core.model.constraints import Effect, Operator, Requirement, Tier, Toleration
from webhook.core.model.decision import NodeChoice
from webhook.core.model.pod import PriorityTriple
from webhook.core.model.policy import Mode


def reference(manifest, admit, now=NOW):
    want = copy.deepcopy(manifest)
    metadata, spec, node_choice = want["metadata"], want["spec"], admit.node_choice
    metadata["labels"] = (metadata.get("labels") or {}) | {
        "fairgate.dev/team": admit.charge.team,
        "fairgate.dev/tier": admit.charge.tier.value,
    }
    new = decision_annotation_of(admit, at=now)
    annotations = metadata["annotations"] = dict(metadata.get("annotations") or {})
    old = decision.read(annotations.get("fairgate.dev/decision", ""))
    if old is None or old._replace(at=now, listed=0, own=decision.Own()) != decision.read(new):
        annotations["fairgate.dev/decision"] = new
    if node_choice.node_selector:
        spec["nodeSelector"] = dict(node_choice.node_selector) | (spec.get("nodeSelector") or {})
    if node_choice.tolerations:
        spec["tolerations"] = list(spec.get("tolerations") or [])
        for toleration in node_choice.tolerations:
            if toleration not in [_core_toleration(t) for t in spec["tolerations"]]:
                spec["tolerations"].append(_toleration(toleration))
    _choose_nodes(spec, node_choice)
    if admit.priority is not None:
        spec["priorityClassName"] = admit.priority.name
        spec["priority"] = admit.priority.value
        spec["preemptionPolicy"] = admit.priority.preemption_policy
    return want


def _core_toleration(written):
    return Toleration(
        written.get("key", ""),
        written.get("operator") == "Exists",
        written.get("value", ""),
        Effect(written["effect"]) if written.get("effect") else None,
    )


def _toleration(toleration):
    written = {"operator": "Exists" if toleration.exists else "Equal"}
    if not toleration.exists:
        written["value"] = toleration.value
    if toleration.key:
        written["key"] = toleration.key
    if toleration.effect:
        written["effect"] = toleration.effect.value
    return written


def _choose_nodes(spec, node_choice):
    required = {Mode.AUTO: node_choice.nodes, Mode.REQUIRE: node_choice.nodes[:1]}.get(node_choice.mode, ())
    preferred = {Mode.AUTO: node_choice.nodes[:2], Mode.PREFER: node_choice.nodes}.get(node_choice.mode, ())
    affinity_ = dict(spec.get("affinity") or {})
    nodes = dict(affinity_.get("nodeAffinity") or {})
    written = None if nodes.get(REQUIRED) is None else nodes[REQUIRED].get("nodeSelectorTerms") or []
    terms = _terms([{}] if written is None else [t for t in written if t], node_choice.pool_terms, required)
    if any(terms) and (node_choice.pool_terms or required):
        nodes[REQUIRED] = {"nodeSelectorTerms": terms}
    weighed = [
        {"weight": {0: 100, 1: 6, 2: 2}.get(rank, 1), "preference": {"matchFields": [named(node)]}}
        for rank, node in enumerate(preferred)
    ]
    if weighed:
        there = nodes.get(PREFERRED) or []
        nodes[PREFERRED] = there + [term for term in weighed if term not in there]
    if nodes != (affinity_.get("nodeAffinity") or {}):
        spec["affinity"] = affinity_ | {"nodeAffinity": nodes}


def _terms(terms, pools, nodes):
    made = []
    for term, pool, node in product(terms, pools or [()], nodes or [None]):
        present = term.get("matchExpressions", [])
        needed = [_expression(r) for r in pool]
        if any(all(_expression(r) in present for r in other) for other in pools):
            needed = []
        result = copy.deepcopy(term)
        missing = [e for e in needed if e not in present]
        if missing:
            result["matchExpressions"] = present + missing
        if node is not None:
            fields = result.get("matchFields", [])
            names = [f["values"][0] for f in fields if f["operator"] == "In"]
            if (names and node not in names) or expression("metadata.name", "NotIn", node) in fields:
                continue
            if not names:
                result["matchFields"] = [*fields, named(node)]
        if result not in made or (result == term and made.count(term) < terms.count(term)):
            made.append(result)
    return made


def _expression(requirement):
    return expression(requirement.key, requirement.operator.value, *requirement.values)


# --- strategies

KEYS = st.sampled_from(["zone", "disk", "nvidia.com/gpu.product", "a~b", "x/y~0z", "~1/"])
VALUES = st.sampled_from(["a", "b", "c"])
NODES = st.sampled_from([f"node-{i}" for i in range(5)])
LABELS = st.dictionaries(KEYS | st.sampled_from(["fairgate.dev/team", "fairgate.dev/tier"]), VALUES, max_size=4)

requirements = st.one_of(
    st.builds(lambda key, values: Requirement(key, Operator.IN, tuple(values)), KEYS, st.lists(VALUES, min_size=1)),
    st.builds(lambda key: Requirement(key, Operator.EXISTS), KEYS),
    st.builds(lambda key, value: Requirement(key, Operator.GT, (value,)), KEYS, st.sampled_from(["1", "2"])),
)
tolerations = st.builds(
    lambda key, exists, value, effect: Toleration(key, exists, "" if exists else value, effect),
    KEYS,
    st.booleans(),
    VALUES,
    st.none() | st.sampled_from(Effect),
)
user_terms = st.builds(
    lambda expressions, fields: (
        ({"matchExpressions": expressions} if expressions else {}) | ({"matchFields": fields} if fields else {})
    ),
    st.lists(st.builds(_expression, requirements), max_size=2),
    st.lists(
        st.builds(lambda op, node: expression("metadata.name", op, node), st.sampled_from(["In", "NotIn"]), NODES),
        max_size=1,
    ),
)
preferences = st.builds(
    lambda weight, term: {"weight": weight, "preference": term}, st.sampled_from([1, 90, 100]), user_terms
)
user_affinities = st.fixed_dictionaries(
    {},
    optional={
        "nodeAffinity": st.fixed_dictionaries(
            {},
            optional={
                REQUIRED: st.builds(lambda terms: {"nodeSelectorTerms": terms}, st.lists(user_terms, max_size=3)),
                PREFERRED: st.lists(preferences, max_size=2),
            },
        )
        | st.none(),
        "podAntiAffinity": st.just({PREFERRED: [{"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}]}),
    },
)


@st.composite
def pods(draw):
    manifest = b.pod()
    for name in ("labels", "annotations"):
        if draw(st.booleans()):
            manifest["metadata"][name] = draw(LABELS | st.none())
    optional = {
        "nodeSelector": st.dictionaries(KEYS, VALUES, max_size=2) | st.none(),
        "tolerations": st.lists(st.builds(_toleration, tolerations), max_size=3) | st.none(),
        "affinity": user_affinities | st.none(),
        "priority": st.sampled_from([0, 7]),
        "priorityClassName": st.sampled_from(["low", "high"]),
        "preemptionPolicy": st.sampled_from(["Never", "PreemptLowerPriority"]),
    }
    for name, values in optional.items():
        if draw(st.booleans()):
            manifest["spec"][name] = draw(values)
    return manifest


node_choices = st.builds(
    NodeChoice,
    mode=st.sampled_from(Mode),
    nodes=st.lists(NODES, unique=True, max_size=4).map(tuple),
    pool=st.none() | st.just("a100"),
    node_selector=st.dictionaries(KEYS, VALUES, max_size=2).map(lambda d: tuple(d.items())),
    pool_terms=st.lists(st.lists(requirements, max_size=2, unique=True).map(tuple), max_size=2, unique=True).map(tuple),
    tolerations=st.lists(tolerations, max_size=2, unique=True).map(tuple),
)
decisions = st.builds(
    lambda node_choice, tier, priority: admit_of(node_choice, tier=tier, priority=priority),
    node_choices,
    st.sampled_from(Tier),
    st.none() | st.just(PriorityTriple("high", 7, "Never")),
)


# --- properties


@given(pods(), decisions)
def test_a_patched_pod_equals_the_reference(manifest, admit):
    before = copy.deepcopy(manifest)
    assert _readable(patched(manifest, admit)) == _readable(reference(manifest, admit))
    assert manifest == before


def _readable(manifest):
    """Compare the decision by value, not by the order of its fields and where its nodes are."""
    manifest = copy.deepcopy(manifest)
    annotations = manifest["metadata"]["annotations"]
    read = decision.read(json.dumps(b.decision_of(manifest)))
    annotations["fairgate.dev/decision"] = read and read._replace(own=decision.Own())  # has tests of its own
    return manifest


@given(pods(), decisions)
def test_applying_a_decision_twice_changes_nothing(manifest, admit):
    once = patched(manifest, admit)
    assert patch_of(once, admit, now="2030-12-31T23:59:59Z") == []


@given(pods(), decisions, decisions)
def test_applying_a_second_decision_twice_changes_nothing(manifest, first, second):
    twice = patched(patched(manifest, first), second)
    assert patch_of(twice, second) == []


@given(pods(), decisions)
def test_user_fields_are_kept(manifest, admit):
    after = patched(manifest, admit)
    for name, value in (manifest["spec"].get("nodeSelector") or {}).items():
        assert after["spec"]["nodeSelector"][name] == value
    for toleration in manifest["spec"].get("tolerations") or []:
        assert toleration in after["spec"]["tolerations"]
    for name in ("labels", "annotations"):
        for key, value in (manifest["metadata"].get(name) or {}).items():
            if not key.startswith("fairgate.dev/"):
                assert after["metadata"][name][key] == value
    there = ((manifest["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(PREFERRED, [])
    assert node_affinity(after).get(PREFERRED, [])[: len(there)] == there if there else True
    assert after["spec"]["containers"] == manifest["spec"]["containers"]


@examples(25)
@given(node_choices)
def test_no_affinity_and_an_empty_affinity_give_the_same_patch(node_choice):
    bare, empty = b.pod(), b.pod(affinity={"nodeAffinity": {}})
    got, want = patched(bare, admit_of(node_choice)), patched(empty, admit_of(node_choice))
    assert (got["spec"].get("affinity") or {"nodeAffinity": {}}) == want["spec"]["affinity"]
