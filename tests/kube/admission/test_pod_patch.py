"""Patches, case by case: the fields that are written and those that are not changed."""

import json

import pytest

from tests import builders as b
from tests.core.support.make import mark
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
    terms_of,
    with_terms,
)
from webhook.core.model import decision_annotation as marks
from webhook.core.model.decision import Steering
from webhook.core.model.pod import PriorityTriple
from webhook.core.model.policy import Mode
from webhook.core.model.selector import Effect, Operator, Requirement, Toleration
from webhook.core.model.tier import Tier


def test_a_pod_without_any_fields_gets_all_of_them():
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
            {"weight": 6, "preference": {"matchFields": [named("node-2")]}},
        ],
    }
    assert (pod["spec"]["priorityClassName"], pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]) == (
        "high",
        7,
        "PreemptLowerPriority",
    )


def test_the_core_reads_the_decision_back():
    admit = admit_of(Steering(Mode.REQUIRE, ("node-1",), pool="a100"))
    written = patched(b.pod(), admit)["metadata"]["annotations"]["fairgate.dev/decision"]
    assert marks.read(written) == marks.read(mark(admit, at=NOW))


def test_the_requested_tier_is_replaced_by_the_outcome():
    pod = patched(b.pod(labels={"fairgate.dev/tier": "guaranteed"}), admit_of(tier=Tier.PREEMPTIBLE))
    assert pod["metadata"]["labels"]["fairgate.dev/tier"] == "preemptible"


def test_each_user_term_is_kept_and_restricted():
    zones = [{"matchExpressions": [expression("zone", "In", zone)]} for zone in ("a", "b")]
    pod = patched(with_terms(*zones), admit_of(Steering(Mode.AUTO, ("node-1", "node-2"))))
    assert terms_of(pod) == [zone | {"matchFields": [named(node)]} for zone in zones for node in ("node-1", "node-2")]


def test_a_node_that_the_user_excludes_is_not_added():
    term = {"matchFields": [expression("metadata.name", "NotIn", "node-1")]}
    pod = patched(with_terms(term), admit_of(Steering(Mode.AUTO, ("node-1", "node-2"))))
    assert terms_of(pod) == [{"matchFields": [*term["matchFields"], named("node-2")]}]


def test_a_node_that_the_user_requires_stays_the_only_one():
    pod = patched(with_terms({"matchFields": [named("node-2")]}), admit_of(Steering(Mode.AUTO, ("node-1", "node-2"))))
    assert terms_of(pod) == [{"matchFields": [named("node-2")]}]


def test_terms_that_match_none_of_the_nodes_stay_unchanged():
    manifest = with_terms({"matchFields": [named("elsewhere")]})
    assert terms_of(patched(manifest, admit_of())) == [{"matchFields": [named("elsewhere")]}]


@pytest.mark.parametrize("terms", [[], [{}], [{}, {"matchExpressions": []}]])
def test_terms_that_match_no_node_stay_unchanged(terms):
    assert terms_of(patched(with_terms(*terms), admit_of())) == terms


def test_an_empty_term_among_others_is_dropped():
    pod = patched(with_terms({}, {"matchFields": [named("node-1")]}), admit_of(Steering(Mode.REQUIRE, ("node-1",))))
    assert terms_of(pod) == [{"matchFields": [named("node-1")]}]


def test_a_term_that_implies_a_pool_is_not_multiplied():
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
        (Mode.AUTO, ["node-1", "node-2"], [100, 6]),
        (Mode.REQUIRE, ["node-1"], []),
        (Mode.PREFER, [], [100, 6]),
        (Mode.OFF, [], []),
    ],
)
def test_required_and_preferred_nodes_by_mode(mode, required, preferred):
    spec = patched(b.pod(), admit_of(Steering(mode, ("node-1", "node-2"))))["spec"]
    nodes = spec.get("affinity", {}).get("nodeAffinity", {})
    terms = nodes.get(REQUIRED, {}).get("nodeSelectorTerms", [])
    assert [term["matchFields"][0]["values"][0] for term in terms] == required
    assert [term["weight"] for term in nodes.get(PREFERRED, [])] == preferred


def test_each_weight_is_far_above_the_next():
    pod = patched(b.pod(), admit_of(Steering(Mode.PREFER, tuple(f"node-{i}" for i in range(5)))))
    assert [term["weight"] for term in node_affinity(pod)[PREFERRED]] == [100, 6, 2, 1, 1]


def test_multiplied_terms_are_limited():
    zones = [{"matchExpressions": [expression("zone", "In", str(i))]} for i in range(100)]
    admit = admit_of(Steering(Mode.AUTO, tuple(f"node-{i}" for i in range(16))))
    pod = patched(with_terms(*zones), admit)
    assert len(terms_of(pod)) == 500
    assert patch_of(pod, admit) == []
    pools = tuple((Requirement("pool", Operator.IN, (str(i),)),) for i in range(100))
    many = patched(b.pod(), admit_of(Steering(Mode.AUTO, admit.steering.nodes, pool_terms=pools)))
    assert len(terms_of(many)) == 500


def test_names_and_values_with_special_characters_are_escaped():
    name, value = 'n%b"\\0', '100%b"%s'
    pools = ((Requirement("share", Operator.IN, (value,)),),)
    pod = patched(b.pod(), admit_of(Steering(Mode.AUTO, (name,), pool_terms=pools)))
    assert terms_of(pod) == [{"matchExpressions": [expression("share", "In", value)], "matchFields": [named(name)]}]
    assert node_affinity(pod)[PREFERRED][0]["preference"] == {"matchFields": [named(name)]}
    templated = patched(b.pod(), admit_of(Steering(Mode.AUTO, ("node-1.example",), pool_terms=pools)))
    assert terms_of(templated) == [
        {"matchExpressions": [expression("share", "In", value)], "matchFields": [named("node-1.example")]}
    ]


def test_the_users_node_selector_takes_precedence():
    steering = Steering(Mode.OFF, node_selector=(("disk", "ssd"), ("a~b/c", "d")))
    pod = patched(b.pod(nodeSelector={"disk": "hdd"}), admit_of(steering))
    assert pod["spec"]["nodeSelector"] == {"disk": "hdd", "a~b/c": "d"}


def test_only_differing_priority_fields_are_written():
    manifest = b.pod(priorityClassName="high", priority=0, preemptionPolicy="PreemptLowerPriority")
    paths = [op["path"] for op in patch_of(manifest, admit_of(priority=PriorityTriple("high", 7)))]
    assert [path for path in paths if "riority" in path] == ["/spec/priority"]
