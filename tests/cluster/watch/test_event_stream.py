"""Events from now on: nothing that came before is asked for, and what breaks is begun again."""

import asyncio
from contextlib import asynccontextmanager

from tests.cluster.support.fake_api import Answer, End, Tell
from tests.cluster.support.stores import FAST, until
from webhook.cluster.watch.event_stream import PATH, EventStream
from webhook.kube.reclaim.controller_retries import RefusalEvent

SELECTOR = "reason=Refused,reportingComponent=fairgate"


@asynccontextmanager
async def following(connection):
    heard = []
    stream = EventStream(
        connection,
        RefusalEvent,
        selector=SELECTOR,
        take=lambda event: heard.append(event.metadata.namespace),
        pace=FAST,
    )
    task = asyncio.create_task(stream.run())
    try:
        yield stream, heard
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def happen(api, name, namespace):
    api.put(PATH, name, namespace=namespace, reason="Refused", reportingComponent="fairgate")


async def test_what_comes_is_told_and_what_came_before_is_not_even_listed(api, connection):
    happen(api, "old", "before")
    happen(api, "older", "before")
    async with following(connection) as (stream, heard):
        await stream.is_following.wait()
        happen(api, "new", "team-a")
        happen(api, "new", "team-b")
        await until(lambda: len(heard) == 2)
    assert heard == ["team-a", "team-b"]
    lists = [asked.query for asked in api.asked if asked.verb == "list"]
    assert lists == [{"limit": "1"}]
    [watched] = [asked.query for asked in api.asked if asked.verb == "watch"]
    assert watched["fieldSelector"] == SELECTOR


async def test_a_stream_that_ends_or_is_refused_is_begun_again(api, connection):
    api.faults["list"].append(Answer(403))
    api.faults["watch"].append(Answer(410))
    async with following(connection) as (stream, heard):
        await until(lambda: stream.problem)
        await stream.is_following.wait()
        assert stream.problem is None
        api.disturb(End())
        await until(lambda: not stream.is_following.is_set())
        await stream.is_following.wait()
        happen(api, "new", "team-a")
        await until(lambda: heard)


async def test_lines_that_make_no_sense_are_passed_over(api, connection):
    async with following(connection) as (stream, heard):
        await stream.is_following.wait()
        for line in (
            b"\n",
            b"rubbish\n",
            b'{"type":"ADDED","object":{"reason":7}}\n',
            b'{"type":"ERROR","object":{}}\n',
        ):
            api.disturb(Tell(line))
        happen(api, "new", "team-a")
        await until(lambda: heard)
    assert heard == ["team-a"]
