"""One kind against a faulty server: in the end the sink equals the server."""

import asyncio
import json
from dataclasses import replace
from itertools import count

import pytest

from tests.cluster.support.fake_api import Answer, Body, Brief, CutMidLine, End, ErrorEvent, Silent, Slow
from tests.cluster.support.stores import FAST, PODS, fill, running, truth, until
from webhook.cluster.watch.watch import Watch


async def test_lists_by_pages_and_follows_changes(api, book, watch):
    fill(api, 7)
    async with running(watch):
        await until(lambda: watch.synced)
        assert book.held == truth(api)
        assert (api.count("list"), api.count("page")) == (1, 2)
        api.put(PODS, "new", namespace="nlp", spec={"gpus": 8})
        api.put(PODS, "pod-0001", namespace="vision", spec={"gpus": 5})
        api.put(PODS, "pod-0002", namespace="vision", spec={"gpus": 0})
        api.put(PODS, "pod-0003", namespace="vision", spec={"gpus": 1}, status={"phase": "Succeeded"})
        api.delete(PODS, "pod-0004", namespace="vision")
        await until(lambda: watch.events == 5)
        assert book.held == truth(api)
    assert watch.relists == 0
    assert watch.problem is None


async def test_an_empty_list_counts_as_synced(book, watch):
    async with running(watch):
        await until(lambda: watch.synced)
    assert book.log == []


WATCH_FAULTS = [
    pytest.param(Answer(500), id="an internal error"),
    pytest.param(Answer(410), id="gone as HTTP status"),
    pytest.param(Answer(429, retry_after="1"), id="too many requests"),
    pytest.param(Answer(401), id="unauthorized once"),
    pytest.param(Answer(302), id="a redirect that must not be followed"),
    pytest.param(ErrorEvent(410), id="gone as event"),
    pytest.param(ErrorEvent(500), id="another error as event"),
    pytest.param(CutMidLine(), id="cut in the middle of a line"),
    pytest.param(Silent(), id="silent half-open connection"),
    pytest.param(End(), id="ended at once"),
    pytest.param(Body(b"<html>proxy</html>\n"), id="a line that is no event"),
    pytest.param(Body(b'{"type":"ERROR","object":7}\n'), id="an error that is no status"),
    pytest.param(Body(b'{"type":"BOOKMARK","object":{}}\n'), id="a bookmark without version"),
    pytest.param(Body(b'{"type":"LATER","object":{}}\n'), id="an event type of the future"),
]


@pytest.mark.parametrize("fault", WATCH_FAULTS)
async def test_recovers_from_a_watch_that_meets(api, book, watch, fault):
    fill(api, 5)
    api.faults["watch"].extend([fault, fault])
    async with running(watch):
        await until(lambda: watch.synced)
        fill(api, 8)
        api.delete(PODS, "pod-0000", namespace="vision")
        await until(lambda: not api.faults["watch"] and book.held == truth(api))
        api.put(PODS, "pod-0001", namespace="vision", spec={"gpus": 3})
        await until(lambda: book.held == truth(api) and watch.problem is None)


LIST_FAULTS = [
    pytest.param("list", Answer(500), id="an internal error"),
    pytest.param("list", Answer(401), id="unauthorized"),
    pytest.param("list", Slow(30), id="no answer in time"),
    pytest.param("list", Body(b"<html>proxy</html>"), id="no list"),
    pytest.param("list", Body(b'{"metadata":{},"items":[]}'), id="a list without version"),
    pytest.param("page", Answer(410), id="gone on a later page"),
    pytest.param("page", Answer(503), id="unavailable on a later page"),
]


@pytest.mark.parametrize(("verb", "fault"), LIST_FAULTS)
async def test_recovers_from_a_list_that_meets(api, book, watch, verb, fault):
    fill(api, 7)
    api.faults[verb].extend([fault, fault])
    async with running(watch):
        await until(lambda: watch.problem)
        assert not watch.synced
        await until(lambda: watch.synced)
        assert book.held == truth(api)
        assert watch.problem is None


async def test_a_slow_list_is_waited_for(api, book, watch):
    fill(api, 7)
    api.always["page"] = Slow(0.1)
    async with running(watch):
        await until(lambda: watch.synced)
    assert book.held == truth(api)
    assert api.count("list") == 1


async def test_a_relist_removes_deleted_objects_and_nothing_else(api, book, watch):
    fill(api, 9)
    async with running(watch):
        await until(lambda: watch.synced and api.watchers)
        gone = api.objects[PODS]["vision/pod-0004"]["metadata"]["uid"]
        api.faults["watch"].append(Answer(500))
        api.disturb(End())
        await until(lambda: not api.watchers)
        api.delete(PODS, "pod-0004", namespace="vision")
        api.forget_history()
        await until(lambda: watch.relists == 1)
    assert book.held == truth(api)
    assert [line for line in book.log if line.startswith("remove")] == [f"remove {gone}"]


async def test_a_relist_that_fails_half_way_removes_nothing(api, book, watch):
    fill(api, 7)
    async with running(watch):
        await until(lambda: watch.synced and api.watchers)
        api.always["page"] = Answer(500)
        api.disturb(ErrorEvent(410))
        await until(lambda: api.count("list") >= 3)
        assert book.held == truth(api)
        del api.always["page"]
        await until(lambda: watch.relists == 1)
    assert not any(line.startswith("remove") for line in book.log)


async def test_an_object_recreated_under_its_name_replaces_the_old_one(api, book, watch):
    old = api.put(PODS, "same", namespace="vision", spec={"gpus": 2})["metadata"]["uid"]
    async with running(watch):
        await until(lambda: watch.synced and api.watchers)
        watching = api.watchers.copy()
        api.watchers.clear()  # no watcher receives what follows
        api.delete(PODS, "same", namespace="vision")
        api.put(PODS, "same", namespace="vision", spec={"gpus": 3})
        api.forget_history()
        api.watchers.update(watching)
        api.disturb(ErrorEvent(410))
        await until(lambda: watch.relists == 1)
    assert book.held == truth(api)
    assert book.log == ["set same=2", f"remove {old}", "set same=3"]


@pytest.mark.parametrize("is_there_first", [pytest.param(True, id="listed"), pytest.param(False, id="watched")])
async def test_a_line_larger_than_any_buffer_is_read(api, book, watch, is_there_first):
    def put_huge():
        api.put(PODS, "huge", namespace="vision", spec={"gpus": 4}, note="x" * 1_500_000)

    if is_there_first:
        put_huge()
    async with running(watch):
        await until(lambda: watch.synced)
        if not is_there_first:
            put_huge()
        await until(lambda: book.held == truth(api))
    assert watch.problem is None


async def test_invalid_objects_are_skipped_and_keep_their_earlier_state(api, book, watch):
    fill(api, 4)
    async with running(watch):
        await until(lambda: watch.synced and api.watchers)
        want = dict(book.held)
        api.put(PODS, "pod-0000", namespace="vision", spec={"gpus": -1})  # the translation refuses it
        api.put(PODS, "pod-0001", namespace="vision", spec="nonsense")  # not even of its type
        api.put(PODS, "pod-0002", namespace="vision", spec={"gpus": 9})
        want[api.objects[PODS]["vision/pod-0002"]["metadata"]["uid"]] = 9
        await until(lambda: watch.events == 3)
        assert (book.held, watch.rejected) == (want, 2)
        api.disturb(ErrorEvent(410))
        await until(lambda: watch.relists == 1)
        assert (book.held, watch.rejected) == (want, 4)
        api.delete(PODS, "pod-0001", namespace="vision")
        await until(lambda: watch.events == 4)
    assert len(book.held) == 3


async def test_a_bug_in_the_translation_ends_the_watch(api, connection, book):
    def apply(_thing):
        raise KeyError("a bug")

    fill(api, 1)
    watch = Watch(connection, replace(book.kind(), apply=apply), pace=FAST)
    with pytest.raises(KeyError, match="a bug"):
        await watch.run()


async def test_no_slice_is_longer_than_configured(api, connection, book):
    """Counts objects between two turns of another task: a stall is a number here, not a time."""
    ticks = count()
    pace = replace(FAST, page=500, slice_seconds=100, clock=lambda: float(next(ticks)))
    watch = Watch(connection, book.kind(), pace=pace)
    fill(api, 1200)
    again = [json.dumps({"type": "MODIFIED", "object": thing}) for thing in api.objects[PODS].values()]
    api.faults["watch"].append(Body("\n".join([*again, ""]).encode()))
    slices = []

    async def others():
        done = 0
        while True:
            slices.append(len(book.log) - done)
            done = len(book.log)
            await asyncio.sleep(0)

    turns = asyncio.create_task(others())
    async with running(watch):
        await until(lambda: watch.events == 1200 and api.watchers)  # all came at once
        api.objects[PODS].clear()  # 1,200 objects are deleted without an event
        api.disturb(ErrorEvent(410))
        listed = len(book.log)
        await until(lambda: not book.held)
    turns.cancel()
    assert len(book.log) == listed + 1200
    assert max(slices) in range(90, 101)


@pytest.mark.parametrize(
    ("verb", "fault", "requests", "seconds"),
    [
        pytest.param("list", Answer(500), 6, 0.15, id="lists that fail"),
        pytest.param("list", Answer(401), 12, 0.15, id="credentials refused, and refused again once renewed"),
        pytest.param("page", Answer(410), 6, 0.15, id="pages that are gone"),
        pytest.param("watch", Answer(500), 6, 0.15, id="watches that fail"),
        pytest.param("watch", Answer(410), 6, 0.15, id="watches that are gone at once"),
        pytest.param("watch", ErrorEvent(410), 6, 0.15, id="watches that end with 410 at once"),
        pytest.param("watch", End(), 6, 0.15, id="watches that end at once"),
        pytest.param("watch", Body(b"?\n"), 6, 0.15, id="watches without sense"),
        pytest.param("watch", CutMidLine(), 6, 0.15, id="watches that are cut"),
        pytest.param("watch", Brief(), 6, 0.05, id="watches that end early but bring something"),
    ],
)
async def test_a_persistent_fault_causes_no_busy_loop(api, connection, book, *, verb, fault, requests, seconds):
    """Rests are at least 10, 20, 40, 40, 40 ms, or always 10 ms where there is progress: six rounds take their sum."""
    fill(api, 7)
    api.bookmark_seconds = 0.001
    api.always[verb] = fault
    watch = Watch(connection, book.kind(), pace=replace(FAST, initial_backoff=0.02, max_backoff=0.08, settled=60.0))
    start = asyncio.get_running_loop().time()
    async with running(watch):
        await until(lambda: api.count(verb) >= requests)
    assert asyncio.get_running_loop().time() - start >= seconds


async def test_a_watch_starts_from_the_first_page_of_a_list(api, watch):
    api.faults["list"].append(Body(b'{"metadata":{"resourceVersion":"90","continue":"more"},"items":[]}'))
    api.faults["page"].append(Body(b'{"metadata":{"resourceVersion":"99"},"items":null}'))
    async with running(watch):
        await until(lambda: api.count("watch"))
    assert api.asked[-1].query["resourceVersion"] == "90"


async def test_a_watch_that_ends_after_a_normal_lifetime_is_reopened_at_once(api, connection, book):
    watch = Watch(connection, book.kind(), pace=replace(FAST, initial_backoff=60.0, max_backoff=60.0, settled=0.02))
    async with running(watch):
        await until(lambda: api.watchers)
        await asyncio.sleep(0.05)
        api.disturb(End())
        await until(lambda: api.count("watch") == 2)
    assert api.count("list") == 1


async def test_a_watch_resumes_from_the_last_bookmark(api, watch):
    async with running(watch):
        await until(lambda: api.watchers)
        api.version += 50  # other kinds change, and this watch learns of it by a bookmark only
        api.forget_history()
        await asyncio.sleep(4 * api.bookmark_seconds)
        api.disturb(End())
        await until(lambda: api.count("watch") == 2)
        await until(lambda: api.watchers)
    assert [a.query["resourceVersion"] for a in api.asked if a.verb == "watch"] == ["100", "150"]
    assert watch.relists == 0


async def test_bookmarks_are_contact(api, watch):
    async with running(watch):
        await until(lambda: api.watchers)
        first = watch.last_contact
        await until(lambda: watch.last_contact > first)
    assert watch.events == 0


async def test_a_missing_optional_kind_is_ignored(api, connection, book):
    api.missing.add(PODS)
    watch = Watch(connection, book.kind(is_optional=True), pace=FAST)
    async with running(watch):
        await until(lambda: watch.synced)
        assert watch.problem is None
        fill(api, 3)
        api.missing.clear()  # the API is installed
        await until(lambda: book.held == truth(api))
        await until(lambda: api.watchers)
        api.missing.add(PODS)  # and removed, with all its objects
        api.disturb(End())
        await until(lambda: not book.held)
        assert watch.problem is None


async def test_a_kind_that_needs_no_right_counts_as_empty_where_it_may_not_be_read(api, connection, book):
    fill(api, 2)
    api.always["list"] = Answer(403)
    watch = Watch(connection, book.kind(needs_right=False), pace=FAST)
    async with running(watch):
        await until(lambda: watch.synced and watch.is_forbidden)
        assert ("403" in watch.problem, book.held) == (True, {})
        assert watch.last_contact is not None, "it never counts as silent"
        del api.always["list"]  # the right is granted
        await until(lambda: book.held == truth(api))
        await until(lambda: api.watchers)
        assert (watch.problem, watch.is_forbidden) == (None, False)


async def test_a_required_kind_that_is_missing_is_a_problem(api, watch):
    api.missing.add(PODS)
    async with running(watch):
        await until(lambda: watch.problem)
        assert "cannot watch pods: 404" in watch.problem
        assert not watch.synced


async def test_asks_for_bookmarks_a_random_end_and_its_selector(api, connection, book):
    watch = Watch(connection, book.kind(), pace=replace(FAST, watch_min=300, watch_max=600))
    async with running(watch):
        for number in range(4):
            await until(lambda want=number + 1: len(api.watchers) == 1 and api.count("watch") == want)
            api.disturb(End())
    queries = [a.query for a in api.asked if a.verb == "watch"]
    ends = {int(query["timeoutSeconds"]) for query in queries}
    assert len(ends) > 1
    assert all(300 <= end <= 600 for end in ends)
    assert {query["allowWatchBookmarks"] for query in queries} == {"true"}
    assert {a.query["fieldSelector"] for a in api.asked} == {"status.phase!=Succeeded"}


async def test_large_objects_are_trimmed_before_they_are_decoded(api, connection, book):
    def halved(raw):
        thing = json.loads(raw)
        return json.dumps(thing | {"spec": {"gpus": thing["spec"]["gpus"] // 2}}).encode()

    fill(api, 2)
    api.put(PODS, "listed", namespace="vision", spec={"gpus": 8}, status={"text": "x" * 300_000})
    watch = Watch(connection, replace(book.kind(), trim=halved), pace=FAST)
    async with running(watch):
        await until(lambda: watch.synced)
        assert sorted(book.held.values()) == [1, 2, 4]
        api.put(PODS, "seen", namespace="vision", spec={"gpus": 6}, status={"text": "x" * 300_000})
        await until(lambda: watch.events == 1)
        assert sorted(book.held.values()) == [1, 2, 3, 4]
