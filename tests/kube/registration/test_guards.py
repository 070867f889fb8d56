"""The guards of a policy: which there are, what they do, and which changes they see. Scenarios run them."""

import json
import re
from importlib import resources

import pytest

from tests.core.support.make import team
from tests.kube.support.cel import holds
from webhook.core.model.constraints import Operator, Requirement
from webhook.core.model.policy import Defaults, DeviceAccess, Enforcement, LabelSelector, Policy
from webhook.core.model.reasons import Code
from webhook.kube import registration
from webhook.kube.objects import keys
from webhook.kube.registration.guards import FORGED, GRACE, GUARDS, LABELS, TENANCY, guards

TEAM = keys.TEAM
DEVICE_GUARDS = {"fairgate-devices", "fairgate-devices-env", "fairgate-devices-volumes"}


def policies(policy=None, **more):
    made = guards(policy or Policy(), **more)
    return {each["metadata"]["name"]: each["spec"] for each in made if each["kind"] == "ValidatingAdmissionPolicy"}


def actions(policy):
    made = guards(policy)
    return {each["spec"]["policyName"]: each["spec"]["validationActions"] for each in made if "Binding" in each["kind"]}


def conditions(spec):
    return {each["name"]: each["expression"] for each in spec["matchConditions"]}


def test_every_guard_is_followed_by_its_binding():
    made = guards(Policy())
    names = [each["metadata"]["name"] for each in made]
    assert names[::2] == names[1::2] == [each["spec"]["policyName"] for each in made[1::2]]
    assert len(set(names)) == len(made) / 2


@pytest.mark.parametrize(
    ("mode", "want"),
    [
        (Enforcement.ENFORCE, ["Deny"]),
        (Enforcement.WARN, ["Warn", "Audit"]),
        (Enforcement.SHADOW, ["Audit"]),
        (Enforcement.OFF, ["Audit"]),
    ],
)
def test_guards_refuse_only_while_the_policy_is_enforced(mode, want):
    policy = Policy(enforce=mode, defaults=Defaults(device_access=DeviceAccess.REJECT))
    assert set(map(tuple, actions(policy).values())) == {tuple(want)}


def test_device_access_may_be_warned_of_or_ignored():
    lenient = actions(Policy(defaults=Defaults(device_access=DeviceAccess.WARN)))
    assert {name for name, made in lenient.items() if made == ["Warn", "Audit"]} == DEVICE_GUARDS
    ignoring = actions(Policy(defaults=Defaults(device_access=DeviceAccess.IGNORE)))
    assert set(lenient) - set(ignoring) == DEVICE_GUARDS
    shadow = actions(Policy(enforce=Enforcement.SHADOW, defaults=Defaults(device_access=DeviceAccess.WARN)))
    assert all(shadow[name] == ["Audit"] for name in DEVICE_GUARDS)


def test_trusted_users_are_in_the_guards_of_fairgates_keys():
    [validation] = policies(trusted_users=["bob"])[LABELS]["validations"]
    assert validation["expression"].startswith('request.userInfo.username in ["bob"] || ')
    assert "bob" not in str(policies())


def test_labels_by_which_the_policy_selects_namespaces_are_protected():
    selecting = team(namespace_selector=LabelSelector((Requirement("org/unit", Operator.EXISTS),)))
    moved = {
        "object": {"metadata": {"labels": {"org/unit": "b"}}},
        "oldObject": {"metadata": {"labels": {"org/unit": "a"}}},
    }
    for policy, want in ((Policy(teams=(selecting,)), True), (Policy(), False)):
        assert holds(conditions(policies(policy)[TENANCY])["changes-tenancy"], **moved) is want


def test_the_longest_grace_period_is_that_of_the_policy():
    spec = policies(Policy(defaults=Defaults(maximum_grace_seconds=42)))[GRACE]
    assert conditions(spec)["asks-for-long"].count("> 42 &&") == 1
    assert "at most 42 seconds" in spec["validations"][0]["messageExpression"]


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        ({}, {}, False),
        ({"labels": {TEAM: "a"}}, {"labels": {TEAM: "a", "app": "x"}}, False),
        ({"labels": {TEAM: "a"}}, {"labels": {TEAM: "b"}}, True),
        ({"labels": {TEAM: "a"}}, {}, True),
        ({"labels": {TEAM: ""}}, {}, True),
        ({}, {"annotations": {keys.DECISION: "{}"}}, True),
        (None, {"labels": {TEAM: "a"}}, True),
        (None, {"labels": {"app": "x"}}, False),
        *((None, {"labels": {key: "x"}}, True) for key in keys.GUARDED_LABELS),
        *((None, {"annotations": {key: "x"}}, True) for key in keys.GUARDED_ANNOTATIONS),
    ],
)
def test_a_change_of_a_guarded_key_is_seen_and_named(old, new, want):
    spec = policies()[LABELS]
    is_new = {"request": {"operation": "CREATE"}, "object": {"metadata": new, "spec": {}}}
    before = None if old is None else {"metadata": old, "spec": {}}
    assert holds(conditions(spec)["changes-fairgate-keys"], **is_new, oldObject=before) is want
    assert all(key in spec["validations"][0]["messageExpression"] for key in (*new.get("annotations", ()), TEAM))


@pytest.mark.parametrize(("user", "want"), [("alice", True), ("bob", True), ("mallory", False), ("ali", False)])
def test_named_users_are_trusted(user, want):
    [validation] = policies(trusted_users=["bob", "alice", "bob"])[FORGED]["validations"]
    request = {"userInfo": {"username": user}}
    assert holds(validation["expression"], request=request, namespaceObject={"metadata": {}}) is want


@pytest.mark.parametrize(
    ("namespace", "want"),
    [("ci-1", False), ("ci-", False), ("my-ci-1", True), ("ab", False), ("abc", True), ("monitoring", True)],
)
def test_exempt_globs_match_whole_names(namespace, want):
    """Exact names are in the selector; brackets are no glob of a namespace name."""
    spec = policies(Policy(exempt_namespaces=("ci-*", "a?", "monitoring")))[FORGED]
    assert holds(conditions(spec)["is-not-exempt"], request={"namespace": namespace}) is want


@pytest.mark.parametrize(
    ("metadata", "want"),
    [
        ({}, False),
        ({"labels": {"team": "a"}}, False),
        ({"labels": {"fairgate.dev/exempt": "true"}}, True),
        ({"labels": {"fairgate.dev/exempt": ""}}, True),
        ({"labels": {"fairgate.dev/exempt": "false"}}, False),
    ],
)
def test_the_label_exempts_a_namespace_unless_it_is_false(metadata, want):
    [validation] = policies()[FORGED]["validations"]
    assert holds(validation["expression"], namespaceObject={"metadata": metadata}) is want


def test_templates_are_filled_all_expressions_are_used_and_refusals_have_a_code():
    made = policies(trusted_users=["bob"])
    assert sorted(made) == sorted(GUARDS)
    assert not re.search(r"\$[{\d]", json.dumps(made))
    texts = {each.name: each.read_text() for each in (resources.files(registration) / "templates").iterdir()}
    names = re.findall(r"^([a-z-]+): ", texts["expressions.yaml"], re.M)
    used = set(re.findall(r"[({]([a-z-]+)", "".join(texts.values())))
    assert [name for name in names if name not in used] == []
    for each in (each for spec in made.values() for each in spec["validations"]):
        text = each.get("message") or each["messageExpression"]
        assert Code(re.search(r"\((\w+)\)\"?$", text)[1])
        assert each["reason"] == "Forbidden"
