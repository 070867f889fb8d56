"""Pods that may move are judged in turns of the event loop, and what goes meanwhile is no part of a plan."""

import asyncio
from dataclasses import replace

import pytest

from tests.addons.moves.moving import rules, scatter
from webhook.addons.moves import live
from webhook.addons.moves.live import Candidates, LeftAlone, Templates
from webhook.core.model.policy import LabelSelector
from webhook.core.reclaim.reclaim_pods import Disruption
from webhook.evictor.cluster_view import ClusterView

TURNS = 4


@pytest.fixture
async def reading(stage, monkeypatch):
    """A view of five pods on nodes of which three may move, and what reads them, a pod in each turn."""
    monkeypatch.setattr(live, "PODS_AT_ONCE", 1)
    scatter(stage, "n0", "n1", "n2")
    view = ClusterView(rules())
    feed = asyncio.create_task(view.feed(stage.connection).run())
    await stage.until(lambda: sum(1 for _ in view.reclaim_index.on_nodes()) == 5)
    found = Candidates(view, lambda: LeftAlone({}), Templates(stage.connection, view.world))

    async def names():
        movable = await found.movable(now=int(stage.now()), away=(), teams=())
        return [each.victim.name for each in movable.pods]

    yield view, names
    feed.cancel()
    await asyncio.gather(feed, return_exceptions=True)


async def begin(judging):
    """Start to judge; return once other work is done while it goes on."""
    task = asyncio.create_task(judging)
    for _ in range(TURNS):
        await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_other_work_is_done_between_two_parts_and_a_pod_that_goes_then_does_not_move(reading):
    view, names = reading
    assert await names() == ["j-n0", "j-n1", "j-n2"]
    judging = await begin(names())
    gone = next(each.uid for each in view.reclaim_index.all() if each.name == "j-n0")
    view.remove_pod(gone)
    assert await judging == ["j-n1", "j-n2"]


async def test_bounds_are_counted_once_when_all_are_judged(reading):
    """A budget that allows no more evictions meanwhile keeps its pods, however many turns the judging takes."""
    view, names = reading
    index, counted = view.reclaim_index, []
    count = index.allowances
    index.allowances = lambda chosen=(): counted.append(1) or count(chosen)
    moving = next(each for each in index.all() if each.name == "j-n0")
    budget = Disruption(moving.namespace, "own", LabelSelector(()), 1)
    index.set_disruption(budget)
    assert await names() == ["j-n0", "j-n1", "j-n2"]
    assert len(counted) == 1
    judging = await begin(names())
    index.set_disruption(replace(budget, allowed=0))
    assert await judging == []
    assert len(counted) == 2
