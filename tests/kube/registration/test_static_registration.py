"""Webhook configurations and guards as files of kube-apiserver."""

import msgspec
import pytest

from tests.core.support import make
from webhook.kube.registration.guards import PARAMETRIC, guards
from webhook.kube.registration.registration import webhook_configurations
from webhook.kube.registration.static_files import (
    NOT_STATIC,
    StaticRegistration,
    admission_configuration,
    can_be_static,
    objects_of,
    pod_for_guard,
    pod_for_webhook,
    static_files,
    static_registration,
)

POLICY = make.policy()
REGISTERED = webhook_configurations(POLICY, ca_bundle_pem=b"x", url="https://h:1") + guards(POLICY)


def test_every_plugin_finds_only_its_own_kinds_under_reserved_names():
    files = static_files(REGISTERED)
    kinds = {path: {each["kind"] for each in made} for path, made in files.items()}
    assert kinds == {
        "mutating-webhooks/fairgate.yaml": {"MutatingWebhookConfiguration"},
        "validating-webhooks/fairgate.yaml": {"ValidatingWebhookConfiguration"},
        "validating-policies/fairgate.yaml": {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"},
    }
    made = [each for objects in files.values() for each in objects]
    assert all(each["metadata"]["name"].endswith(".static.k8s.io") for each in made)
    assert len({(each["kind"], each["metadata"]["name"]) for each in made}) == len(made)
    policies = {each["metadata"]["name"] for each in made if each["kind"] == "ValidatingAdmissionPolicy"}
    assert {each["spec"]["policyName"] for each in made if "policyName" in each.get("spec", {})} == policies
    hooks = [hook["name"] for each in made for hook in each.get("webhooks", ())]
    assert hooks[0] == "mutate.static.fairgate.dev"
    assert all(name.endswith(".static.fairgate.dev") for name in hooks)


def test_what_has_parameters_stays_an_object_and_nothing_else_does():
    left = [each for each in REGISTERED if not can_be_static(each)]
    assert {each["metadata"]["name"] for each in left} == set(PARAMETRIC)
    assert len(left) == 2 * len(PARAMETRIC)


def test_files_are_read_back_under_the_names_of_objects():
    documents = [each for made in static_files(REGISTERED).values() for each in made]
    want = [each for each in REGISTERED if can_be_static(each)]
    assert objects_of([*documents, None, {"kind": "List"}, "text"]) == want


@pytest.mark.parametrize(
    "broken",
    [
        {"kind": "ValidatingWebhookConfiguration", "webhooks": []},
        {"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "n"}, "webhooks": [{"name": "w"}]},
        {"kind": "MutatingWebhookConfiguration", "metadata": {"name": "n"}, "webhooks": "w"},
        {"kind": "ValidatingAdmissionPolicy", "metadata": {"name": "n"}},
        {"kind": "ValidatingAdmissionPolicyBinding", "metadata": [], "spec": {}},
    ],
    ids=str,
)
def test_what_has_no_name_or_content_is_refused(broken):
    with pytest.raises(msgspec.ValidationError):
        objects_of([broken])


def test_without_objects_every_folder_has_an_empty_file():
    assert list(static_files([]).values()) == [[], [], []]


def test_the_configuration_sends_each_plugin_to_the_folder_of_its_file():
    plugins = admission_configuration("/etc/x")["plugins"]
    folders = {each["configuration"]["staticManifestsDir"] for each in plugins}
    assert folders == {f"/etc/x/{path.partition('/')[0]}" for path in static_files([])}


@pytest.mark.parametrize(
    ("by_webhook", "by_guard", "want"),
    [
        (
            'admission webhook "mutate.static.fairgate.dev" denied the request: no',
            "ValidatingAdmissionPolicy 'fairgate-forged.static.k8s.io' with binding denied request: no",
            StaticRegistration(webhooks=True, guards=True),
        ),
        (
            'admission webhook "mutate.fairgate.dev" denied the request: mutate.static.fairgate.dev',
            "ValidatingAdmissionPolicy 'fairgate-forged' with binding 'fairgate-forged' denied request: no",
            NOT_STATIC,
        ),
        ('Pod "fairgate-doctor-x" is invalid: must be greater than or equal to 0', "", NOT_STATIC),
        ('failed calling webhook "mutate.static.fairgate.dev": refused', "403 Forbidden", NOT_STATIC),
    ],
    ids=["files", "objects", "neither", "an outage"],
)
def test_refusals_say_how_it_is_registered(by_webhook, by_guard, want):
    assert static_registration(by_webhook=by_webhook, by_guard=by_guard) == want


def test_one_probe_has_gpus_that_no_pod_may_have_and_the_other_a_key_of_fairgate():
    (container,) = pod_for_webhook("amd.com/gpu")["spec"]["containers"]
    assert container["resources"]["limits"] == {"amd.com/gpu": "-1"}
    guarded = pod_for_guard()
    assert guarded["metadata"]["labels"] == {"fairgate.dev/team": "none"}
    assert guarded["spec"]["containers"][0]["resources"]["limits"] == {}
