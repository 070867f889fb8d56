"""The list of Fairgate's own objects: whatever is printed for a policy is in it."""

from dataclasses import replace

import pytest

from webhook.core.model.policy import DeviceAccess, Enforcement, Policy
from webhook.kube.objects import keys
from webhook.kube.registration.guards import guards
from webhook.kube.registration.registration import webhook_configurations
from webhook.kube.registration.static_files import (
    DEFINITIONS,
    HELD_ROOM_OBJECT,
    REGISTERED_GUARDS,
    ROLES,
    WEBHOOKS,
    OwnedObject,
    certificates,
    definitions,
    leases,
    viewer_role,
)


def owned(made):
    return OwnedObject(made["apiVersion"], made["kind"], made["metadata"]["name"])


@pytest.mark.parametrize("enforce", list(Enforcement))
@pytest.mark.parametrize("access", list(DeviceAccess))
def test_everything_that_registers_a_policy_is_in_the_list(enforce, access):
    policy = Policy(enforce=enforce)
    policy = replace(policy, defaults=replace(policy.defaults, device_access=access))
    printed = [*webhook_configurations(policy, ca_bundle_pem=None, url="https://x"), *guards(policy)]
    printed += [*definitions(), viewer_role()]
    assert {owned(made) for made in printed} <= {*WEBHOOKS, *REGISTERED_GUARDS, *DEFINITIONS, *ROLES}


def test_nothing_is_in_the_list_that_no_policy_registers():
    policy = Policy(enforce=Enforcement.ENFORCE)
    printed = [*webhook_configurations(policy, ca_bundle_pem=None, url="https://x"), *guards(policy)]
    assert {owned(made) for made in printed} == {*WEBHOOKS, *REGISTERED_GUARDS}


def test_what_refuses_without_the_rest_goes_first():
    assert [each.kind for each in WEBHOOKS] == ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"]
    kinds = [each.kind for each in REGISTERED_GUARDS]
    assert kinds == sorted(kinds, reverse=True), "bindings, then policies"
    assert DEFINITIONS[-1].name == "reports.fairgate.dev"


@pytest.mark.parametrize(
    ("made", "path", "text"),
    [
        (HELD_ROOM_OBJECT, "/apis/fairgate.dev/v1alpha1/heldnodes/fairgate", "HeldNodes fairgate"),
        (
            leases("ns")[1],
            "/apis/coordination.k8s.io/v1/namespaces/ns/leases/fairgate-evictor",
            "Lease ns/fairgate-evictor",
        ),
        (certificates("ns", "certs"), "/api/v1/namespaces/ns/secrets/certs", "Secret ns/certs"),
        (ROLES[0], f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{keys.VIEWER}", "ClusterRole fairgate-viewer"),
    ],
)
def test_an_object_has_a_path_and_a_name_for_people(made, path, text):
    assert (made.path, made.text) == (path, text)
