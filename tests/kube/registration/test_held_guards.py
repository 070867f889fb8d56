"""Guards of held room: where they apply, which requests pass, and that they fail open. Scenarios run them."""

import pytest

from webhook.core.model.policy import Policy
from webhook.kube.objects import keys
from webhook.kube.registration.guards import HELD_BINDINGS, HELD_DEVICES, HELD_NODE_NAMES, PARAMETRIC, guards

MADE = [each for each in guards(Policy(), trusted_users=["bob"]) if each["metadata"]["name"] in PARAMETRIC]
GUARDS = {each["metadata"]["name"]: each["spec"] for each in MADE if "Binding" not in each["kind"]}


@pytest.mark.parametrize(
    ("name", "want"),
    [
        (HELD_BINDINGS, (["CREATE"], ["bindings", "pods/binding"])),
        (HELD_NODE_NAMES, (["CREATE"], ["pods"])),
        (HELD_DEVICES, (["UPDATE"], ["resourceclaims/status"])),
    ],
)
def test_each_way_to_a_node_is_guarded(name, want):
    [rule] = GUARDS[name]["matchConstraints"]["resourceRules"]
    assert (rule["operations"], rule["resources"]) == want


@pytest.mark.parametrize("spec", GUARDS.values(), ids=GUARDS)
def test_without_the_definition_or_the_object_pods_are_bound(spec):
    assert spec["failurePolicy"] == "Ignore"
    assert spec["paramKind"] == {"apiVersion": keys.OWN_API, "kind": keys.HELD_NODES_KIND}


def test_without_a_parameter_a_request_passes():
    bindings = [each["spec"]["paramRef"] for each in MADE if "Binding" in each["kind"]]
    assert [each["parameterNotFoundAction"] for each in bindings] == ["Allow"] * len(PARAMETRIC)


@pytest.mark.parametrize("spec", GUARDS.values(), ids=GUARDS)
def test_system_namespaces_pass_and_refusals_have_the_code(spec):
    [validation] = spec["validations"]
    assert f'!(request.namespace in ["{keys.OWN_NAMESPACE}", "{keys.SYSTEM_NAMESPACE}"])' in validation["expression"]
    assert "(HeldRoom)" in validation["messageExpression"]


def test_only_pods_that_name_their_node_may_be_created_by_trusted_users():
    naming = {name for name, spec in GUARDS.items() if "bob" in spec["validations"][0]["expression"]}
    assert naming == {HELD_NODE_NAMES}
