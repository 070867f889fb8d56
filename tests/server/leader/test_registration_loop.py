"""The leader's sync of the registration: changes are logged, and why webhooks fail open, once."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.support.fake_api import Answer, Body, FakeApi
from tests.cluster.support.stores import write_kubeconfig
from tests.core.support import make
from tests.server.support.leader_context import leader_context
from webhook.cluster.api.client import connect
from webhook.core.model.amounts import Namespace
from webhook.core.model.pod import NamespaceFacts
from webhook.core.model.policy import Enforcement
from webhook.kube.registration.guards import TENANCY, guards
from webhook.kube.registration.inventory import BINDING, GUARD
from webhook.kube.registration.registration import webhook_configurations
from webhook.observe.logs import LogFormat, open_logs
from webhook.server.leader.registration_loop import RESTORE_SECONDS, SYNC_SECONDS, RegistrationLoop

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
GUARDS = f"{ADMISSION}/validatingadmissionpolicies"
BINDINGS = f"{ADMISSION}/validatingadmissionpolicybindings"
PLURALS = {"zz-fairgate": "mutatingwebhookconfigurations", "fairgate": "validatingwebhookconfigurations"}


class Scene:
    """A fake API server with the chart's registration, and the loop that syncs it."""

    def __init__(self, api, connection, log):
        self.api = api
        self.why_not = "world: not listed yet"
        self._log = log
        world, logs = make.world(make.policy(), nodes=[]), open_logs(LogFormat.JSON, fd=log.fileno())
        context, self.world = leader_context(world, connection=connection, logs=logs), world
        self.context = context
        self.registrar = RegistrationLoop(context, why_not_serving=lambda: self.why_not)
        for made in webhook_configurations(make.policy(), ca_bundle_pem=None, url="https://fairgate.test"):
            name = made["metadata"]["name"]
            webhooks = [{**webhook, "failurePolicy": "Ignore"} for webhook in made["webhooks"]]
            api.put(f"{ADMISSION}/{PLURALS[name]}", name, metadata={"name": name}, webhooks=webhooks)

    def webhooks(self):
        return self.api.objects[f"{ADMISSION}/{PLURALS['fairgate']}"]["/fairgate"]["webhooks"]

    def publish_ca(self):
        for webhook in self.webhooks():
            webhook["clientConfig"]["caBundle"] = "AAAA"

    def lines(self):
        return [json.loads(line) for line in Path(self._log.name).read_text().splitlines()]


@pytest.fixture
async def scene(tmp_path):
    async with FakeApi().serving() as api, await connect(write_kubeconfig(tmp_path / "k", api.url)) as connection:
        with (tmp_path / "log").open("wb") as log:
            yield Scene(api, connection, log)


async def test_why_webhooks_fail_open_is_logged_once_for_each_cause(scene):
    for _ in range(2):
        await scene.registrar.sync()
    scene.why_not = None
    for _ in range(2):
        await scene.registrar.sync()
    kept = "validate.fairgate.dev, claims.fairgate.dev: failurePolicy stays Ignore"
    assert [line["why"] for line in scene.lines()] == [
        f"{kept}, this server is not ready: world: not listed yet",
        f"{kept}, there is no caBundle yet",
    ]
    assert scene.registrar.problem == scene.lines()[-1]["why"]


SERVICE = {"namespace": "fairgate-system", "name": "fairgate", "port": 443}
PROBE = "/api/v1/namespaces/fairgate-system/services/https:fairgate:443/proxy/healthz"


@pytest.mark.parametrize(
    ("status", "want"),
    [(503, "Ignore"), (404, "Ignore"), (200, "Fail"), (403, "Fail")],
    ids=["no route", "no Service", "reached", "not Fairgate's"],
)
async def test_before_they_fail_closed_the_api_server_reaches_the_service(scene, status, want):
    scene.why_not = None
    scene.publish_ca()
    for webhook in scene.webhooks():
        webhook["clientConfig"] = {"caBundle": "AAAA", "service": {**SERVICE, "path": "/x"}}
    scene.api.faults[f"get {PROBE}"] += [Body(b"ok\n") if status == 200 else Answer(status)]
    await scene.registrar.sync()
    assert scene.webhooks()[0]["failurePolicy"] == want
    assert [asked.path for asked in scene.api.asked].count(PROBE) == 1
    if want == "Ignore":
        assert "stays Ignore, the API server does not reach it: " in scene.registrar.problem


async def test_once_ready_and_trusted_they_fail_closed_without_a_problem(scene):
    scene.why_not = None
    await scene.registrar.sync()
    scene.publish_ca()
    await scene.registrar.sync()
    assert scene.registrar.problem is None
    assert scene.lines()[-1]["event"] == "registration changed"
    assert [webhook["failurePolicy"] for webhook in scene.webhooks()] == ["Fail", "Ignore", "Fail"]


def narrow(scene):
    """Do what an editor of webhooks does that adds values to Fairgate's own term."""
    for webhook in scene.webhooks():
        [own, *_] = webhook["namespaceSelector"]["matchExpressions"]
        own["values"] = sorted({*own["values"], "theirs"})


async def test_what_others_change_back_is_written_at_growing_intervals_and_said(scene):
    scene.publish_ca()
    writes = 0
    for _ in range(36):  # three minutes
        narrow(scene)
        before = len(scene.api.asked)
        await scene.registrar.sync()
        writes += sum(asked.verb == "put" for asked in scene.api.asked[before:])
        await asyncio.sleep(SYNC_SECONDS)
    assert writes == 7  # after 0, 5, 15, 35 … seconds
    assert "others change fairgate back: written again at growing intervals" in scene.registrar.problem


async def test_what_stays_as_it_was_written_is_written_at_once_after_the_next_edit(scene):
    for _ in range(3):
        narrow(scene)
        for _ in range(2):
            await scene.registrar.sync()
            await asyncio.sleep(SYNC_SECONDS)
        [own, *_] = scene.webhooks()[0]["namespaceSelector"]["matchExpressions"]
        assert "theirs" not in own["values"]
        assert "others" not in scene.registrar.problem


async def test_labels_by_which_others_exclude_namespaces_are_guarded_and_logged_once(scene):
    for webhook in scene.webhooks():
        term = {"key": "control-plane", "operator": "DoesNotExist"}
        webhook["namespaceSelector"]["matchExpressions"].append(term)
    [guard] = [
        each
        for each in guards(make.policy())
        if each["metadata"]["name"] == "fairgate-tenancy" and each["kind"] == GUARD
    ]
    scene.api.put(
        f"{ADMISSION}/validatingadmissionpolicies", "fairgate-tenancy", metadata=guard["metadata"], spec=guard["spec"]
    )
    for _ in range(3):
        await scene.registrar.sync()
    spec = scene.api.objects[GUARDS][f"/{TENANCY}"]["spec"]
    assert "control-plane" in str(spec["matchConditions"])
    assert "labels control-plane, fairgate.dev/exempt" in spec["validations"][0]["messageExpression"]
    said = [line for line in scene.lines() if line["event"] == "others exclude namespaces from the webhooks"]
    assert [line["labels"] for line in said] == [["control-plane"]]


def bound(scene):
    """The actions of each guard's binding."""
    return {
        each["metadata"]["name"]: each["spec"]["validationActions"] for each in scene.api.objects[BINDINGS].values()
    }


async def test_from_shadow_to_enforce_the_leader_has_guards_deny(scene):
    shadow = replace(make.policy(), enforce=Enforcement.SHADOW)
    for made in guards(shadow):
        if made["kind"] == BINDING:
            name = made["metadata"]["name"]
            spec = made["spec"] | {"matchResources": {"theirs": True}}
            scene.api.put(BINDINGS, name, metadata={"name": name}, spec=spec)
    scene.world.set_policy(shadow)
    await scene.registrar.sync()
    assert {tuple(each) for each in bound(scene).values()} == {("Audit",)}
    scene.world.set_policy(make.policy())
    await scene.registrar.sync()
    assert bound(scene)["fairgate-labels"] == ["Deny"]
    assert all("matchResources" in each["spec"] for each in scene.api.objects[BINDINGS].values())
    scene.world.set_policy(shadow)
    scene.api.always["put"] = Answer(403, message='bindings is forbidden: User "x" cannot update resource "bindings"')
    await scene.registrar.sync()
    assert "guards may not do what enforce says, apply `fairgate manifests` again: cannot update" in (
        scene.registrar.problem
    )


async def test_a_binding_that_cannot_be_changed_holds_up_neither_other_guards_nor_the_webhooks(scene):
    for made in guards(replace(make.policy(), enforce=Enforcement.SHADOW)):
        if made["kind"] == BINDING:
            name = made["metadata"]["name"]
            scene.api.put(BINDINGS, name, metadata={"name": name}, spec=made["spec"])
    refusal = Answer(422, message='spec.paramRef: Forbidden: user x does not have "list" permission')
    scene.api.faults[f"put {BINDINGS}/fairgate-held-bindings"].append(refusal)
    await scene.registrar.sync()
    assert 'does not have "list" permission' in scene.registrar.problem
    assert [name for name, actions in bound(scene).items() if actions == ["Audit"]] == ["fairgate-held-bindings"]
    await scene.registrar.sync()
    assert bound(scene)["fairgate-held-bindings"] == ["Deny"]


async def test_the_namespaces_of_teams_that_others_exclude_are_counted(scene):
    for name, labels in (("team-a", {"control-plane": "mine"}), ("team-b", {}), ("stray", {"control-plane": "mine"})):
        scene.world.set_namespace(NamespaceFacts(Namespace(name), labels))
    await scene.registrar.sync()
    assert [*scene.registrar.unreviewed()] == []
    for webhook in scene.webhooks():
        webhook["namespaceSelector"]["matchExpressions"].append({"key": "control-plane", "operator": "DoesNotExist"})
    await scene.registrar.sync()
    assert [*scene.registrar.unreviewed()] == ["1 namespace of team team-a"]


def collection(name):
    return f"{ADMISSION}/{PLURALS[name]}"


def delete(scene):
    for name in PLURALS:
        del scene.api.objects[collection(name)][f"/{name}"]


MISSING = [
    "MutatingWebhookConfiguration zz-fairgate is missing",
    "ValidatingWebhookConfiguration fairgate is missing",
]


async def test_deleted_webhooks_are_a_problem_at_the_next_sync_and_created_again_as_they_were(scene):
    scene.why_not = None
    scene.publish_ca()
    await scene.registrar.sync()
    await scene.registrar.sync()
    assert scene.registrar.problem is None
    before = [scene.api.objects[collection(name)][f"/{name}"]["webhooks"] for name in PLURALS]
    delete(scene)
    await scene.registrar.sync()
    assert list(scene.registrar.missing) == MISSING
    assert scene.registrar.problem == "; ".join(MISSING)
    assert not any(asked.verb == "post" for asked in scene.api.asked)  # an uninstallation takes the lead meanwhile
    await asyncio.sleep(RESTORE_SECONDS)
    await scene.registrar.sync()
    await scene.registrar.sync()
    assert [scene.api.objects[collection(name)][f"/{name}"]["webhooks"] for name in PLURALS] == before
    assert (scene.registrar.missing, scene.registrar.problem) == ((), None)


async def test_without_the_right_to_create_deleted_webhooks_stay_a_problem(scene):
    scene.why_not = None
    scene.publish_ca()
    await scene.registrar.sync()
    delete(scene)
    for name in PLURALS:
        scene.api.faults[f"post {collection(name)}"] += [Answer(403)] * 9
    await scene.registrar.sync()
    await asyncio.sleep(RESTORE_SECONDS)
    await scene.registrar.sync()
    assert all(text.startswith(f"{want}: ") for text, want in zip(scene.registrar.missing, MISSING, strict=True))


async def test_a_server_that_is_not_ready_puts_no_webhook_back(scene):
    await scene.registrar.sync()
    delete(scene)
    await scene.registrar.sync()
    await asyncio.sleep(RESTORE_SECONDS)
    await scene.registrar.sync()
    assert list(scene.registrar.missing) == MISSING
    assert not any(asked.verb == "post" for asked in scene.api.asked)


async def test_webhooks_that_were_deleted_before_a_term_stay_deleted(scene):
    scene.why_not = None
    scene.publish_ca()
    await scene.registrar.sync()
    delete(scene)
    running = asyncio.create_task(scene.registrar.run())
    await asyncio.sleep(3 * RESTORE_SECONDS)
    running.cancel()
    assert list(scene.registrar.missing) == MISSING
    assert not any(asked.verb == "post" for asked in scene.api.asked)


async def test_webhooks_that_api_servers_have_from_files_are_not_missing(scene):
    scene.registrar = RegistrationLoop(scene.context, why_not_serving=lambda: None, is_static=True)
    delete(scene)
    await scene.registrar.sync()
    assert (scene.registrar.missing, scene.registrar.problem) == ((), None)
