"""The CustomResourceDefinition: found, created, or reported as missing with advice for an admin."""

import asyncio
from contextlib import suppress

import pytest

from tests.cluster.support.fake_api import Answer, Cut
from tests.cluster.support.stores import FAST, until
from webhook.cluster.writes.reports import CrdInstaller
from webhook.kube.ledger.reports import definition as definition_of

PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MANIFEST = definition_of("Thing", "things", {"type": "object", "properties": {"ledger": {"type": "string"}}})
ESTABLISHED = {"conditions": [{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}]}


@pytest.fixture
def definition(connection):
    return CrdInstaller(connection, MANIFEST, pace=FAST, check_seconds=0.01)


@pytest.fixture
async def installing(definition):
    task = asyncio.create_task(definition.run())
    yield task
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.usefixtures("installing")
async def test_an_established_definition_is_not_changed(api, definition):
    api.put(PATH, "things.fairgate.dev", spec=MANIFEST["spec"], status=ESTABLISHED)
    await until(lambda: api.count("get") >= 2)
    assert definition.problem is None
    assert api.count("post") == 0


@pytest.mark.usefixtures("installing")
async def test_one_that_is_deleted_by_hand_is_created_again(api, definition):
    api.put(PATH, "things.fairgate.dev", spec=MANIFEST["spec"], status=ESTABLISHED)
    await until(lambda: definition.problem is None)
    api.delete(PATH, "things.fairgate.dev")
    await until(lambda: api.objects[PATH])
    assert api.count("post") == 1
    assert definition.problem is None, "charges fail for a moment, with an answer that is tried again"


@pytest.mark.usefixtures("installing")
async def test_one_that_would_lose_fields_is_reported_until_an_admin_has_replaced_it(api, definition):
    older = definition_of("Thing", "things", {"type": "object"})
    api.put(PATH, "things.fairgate.dev", spec=older["spec"], status=ESTABLISHED)
    await until(lambda: "things.fairgate.dev is not this version's: it lacks the fields ledger" in definition.problem)
    assert "an admin can apply it: `fairgate manifests` prints it" in definition.problem
    assert {asked.verb for asked in api.asked} == {"get"}
    api.put(PATH, "things.fairgate.dev", spec=MANIFEST["spec"], status=ESTABLISHED)
    await until(lambda: definition.problem is None)


@pytest.mark.usefixtures("installing")
async def test_a_missing_definition_is_created_and_awaited(api, definition):
    await until(lambda: api.count("get") >= 2)
    assert api.objects[PATH]["/things.fairgate.dev"]["spec"] == MANIFEST["spec"]
    api.put(PATH, "things.fairgate.dev", spec=MANIFEST["spec"], status={"conditions": None})
    assert definition.problem is not None
    api.put(PATH, "things.fairgate.dev", spec=MANIFEST["spec"], status=ESTABLISHED)
    await until(lambda: definition.problem is None)


@pytest.mark.parametrize("verb", ["get", "post"])
@pytest.mark.usefixtures("installing")
async def test_without_the_right_to_create_it_the_problem_says_what_to_do(api, definition, verb):
    api.always[verb] = Answer(403)
    await until(lambda: "an admin can apply it: `fairgate manifests` prints it" in (definition.problem or ""))
    assert f"the verb {'create' if verb == 'post' else 'get'} on customresourcedefinitions" in definition.problem
    api.always.clear()
    api.put(PATH, "things.fairgate.dev", spec=MANIFEST["spec"], status=ESTABLISHED)
    await until(lambda: definition.problem is None)


@pytest.mark.parametrize("fault", [Cut(is_carried_out=False), Answer(429), Answer(500), Answer(503)])
@pytest.mark.usefixtures("installing")
async def test_once_established_a_check_without_an_answer_changes_nothing(api, definition, fault):
    api.put(PATH, "things.fairgate.dev", spec=MANIFEST["spec"], status=ESTABLISHED)
    await until(lambda: definition.problem is None)
    failing = api.count("get")
    api.always["get"] = fault
    await until(lambda: api.count("get") >= failing + 3)
    assert definition.problem is None
    api.always["get"] = Answer(403)
    await until(lambda: definition.problem is not None)
