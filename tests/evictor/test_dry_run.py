"""Evictions that are tried in a dry run first, and what comes of it."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

from tests.cluster.support.fake_api import Answer
from tests.evictor.support.line import borrowed, in_line, tree
from tests.evictor.support.stage import NO_ROOM, fill
from webhook.core.model.policy import Enforcement
from webhook.evictor.cluster_view import ClusterView
from webhook.evictor.executor import DryRun


async def nothing_more():
    return []


@asynccontextmanager
async def dry_running(stage, policy, shown, more=lambda _: nothing_more):
    """Show what an evictor would do until the end of the block; `more` makes of its view what add-ons would do."""
    view = ClusterView(policy)
    feed = view.feed(stage.connection)
    dry_run = DryRun(view, more=more(view), why_stale=feed.readiness, show=shown.append, clock=stage.now)
    tasks = [asyncio.create_task(feed.run()), asyncio.create_task(dry_run.run())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_victim_refused_by_the_dry_run_is_replaced_before_any_write(stage):
    fill(stage, "n0")
    stage.budget()
    stage.api.faults["post"].append(Answer(429))
    async with stage.leader():
        stage.asker("b")
        await stage.until(lambda: stage.real_evictions() == 1)
        await asyncio.sleep(0.1)
        assert stage.real_evictions() == 1
    assert stage.reasons().count("EvictionRefused") == 1


async def test_victims_without_a_budget_are_evicted_without_a_dry_run(stage):
    fill(stage, "n0")
    async with stage.leader():
        stage.asker("b", gpus=3)
        await stage.until(lambda: stage.real_evictions() == 3)
        assert len(stage.api.evictions) == 3


async def test_victims_with_a_budget_are_evicted_in_a_dry_run_first(stage):
    fill(stage, "n0")
    stage.budget()
    async with stage.leader():
        stage.asker("b", gpus=3)
        await stage.until(lambda: stage.real_evictions() == 3)
        assert ["dryRun" in sent["deleteOptions"] for sent in stage.api.evictions] == [True] * 3 + [False] * 3


async def test_after_a_refusal_that_no_budget_explains_a_dry_run_comes_first(stage):
    fill(stage, "n0", "n1")
    stage.api.faults["post"].extend([Answer(403), Answer(403)])
    async with stage.leader():
        stage.asker("b", gpus=2)
        await stage.until(lambda: stage.real_evictions() == 2)
        assert ["dryRun" in sent["deleteOptions"] for sent in stage.api.evictions] == [True] * 2 + [False] * 2


async def test_when_all_victims_are_refused_nothing_is_done_and_an_event_is_written(stage):
    fill(stage, "n0")
    stage.budget()
    stage.api.always["post"] = Answer(429)
    async with stage.leader():
        stage.asker("b")
        await stage.until(lambda: "CannotReclaim" in stage.reasons())
        assert stage.taints("n0") == []
        assert len(stage.names()) == 5


async def test_a_dry_run_uses_the_tiers_that_pods_would_have(stage):
    stage.node("n0")
    for number in range(4):
        stage.bare(f"a{number}", team="team-a", node="n0")
    stage.bare("b", team="team-b", status=NO_ROOM)
    shown = []
    async with dry_running(stage, replace(stage.policy, enforce=Enforcement.SHADOW), shown):
        await stage.until(lambda: any("would get room on n0, 1 evicted: team-a/a" in line for line in shown))


async def test_a_dry_run_shows_what_would_go_for_a_pod_in_line(stage):
    borrowed(stage)
    in_line(stage)
    in_line(stage, "beyond", gpus=5)
    shown = []
    async with dry_running(stage, tree(), shown):
        await stage.until(lambda: any(line.startswith("team-b/b ") for line in shown))
    assert shown[-1].startswith(
        "team-b/b (1 GPU, team team-b): would get room under the limits of department left, 1 evicted: team-a/a"
    )
    assert stage.api.evictions == []
