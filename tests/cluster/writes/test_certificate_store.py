"""The Secret and the webhook configurations over real HTTP: races, lost answers, refusals, bells."""

import asyncio
import base64

import pytest

from certs.authority import CertificateOptions
from certs.bundle import CA, read_bundle
from certs.manager import BundleChanged, CaBundlesPublished, CaBundlesUnpublished, CertificateManager, StoreError
from certs.rotation import Change
from tests.cluster.support.fake_api import Answer, Body, Cut, CutMidLine
from tests.cluster.support.stores import FAST, until
from webhook.cluster.writes.certificate_store import SecretStore, WebhookCallers, ring_on_changes

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


def keeper_of(connection, told):
    return CertificateManager(
        store_of(connection), WebhookCallers(connection), terms=CertificateOptions(), report=told.append
    )


def changes(told):
    return [outcome.change for outcome in told if isinstance(outcome, BundleChanged)]


async def test_a_secret_is_made_once_however_many_replicas_start_together(api, connection):
    register(api)
    told = []
    keepers = [keeper_of(connection, told) for _ in range(5)]
    await asyncio.gather(*(keeper.look() for keeper in keepers))
    assert changes(told) == [Change.CREATED]
    assert len({keeper.serving.pair.pem for keeper in keepers}) == 1
    secret = api.objects[SECRETS]["gpu/certs"]
    assert (secret["type"], sorted(secret["data"])) == (
        "kubernetes.io/tls",
        ["ca.crt", "ca.key", "tls.crt", "tls.key"],
    )


async def test_every_webhook_is_told_and_the_rest_of_its_configuration_stays(api, connection):
    register(api)
    api.put(VALIDATING, "somebody-elses", webhooks=[{"name": "a.example.org", "clientConfig": {"caBundle": "YQ=="}}])
    told = []
    await keeper_of(connection, told).look()
    ca = kept(api)[CA]
    assert bundles(api, MUTATING, "zz-fairgate") == [ca]
    assert bundles(api, VALIDATING, "fairgate") == [ca, ca]
    assert bundles(api, VALIDATING, "somebody-elses") == [b"a"]
    assert api.objects[VALIDATING]["/fairgate"]["webhooks"][1]["clientConfig"]["url"] == "https://127.0.0.1:1/x"
    assert (
        CaBundlesPublished(("mutatingwebhookconfigurations/zz-fairgate", "validatingwebhookconfigurations/fairgate"))
        in told
    )
    puts = api.count("put")
    await keeper_of(connection, told).look()
    assert api.count("put") == puts, "what is right is not written again"


async def test_a_secret_that_was_made_empty_is_filled_and_keeps_its_labels(api, connection):
    api.put(SECRETS, "certs", namespace="gpu", metadata={"labels": {"a": "b"}}, type="Opaque")
    await keeper_of(connection, []).look()
    assert read_bundle(kept(api)) is not None
    secret = api.objects[SECRETS]["gpu/certs"]
    assert (secret["metadata"]["labels"], secret["type"]) == ({"a": "b"}, "Opaque")


async def test_a_write_from_an_old_version_loses(api, connection):
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
async def test_a_write_whose_answer_was_lost_is_found_at_the_next_look(api, connection, verb):
    register(api)
    told = []
    keeper = keeper_of(connection, told)
    api.faults[verb].append(Cut(is_carried_out=True))
    await keeper.look()
    await keeper.look()
    assert (keeper.why_unusable(), keeper.why_unpublished()) == (None, None)
    assert keeper.serving.pair.pem.startswith(kept(api)["tls.crt"])
    assert changes(told).count(Change.CREATED) == (verb == "put"), "whose write it was is not known"
    assert bundles(api, VALIDATING, "fairgate") == [kept(api)[CA]] * 2


async def test_a_missing_right_on_the_secret_is_named(api, connection):
    api.always["get"] = Answer(403)
    keeper = keeper_of(connection, [])
    await keeper.look()
    assert "RBAC must grant this user the verb get on secrets" in keeper.why_unusable()


async def test_a_missing_right_on_the_configurations_is_named_and_the_secret_serves(api, connection):
    register(api)
    api.always["put"] = Answer(403)
    keeper = keeper_of(connection, [])
    await keeper.look()
    assert keeper.why_unusable() is None
    assert "RBAC must grant this user the verb update on mutatingwebhookconfigurations" in keeper.why_unpublished()


async def test_a_deleted_secret_that_may_not_be_made_again_is_tried_until_it_may(api, connection):
    register(api)
    keeper = keeper_of(connection, [])
    await keeper.look()
    leaf = kept(api)["tls.crt"]
    api.delete(SECRETS, "certs", namespace="gpu")
    api.always["post"] = Answer(403)
    for _ in range(2):
        await keeper.look()
        assert api.objects[SECRETS] == {}
    api.always.clear()
    await keeper.look()
    assert kept(api)["tls.crt"] == leaf


async def test_a_proxy_that_answers_in_its_own_words_is_told(api, connection):
    api.always["get"] = Body(b"<html>")
    keeper = keeper_of(connection, [])
    await keeper.look()
    assert "cannot get secrets: the answer is no object" in keeper.why_unusable()


async def test_a_namespace_that_is_not_there_is_told(api, connection):
    api.missing.add("/api/v1/namespaces/gpu/secrets")
    keeper = keeper_of(connection, [])
    await keeper.look()
    assert "cannot create secrets: 404" in keeper.why_unusable()


@pytest.mark.parametrize(
    ("data", "want"), [({"tls.crt": "!"}, "Secret gpu/certs cannot be read"), ({"a": "YQ=="}, None)]
)
async def test_data_that_is_no_base64_is_told(api, connection, data, want):
    api.put(SECRETS, "certs", namespace="gpu", data=data)
    keeper = keeper_of(connection, [])
    await keeper.look()
    assert (keeper.why_unusable() is None) if want is None else want in keeper.why_unusable()


async def test_configurations_that_nobody_applied_yet_are_told_and_filled_in_later(api, connection):
    told = []
    keeper = keeper_of(connection, told)
    await keeper.look()
    assert keeper.why_unusable() is None
    (untold,) = [outcome for outcome in told if isinstance(outcome, CaBundlesUnpublished)]
    assert "there is no mutatingwebhookconfigurations/zz-fairgate and no validating" in untold.why
    register(api)
    await keeper.look()
    assert keeper.why_unpublished() is None


async def test_others_who_write_a_configuration_meanwhile_lose_nothing(api, connection):
    register(api)
    callers = WebhookCallers(connection)
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


async def test_a_configuration_that_changes_for_ever_is_given_up_for_now(api, connection):
    register(api)
    turns = iter(range(100))
    with pytest.raises(StoreError, match="others keep changing it"):
        await WebhookCallers(connection).publish(lambda _: f"{next(turns)}".encode())


async def test_changes_ring_and_a_broken_watch_goes_on(api, connection):
    register(api)
    rung = asyncio.Event()
    ringing = asyncio.create_task(ring_on_changes(store_of(connection), connection, rung.set, pace=FAST))
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
