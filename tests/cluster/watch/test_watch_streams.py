"""A streamed list that continues as a watch: nothing is lost, and nothing is removed too early."""

import asyncio
import json
from dataclasses import replace

import pytest

from tests.cluster.support.fake_api import Answer, Body, CutMidLine, End, ErrorEvent, Lines, Silent, Slow
from tests.cluster.support.stores import FAST, PODS, fill, running, truth, until
from webhook.cluster.watch.watch import Watch


@pytest.fixture(autouse=True)
def streaming(api):
    api.streams_lists = True


async def test_one_request_lists_and_follows(api, book, watch):
    fill(api, 7)
    async with running(watch):
        await until(lambda: watch.synced)
        assert (book.held, watch.events) == (truth(api), 0)
        api.put(PODS, "new", namespace="nlp", spec={"gpus": 8})
        api.delete(PODS, "pod-0004", namespace="vision")
        await until(lambda: watch.events == 2)
        assert book.held == truth(api)
    assert [asked.verb for asked in api.asked] == ["stream"]
    want = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    assert want.items() <= api.asked[0].query.items()
    assert "resourceVersion" not in api.asked[0].query, "the newest state, not any"


async def test_a_stream_that_ends_after_its_list_is_followed_by_a_watch(api, watch):
    async with running(watch):
        await until(lambda: watch.synced and api.watchers)
        api.disturb(End())
        await until(lambda: api.count("watch") == 1)
    assert [asked.verb for asked in api.asked] == ["stream", "look", "watch"]
    assert api.asked[-1].query["resourceVersion"] == "100"


@pytest.mark.parametrize("status", [pytest.param(422, id="forbidden option"), pytest.param(400, id="bad request")])
async def test_a_server_that_cannot_stream_is_listed_by_pages(api, book, watch, status):
    fill(api, 7)
    api.always["stream"] = Answer(status)
    async with running(watch):
        await until(lambda: watch.synced and api.watchers)
    assert book.held == truth(api)
    assert [asked.verb for asked in api.asked] == ["stream", "list", "page", "page", "watch"]
    assert watch.problem is None


FAULTS = [
    pytest.param(Answer(500), id="an internal error"),
    pytest.param(Answer(429, retry_after="1"), id="a server that starts"),
    pytest.param(Answer(401), id="unauthorized once"),
    pytest.param(ErrorEvent(410), id="gone in the middle"),
    pytest.param(ErrorEvent(500), id="another error in the middle"),
    pytest.param(CutMidLine(), id="cut in the middle of a line"),
    pytest.param(Silent(), id="silent in the middle"),
    pytest.param(End(), id="ended in the middle"),
    pytest.param(Slow(30), id="no answer in time"),
    pytest.param(Body(b"<html>proxy</html>\n"), id="a line that is no event"),
    pytest.param(Body(b""), id="nothing at all"),
]


@pytest.mark.parametrize("fault", FAULTS)
async def test_recovers_from_a_stream_that_meets(api, book, watch, fault):
    fill(api, 7)
    api.faults["stream"].extend([fault, fault])
    async with running(watch):
        await until(lambda: watch.problem or watch.synced)
        await until(lambda: watch.synced and not api.faults["stream"])
        await until(lambda: book.held == truth(api) and watch.problem is None)
        api.put(PODS, "pod-0001", namespace="vision", spec={"gpus": 3})
        await until(lambda: book.held == truth(api))


@pytest.mark.parametrize("fault", [End(), ErrorEvent(410), CutMidLine(), Answer(500), Body(b"?\n")], ids=repr)
async def test_a_persistent_fault_causes_no_busy_loop(api, connection, book, fault):
    """Rests are at least 10, 20, 40, 40, 40 ms: six rounds take their sum."""
    fill(api, 7)
    api.always["stream"] = fault
    pace = replace(FAST, initial_backoff=0.02, max_backoff=0.08, settled=0.0)
    start = asyncio.get_running_loop().time()
    async with running(Watch(connection, book.kind(), pace=pace)):
        await until(lambda: api.count("stream") >= 6)
    assert asyncio.get_running_loop().time() - start >= 0.15


async def test_in_the_middle_of_a_new_list_nothing_is_removed_and_no_version_is_reached(api, book, watch):
    fill(api, 8)
    async with running(watch):
        await until(lambda: watch.synced and api.watchers)
        before, reached = dict(book.held), watch.reached
        api.always["stream"] = Silent()
        api.disturb(ErrorEvent(410))
        await until(lambda: not api.watchers)
        api.delete(PODS, "pod-0007", namespace="vision")
        api.put(PODS, "pod-0000", namespace="vision", spec={"gpus": 6})
        await until(lambda: "set pod-0000=6" in book.log)
        assert book.held.keys() == before.keys(), "what may still be there is held"
        assert (watch.reached, watch.relists) == (reached, 0)
        api.always.clear()
        await until(lambda: watch.relists == 1)
        assert book.held == truth(api)
        assert watch.reached == api.version


def event(kind, thing):
    return Lines(json.dumps({"type": kind, "object": thing}).encode() + b"\n")


async def test_an_object_deleted_during_the_list_is_removed(api, book, watch):
    fill(api, 2)
    first = api.objects[PODS]["vision/pod-0000"]
    api.faults["stream"].append(event("DELETED", first))
    async with running(watch):
        await until(lambda: watch.synced)
    assert first["metadata"]["uid"] not in book.held
    assert len(book.held) == 1


async def test_an_ordinary_bookmark_does_not_end_a_list(api, book, watch):
    fill(api, 4)
    api.faults["stream"].append(event("BOOKMARK", {"metadata": {"resourceVersion": "7"}}))
    async with running(watch):
        await until(lambda: watch.synced)
        assert book.held == truth(api)
        assert watch.reached == api.version


async def test_invalid_objects_do_not_block_a_list(api, book, watch):
    fill(api, 3)
    api.put(PODS, "pod-0000", namespace="vision", spec={"gpus": -1})
    api.put(PODS, "pod-0001", namespace="vision", spec="nonsense")
    async with running(watch):
        await until(lambda: watch.synced)
    assert (len(book.held), watch.rejected) == (1, 2)


async def test_a_list_without_version_is_requested_again(api, watch):
    end = {"metadata": {"annotations": {"k8s.io/initial-events-end": "true"}}}
    api.faults["stream"].append(Body(event("BOOKMARK", end).data))
    async with running(watch):
        await until(lambda: watch.problem)
        assert "has no resourceVersion" in watch.problem
        await until(lambda: watch.synced)
