"""From topology spread constraints in pods to core rules."""

import json

import pytest

from tests import builders as b
from tests.kube.support.created import pod_of, resident
from webhook.core.model.constraints import Operator, Requirement
from webhook.core.model.policy import LabelSelector
from webhook.core.model.topology import SpreadRule
from webhook.kube.pod.peer_rules import read_spreading, rules_for

ZONE = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
OF_WEB = {"labelSelector": {"matchLabels": {"app": "web"}}}
WEB = Requirement("app", Operator.IN, ("web",))
HASH = Requirement("pod-template-hash", Operator.IN, ("5f",))


def read(*constraints, labels=None):
    return rules_for(read_spreading(json.dumps(constraints).encode()), labels or {})


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({}, SpreadRule("zone", 1, is_hard=True, selector=None)),
        ({"labelSelector": {}}, SpreadRule("zone", 1, is_hard=True, selector=LabelSelector(()))),
        (OF_WEB, SpreadRule("zone", 1, is_hard=True, selector=LabelSelector((WEB,)))),
        (
            {"whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 3, "minDomains": None},
            SpreadRule("zone", 3, is_hard=False, selector=None),
        ),
        (
            {"minDomains": 2, "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"},
            SpreadRule("zone", 1, True, None, 2, honors_affinity=False, honors_taints=True),
        ),
        (
            {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}},
            SpreadRule("zone", 1, True, LabelSelector((Requirement("app", Operator.NOT_IN, ("web",)),))),
        ),
    ],
    ids=["no selector selects nothing", "an empty one", "labels", "soft", "policies", "expressions"],
)
def test_all_fields_of_a_constraint_are_read(given, want):
    assert read(ZONE | given) == (want,)


def test_match_label_keys_extend_the_selector_once():
    labels = {"app": "web", "pod-template-hash": "5f"}
    keyed = ZONE | OF_WEB | {"matchLabelKeys": ["pod-template-hash", "absent"]}
    merged = {"key": "pod-template-hash", "operator": "In", "values": ["5f"]}
    by_the_server = keyed | {"labelSelector": {"matchLabels": {"app": "web"}, "matchExpressions": [merged]}}
    (rule,) = read(keyed, labels=labels)
    assert set(rule.selector.requirements) == {WEB, HASH}
    assert read(by_the_server, labels=labels) == (rule,)


def test_match_label_keys_without_a_selector_have_no_effect():
    (rule,) = read(ZONE | {"matchLabelKeys": ["app"]}, labels={"app": "web"})
    assert rule.selector is None


def test_unknown_operators_are_left_to_kube_scheduler():
    strange = {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Resembles"}]}}
    found = read_spreading(json.dumps([ZONE | strange, ZONE | OF_WEB]).encode())
    assert found.is_open
    assert len(found.rules) == 1


@pytest.mark.parametrize("raw", [b"", b"null", b"[]"])
def test_no_constraints(raw):
    assert read_spreading(raw).rules == ()


def test_malformed_constraints_are_refused():
    found = pod_of(b.pod(topologySpreadConstraints=[{"maxSkew": "one"}]))
    assert found.problems[0].startswith("spec.topologySpreadConstraints[0].maxSkew: expected int")


def test_labels_are_read_under_admission_and_in_the_cluster():
    manifest = b.pod(node="n1", labels={"app": "web"}, topologySpreadConstraints=[ZONE | OF_WEB])
    assert [rule.key for rule in pod_of(manifest).topology] == ["zone"]
    assert resident(manifest).labels == {"app": "web"}
    assert resident(b.pod(node="n1")).labels == {}
