"""Guards of sizes: what they count, whose writes, and the room that is left. tests/attacks/test_sizes.py runs them."""

import pytest

from tests.core.support.make import GPU
from webhook.core.model.policy import Policy
from webhook.kube.objects import bounds
from webhook.kube.registration.guards import BINDING_SIZES, SIZES, guards

ETCD_BYTES = 1536 * 1024
ANNOTATION_BYTES = 256 * 1024
"""What the API server takes of annotations."""

MADE = guards(Policy(exempt_namespaces=("monitoring", "ci-*")), trusted_users=["bob"])[::2]
PODS, BINDINGS = (each["spec"] for each in MADE if each["metadata"]["name"] in (SIZES, BINDING_SIZES))
CONDITIONS = {each["name"]: each["expression"] for each in PODS["matchConditions"]}
VARIABLES = {each["name"]: each["expression"] for each in PODS["variables"]}


def test_all_that_the_guards_allow_leaves_room_for_what_kubernetes_writes():
    added = ANNOTATION_BYTES + 2 * bounds.GROWTH_BYTES + bounds.DECIDED_AFFINITY_BYTES
    assert bounds.GPU_POD_BYTES + added <= ETCD_BYTES - 256 * 1024


def test_every_way_by_which_a_pod_changes_passes_the_guard():
    rules = PODS["matchConstraints"]["resourceRules"]
    assert {each: rule["operations"] for rule in rules for each in rule["resources"]} == {
        "pods": ["CREATE", "UPDATE"],
        "pods/status": ["UPDATE"],
        "pods/ephemeralcontainers": ["UPDATE"],
        "pods/resize": ["UPDATE"],
    }
    [rule] = BINDINGS["matchConstraints"]["resourceRules"]
    assert rule["resources"] == ["bindings", "pods/binding"]


def test_only_pods_that_may_hold_gpus_are_counted():
    assert GPU in CONDITIONS["is-written-by-a-user-and-may-hold-gpus"]


@pytest.mark.parametrize("spec", [PODS, BINDINGS])
def test_exempt_namespaces_are_left_alone(spec):
    [requirement] = spec["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert "monitoring" in requirement["values"]
    assert "^ci-.*$" in spec["matchConditions"][0]["expression"]


@pytest.mark.parametrize("spec", [PODS, BINDINGS])
def test_every_message_ends_with_the_code(spec):
    assert all(each["message"].endswith("(TooLarge)") for each in spec["validations"])


def test_what_is_too_large_already_may_stay_and_shrink():
    for each in PODS["validations"]:
        size = each["expression"].partition("variables.")[2].split()[0]
        assert f"variables.{size} <= variables.{size}Before" in each["expression"]
        assert VARIABLES[f"{size}Before"].startswith("oldObject == null ? 0 : ")
        assert "object." not in VARIABLES[f"{size}Before"].replace("oldObject.", "")


def test_trusted_users_may_exceed_the_bounds():
    trusted = 'request.userInfo.username in ["bob"] || '
    assert all(each["expression"].startswith(trusted) for each in PODS["validations"])
