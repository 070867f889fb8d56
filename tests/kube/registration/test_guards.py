"""The guards of a policy: which there are, what they do, and which changes they see. Scenarios run them."""

import pytest

from tests.core.support.make import team
from tests.kube.support.cel import holds
from webhook.core.model.constraints import Operator, Requirement
from webhook.core.model.policy import Defaults, DeviceAccess, Enforcement, LabelSelector, Policy
from webhook.kube.registration.guards import GRACE, LABELS, TENANCY, changed_keys_expression, guards

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
    assert conditions(spec)["asks-for-long"].endswith("> 42")
    assert "at most 42 seconds" in spec["validations"][0]["messageExpression"]


KEYS = (("labels", ("team",)), ("annotations", ("decision",)))


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        ({}, {}, False),
        ({"labels": {"team": "a"}}, {"labels": {"team": "a", "app": "x"}}, False),
        ({"labels": {"team": "a"}}, {"labels": {"team": "b"}}, True),
        ({"labels": {"team": "a"}}, {}, True),
        ({"labels": {"team": ""}}, {}, True),
        ({}, {"annotations": {"decision": "{}"}}, True),
        (None, {"labels": {"team": "a"}}, True),
        (None, {"labels": {"app": "x"}}, False),
    ],
    ids=["nothing", "another label", "changed", "removed", "an empty one removed", "added", "created with", "created"],
)
def test_a_change_of_a_guarded_key_is_seen(old, new, want):
    before = None if old is None else {"metadata": old}
    assert holds(changed_keys_expression(KEYS), object={"metadata": new}, oldObject=before) is want
