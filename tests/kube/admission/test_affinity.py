"""Node affinity: the chosen nodes ANDed into what the user wrote."""

import pytest

from tests import builders as b
from tests.kube.conftest import admit_of
from tests.kube.support.patching import (
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
from webhook.core.model.constraints import Operator, Requirement
from webhook.core.model.decision import NodeChoice
from webhook.core.model.policy import Mode
from webhook.kube.admission.affinity import affinity_operations


def test_each_user_term_is_kept_and_restricted():
    zones = [{"matchExpressions": [expression("zone", "In", zone)]} for zone in ("a", "b")]
    pod = patched(with_terms(*zones), admit_of(NodeChoice(Mode.AUTO, ("node-1", "node-2"))))
    assert terms_of(pod) == [zone | {"matchFields": [named(node)]} for zone in zones for node in ("node-1", "node-2")]


def test_a_node_that_the_user_excludes_is_not_added():
    term = {"matchFields": [expression("metadata.name", "NotIn", "node-1")]}
    pod = patched(with_terms(term), admit_of(NodeChoice(Mode.AUTO, ("node-1", "node-2"))))
    assert terms_of(pod) == [{"matchFields": [*term["matchFields"], named("node-2")]}]


def test_a_node_that_the_user_requires_stays_the_only_one():
    pod = patched(with_terms({"matchFields": [named("node-2")]}), admit_of(NodeChoice(Mode.AUTO, ("node-1", "node-2"))))
    assert terms_of(pod) == [{"matchFields": [named("node-2")]}]


def test_terms_that_match_none_of_the_nodes_stay_unchanged():
    manifest = with_terms({"matchFields": [named("elsewhere")]})
    assert terms_of(patched(manifest, admit_of())) == [{"matchFields": [named("elsewhere")]}]


@pytest.mark.parametrize("terms", [[], [{}], [{}, {"matchExpressions": []}]])
def test_terms_that_match_no_node_stay_unchanged(terms):
    assert terms_of(patched(with_terms(*terms), admit_of())) == terms


def test_an_empty_term_among_others_is_dropped():
    pod = patched(with_terms({}, {"matchFields": [named("node-1")]}), admit_of(NodeChoice(Mode.REQUIRE, ("node-1",))))
    assert terms_of(pod) == [{"matchFields": [named("node-1")]}]


def test_a_term_that_implies_a_pool_is_not_multiplied():
    pools = ((Requirement("pool", Operator.IN, ("a",)),), (Requirement("pool", Operator.IN, ("b",)),))
    own = {"matchExpressions": [expression("pool", "In", "a")]}
    assert terms_of(patched(with_terms(own), admit_of(NodeChoice(Mode.AUTO, pool_terms=pools)))) == [own]


def test_several_pools_without_a_node_are_alternatives():
    pools = ((Requirement("pool", Operator.IN, ("a",)),), (Requirement("pool", Operator.EXISTS),))
    pod = patched(b.pod(), admit_of(NodeChoice(Mode.AUTO, pool_terms=pools)))
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
    spec = patched(b.pod(), admit_of(NodeChoice(mode, ("node-1", "node-2"))))["spec"]
    nodes = spec.get("affinity", {}).get("nodeAffinity", {})
    terms = nodes.get(REQUIRED, {}).get("nodeSelectorTerms", [])
    assert [term["matchFields"][0]["values"][0] for term in terms] == required
    assert [term["weight"] for term in nodes.get(PREFERRED, [])] == preferred


def test_each_weight_is_far_above_the_next():
    pod = patched(b.pod(), admit_of(NodeChoice(Mode.PREFER, tuple(f"node-{i}" for i in range(5)))))
    assert [term["weight"] for term in node_affinity(pod)[PREFERRED]] == [100, 6, 2, 1, 1]


def test_multiplied_terms_are_limited():
    zones = [{"matchExpressions": [expression("zone", "In", str(i))]} for i in range(100)]
    admit = admit_of(NodeChoice(Mode.AUTO, tuple(f"node-{i}" for i in range(16))))
    pod = patched(with_terms(*zones), admit)
    assert len(terms_of(pod)) == 500
    assert patch_of(pod, admit) == []
    pools = tuple((Requirement("pool", Operator.IN, (str(i),)),) for i in range(100))
    many = patched(b.pod(), admit_of(NodeChoice(Mode.AUTO, admit.node_choice.nodes, pool_terms=pools)))
    assert len(terms_of(many)) == 500


def test_names_and_values_with_special_characters_are_escaped():
    name, value = 'n%b"\\0', '100%b"%s'
    pools = ((Requirement("share", Operator.IN, (value,)),),)
    pod = patched(b.pod(), admit_of(NodeChoice(Mode.AUTO, (name,), pool_terms=pools)))
    assert terms_of(pod) == [{"matchExpressions": [expression("share", "In", value)], "matchFields": [named(name)]}]
    assert node_affinity(pod)[PREFERRED][0]["preference"] == {"matchFields": [named(name)]}
    templated = patched(b.pod(), admit_of(NodeChoice(Mode.AUTO, ("node-1.example",), pool_terms=pools)))
    assert terms_of(templated) == [
        {"matchExpressions": [expression("share", "In", value)], "matchFields": [named("node-1.example")]}
    ]


@pytest.mark.parametrize("raw", [b"[", b"3", b'["nodeAffinity"]'])
def test_malformed_json_is_named_by_its_path(raw):
    with pytest.raises(ValueError, match=r"^spec\.affinity: "):
        affinity_operations(raw, NodeChoice(Mode.AUTO, ("node-1",)))


def test_a_null_node_affinity_is_replaced_and_a_pod_without_nodes_gets_none():
    [change] = affinity_operations(b'{"nodeAffinity": null}', NodeChoice(Mode.REQUIRE, ("node-1",)))
    assert (change["op"], change["path"]) == ("add", "/spec/affinity/nodeAffinity")
    assert affinity_operations(b"{}", NodeChoice(Mode.AUTO)) == affinity_operations(b"", NodeChoice(Mode.AUTO)) == []
