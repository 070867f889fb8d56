"""What doctor says of the registration: by objects, by files, and what others change in it."""

from copy import deepcopy
from dataclasses import replace

import pytest

from tests.cli.doctor import stage
from tests.cli.doctor.stage import HEALTHY, ISSUER, POLICY, findings, process, replicas
from webhook.cli.doctor.checks import Check, State, exit_status
from webhook.cluster.reads.installation import ReadForbidden, ReadValue
from webhook.core.model.policy import Enforcement
from webhook.kube.registration.guards import PARAMETRIC, guards
from webhook.kube.registration.registration import webhook_configurations
from webhook.kube.registration.static_files import StaticRegistration, can_be_static
from webhook.policy.watch import parse


def test_nothing_is_registered_while_the_policy_is_off():
    off = replace(POLICY, enforce=Enforcement.OFF)
    none = {"configurations": dict.fromkeys(stage.configurations(), ReadValue(None))}
    states = {each.check: each.state for each in findings(replace(HEALTHY, policy=off), **none)}
    assert (states[Check.WEBHOOKS], states[Check.GUARDS]) == (State.SKIPPED, State.SKIPPED)
    left = {each.check: each.state for each in findings(replace(HEALTHY, policy=off))}
    assert left[Check.WEBHOOKS] is State.WRONG


AKS = {"key": "control-plane", "operator": "DoesNotExist"}


def excluding(*terms):
    """An installation to whose webhooks a control plane added these terms, and whose leader has seen them."""
    found = deepcopy(stage.configurations())
    for part in found.values():
        for webhook in part.value["webhooks"]:
            webhook["namespaceSelector"]["matchExpressions"] += terms
    guarded = {
        (each["kind"], each["metadata"]["name"]): ReadValue(each)
        for each in guards(POLICY, excluding=["control-plane"])
    }
    return {"configurations": found, "guards": guarded}


def namespace(name, **labels):
    return {"metadata": {"name": name, "labels": {key.replace("_", "-"): value for key, value in labels.items()}}}


NO_WEBHOOKS = {"configurations": dict.fromkeys(stage.configurations(), ReadValue(None))}


HELD_ONLY = {
    "guards": {key: each if key[1] in PARAMETRIC else ReadValue(None) for key, each in stage.guard_objects().items()}
}


BY_FILES = replace(HEALTHY, static=StaticRegistration(webhooks=True, guards=True))


def test_what_the_api_server_has_from_files_is_not_missing():
    found = findings(BY_FILES, **NO_WEBHOOKS, **HELD_ONLY)
    assert exit_status(found) == 0, found
    texts = {each.check: each.message for each in found}
    assert texts[Check.WEBHOOKS] == "from files of the API server, not compared with the policy"
    assert texts[Check.GUARDS].startswith("3 guards, up to date with the policy; the others from files")
    assert "trusted by" not in texts[Check.CERTIFICATES], "which CA the files name is not known"


def files(policy=POLICY, *, ca=ISSUER.pem, with_guards=True):
    made = webhook_configurations(policy, ca_bundle_pem=ca, url=f"https://{stage.HOST}:8443")
    made += guards(policy) if with_guards else []
    return [each for each in made if can_be_static(each)]


def test_files_that_are_given_are_compared():
    found = findings(replace(BY_FILES, files=files()), **NO_WEBHOOKS, **HELD_ONLY)
    assert exit_status(found) == 0, found
    texts = {each.check: each.message for each in found}
    assert texts[Check.WEBHOOKS] == "from files of the API server, up to date with the policy"
    assert texts[Check.GUARDS].endswith("the others from files of the API server, up to date with the policy")
    assert texts[Check.CERTIFICATES].endswith("trusted by every webhook")


def test_files_are_compared_where_the_dry_run_shows_none():
    found = findings(replace(HEALTHY, files=files()), **NO_WEBHOOKS, **HELD_ONLY)
    assert exit_status(found) == 0, found


OTHER = parse({"p": stage.DOCUMENT + b"resources: {example.com/gpu: {gpus: 1}}\n"}, origin="p")


@pytest.mark.parametrize(
    ("given", "want"),
    [
        (files(OTHER), {(Check.WEBHOOKS, "fairgate does not select the policy's requests"), (Check.GUARDS, "differs")}),
        (files()[:1], {(Check.WEBHOOKS, "Configuration fairgate is missing"), (Check.GUARDS, "fairgate-labels is mi")}),
        ([], {(Check.WEBHOOKS, "Configuration zz-fairgate is missing"), (Check.GUARDS, "fairgate-grace is missing")}),
        (files(with_guards=False), {(Check.GUARDS, "ValidatingAdmissionPolicy fairgate-labels is missing")}),
        (files(ca=stage.Issuer().pem), {(Check.CERTIFICATES, "no CA that issued the certificate")}),
    ],
    ids=["of another policy", "half of them", "none", "without guards", "of another CA"],
)
def test_files_that_do_not_match_are_reported_with_what_to_do(given, want):
    found = findings(replace(BY_FILES, files=given), **NO_WEBHOOKS, **HELD_ONLY)
    wrong = [each for each in found if each.state is State.WRONG]
    assert {each.check for each in wrong} == {check for check, _ in want}
    for check, words in want:
        assert any(words in each.message for each in wrong if each.check is check), wrong
    told = [each for each in wrong if each.check is not Check.CERTIFICATES]
    assert all(each.message.startswith("in the files of the API server: ") for each in told)
    assert all("fairgate manifests --static" in each.remedy for each in told)


def test_a_bundle_of_a_file_that_is_none_is_named():
    given = files()
    given[0]["webhooks"][0]["clientConfig"]["caBundle"] = "x"
    found = findings(replace(BY_FILES, files=given), **NO_WEBHOOKS, **HELD_ONLY)
    assert "caBundle cannot be read" in " ".join(each.message for each in found if each.state is State.WRONG)


def test_files_without_a_bundle_leave_the_trust_to_the_host():
    found = findings(replace(BY_FILES, files=files(ca=None)), **NO_WEBHOOKS, **HELD_ONLY)
    assert exit_status(found) == 0, found


@pytest.mark.parametrize(
    ("served", "want"),
    [
        (ReadValue(frozenset({"teamledgers", "reports"})), {Check.GUARDS}),
        (ReadValue(None), {Check.GUARDS}),
        (ReadForbidden("get /apis/fairgate.dev/v1alpha1"), set()),
    ],
    ids=["of an older installation", "none at all", "not allowed to look"],
)
def test_a_missing_definition_of_held_nodes_is_named_with_what_to_do(served, want):
    wrong = [each for each in findings(served=served) if each.state is State.WRONG]
    assert {each.check for each in wrong} == want
    assert all("definition heldnodes.fairgate.dev is missing" in each.message for each in wrong)
    assert all(each.remedy.startswith("apply what `fairgate manifests` prints") for each in wrong)


def test_guards_that_no_file_can_hold_are_missed():
    found = findings(BY_FILES, **NO_WEBHOOKS, guards=dict.fromkeys(stage.guard_objects(), ReadValue(None)))
    assert {each.check for each in found if each.state is State.WRONG} == {Check.GUARDS}


def test_a_registration_by_files_and_by_objects_is_reported_once_for_each_check():
    wrong = [each for each in findings(BY_FILES) if each.state is State.WRONG]
    assert [each.check for each in wrong] == [Check.WEBHOOKS, Check.GUARDS]
    assert "zz-fairgate and fairgate besides: each pod is reviewed twice" in wrong[0].message
    assert "fairgate-labels" in wrong[1].message
    assert "fairgate-held-bindings" not in wrong[1].message


def test_what_a_control_plane_adds_to_the_webhooks_is_no_problem():
    found = findings(**excluding(AKS), namespaces=ReadValue([namespace("vision"), namespace("x", control_plane="a")]))
    assert exit_status(found) == 0
    [webhooks] = [each for each in found if each.check is Check.WEBHOOKS]
    assert webhooks.message.endswith("; others exclude namespaces by control-plane, of no team x")


def test_a_teams_namespace_that_others_exclude_is_named():
    seen = ReadValue([namespace("vision", control_plane="mine")])
    [webhooks] = [each for each in findings(**excluding(AKS), namespaces=seen) if each.check is Check.WEBHOOKS]
    assert webhooks.state is State.WRONG
    assert "pods in 1 namespace of team vision are not reviewed" in webhooks.message
    assert webhooks.message.endswith("control-plane: vision")


def test_who_may_not_list_namespaces_gets_their_number_from_the_leader():
    def seen(**leader):
        parts = replicas(**{"pod-1_a": process(**leader)}) | excluding(AKS)
        found = findings(**parts, namespaces=ReadForbidden("list namespaces"))
        [webhooks] = [each for each in found if each.check is Check.WEBHOOKS]
        return webhooks.state, webhooks.message

    counted = "1 namespace of team vision"
    want = f"pods in {counted} are not reviewed, as others exclude these by labels control-plane"
    assert seen(leading=True, unreviewed=[counted]) == (State.WRONG, want)
    assert seen(leading=True)[0] is State.OK
    assert seen()[0] is State.UNKNOWN


@pytest.mark.parametrize(
    "term",
    [
        {"key": "control-plane", "operator": "NotIn", "values": [f"tier-{number}" for number in range(500)] + ["mine"]},
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["vision"]},
    ],
    ids=["by a selector longer than a tenant's may be", "by its name"],
)
def test_a_teams_namespace_is_named_however_others_exclude_it(term):
    seen = ReadValue([namespace("vision", control_plane="mine")])
    [webhooks] = [each for each in findings(**excluding(term), namespaces=seen) if each.check is Check.WEBHOOKS]
    assert (webhooks.state, webhooks.message.endswith(f"{term['key']}: vision")) == (State.WRONG, True)


def test_a_guard_that_does_not_know_the_labels_by_which_others_exclude_is_a_problem():
    found = findings(**(excluding(AKS) | {"guards": stage.guard_objects()}))
    assert {each.check for each in found if each.state is State.WRONG} == {Check.GUARDS}
