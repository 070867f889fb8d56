"""The leader publishes the room: after a change, again after a while, and never from a world that is not current."""

import asyncio

import pytest

from tests.cluster.support.fake_api import Answer
from tests.core.support.make import node, resident, world
from webhook.addons.viewers import server as publishing
from webhook.addons.viewers.room_report import read_room
from webhook.addons.viewers.server import RoomPublisher
from webhook.cluster.writes.reports import read_report
from webhook.core.model.amounts import NodeName
from webhook.kube.ledger import reports


@pytest.fixture
def full():
    return world(nodes=[node("n0")])


@pytest.fixture
def publisher(connection, full):
    return RoomPublisher(connection, full, why_stale=lambda: None)


async def published(connection):
    return (await read_report(connection, reports.ROOM)).room


async def test_a_change_is_published_and_the_same_is_not_written_again(api, connection, full, publisher):
    await publisher.publish()
    await publisher.publish()
    assert api.count("patch") == 1
    assert [each.name for each in read_room(await published(connection)).nodes] == ["n0"]
    full.set_pod(resident(2, node=NodeName("n0")))
    await publisher.publish()
    assert (await published(connection)).pods == 1
    assert api.count("patch") == 2


async def test_the_same_is_written_again_after_a_while(api, publisher, monkeypatch):
    await publisher.publish()
    monkeypatch.setattr(publishing, "REPEAT_SECONDS", 0.0)
    await publisher.publish()
    assert api.count("patch") == 2


async def test_a_world_that_is_not_current_is_not_published(api, connection, full):
    publisher = RoomPublisher(connection, full, why_stale=lambda: "the watch of pods is silent")
    await publisher.publish()
    assert api.count("patch") == 0


async def test_a_leader_publishes_as_soon_as_its_world_is_current(api, connection, full):
    stale = ["the watch of pods is silent"]
    publisher = RoomPublisher(connection, full, why_stale=lambda: stale[0] if stale else None)
    running = asyncio.create_task(publisher.run())
    await asyncio.sleep(2.5 * publishing.STALE_SECONDS)
    assert api.count("patch") == 0
    stale.clear()
    await asyncio.sleep(2 * publishing.STALE_SECONDS)
    assert api.count("patch") == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_missing_right_is_a_problem_until_it_is_granted(api, publisher):
    api.always["patch"] = Answer(403)
    await publisher.publish()
    assert "RBAC must grant this user the verb patch on reports" in publisher.writer.problem
    del api.always["patch"]
    await publisher.publish()
    assert publisher.writer.problem is None


async def test_however_often_the_world_changes_it_is_looked_at_after_a_pause(api, full, publisher, monkeypatch):
    pauses = []

    async def sleep(seconds):
        if seconds:
            pauses.append(seconds)
            full.set_pod(resident(1, node=NodeName("n0")))
        if len(pauses) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr(publishing.asyncio, "sleep", sleep)
    monkeypatch.setattr(publishing.time, "process_time", iter(range(100)).__next__)
    with pytest.raises(asyncio.CancelledError):
        await publisher.run()
    assert api.count("patch") == 3
    assert pauses == [publishing.PAUSES] * 3, "one second of work is followed by fifty without"
