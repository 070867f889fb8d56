"""The Secret and the webhook configurations over real HTTP: races, lost responses, errors, notifications."""

import asyncio
import base64

import pytest

from certs.authority import CertificateOptions
from certs.manager import BundleChanged, CaBundlesPublished, CaBundlesUnpublished, CertificateManager, StoreError
from certs.rotation import CA, Change, read_bundle
from tests.cluster.support.fake_api import Answer, Body, Cut, CutMidLine
from tests.cluster.support.stores import FAST, until
from webhook.cluster.writes.registration import SecretStore, WebhookConfigurations, notify_on_changes

SECRETS = "/api/v1/secrets"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
MUTATING, VALIDATING = f"{ADMISSION}/mutatingwebhookconfigurations", f"{ADMISSION}/validatingwebhookconfigurations"


def register(api, ca_bundle=""):
    for path, name, hooks in ((MUTATING, "zz-fairgate", 1), (VALIDATING, "fairgate", 2)):
        client = {"url": "https://127.0.0.1:1/x"} | ({"caBundle": ca_bundle} if ca_bundle else {})
        api.put(path, name, webhooks=[{"name": f"{n}.fairgate.dev", "clientConfig": client} for n in range(hooks)])


def bundles(api, path, name):
    hooks = api.objects[path][f"/{name}"]["webhooks"]
    return [base64.b64decode(hook["clientConfig"].get("caBundle", "")) for hook in hooks]


def kept(api):
    secret = api.objects[SECRETS]["gpu/certs"]
    return {name: base64.b64decode(content) for name, content in secret["data"].items()}


def store_of(connection):
    return SecretStore(connection, namespace="gpu", name="certs")


def manager_of(connection, reported):
    return CertificateManager(
        store_of(connection), WebhookConfigurations(connection), terms=CertificateOptions(), report=reported.append
    )


def changes(reported):
    return [outcome.change for outcome in reported if isinstance(outcome, BundleChanged)]


async def test_replicas_that_start_together_create_one_secret(api, connection):
    register(api)
    reported = []
    managers = [manager_of(connection, reported) for _ in range(5)]
    await asyncio.gather(*(manager.look() for manager in managers))
    assert changes(reported) == [Change.CREATED]
    assert len({manager.serving.pair.pem for manager in managers}) == 1
    secret = api.objects[SECRETS]["gpu/certs"]
    assert (secret["type"], sorted(secret["data"])) == (
        "kubernetes.io/tls",
        ["ca.crt", "ca.key", "tls.crt", "tls.key"],
    )


async def test_every_ca_bundle_is_set_and_the_rest_of_the_configuration_stays(api, connection):
    register(api)
    api.put(VALIDATING, "unrelated", webhooks=[{"name": "a.example.org", "clientConfig": {"caBundle": "YQ=="}}])
    reported = []
    await manager_of(connection, reported).look()
    ca = kept(api)[CA]
    assert bundles(api, MUTATING, "zz-fairgate") == [ca]
    assert bundles(api, VALIDATING, "fairgate") == [ca, ca]
    assert bundles(api, VALIDATING, "unrelated") == [b"a"]
    assert api.objects[VALIDATING]["/fairgate"]["webhooks"][1]["clientConfig"]["url"] == "https://127.0.0.1:1/x"
    assert (
        CaBundlesPublished(("mutatingwebhookconfigurations/zz-fairgate", "validatingwebhookconfigurations/fairgate"))
        in reported
    )
    puts = api.count("put")
    await manager_of(connection, reported).look()
    assert api.count("put") == puts, "what is right is not written again"


async def test_an_empty_secret_is_filled_and_keeps_its_labels(api, connection):
    api.put(SECRETS, "certs", namespace="gpu", metadata={"labels": {"a": "b"}}, type="Opaque")
    await manager_of(connection, []).look()
    assert read_bundle(kept(api)) is not None
    secret = api.objects[SECRETS]["gpu/certs"]
    assert (secret["metadata"]["labels"], secret["type"]) == ({"a": "b"}, "Opaque")


async def test_a_write_of_an_old_version_conflicts(api, connection):
    one, two = store_of(connection), store_of(connection)
    assert await one.create({"a": b"1"})
    assert not await two.create({"a": b"2"})
    assert await two.read() == {"a": b"1"}
    await one.read()
    assert await one.replace({"a": b"3"})
    assert not await two.replace({"a": b"4"})
    assert await two.read() == {"a": b"3"}
    api.delete(SECRETS, "certs", namespace="gpu")
    assert not await two.replace({"a": b"5"}), "deleted meanwhile"


@pytest.mark.parametrize("verb", ["post", "put"])
async def test_a_write_without_a_response_is_found_by_the_next_read(api, connection, verb):
    register(api)
    reported = []
    manager = manager_of(connection, reported)
    api.faults[verb].append(Cut(is_carried_out=True))
    await manager.look()
    await manager.look()
    assert (manager.why_unusable(), manager.why_unpublished()) == (None, None)
    assert manager.serving.pair.pem.startswith(kept(api)["tls.crt"])
    assert changes(reported).count(Change.CREATED) == (verb == "put"), "whose write it was is not known"
    assert bundles(api, VALIDATING, "fairgate") == [kept(api)[CA]] * 2


async def test_a_missing_right_on_the_secret_is_named(api, connection):
    api.always["get"] = Answer(403)
    manager = manager_of(connection, [])
    await manager.look()
    assert "RBAC must grant this user the verb get on secrets" in manager.why_unusable()


async def test_a_missing_right_on_the_configurations_is_named_and_the_secret_serves(api, connection):
    register(api)
    api.always["put"] = Answer(403)
    manager = manager_of(connection, [])
    await manager.look()
    assert manager.why_unusable() is None
    assert "RBAC must grant this user the verb update on mutatingwebhookconfigurations" in manager.why_unpublished()


async def test_recreating_a_deleted_secret_is_retried_until_it_is_allowed(api, connection):
    register(api)
    manager = manager_of(connection, [])
    await manager.look()
    leaf = kept(api)["tls.crt"]
    api.delete(SECRETS, "certs", namespace="gpu")
    api.always["post"] = Answer(403)
    for _ in range(2):
        await manager.look()
        assert api.objects[SECRETS] == {}
    api.always.clear()
    await manager.look()
    assert kept(api)["tls.crt"] == leaf


async def test_a_response_of_a_proxy_is_reported(api, connection):
    api.always["get"] = Body(b"<html>")
    manager = manager_of(connection, [])
    await manager.look()
    assert "cannot get secrets: the response is not an object" in manager.why_unusable()


async def test_a_missing_namespace_is_reported(api, connection):
    api.missing.add("/api/v1/namespaces/gpu/secrets")
    manager = manager_of(connection, [])
    await manager.look()
    assert "cannot create secrets: 404" in manager.why_unusable()


@pytest.mark.parametrize(
    ("data", "want"), [({"tls.crt": "!"}, "Secret gpu/certs cannot be read"), ({"a": "YQ=="}, None)]
)
async def test_invalid_base64_is_reported(api, connection, data, want):
    api.put(SECRETS, "certs", namespace="gpu", data=data)
    manager = manager_of(connection, [])
    await manager.look()
    assert (manager.why_unusable() is None) if want is None else want in manager.why_unusable()


async def test_missing_configurations_are_reported_and_updated_later(api, connection):
    reported = []
    manager = manager_of(connection, reported)
    await manager.look()
    assert manager.why_unusable() is None
    (untold,) = [outcome for outcome in reported if isinstance(outcome, CaBundlesUnpublished)]
    assert "there is no mutatingwebhookconfigurations/zz-fairgate and no validating" in untold.why
    register(api)
    await manager.look()
    assert manager.why_unpublished() is None


async def test_concurrent_writes_of_a_configuration_are_kept(api, connection):
    register(api)
    callers = WebhookConfigurations(connection)
    raced = []

    def merge(pem):
        if len(raced) < 2:
            raced.append(pem)
            hooks = api.objects[VALIDATING]["/fairgate"]["webhooks"]
            api.put(VALIDATING, "fairgate", webhooks=[{**hooks[0], "timeoutSeconds": 7}, hooks[1]])
        return b"ours"

    await callers.publish(merge)
    hooks = api.objects[VALIDATING]["/fairgate"]["webhooks"]
    assert hooks[0]["timeoutSeconds"] == 7
    assert bundles(api, VALIDATING, "fairgate") == [b"ours", b"ours"]


async def test_after_repeated_conflicts_an_update_fails_for_now(api, connection):
    register(api)
    turns = iter(range(100))
    with pytest.raises(StoreError, match="other writers keep changing it"):
        await WebhookConfigurations(connection).publish(lambda _: f"{next(turns)}".encode())


async def test_changes_notify_and_a_broken_watch_resumes(api, connection):
    register(api)
    rung = asyncio.Event()
    ringing = asyncio.create_task(notify_on_changes(store_of(connection), connection, rung.set, pace=FAST))
    try:
        await until(lambda: len(api.watchers) == 3)
        rung.clear()
        api.put(SECRETS, "certs", namespace="gpu", data={})
        register(api)
        async with asyncio.timeout(5):
            await rung.wait()
        rung.clear()
        api.disturb(CutMidLine())
        await until(lambda: api.count("watch") >= 6)
        register(api, "YQ==")
        async with asyncio.timeout(5):
            await rung.wait()
    finally:
        ringing.cancel()
        await asyncio.gather(ringing, return_exceptions=True)
        await until(lambda: not api.watchers)
    asked = {each.query["fieldSelector"] for each in api.asked if each.verb == "watch"}
    assert asked == {"metadata.name=certs", "metadata.name=zz-fairgate", "metadata.name=fairgate"}
