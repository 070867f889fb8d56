"""Patches: against a plain reference on dicts, twice is empty, and nothing of the user's is touched."""

import copy
import json
from dataclasses import replace
from itertools import product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import builders as b
from tests.core.make import mark
from tests.kube.conftest import admit_of
from webhook.core import mark as marks
from webhook.core.decision import Steering
from webhook.core.pod import PriorityTriple
from webhook.core.policy import Mode
from webhook.core.selector import Effect, Operator, Requirement, Toleration
from webhook.core.tier import Tier
from webhook.kube import objects
from webhook.kube.patch import apply, operations
from webhook.kube.pointer import escape

NOW = "2026-01-01T00:00:00Z"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
PODS = msgspec.json.Decoder(objects.Pod)


def patch_of(manifest, admit, now=NOW):
    return operations(PODS.decode(json.dumps(manifest)), admit, now_text=now)


def patched(manifest, admit, now=NOW):
    return apply(manifest, patch_of(manifest, admit, now))


def node_affinity(manifest):
    return manifest["spec"]["affinity"]["nodeAffinity"]


def terms_of(manifest):
    return node_affinity(manifest)[REQUIRED]["nodeSelectorTerms"]


def named(node):
    return {"key": "metadata.name", "operator": "In", "values": [node]}


def expression(key, operator, *values):
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def with_terms(*terms, **more):
    return b.pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}, **more}})


# --- the reference: what a patched pod must look like, written without regard to speed


def reference(manifest, admit, now=NOW):
    want = copy.deepcopy(manifest)
    metadata, spec, steering = want["metadata"], want["spec"], admit.steering
    metadata["labels"] = (metadata.get("labels") or {}) | {
        "fairgate.dev/team": admit.charge.team,
        "fairgate.dev/tier": admit.charge.tier.value,
    }
    new = mark(admit, at=now)
    annotations = metadata["annotations"] = dict(metadata.get("annotations") or {})
    old = marks.read(annotations.get("fairgate.dev/decision", ""))
    if old is None or replace(old, at=now) != marks.read(new):
        annotations["fairgate.dev/decision"] = new
    if steering.node_selector:
        spec["nodeSelector"] = dict(steering.node_selector) | (spec.get("nodeSelector") or {})
    if steering.tolerations:
        spec["tolerations"] = list(spec.get("tolerations") or [])
        for toleration in steering.tolerations:
            if toleration not in [_core_toleration(t) for t in spec["tolerations"]]:
                spec["tolerations"].append(_toleration(toleration))
    _steer(spec, steering)
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


def _steer(spec, steering):
    required = {Mode.AUTO: steering.nodes, Mode.REQUIRE: steering.nodes[:1]}.get(steering.mode, ())
    preferred = steering.nodes if steering.mode in (Mode.AUTO, Mode.PREFER) else ()
    affinity_ = dict(spec.get("affinity") or {})
    nodes = dict(affinity_.get("nodeAffinity") or {})
    written = None if nodes.get(REQUIRED) is None else nodes[REQUIRED].get("nodeSelectorTerms") or []
    terms = _terms([{}] if written is None else [t for t in written if t], steering.pool_terms, required)
    if any(terms) and (steering.pool_terms or required):
        nodes[REQUIRED] = {"nodeSelectorTerms": terms}
    weighed = [
        {"weight": 100 if rank == 0 else max(1, 10 - rank), "preference": {"matchFields": [named(node)]}}
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


steerings = st.builds(
    Steering,
    mode=st.sampled_from(Mode),
    nodes=st.lists(NODES, unique=True, max_size=4).map(tuple),
    pool=st.none() | st.just("a100"),
    node_selector=st.dictionaries(KEYS, VALUES, max_size=2).map(lambda d: tuple(d.items())),
    pool_terms=st.lists(st.lists(requirements, max_size=2, unique=True).map(tuple), max_size=2, unique=True).map(tuple),
    tolerations=st.lists(tolerations, max_size=2, unique=True).map(tuple),
)
decisions = st.builds(
    lambda steering, tier, priority: admit_of(steering, tier=tier, priority=priority),
    steerings,
    st.sampled_from(Tier),
    st.none() | st.just(PriorityTriple("high", 7, "Never")),
)


# --- properties


@given(pods(), decisions)
def test_a_patched_pod_is_what_the_reference_makes_of_it(manifest, admit):
    before = copy.deepcopy(manifest)
    assert _readable(patched(manifest, admit)) == _readable(reference(manifest, admit))
    assert manifest == before


def _readable(manifest):
    """Compare the decision by what it says, not by the order in which it says it."""
    manifest = copy.deepcopy(manifest)
    annotations = manifest["metadata"]["annotations"]
    annotations["fairgate.dev/decision"] = marks.read(annotations["fairgate.dev/decision"])
    return manifest


@given(pods(), decisions)
def test_the_same_decision_a_second_time_changes_nothing(manifest, admit):
    once = patched(manifest, admit)
    assert patch_of(once, admit, now="2030-12-31T23:59:59Z") == []


@given(pods(), decisions, decisions)
def test_another_decision_later_still_leaves_a_pod_that_repeats_empty(manifest, first, second):
    twice = patched(patched(manifest, first), second)
    assert patch_of(twice, second) == []


@given(pods(), decisions)
def test_what_the_user_wrote_is_still_there(manifest, admit):
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


@settings(max_examples=50)
@given(steerings)
def test_a_pod_without_affinity_gets_what_one_with_an_empty_affinity_gets(steering):
    bare, empty = b.pod(), b.pod(affinity={"nodeAffinity": {}})
    got, want = patched(bare, admit_of(steering)), patched(empty, admit_of(steering))
    assert (got["spec"].get("affinity") or {"nodeAffinity": {}}) == want["spec"]["affinity"]


# --- cases


def test_a_bare_pod_gets_everything():
    steering = Steering(
        Mode.AUTO,
        ("node-1", "node-2"),
        pool="a100",
        node_selector=(("nvidia.com/gpu.product", b.A100),),
        pool_terms=((Requirement("nvidia.com/gpu.memory", Operator.GT, ("75000",)),),),
        tolerations=(Toleration(b.GPU, exists=True, effect=Effect.NO_SCHEDULE),),
    )
    pod = patched(b.pod(), admit_of(steering, priority=PriorityTriple("high", 7)))
    memory = expression("nvidia.com/gpu.memory", "Gt", "75000")
    assert pod["metadata"]["labels"] == {"fairgate.dev/team": "vision", "fairgate.dev/tier": "guaranteed"}
    assert json.loads(pod["metadata"]["annotations"]["fairgate.dev/decision"]) == {
        "demand": {b.GPU: "2"},
        "gpus": "2",
        "mode": "auto",
        "nodes": ["node-1", "node-2"],
        "code": "WithinShare",
        "policy": "5eed",
        "pool": "a100",
        "user": "alice@example.com",
        "at": NOW,
    }
    assert pod["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": b.A100}
    assert pod["spec"]["tolerations"] == [{"key": b.GPU, "operator": "Exists", "effect": "NoSchedule"}]
    assert node_affinity(pod) == {
        REQUIRED: {
            "nodeSelectorTerms": [
                {"matchExpressions": [memory], "matchFields": [named("node-1")]},
                {"matchExpressions": [memory], "matchFields": [named("node-2")]},
            ]
        },
        PREFERRED: [
            {"weight": 100, "preference": {"matchFields": [named("node-1")]}},
            {"weight": 9, "preference": {"matchFields": [named("node-2")]}},
        ],
    }
    assert (pod["spec"]["priorityClassName"], pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]) == (
        "high",
        7,
        "PreemptLowerPriority",
    )


def test_the_decision_is_read_back_by_the_core_as_it_was_taken():
    admit = admit_of(Steering(Mode.REQUIRE, ("node-1",), pool="a100"))
    written = patched(b.pod(), admit)["metadata"]["annotations"]["fairgate.dev/decision"]
    assert marks.read(written) == marks.read(mark(admit, at=NOW))


def test_the_asked_tier_is_replaced_by_the_outcome():
    pod = patched(b.pod(labels={"fairgate.dev/tier": "guaranteed"}), admit_of(tier=Tier.PREEMPTIBLE))
    assert pod["metadata"]["labels"]["fairgate.dev/tier"] == "preemptible"


def test_each_of_the_users_terms_is_kept_and_narrowed():
    zones = [{"matchExpressions": [expression("zone", "In", zone)]} for zone in ("a", "b")]
    pod = patched(with_terms(*zones), admit_of(Steering(Mode.AUTO, ("node-1", "node-2"))))
    assert terms_of(pod) == [zone | {"matchFields": [named(node)]} for zone in zones for node in ("node-1", "node-2")]


def test_a_node_that_the_user_ruled_out_by_name_is_not_named():
    term = {"matchFields": [expression("metadata.name", "NotIn", "node-1")]}
    pod = patched(with_terms(term), admit_of(Steering(Mode.AUTO, ("node-1", "node-2"))))
    assert terms_of(pod) == [{"matchFields": [*term["matchFields"], named("node-2")]}]


def test_a_node_that_the_user_named_stays_the_only_one():
    pod = patched(with_terms({"matchFields": [named("node-2")]}), admit_of(Steering(Mode.AUTO, ("node-1", "node-2"))))
    assert terms_of(pod) == [{"matchFields": [named("node-2")]}]


def test_terms_that_fit_none_of_the_nodes_are_left_as_the_user_wrote_them():
    manifest = with_terms({"matchFields": [named("elsewhere")]})
    assert terms_of(patched(manifest, admit_of())) == [{"matchFields": [named("elsewhere")]}]


@pytest.mark.parametrize("terms", [[], [{}], [{}, {"matchExpressions": []}]])
def test_terms_that_match_no_node_at_all_stay_as_they_are(terms):
    assert terms_of(patched(with_terms(*terms), admit_of())) == terms


def test_an_empty_term_among_others_matches_nothing_and_is_left_out():
    pod = patched(with_terms({}, {"matchFields": [named("node-1")]}), admit_of(Steering(Mode.REQUIRE, ("node-1",))))
    assert terms_of(pod) == [{"matchFields": [named("node-1")]}]


def test_a_term_that_meets_a_pool_by_its_own_words_is_not_multiplied():
    pools = ((Requirement("pool", Operator.IN, ("a",)),), (Requirement("pool", Operator.IN, ("b",)),))
    own = {"matchExpressions": [expression("pool", "In", "a")]}
    assert terms_of(patched(with_terms(own), admit_of(Steering(Mode.AUTO, pool_terms=pools)))) == [own]


def test_several_pools_without_a_node_are_alternatives():
    pools = ((Requirement("pool", Operator.IN, ("a",)),), (Requirement("pool", Operator.EXISTS),))
    pod = patched(b.pod(), admit_of(Steering(Mode.AUTO, pool_terms=pools)))
    assert node_affinity(pod) == {
        REQUIRED: {
            "nodeSelectorTerms": [
                {"matchExpressions": [expression("pool", "In", "a")]},
                {"matchExpressions": [expression("pool", "Exists")]},
            ]
        }
    }


@pytest.mark.parametrize(
    ("mode", "required", "preferred"),
    [
        (Mode.AUTO, ["node-1", "node-2"], [100, 9]),
        (Mode.REQUIRE, ["node-1"], []),
        (Mode.PREFER, [], [100, 9]),
        (Mode.OFF, [], []),
    ],
)
def test_how_firmly_each_mode_binds(mode, required, preferred):
    spec = patched(b.pod(), admit_of(Steering(mode, ("node-1", "node-2"))))["spec"]
    nodes = spec.get("affinity", {}).get("nodeAffinity", {})
    terms = nodes.get(REQUIRED, {}).get("nodeSelectorTerms", [])
    assert [term["matchFields"][0]["values"][0] for term in terms] == required
    assert [term["weight"] for term in nodes.get(PREFERRED, [])] == preferred


def test_weights_fall_by_rank_and_never_below_one():
    nodes = tuple(f"node-{i}" for i in range(13))
    pod = patched(b.pod(), admit_of(Steering(Mode.PREFER, nodes)))
    weights = [term["weight"] for term in node_affinity(pod)[PREFERRED]]
    assert weights == [100, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1, 1, 1]


def test_terms_are_not_multiplied_beyond_what_an_object_can_hold():
    zones = [{"matchExpressions": [expression("zone", "In", str(i))]} for i in range(100)]
    admit = admit_of(Steering(Mode.AUTO, tuple(f"node-{i}" for i in range(16))))
    pod = patched(with_terms(*zones), admit)
    assert len(terms_of(pod)) == 500
    assert patch_of(pod, admit) == []
    pools = tuple((Requirement("pool", Operator.IN, (str(i),)),) for i in range(100))
    many = patched(b.pod(), admit_of(Steering(Mode.AUTO, admit.steering.nodes, pool_terms=pools)))
    assert len(terms_of(many)) == 500


def test_names_and_values_with_a_meaning_in_json_or_templates_arrive_as_they_are():
    name, value = 'n%b"\\0', '100%b"%s'
    pools = ((Requirement("share", Operator.IN, (value,)),),)
    pod = patched(b.pod(), admit_of(Steering(Mode.AUTO, (name,), pool_terms=pools)))
    assert terms_of(pod) == [{"matchExpressions": [expression("share", "In", value)], "matchFields": [named(name)]}]
    assert node_affinity(pod)[PREFERRED][0]["preference"] == {"matchFields": [named(name)]}
    templated = patched(b.pod(), admit_of(Steering(Mode.AUTO, ("node-1.example",), pool_terms=pools)))
    assert terms_of(templated) == [
        {"matchExpressions": [expression("share", "In", value)], "matchFields": [named("node-1.example")]}
    ]


def test_a_selector_entry_of_the_users_wins():
    steering = Steering(Mode.OFF, node_selector=(("disk", "ssd"), ("a~b/c", "d")))
    pod = patched(b.pod(nodeSelector={"disk": "hdd"}), admit_of(steering))
    assert pod["spec"]["nodeSelector"] == {"disk": "hdd", "a~b/c": "d"}


def test_only_what_differs_of_the_priority_is_written():
    manifest = b.pod(priorityClassName="high", priority=0, preemptionPolicy="PreemptLowerPriority")
    paths = [op["path"] for op in patch_of(manifest, admit_of(priority=PriorityTriple("high", 7)))]
    assert [path for path in paths if "riority" in path] == ["/spec/priority"]


@pytest.mark.parametrize(("key", "want"), [("a/b", "a~1b"), ("a~b", "a~0b"), ("~1", "~01"), ("plain", "plain")])
def test_pointers_escape_what_has_a_meaning(key, want):
    assert escape(key) == want
