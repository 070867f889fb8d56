"""The version that a watch has reached: never beyond what was applied, in any order of lists, events and faults."""

import pytest

from tests.cluster.support.fake_api import Answer, End, ErrorEvent
from tests.cluster.support.stores import FAST, PODS, Book, running, truth, until
from webhook.cluster.watch.event_stream import WatchPosition
from webhook.cluster.watch.watch import Watch


@pytest.fixture(params=[pytest.param(True, id="streamed"), pytest.param(False, id="by pages")])
def server(api, request):
    api.streams_lists = request.param
    for number in range(7):
        api.put(PODS, f"pod-{number}", namespace="vision", spec={"gpus": 1})
    return api


@pytest.fixture
def watch(connection):
    return Watch(connection, Book().kind(), pace=FAST)


async def test_nothing_before_a_list_is_complete_then_its_version(server, watch):
    server.always["stream" if server.streams_lists else "page"] = Answer(500)
    assert watch.reached == 0
    async with running(watch):
        await until(lambda: watch.problem)
        assert watch.reached == 0
        server.always.clear()
        await until(lambda: watch.synced)
        assert watch.reached == server.version


async def test_events_and_bookmarks_advance_it(server, watch):
    async with running(watch):
        await until(lambda: watch.synced and server.watchers)
        changed = server.put(PODS, "pod-1", namespace="vision", spec={"gpus": 2})
        await until(lambda: watch.events == 1)
        assert watch.reached == int(changed["metadata"]["resourceVersion"])
        server.delete(PODS, "pod-2", namespace="vision")
        await until(lambda: watch.events == 2)
        assert watch.reached == server.version
        server.version += 50  # of other kinds
        await until(lambda: watch.reached == server.version)


async def test_it_stays_in_mid_list_and_is_set_after_it_even_to_less(server, watch):
    """A cluster that was restored from a backup has smaller versions than we saw."""
    server.put(PODS, "pod-0", namespace="vision", spec={"gpus": 2})
    async with running(watch):
        await until(lambda: watch.synced and server.watchers)
        before = watch.reached
        server.always["stream" if server.streams_lists else "page"] = Answer(500)
        server.disturb(ErrorEvent(410))
        await until(lambda: watch.problem and "500" in watch.problem)
        assert watch.reached == before
        server.version = 50
        server.history.clear()
        server.always.clear()
        await until(lambda: watch.relists == 1)
        assert watch.reached == 50


async def test_a_restored_etcd_is_noticed_though_the_server_accepts_watches_from_versions_to_come(server, connection):
    restored, book = [], Book()
    watch = Watch(connection, book.kind(), pace=FAST, on_restored=restored.append)
    async with running(watch):
        await until(lambda: watch.synced and server.watchers)
        for number in range(7, 20):
            server.put(PODS, f"pod-{number}", namespace="vision", spec={"gpus": 1})
        await until(lambda: watch.reached == server.version)
        server.objects[PODS] = {key: server.objects[PODS][key] for key in [*server.objects[PODS]][:5]}
        server.always["stream" if server.streams_lists else "page"] = Answer(500)
        server.restore(105)
        await until(lambda: restored)
        assert watch.reached == 0, "what was applied did not happen"
        server.put(PODS, "afterwards", namespace="vision", spec={"gpus": 4})
        server.always.clear()
        await until(lambda: book.held == truth(server))
        assert watch.reached == 106
    want = "pods are at resourceVersion 105, and 120 was seen before: etcd was restored from a backup"
    assert [*map(str, restored)] == [want]


async def test_a_server_that_is_as_far_or_farther_was_not_restored(server, connection):
    restored = []
    watch = Watch(connection, Book().kind(), pace=FAST, on_restored=restored.append)
    async with running(watch):
        for more in (0, 3):
            await until(lambda: watch.synced and server.watchers)
            server.version += more
            before = server.count("watch")
            server.disturb(End())
            await until(lambda before=before: server.count("watch") > before and server.watchers)
    assert (restored, watch.relists) == ([], 0)


def test_the_version_of_a_line_is_decoded_on_demand():
    position = WatchPosition()
    position.set("7")
    position.advance(b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"9"},"spec":{}}}')
    assert (position.reached, position.version) == (9, "9")


def test_losing_track_keeps_what_was_reached():
    position = WatchPosition()
    position.set("7")
    position.advance(b'{"object":{"metadata":{"resourceVersion":"9"}}}')
    position.reset()
    assert (position.reached, position.version) == (9, "")


@pytest.mark.parametrize("line", [b'{"object":{}}', b'{"object":7}', b"?"])
def test_a_line_without_version_requires_a_list(line):
    position = WatchPosition()
    position.set("7")
    position.advance(line)
    assert (position.version, position.reached) == ("", 7)
