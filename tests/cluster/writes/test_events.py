"""Writing Events: one object for repeats, and a writer that never blocks its callers."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from tests.cluster.support.fake_api import Answer, Slow
from tests.cluster.support.stores import FAST, until
from webhook.cluster.writes.events import BURST, REFILL_SECONDS, TRIES, WAITING, Correlator, EventWriter
from webhook.kube.objects.events import MAX_MESSAGE_BYTES, Event, EventReason, ObjectRef

EVENTS = "/api/v1/events"
POD = ObjectRef("Pod", "team-a", "train-0", "u1")
PROMOTED = Event(POD, EventReason.PROMOTED, "2 GPUs became guaranteed")
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


async def test_an_event_has_the_fields_that_kubectl_describe_reads(api, connection):
    async with writing(connection) as writer:
        writer.record(PROMOTED)
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
            writer.record(PROMOTED)
            await until(lambda number=number: writer.written == number)
    assert [event["count"] for event in kept(api)] == [3]


async def test_repeats_that_wait_are_written_once(api, connection):
    async with writing(connection) as writer:
        for _ in range(5):
            writer.record(PROMOTED)
        await until(lambda: writer.written)
    assert [event["count"] for event in kept(api)] == [5]
    assert (api.count("post"), api.count("patch")) == (1, 0)


async def test_an_expired_event_is_created_again(api, connection):
    async with writing(connection) as writer:
        writer.record(PROMOTED)
        await until(lambda: writer.written == 1)
        api.delete(EVENTS, PROMOTED.name, namespace="team-a")
        writer.record(PROMOTED)
        await until(lambda: writer.written == 2)
    assert [event["count"] for event in kept(api)] == [2]


async def test_an_event_of_two_replicas_is_written_once(api, connection):
    for _ in range(2):
        async with writing(connection) as writer:
            writer.record(PROMOTED)
            await until(lambda writer=writer: writer.written)
    assert len(kept(api)) == 1


async def test_an_object_without_a_namespace_has_its_events_in_default(api, connection):
    async with writing(connection) as writer:
        writer.record(replace(PROMOTED, about=ObjectRef("TeamLedger", "", "a", "u9", "fairgate.dev/v1alpha1")))
        await until(lambda: writer.written)
    (event,) = kept(api)
    assert event["metadata"]["namespace"] == "default"
    assert "namespace" not in event["involvedObject"]


async def test_a_failing_server_is_retried(api, connection):
    api.faults["post"].extend([Answer(500), Answer(429, "1"), Answer(503)])
    async with writing(connection) as writer:
        writer.record(PROMOTED)
        await until(lambda: writer.written)
    assert writer.dropped == 0
    assert len(kept(api)) == 1


@pytest.mark.parametrize(("status", "tries"), [(403, 1), (404, 1), (422, 1), (500, TRIES)])
async def test_an_event_that_cannot_be_written_is_dropped_and_counted(api, connection, status, tries):
    api.faults["post"].extend([Answer(status)] * tries)
    async with writing(connection) as writer:
        writer.record(PROMOTED)
        writer.record(replace(PROMOTED, message="the next one"))
        await until(lambda: writer.written)
    assert writer.dropped == 1
    assert [event["message"] for event in kept(api)] == ["the next one"]


async def test_a_full_queue_drops_and_never_blocks(api, connection):
    api.always["post"] = Slow(30)
    async with writing(connection) as writer:
        for number in range(WAITING + 12):
            writer.record(replace(PROMOTED, about=msgspec.structs.replace(POD, uid=str(number))))
        assert writer.dropped == 12


def test_events_of_one_object_and_reason_are_limited():
    correlator = Correlator()
    texts = [replace(PROMOTED, message=str(number)) for number in range(BURST + 5)]
    taken = [correlator.count(event, now=0.0, wall=WALL) is not None for event in texts]
    assert taken == [True] * BURST + [False] * 5
    other = replace(PROMOTED, reason=EventReason.DEMOTED)
    assert correlator.count(other, now=0.0, wall=WALL) is not None
    elsewhere = replace(PROMOTED, about=msgspec.structs.replace(POD, uid="u2"))
    assert correlator.count(elsewhere, now=0.0, wall=WALL) is not None
    assert correlator.count(texts[-1], now=REFILL_SECONDS, wall=WALL) is not None


def test_a_repeat_that_was_held_back_is_in_the_next_count():
    correlator = Correlator()
    for _ in range(BURST + 3):
        correlator.count(PROMOTED, now=0.0, wall=WALL)
    record = correlator.count(PROMOTED, now=REFILL_SECONDS, wall=WALL + timedelta(minutes=5))
    assert record is not None
    assert (record.count, record.first, record.last) == (BURST + 4, WALL, WALL + timedelta(minutes=5))


def test_the_name_of_an_event_is_valid_for_any_object_name():
    long = replace(PROMOTED, about=msgspec.structs.replace(POD, name="a" * 235 + "-" + "b" * 17))
    assert len(long.name) <= 253
    assert "-." not in long.name


async def test_a_long_message_is_cut_to_the_limit_of_the_api(api, connection):
    async with writing(connection) as writer:
        writer.record(replace(PROMOTED, message="é" * 2000))
        await until(lambda: writer.written)
    (event,) = kept(api)
    assert MAX_MESSAGE_BYTES - 4 <= len(event["message"].encode()) <= MAX_MESSAGE_BYTES
    assert event["message"].endswith("…")
