"""From inter-pod affinity in manifests to core rules."""

import pytest

from tests import builders as b
from tests.kube.pod.test_pods import pod_of, resident
from webhook.core.model.constraints import Operator, Requirement
from webhook.core.model.policy import LabelSelector
from webhook.core.model.topology import EVERY_NAMESPACE, AffinityRule

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OF_WEB = {"labelSelector": {"matchLabels": {"app": "web"}}}
HOST = {"topologyKey": "kubernetes.io/hostname"} | OF_WEB
WEB = LabelSelector((Requirement("app", Operator.IN, ("web",)),))


def read(*, near=(), away=(), labels=None):
    manifest = b.pod(labels=labels or {})
    manifest["spec"]["affinity"] = {"podAffinity": {REQUIRED: list(near)}, "podAntiAffinity": {REQUIRED: list(away)}}
    return pod_of(manifest)


def test_each_term_of_an_anti_affinity_is_a_rule():
    zone = {"topologyKey": "zone", "labelSelector": {}, "namespaces": ["y", "x", "y"]}
    found = read(away=[HOST, zone])
    assert found.topology == (
        AffinityRule(("kubernetes.io/hostname",), True, WEB),
        AffinityRule(("zone",), True, LabelSelector(()), ("x", "y")),
    )
    assert not found.has_open_constraints


def test_all_terms_of_an_affinity_are_one_rule():
    tier = {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}}
    (rule,) = read(near=[HOST, tier]).topology
    assert (rule.keys, rule.is_anti) == (("kubernetes.io/hostname", "zone"), False)
    assert set(rule.selector.requirements) == {*WEB.requirements, Requirement("tier", Operator.EXISTS, ())}


def test_a_term_without_a_selector_selects_no_pod():
    assert read(near=[HOST, {"topologyKey": "zone"}]).topology[0].selector is None
    assert read(away=[{"topologyKey": "zone"}]).topology[0].selector is None


@pytest.mark.parametrize(
    "more",
    [
        {"namespaceSelector": {}},
        {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Resembles"}]}},
    ],
    ids=["namespaces by labels", "an unknown operator"],
)
def test_unsupported_terms_are_left_to_kube_scheduler(more):
    found = read(away=[HOST | more, HOST])
    assert found.has_open_constraints
    assert len(found.topology) == 1
    assert read(near=[HOST | more]).has_open_constraints


def test_affinity_terms_of_different_namespaces_are_left_to_kube_scheduler():
    found = read(near=[HOST, HOST | {"namespaces": ["other"]}])
    assert (found.topology, found.has_open_constraints) == ((), True)


def test_match_label_keys_extend_the_selector_once():
    labels = {"app": "web", "pod-template-hash": "5f", "tenant": "blue"}
    keyed = HOST | {"matchLabelKeys": ["pod-template-hash", "absent"], "mismatchLabelKeys": ["tenant"]}
    merged = [
        {"key": "pod-template-hash", "operator": "In", "values": ["5f"]},
        {"key": "tenant", "operator": "NotIn", "values": ["blue"]},
    ]
    by_the_server = keyed | {"labelSelector": OF_WEB["labelSelector"] | {"matchExpressions": merged}}
    (rule,) = read(away=[keyed], labels=labels).topology
    assert set(rule.selector.requirements) == {
        *WEB.requirements,
        Requirement("pod-template-hash", Operator.IN, ("5f",)),
        Requirement("tenant", Operator.NOT_IN, ("blue",)),
    }
    assert read(away=[by_the_server], labels=labels).topology == (rule,)
    stored = b.pod(node="n1", labels=labels, affinity={"podAntiAffinity": {REQUIRED: [by_the_server]}})
    assert resident(stored).anti_affinity_rules == (rule,)
    assert read(away=[{"topologyKey": "zone", "matchLabelKeys": ["app"]}]).topology[0].selector is None


def test_a_malformed_affinity_is_refused():
    found = read(away=[{"topologyKey": 7}])
    assert found.problems[0].startswith("spec.affinity.podAntiAffinity")


def test_preferred_terms_have_a_weight_and_unsupported_ones_are_ignored():
    manifest = b.pod()
    preferred = {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 7, "podAffinityTerm": HOST},
            {"weight": 100, "podAffinityTerm": HOST | {"namespaceSelector": {}}},
        ]
    }
    manifest["spec"]["affinity"] = {"podAffinity": preferred, "podAntiAffinity": preferred}
    found = pod_of(manifest)
    rule = AffinityRule(("kubernetes.io/hostname",), False, WEB, weight=7)
    assert found.topology == (rule, rule._replace(is_anti=True))
    assert not found.has_open_constraints
    assert not found.has_required_topology
    assert resident(b.pod(node="n1", affinity=manifest["spec"]["affinity"])).anti_affinity_rules == ()


def test_anti_affinity_of_an_existing_pod_is_read():
    manifest = b.pod(node="n1", affinity={"podAntiAffinity": {REQUIRED: [HOST]}, "podAffinity": {REQUIRED: [HOST]}})
    want = AffinityRule(("kubernetes.io/hostname",), True, WEB)
    assert resident(manifest).anti_affinity_rules == (want,)
    assert resident(b.pod(node="n1")).anti_affinity_rules == ()
    assert resident(b.pod(node="n1", affinity={"podAntiAffinity": None})).anti_affinity_rules == ()
    assert resident(b.pod(node="n1", affinity={"podAntiAffinity": 7})).anti_affinity_rules == (), (
        "it exists nevertheless"
    )


def test_anti_affinity_by_a_namespace_selector_is_read_of_a_pod_on_a_node_alone():
    to_all = {"topologyKey": "kubernetes.io/os", "labelSelector": {}, "namespaceSelector": {}}
    some = to_all | {"namespaceSelector": {"matchLabels": {"team": "a"}}, "namespaces": ["x"]}
    want = AffinityRule(("kubernetes.io/os",), True, LabelSelector(()), EVERY_NAMESPACE)
    of_a = LabelSelector((Requirement("team", Operator.IN, ("a",)),))
    selected = want._replace(namespaces=("x", *EVERY_NAMESPACE), where=of_a)
    affinity = {"podAntiAffinity": {REQUIRED: [to_all, some]}}
    assert resident(b.pod(node="n1", affinity=affinity)).anti_affinity_rules == (want, selected)
    assert resident(b.pod(affinity=affinity)).anti_affinity_rules == (), "others need not keep it yet"
