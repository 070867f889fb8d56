"""Events from now on: earlier ones are not listed, and a broken stream is opened again."""

import asyncio
from contextlib import asynccontextmanager

from tests.cluster.support.fake_api import Answer, End, Lines
from tests.cluster.support.stores import FAST, until
from webhook.cluster.watch.event_stream import PATH, EventStream
from webhook.kube.pod.outcomes import RefusalEvent

SELECTOR = "reason=Refused,reportingComponent=fairgate"


@asynccontextmanager
async def following(connection):
    received = []
    stream = EventStream(
        connection,
        RefusalEvent,
        selector=SELECTOR,
        receive=lambda event: received.append(event.metadata.namespace),
        pace=FAST,
    )
    task = asyncio.create_task(stream.run())
    try:
        yield stream, received
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def happen(api, name, namespace):
    api.put(PATH, name, namespace=namespace, reason="Refused", reportingComponent="fairgate")


async def test_new_events_are_received_and_earlier_ones_are_not_listed(api, connection):
    happen(api, "old", "before")
    happen(api, "older", "before")
    async with following(connection) as (stream, received):
        await stream.is_following.wait()
        happen(api, "new", "team-a")
        happen(api, "new", "team-b")
        await until(lambda: len(received) == 2)
    assert received == ["team-a", "team-b"]
    looks = [asked.query for asked in api.asked if asked.verb == "look"]
    assert looks == [{"limit": "1"}]
    [watched] = [asked.query for asked in api.asked if asked.verb == "watch"]
    assert watched["fieldSelector"] == SELECTOR


async def test_a_stream_that_ends_or_fails_is_opened_again(api, connection):
    api.faults["look"].append(Answer(403))
    api.faults["watch"].append(Answer(410))
    async with following(connection) as (stream, received):
        await until(lambda: stream.problem)
        await stream.is_following.wait()
        assert stream.problem is None
        api.disturb(End())
        await until(lambda: not stream.is_following.is_set())
        await stream.is_following.wait()
        happen(api, "new", "team-a")
        await until(lambda: received)


async def test_malformed_lines_are_skipped(api, connection):
    async with following(connection) as (stream, received):
        await stream.is_following.wait()
        for line in (
            b"\n",
            b"malformed\n",
            b'{"type":"ADDED","object":{"reason":7}}\n',
            b'{"type":"ERROR","object":{}}\n',
        ):
            api.disturb(Lines(line))
        happen(api, "new", "team-a")
        await until(lambda: received)
    assert received == ["team-a"]
