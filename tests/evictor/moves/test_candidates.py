"""Pods that may move are judged in turns of the event loop, and what goes meanwhile is no part of a plan."""

import asyncio

from tests.evictor.support.moving import rules, scatter
from webhook.evictor.cluster_view import ClusterView
from webhook.evictor.moves import candidates
from webhook.evictor.moves.candidates import Candidates, LeftAlone
from webhook.evictor.moves.templates import Templates

TURNS = 4


async def test_other_work_is_done_between_two_parts_and_a_pod_that_goes_then_does_not_move(stage, monkeypatch):
    monkeypatch.setattr(candidates, "PODS_AT_ONCE", 1)
    scatter(stage, "n0", "n1", "n2")
    view = ClusterView(rules())
    feed = asyncio.create_task(view.feed(stage.connection).run())
    await stage.until(lambda: sum(1 for _ in view.reclaim_index.on_nodes()) == 5)
    found = Candidates(view, lambda: LeftAlone({}), Templates(stage.connection, view.world))

    async def names():
        movable = await found.movable(now=int(stage.now()), away=(), teams=())
        return [each.victim.name for each in movable.pods]

    assert await names() == ["j-n0", "j-n1", "j-n2"]
    judging = asyncio.create_task(names())
    for _ in range(TURNS):
        await asyncio.sleep(0)
    assert not judging.done()
    gone = next(each.uid for each in view.reclaim_index.all() if each.name == "j-n0")
    view.remove_pod(gone)
    assert await judging == ["j-n1", "j-n2"]
    feed.cancel()
    await asyncio.gather(feed, return_exceptions=True)
