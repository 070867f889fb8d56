"""What doctor finds in registered objects, and in the answer to a dry run."""

import base64
import copy

import pytest

from tests import builders as b
from tests.core.support.make import policy
from webhook.core.model.policy import Enforcement, Policy
from webhook.kube.registration.guards import guards
from webhook.kube.registration.inventory import (
    Probe,
    ProbeOutcome,
    WebhookEndpoint,
    created_probe,
    deployment_problems,
    guard_problems,
    is_exempt,
    path_of,
    probe_pod,
    refused_probe,
    registration_problems,
    wanted_guards,
    webhook_endpoints,
)
from webhook.kube.registration.registration import ServiceReference, webhook_configurations

HERE = ServiceReference("fairgate-system", "fairgate")
OFF = Policy(enforce=Enforcement.OFF)


def registered(policy_):
    made = webhook_configurations(policy_, ca_bundle_pem=b"CA", service=HERE)
    return {each["metadata"]["name"]: copy.deepcopy(each) for each in made}


def guarded(policy_):
    return {(each["kind"], each["metadata"]["name"]): copy.deepcopy(each) for each in guards(policy_)}


def test_what_is_generated_for_a_policy_has_no_problems():
    assert registration_problems(policy(), registered(policy())) == []
    assert guard_problems(policy(), guarded(policy())) == []
    assert wanted_guards(policy()) == list(guarded(policy()))


def test_each_difference_of_a_configuration_is_a_problem():
    found = registered(policy())
    del found["zz-fairgate"]
    validate, claims, workloads = found["fairgate"]["webhooks"]
    found["fairgate"]["webhooks"] = [validate, workloads]
    validate["failurePolicy"] = "Ignore"
    workloads["rules"] = []
    assert registration_problems(policy(), found) == [
        "MutatingWebhookConfiguration zz-fairgate is missing",
        "webhook validate.fairgate.dev has failurePolicy Ignore; this policy requires Fail",
        f"webhook {claims['name']} is missing in fairgate",
        "fairgate does not select the policy's requests (rules, conditions or namespaces differ)",
    ]


def test_nothing_is_to_be_registered_while_the_policy_is_off():
    assert registration_problems(OFF, registered(policy())) == [
        f"{name} is registered, though the policy is off" for name in ("zz-fairgate", "fairgate")
    ]
    assert registration_problems(OFF, {"fairgate": None}) == guard_problems(OFF, {}) == wanted_guards(OFF) == []


def test_each_difference_of_a_guard_is_a_problem():
    found = guarded(policy())
    [guard, binding, other, *_] = found
    found[guard]["spec"]["matchConditions"] = []
    found[binding]["spec"]["validationActions"] = ["Audit"]
    del found[other]
    assert guard_problems(policy(), found) == [
        f"{guard[0]} {guard[1]} differs from what this version generates for the policy",
        f"{binding[0]} {binding[1]} has other actions than Deny",
        f"{other[0]} {other[1]} is missing",
    ]


def test_how_the_api_server_reaches_each_webhook():
    bundle = base64.b64encode(b"CA").decode()
    service = {"namespace": "fairgate-system", "name": "fairgate"}
    found = {
        "webhooks": [
            {"name": "a", "clientConfig": {"service": service, "caBundle": bundle}},
            {"name": "b", "clientConfig": {"url": "https://10.0.0.1:8443/mutate"}},
        ]
    }
    assert webhook_endpoints(found) == [
        WebhookEndpoint("a", "fairgate.fairgate-system.svc", b"CA", "fairgate-system"),
        WebhookEndpoint("b", "10.0.0.1", b""),
    ]
    assert path_of("ValidatingWebhookConfiguration", "x").endswith("/v1/validatingwebhookconfigurations/x")


@pytest.mark.parametrize(
    ("resources", "want"),
    [
        ({"amd.com/gpu": 420, "nvidia.com/gpu": 420}, None),
        ({"vendor.example/half": 1}, "vendor.example/half"),
        ({}, "nvidia.com/gpu"),
    ],
)
def test_the_probe_requests_one_gpu_that_the_policy_counts(resources, want):
    found = probe_pod(Policy(resources=resources))["spec"]["containers"][0]["resources"]["limits"]
    assert list(found.values()) == ["1"]
    assert set(found) <= ({want} if want else set(resources))


ADMITTED = b.pod(labels={"fairgate.dev/team": "vision", "fairgate.dev/tier": "guaranteed"})
QUEUED = b.pod(
    labels={"fairgate.dev/team": "vision", "fairgate.dev/tier": "guaranteed"},
    annotations={"fairgate.dev/waiting": "waits: vision holds 8 of 8"},
    schedulingGates=[{"name": "fairgate.dev/queue"}],
)


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(ADMITTED, Probe(ProbeOutcome.YES, "admitted as guaranteed"), id="admitted"),
        pytest.param(QUEUED, Probe(ProbeOutcome.YES, "queued: waits: vision holds 8 of 8"), id="queued"),
    ],
)
def test_a_created_pod_shows_by_its_labels_that_fairgate_was_called_and_what_it_decided(pod, want):
    assert created_probe(pod) == want


def test_a_pod_that_is_created_without_a_label_of_fairgate_was_not_seen_by_it():
    assert created_probe(b.pod(labels={"app": "x"})).reached is ProbeOutcome.NOT_CALLED


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ('failed calling webhook "validate.fairgate.dev": connection refused', ProbeOutcome.FAILED),
        ("this pod did not pass Fairgate's mutating webhook", ProbeOutcome.FAILED),
        ('admission webhook "validate.fairgate.dev" denied the request: exceeded quota', ProbeOutcome.YES),
        ('admission webhook "x.example.com" denied the request', ProbeOutcome.UNKNOWN),
        ('failed calling webhook "x.example.com"', ProbeOutcome.UNKNOWN),
    ],
)
def test_a_refusal_shows_whether_fairgate_was_reached(text, want):
    found = refused_probe(403, text)
    assert found.reached is want
    assert found.text == "refused: exceeded quota" if want is ProbeOutcome.YES else text in found.text


@pytest.mark.parametrize(
    ("labels", "want"),
    [(None, False), ({}, False), ({"fairgate.dev/exempt": ""}, True), ({"fairgate.dev/exempt": "false"}, False)],
)
def test_a_namespace_is_exempt_by_its_label(labels, want):
    assert is_exempt({"metadata": {"labels": labels}}) is want
    assert not is_exempt(None)


def test_deployments_with_too_few_pods_are_problems():
    found = [
        {"metadata": {"name": "fairgate"}, "spec": {"replicas": 2}, "status": {"availableReplicas": 1}},
        {"metadata": {"name": "evictor"}, "spec": {}, "status": {"availableReplicas": 1}},
        {"metadata": {"name": "new"}, "spec": {}},
    ]
    assert deployment_problems(found) == [
        "Deployment fairgate: 1 of 2 replicas are available",
        "Deployment new: 0 of 1 replicas are available",
    ]
