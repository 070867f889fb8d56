"""The webhook configurations match the policy, over real HTTP: no other field is changed."""

import copy
from dataclasses import replace

import pytest

from tests.cluster.support.fake_api import Answer, Body
from tests.core.support import make
from webhook.cluster.api.client import ClusterError
from webhook.cluster.writes.registration import sync_registration
from webhook.core.model.amounts import ResourceName
from webhook.core.model.constraints import Operator, Requirement
from webhook.core.model.policy import Defaults, Enforcement, LabelSelector, Policy
from webhook.kube.registration.guards import guards
from webhook.kube.registration.inventory import GUARD, excluding_labels, objects_from_policy
from webhook.kube.registration.registration import webhook_configurations

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PATHS = {
    "zz-fairgate": f"{ADMISSION}/mutatingwebhookconfigurations",
    "fairgate": f"{ADMISSION}/validatingwebhookconfigurations",
}
GUARDS = f"{ADMISSION}/validatingadmissionpolicies"
BEFORE = make.policy()
AFTER = Policy(resources={ResourceName("example.com/accelerator"): 1}, exempt_namespaces=("monitoring",))


def register(api, policy):
    for made in webhook_configurations(policy, ca_bundle_pem=None, url="https://fairgate.example.org"):
        name = made["metadata"]["name"]
        webhooks = copy.deepcopy(made["webhooks"])
        for webhook in webhooks:
            webhook |= {"timeoutSeconds": 10, "failurePolicy": "Ignore", "objectSelector": {}}
            webhook["clientConfig"]["caBundle"] = "AAAA"
        api.put(PATHS[name], name, metadata={"name": name, "labels": {"by": "helm"}}, webhooks=webhooks)


def found(api, name):
    return api.objects[PATHS[name]][f"/{name}"]


async def adjusted(connection, wanted):
    return tuple((await sync_registration(connection, wanted, is_served=False)).changed)


def failure(api, name):
    return {webhook["name"].partition(".")[0]: webhook["failurePolicy"] for webhook in found(api, name)["webhooks"]}


def writes(api):
    return [asked for asked in api.asked if asked.verb in {"post", "put", "patch", "delete"}]


async def test_objects_that_match_are_not_written(api, connection):
    register(api, BEFORE)
    assert await adjusted(connection, objects_from_policy(BEFORE)) == ()
    assert not writes(api)


async def test_an_edited_policy_changes_the_match_conditions_and_nothing_else(api, connection):
    register(api, BEFORE)
    before = {name: copy.deepcopy(found(api, name)) for name in PATHS}
    assert await adjusted(connection, objects_from_policy(AFTER)) == ("zz-fairgate", "fairgate")
    said = {webhook["name"]: webhook for made in objects_from_policy(AFTER) for webhook in made.get("webhooks", ())}
    for name in PATHS:
        assert found(api, name)["metadata"]["labels"] == {"by": "helm"}
        for old, new in zip(before[name]["webhooks"], found(api, name)["webhooks"], strict=True):
            changed = {part for part in old if old[part] != new[part]}
            assert changed <= {"rules", "matchConditions", "namespaceSelector"}
            assert new["matchConditions"] == said[new["name"]]["matchConditions"]
            assert new["namespaceSelector"] == said[new["name"]]["namespaceSelector"]
    assert await adjusted(connection, objects_from_policy(AFTER)) == ()


CLOSED = {"validate": "Fail", "workloads": "Ignore", "claims": "Fail"}
OPEN = dict.fromkeys(CLOSED, "Ignore")


@pytest.mark.parametrize(
    ("is_served", "ca", "want"),
    [(False, "AAAA", OPEN), (True, "", OPEN), (True, "AAAA", CLOSED)],
    ids=["no server is ready", "the API server has no CA", "a server is ready and has a CA"],
)
async def test_webhooks_fail_closed_once_a_server_can_answer(api, connection, is_served, ca, want):
    register(api, BEFORE)
    for webhook in found(api, "fairgate")["webhooks"]:
        webhook["clientConfig"]["caBundle"] = ca
    done = await sync_registration(connection, objects_from_policy(BEFORE), is_served=is_served)
    assert done.open == (() if want is CLOSED else ("validate.fairgate.dev", "claims.fairgate.dev"))
    assert failure(api, "fairgate") == want
    assert failure(api, "zz-fairgate") == {"mutate": "Ignore", "jobs": "Ignore", "gangs": "Ignore"}


async def test_a_server_that_becomes_unready_opens_nothing(api, connection):
    register(api, BEFORE)
    await sync_registration(connection, objects_from_policy(BEFORE), is_served=True)
    for webhook in found(api, "fairgate")["webhooks"]:
        del webhook["clientConfig"]["caBundle"]
    done = await sync_registration(connection, objects_from_policy(AFTER), is_served=False)
    assert tuple(done.changed) == ("zz-fairgate", "fairgate")
    assert done.open == ()
    assert failure(api, "fairgate") == CLOSED


async def test_a_policy_that_is_not_enforced_opens_what_was_closed(api, connection):
    register(api, BEFORE)
    await sync_registration(connection, objects_from_policy(BEFORE), is_served=True)
    shadow = replace(BEFORE, enforce=Enforcement.SHADOW)
    done = await sync_registration(connection, objects_from_policy(shadow), is_served=True)
    assert (tuple(done.changed), done.open) == (("fairgate",), ())
    assert failure(api, "fairgate") == OPEN


async def test_a_deleted_object_is_not_recreated(api, connection):
    register(api, BEFORE)
    del api.objects[PATHS["fairgate"]]["/fairgate"]
    assert await adjusted(connection, objects_from_policy(AFTER)) == ("zz-fairgate",)
    assert "/fairgate" not in api.objects[PATHS["fairgate"]]


async def test_a_concurrent_write_is_not_overwritten(api, connection):
    register(api, BEFORE)
    api.faults["put"].append(Answer(409))
    assert await adjusted(connection, objects_from_policy(AFTER)) == ("fairgate",)
    assert await adjusted(connection, objects_from_policy(AFTER)) == ("zz-fairgate",)


@pytest.mark.parametrize(
    ("fault", "want"), [(Answer(403), "RBAC must grant this user the verb get"), (Body(b"no"), "is not an object")]
)
async def test_an_unreadable_object_is_an_error(api, connection, fault, want):
    register(api, BEFORE)
    api.faults["get"].append(fault)
    with pytest.raises(ClusterError, match=want):
        await adjusted(connection, objects_from_policy(AFTER))


async def test_guards_get_the_policys_labels_and_namespaces_and_keep_their_trusted_users(api, connection):
    made = {each["metadata"]["name"]: each for each in guards(BEFORE, trusted_users=["carol"]) if each["kind"] == GUARD}
    for name in ("fairgate-tenancy", "fairgate-devices", "fairgate-devices-env"):
        each = copy.deepcopy(made[name])
        each["spec"]["matchConstraints"]["objectSelector"] = {}
        api.put(GUARDS, each["metadata"]["name"], spec=each["spec"])
    policy = make.policy(
        make.team(namespace_selector=LabelSelector((Requirement("owner", Operator.EXISTS),))),
        exempt_namespaces=("ci-*", "ops"),
        defaults=Defaults(host_paths=("/data",)),
    )
    assert await adjusted(connection, objects_from_policy(policy)) == (
        "fairgate-tenancy",
        "fairgate-devices",
        "fairgate-devices-env",
    )
    tenancy = api.objects[GUARDS]["/fairgate-tenancy"]["spec"]
    devices = api.objects[GUARDS]["/fairgate-devices"]["spec"]
    assert '"owner"' in tenancy["matchConditions"][0]["expression"]
    assert "owner" in tenancy["validations"][0]["messageExpression"]
    assert "carol" in tenancy["validations"][0]["expression"]
    assert "^ci-.*$" in devices["matchConditions"][0]["expression"]
    assert "ops" in devices["matchConstraints"]["namespaceSelector"]["matchExpressions"][0]["values"]
    assert devices["matchConstraints"]["objectSelector"] == {}
    assert {"name": "hostPaths", "expression": '["/data"]'} in devices["variables"]
    assert devices["validations"] == made["fairgate-devices"]["spec"]["validations"]
    assert await adjusted(connection, objects_from_policy(policy)) == ()


ENFORCER = [
    {"key": "control-plane", "operator": "NotIn", "values": ["true"]},
    {"key": "kubernetes.azure.com/managedby", "operator": "NotIn", "values": ["aks"]},
    {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "gke-gmp-system"]},
]


def enforce(api):
    """Add the terms of managed control planes to every webhook, where they are missing."""
    for name in PATHS:
        for webhook in found(api, name)["webhooks"]:
            terms = webhook["namespaceSelector"]["matchExpressions"]
            terms += [term for term in ENFORCER if term not in terms]


async def test_terms_that_a_control_plane_adds_stay_and_the_policys_own_follow_it(api, connection):
    register(api, BEFORE)
    enforce(api)
    result = await sync_registration(connection, objects_from_policy(BEFORE), is_served=False)
    assert (result.changed, excluding_labels(result.configurations.values())) == (
        {},
        ("control-plane", "kubernetes.azure.com/managedby"),
    )
    assert await adjusted(connection, objects_from_policy(AFTER)) == ("zz-fairgate", "fairgate")
    for name in PATHS:
        for webhook in found(api, name)["webhooks"]:
            own, *others = webhook["namespaceSelector"]["matchExpressions"]
            assert {"fairgate-system", "kube-system", "monitoring"} <= set(own["values"])
            assert others == ENFORCER
    assert await adjusted(connection, objects_from_policy(AFTER)) == ()


async def test_what_is_paused_is_not_written(api, connection):
    register(api, BEFORE)
    result = await sync_registration(connection, objects_from_policy(AFTER), is_served=False, paused={"fairgate"})
    assert set(result.changed) == {"zz-fairgate"}
