"""ValidatingAdmissionPolicies: what each of them has, and the expressions that they share."""

import pytest

from tests.kube.support.cel import holds
from webhook.core.model.policy import Policy
from webhook.kube.registration.admission_policy import (
    EXEMPT_LABEL,
    admission_policy,
    core_rule,
    not_exempt_expression,
    policy_binding,
    trusted_expression,
)


def made():
    rule = core_rule(["pods"], "CREATE", "UPDATE")
    validations = [{"expression": "false", "message": "no"}, {"expression": "true", "message": "never"}]
    return admission_policy("odd", rules=[rule], conditions={"is-odd": "true"}, validations=validations)


def test_a_policy_fails_closed_and_refuses_as_forbidden():
    spec = made()["spec"]
    assert spec["failurePolicy"] == "Fail"
    assert [each["reason"] for each in spec["validations"]] == ["Forbidden"] * 2
    assert spec["matchConditions"] == [{"name": "is-odd", "expression": "true"}]
    [rule] = spec["matchConstraints"]["resourceRules"]
    assert (rule["operations"], rule["resources"], rule["scope"]) == (["CREATE", "UPDATE"], ["pods"], "Namespaced")


def test_a_binding_names_its_policy_and_its_parameters():
    want = {"policyName": "odd", "validationActions": ["Warn", "Audit"]}
    assert policy_binding(made(), ("Warn", "Audit"))["spec"] == want
    with_parameters = policy_binding(made(), ("Deny",), param_ref={"name": "held"})["spec"]
    assert with_parameters["paramRef"] == {"name": "held"}


@pytest.mark.parametrize(("user", "want"), [("alice", True), ("bob", True), ("mallory", False), ("ali", False)])
def test_named_users_are_trusted(user, want):
    request = {"userInfo": {"username": user}}
    assert holds(trusted_expression(["bob", "alice", "bob"], "false"), request=request) is want
    assert holds(trusted_expression([user], "false"), request=request)
    assert trusted_expression([], "others()") == "others()"


@pytest.mark.parametrize(
    ("namespace", "want"), [("ci-1", False), ("ci-", False), ("my-ci-1", True), ("ab", False), ("abc", True)]
)
def test_exempt_globs_match_whole_names(namespace, want):
    """Exact names are in the selector; brackets are no glob of a namespace name."""
    expression = not_exempt_expression(Policy(exempt_namespaces=("ci-*", "a?", "monitoring")))
    assert holds(expression, request={"namespace": namespace}) is want


def test_without_globs_no_namespace_is_exempt_by_the_expression():
    assert holds(not_exempt_expression(Policy(exempt_namespaces=("monitoring",))), request={"namespace": "monitoring"})


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
    assert holds(EXEMPT_LABEL, namespaceObject={"metadata": metadata}) is want
