"""Which fields of registered objects follow the policy; tests/cluster/writes/test_registration_sync.py writes them."""

import copy

import pytest

from tests.core.support.make import policy
from webhook.core.model.policy import Enforcement, Policy
from webhook.kube.registration.inventory import (
    GUARD,
    aligned_with_policy,
    fail_open_webhooks,
    objects_from_policy,
    probe_path,
)

CA = {"caBundle": "AAAA"}


def validating(policy_):
    return next(each for each in objects_from_policy(policy_) if each["kind"] == "ValidatingWebhookConfiguration")


def registered(policy_, *, failure="Ignore", **client):
    made = copy.deepcopy(validating(policy_))
    for webhook in made["webhooks"]:
        webhook |= {"failurePolicy": failure, "clientConfig": client or CA, "timeoutSeconds": 10}
    return made


def failures(configuration):
    return {webhook["name"].partition(".")[0]: webhook["failurePolicy"] for webhook in configuration["webhooks"]}


@pytest.mark.parametrize(
    ("is_served", "client", "want"),
    [(True, CA, "Fail"), (False, CA, "Ignore"), (True, {"url": "https://h"}, "Ignore")],
    ids=["served", "not served", "without a CA"],
)
def test_a_webhook_that_fails_open_is_closed_once_it_can_answer(is_served, client, want):
    wanted = validating(policy())
    found = aligned_with_policy(registered(policy(), **client), wanted, is_served=is_served)
    assert failures(found) == {"validate": want, "claims": want, "workloads": "Ignore"}
    still_open = {webhook["name"].partition(".")[0] for webhook in fail_open_webhooks(found, wanted)}
    assert still_open == ({"validate", "claims"} if want == "Ignore" else set())


def test_a_webhook_that_fails_closed_stays_so_while_the_policy_requires_it():
    closed = registered(policy(), failure="Fail")
    assert failures(aligned_with_policy(closed, validating(policy()), is_served=False))["validate"] == "Fail"
    shadow = validating(Policy(enforce=Enforcement.SHADOW))
    assert set(failures(aligned_with_policy(closed, shadow, is_served=True)).values()) == {"Ignore"}


def test_only_what_selects_requests_follows_the_policy():
    after = Policy(exempt_namespaces=("monitoring",))
    found = registered(policy())
    found["webhooks"].append({"name": "theirs", "failurePolicy": "Ignore"})
    aligned = aligned_with_policy(found, validating(after), is_served=False)
    *ours, theirs = aligned["webhooks"]
    assert theirs == {"name": "theirs", "failurePolicy": "Ignore"}
    for webhook, wanted in zip(ours, validating(after)["webhooks"], strict=True):
        assert webhook["namespaceSelector"] == wanted["namespaceSelector"]
        assert (webhook["timeoutSeconds"], webhook["clientConfig"]) == (10, CA)


def test_the_expressions_of_guards_stay_and_their_messages_follow():
    [before, _binding] = [
        each for each in objects_from_policy(policy()) if each["metadata"]["name"] == "fairgate-grace"
    ]
    found = copy.deepcopy(before)
    found["spec"]["validations"][0] |= {"expression": "theirs", "messageExpression": "old"}
    [validation] = aligned_with_policy(found, before, is_served=False)["spec"]["validations"]
    assert before["kind"] == GUARD
    assert validation == before["spec"]["validations"][0] | {"expression": "theirs"}


def test_the_probe_takes_the_way_of_reviews():
    service = {"namespace": "fairgate-system", "name": "fairgate", "path": "/validate"}
    path = "/api/v1/namespaces/fairgate-system/services/https:fairgate:443/proxy/healthz"
    assert probe_path({"clientConfig": {"service": service}}) == path
    assert ":8443/proxy" in probe_path({"clientConfig": {"service": {**service, "port": 8443}}})
    assert probe_path({"clientConfig": {"url": "https://h"}}) is None
