"""The line: computed on a snapshot, shared by all who look, and bounded by namespace."""

import asyncio

import pytest

from tests.page.support.pages import named, sample_objects, state_of, waiting
from webhook.core.explain.line_places import Run
from webhook.files import SnapshotError, Snapshots, TooLongError
from webhook.page.live import readable as lines
from webhook.page.live.readable import COMPUTED, FIRST, OF_NAMESPACE, SharedLine, line_of

NOW = 1_795_342_000


def test_a_row_has_place_cause_holders_and_start():
    line = line_of(state_of(), now=NOW)
    assert (line.waiting, line.by_namespace) == (2, {"nlp": 2})
    first, second = (row.pod for row in line.rows)
    assert (first.name, first.place, first.place_in_team, first.gpus, first.team) == ("later", 1, 1, "4", "nlp")
    assert first.cause
    assert (second.name, second.place, second.code) == ("latest", 2, "WaitsForLimit")
    assert any(each.name == "nlp/Pod/llm" for each in second.holders)
    assert first.likely_start is None
    assert first.likely_start_unknown.startswith("no pod that ended can be read, and 5 are needed")


def test_ended_pods_make_a_range():
    state = state_of()
    for number in range(9):
        state.reading.runs.add(Run(f"old-{number}", "nlp", NOW - 9000, NOW - 5000 - number))
    first = line_of(state, now=NOW).rows[0].pod
    assert first.likely_start_unknown is None
    assert 0 <= first.likely_start.earliest_seconds <= first.likely_start.latest_seconds


async def test_all_who_look_at_once_share_one_computation():
    state, calls = state_of(), []

    class Counted(Snapshots):
        async def run(self, work):
            calls.append(1)
            return await super().run(work)

    line = SharedLine(state, Counted())
    found = await asyncio.gather(*(line.line() for _ in range(50)))
    assert len(calls) == 1
    assert {each.waiting for each in found} == {2}


async def test_a_line_that_cannot_be_computed_is_not_tried_again_at_once():
    calls = []

    class Failing(Snapshots):
        async def run(self, work):
            calls.append(work)
            raise SnapshotError("takes too long")

    line = SharedLine(state_of(), Failing())
    for _ in range(5):
        with pytest.raises(SnapshotError, match="takes too long"):
            await line.line()
    assert len(calls) == 1


class Slow(Snapshots):
    """Snapshots whose first work waits: that with likely starts."""

    def __init__(self):
        super().__init__()
        self.release = asyncio.Event()
        self.error = None
        self.number = 0

    async def run(self, work):
        self.number += 1
        if self.number == 1:
            await self.release.wait()
            if self.error is not None:
                raise self.error
        return await super().run(work)


def starts(line):
    return [row.pod.likely_start_unknown for row in line.rows]


async def test_the_line_is_shown_before_its_likely_starts_and_pages_fetch_it_again(monkeypatch):
    monkeypatch.setattr(lines, "PATIENCE_SECONDS", 0.01)
    state, slow, touched = state_of(), Slow(), asyncio.Event()
    line = SharedLine(state, slow)
    state.on_change = touched.set
    first = await line.line()
    assert [row.pod.name for row in first.rows] == ["later", "latest"]
    assert starts(first) == [COMPUTED, COMPUTED]
    assert starts(await line.line()) == [COMPUTED, COMPUTED]
    assert (slow.number, touched.is_set()) == (2, False), "one with and one without"
    slow.release.set()
    await touched.wait()
    assert COMPUTED not in starts(await line.line())
    assert slow.number == 2


async def test_likely_starts_that_take_too_long_keep_no_line_from_being_shown(monkeypatch):
    monkeypatch.setattr(lines, "PATIENCE_SECONDS", 0.01)
    state, slow, touched = state_of(), Slow(), asyncio.Event()
    slow.error = TooLongError("it takes too long")
    line = SharedLine(state, slow)
    await line.line()
    state.on_change = touched.set
    slow.release.set()
    await touched.wait()
    assert starts(await line.line()) == ["it takes too long"] * 2


async def test_a_page_that_ends_ends_what_is_computed(monkeypatch):
    monkeypatch.setattr(lines, "PATIENCE_SECONDS", 0.01)
    slow = Slow()
    line = SharedLine(state_of(), slow)
    await line.line()
    await line.close()
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def test_an_empty_line_costs_no_process():
    state = state_of([each for each in sample_objects() if each["metadata"]["name"] not in ("later", "latest")])
    assert (await SharedLine(state, None).line()).rows == ()


def test_a_long_line_shows_its_first_and_the_first_of_each_namespace():
    crowd = [waiting(f"c{n}", namespace="vision", gpus=1, created="2026-11-22T08:00:00Z") for n in range(FIRST + 300)]
    late = [waiting(f"l{n}", namespace="zlp", created="2026-11-22T09:59:00Z") for n in range(OF_NAMESPACE + 5)]
    line = line_of(state_of(named([*crowd, *late])), now=NOW)
    shown = [row.pod.namespace for row in line.rows]
    assert line.by_namespace == {"vision": FIRST + 300, "zlp": OF_NAMESPACE + 5}
    assert shown.count("zlp") >= OF_NAMESPACE
    assert len(shown) <= FIRST + 2 * OF_NAMESPACE
