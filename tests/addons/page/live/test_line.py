"""The queue: computed on a snapshot, shared by all who look, and bounded by namespace."""

import asyncio

import pytest

from tests.addons.page.support.pages import named, sample_objects, state_of, waiting
from webhook.addons.page.live.readable import FIRST, OF_NAMESPACE, SharedLine, line_of
from webhook.core.explain.line_rows import EarlierWaits, TeamWaits
from webhook.core.model.amounts import ONE_GPU
from webhook.files import SnapshotError, Snapshots

NOW = 1_795_342_000


def test_a_row_has_place_cause_holders_and_earlier_waits():
    state = state_of()
    state.waits = EarlierWaits([TeamWaits("nlp", 4 * ONE_GPU, (60, 1800))])
    line = line_of(state, now=NOW)
    assert (line.waiting, line.by_namespace) == (2, {"nlp": 2})
    first, second = (row.pod for row in line.rows)
    assert (first.name, first.place, first.place_in_team, first.gpus, first.team) == ("later", 1, 1, "4", "nlp")
    assert first.cause
    assert (second.name, second.place, second.code) == ("latest", 2, "WaitsForLimit")
    assert any(each.name == "nlp/Pod/llm" for each in second.holders)
    earlier = first.earlier_starts
    assert (earlier.starts, earlier.shortest_seconds, earlier.longest_seconds) == (2, 60, 1800)


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
