"""Events on their way to the API server: one object for what repeats, and a writer that nobody waits for."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.cluster.support.fake_api import Answer, Slow
from tests.cluster.support.stores import FAST, until
from webhook.cluster.writes.correlation import BURST, REFILL_SECONDS, Correlator
from webhook.cluster.writes.events import TRIES, WAITING, EventWriter
from webhook.kube.objects.events import MAX_MESSAGE_BYTES, Event, EventReason, EventType, ObjectRef

EVENTS = "/api/v1/events"
POD = ObjectRef("Pod", "team-a", "train-0", "u1")
PROMOTED = Event(POD, EventType.NORMAL, EventReason.PROMOTED, "Promote", "2 GPUs became guaranteed")
WALL = datetime(2026, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def writing(connection):
    writer = EventWriter(connection, component="fairgate", instance="fairgate-0", pace=FAST, clock=lambda: WALL)
    task = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def kept(api):
    return list(api.objects[EVENTS].values())


async def test_an_event_is_what_kubectl_describe_looks_for(api, connection):
    async with writing(connection) as writer:
        writer.tell(PROMOTED)
        await until(lambda: writer.written)
    (event,) = kept(api)
    assert event.pop("metadata").items() >= {"name": PROMOTED.name, "namespace": "team-a"}.items()
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {"kind": "Pod", "namespace": "team-a", "name": "train-0", "uid": "u1", "apiVersion": "v1"},
        "type": "Normal",
        "reason": "Promoted",
        "action": "Promote",
        "message": "2 GPUs became guaranteed",
        "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "fairgate"},
        "reportingComponent": "fairgate",
        "reportingInstance": "fairgate-0",
    }


async def test_repeats_are_one_object_with_a_count(api, connection):
    async with writing(connection) as writer:
        for number in range(1, 4):
            writer.tell(PROMOTED)
            await until(lambda number=number: writer.written == number)
    assert [event["count"] for event in kept(api)] == [3]


async def test_repeats_that_wait_are_written_once(api, connection):
    async with writing(connection) as writer:
        for _ in range(5):
            writer.tell(PROMOTED)
        await until(lambda: writer.written)
    assert [event["count"] for event in kept(api)] == [5]
    assert (api.count("post"), api.count("patch")) == (1, 0)


async def test_an_event_that_expired_meanwhile_is_made_again(api, connection):
    async with writing(connection) as writer:
        writer.tell(PROMOTED)
        await until(lambda: writer.written == 1)
        api.delete(EVENTS, PROMOTED.name, namespace="team-a")
        writer.tell(PROMOTED)
        await until(lambda: writer.written == 2)
    assert [event["count"] for event in kept(api)] == [2]


async def test_another_replica_tells_the_same_thing_only_once(api, connection):
    for _ in range(2):
        async with writing(connection) as writer:
            writer.tell(PROMOTED)
            await until(lambda writer=writer: writer.written)
    assert len(kept(api)) == 1


async def test_an_object_without_a_namespace_has_its_events_in_default(api, connection):
    async with writing(connection) as writer:
        writer.tell(replace(PROMOTED, about=ObjectRef("TeamLedger", "", "a", "u9", "fairgate.dev/v1alpha1")))
        await until(lambda: writer.written)
    (event,) = kept(api)
    assert event["metadata"]["namespace"] == "default"
    assert "namespace" not in event["involvedObject"]


async def test_a_server_that_fails_for_a_while_is_tried_again(api, connection):
    api.faults["post"].extend([Answer(500), Answer(429, "1"), Answer(503)])
    async with writing(connection) as writer:
        writer.tell(PROMOTED)
        await until(lambda: writer.written)
    assert writer.dropped == 0
    assert len(kept(api)) == 1


@pytest.mark.parametrize(("status", "tries"), [(403, 1), (404, 1), (422, 1), (500, TRIES)])
async def test_what_cannot_be_written_is_dropped_counted_and_stops_nobody(api, connection, status, tries):
    api.faults["post"].extend([Answer(status)] * tries)
    async with writing(connection) as writer:
        writer.tell(PROMOTED)
        writer.tell(replace(PROMOTED, message="the next one"))
        await until(lambda: writer.written)
    assert writer.dropped == 1
    assert [event["message"] for event in kept(api)] == ["the next one"]


async def test_a_full_queue_drops_and_never_blocks(api, connection):
    api.always["post"] = Slow(30)
    async with writing(connection) as writer:
        for number in range(WAITING + 12):
            writer.tell(replace(PROMOTED, about=replace(POD, uid=str(number))))
        assert writer.dropped == 12


def test_an_object_cannot_flood_with_one_reason_and_gets_its_turn_again():
    correlator = Correlator()
    texts = [replace(PROMOTED, message=str(number)) for number in range(BURST + 5)]
    taken = [correlator.take(event, now=0.0, wall=WALL) is not None for event in texts]
    assert taken == [True] * BURST + [False] * 5
    other = replace(PROMOTED, reason=EventReason.DEMOTED)
    assert correlator.take(other, now=0.0, wall=WALL) is not None
    elsewhere = replace(PROMOTED, about=replace(POD, uid="u2"))
    assert correlator.take(elsewhere, now=0.0, wall=WALL) is not None
    assert correlator.take(texts[-1], now=REFILL_SECONDS, wall=WALL) is not None


def test_a_repeat_that_was_held_back_is_in_the_next_count():
    correlator = Correlator()
    for _ in range(BURST + 3):
        correlator.take(PROMOTED, now=0.0, wall=WALL)
    told = correlator.take(PROMOTED, now=REFILL_SECONDS, wall=WALL + timedelta(minutes=5))
    assert told is not None
    assert (told.count, told.first, told.last) == (BURST + 4, WALL, WALL + timedelta(minutes=5))


def test_names_are_names_however_long_the_objects_is():
    long = replace(PROMOTED, about=replace(POD, name="a" * 235 + "-" + "b" * 17))
    assert len(long.name) <= 253
    assert "-." not in long.name


async def test_a_long_message_is_cut_to_what_the_api_takes(api, connection):
    async with writing(connection) as writer:
        writer.tell(replace(PROMOTED, message="é" * 2000))
        await until(lambda: writer.written)
    (event,) = kept(api)
    assert MAX_MESSAGE_BYTES - 4 <= len(event["message"].encode()) <= MAX_MESSAGE_BYTES
    assert event["message"].endswith("…")
