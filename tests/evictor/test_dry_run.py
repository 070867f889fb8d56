"""Evictions that are tried in a dry run first, and what comes of it."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tests.cluster.support.fake_api import Answer
from tests.evictor.support.line import borrowed, in_line, tree
from tests.evictor.support.moving import rules, scatter, wide
from tests.evictor.support.stage import NO_ROOM, fill
from webhook.core.model.policy import Enforcement
from webhook.core.model.policy_addons import Window
from webhook.evictor.cluster_view import ClusterView
from webhook.evictor.executor import DryRun
from webhook.evictor.moves.live import MovePreview


@asynccontextmanager
async def dry_running(stage, policy, shown):
    """Show what an evictor would do until the end of the block."""
    view = ClusterView(policy)
    feed = view.feed(stage.connection)
    moves = MovePreview(view, stage.connection, clock=stage.now)
    dry_run = DryRun(view, moves, why_stale=feed.readiness, show=shown.append, clock=stage.now)
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


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        pytest.param(rules(), "team-b/wide", id="for a pod that waits"),
        pytest.param(rules(on_demand=False, window=Window(0, 1440)), "a pod of 4 nvidia.com/gpu", id="in a window"),
    ],
)
async def test_a_dry_run_shows_the_moves_that_the_evictor_would_make_next(stage, policy, want):
    scatter(stage, "n0", "n1", "n2")
    wide(stage)
    shown = []
    async with dry_running(stage, policy, shown):
        await stage.until(lambda: any("would get room on" in line for line in shown))
    [line] = [line for line in shown if "would get room on" in line]
    assert line.startswith(f"{want}: would get room on n0 by 1 move: team-a/j-n0 to n")
    assert stage.api.evictions == []
    assert [stage.taints(f"n{number}") for number in range(3)] == [[], [], []]


async def test_a_dry_run_says_why_no_pods_would_be_moved(stage):
    scatter(stage, "n0", "n1", "n2")
    wide(stage)
    shown = []
    async with dry_running(stage, rules(moves_per_hour=0), shown):
        await stage.until(lambda: any("no pods would be moved" in line for line in shown))
    assert (
        "team-b/wide: no pods would be moved for it: it takes more moves than policy still allows in this hour" in shown
    )
    assert stage.api.evictions == []


async def test_a_dry_run_without_moves_in_policy_shows_none(stage):
    scatter(stage, "n0", "n1", "n2")
    wide(stage)
    shown = []
    async with dry_running(stage, stage.policy, shown):
        await stage.until(lambda: shown != [])
        await asyncio.sleep(30)
    assert not any("moved" in line or "would get room" in line for line in shown)
