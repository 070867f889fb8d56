"""A dry run shows the moves that the evictor would make next, and makes none."""

import asyncio

import pytest

from tests.addons.moves.moving import rules, scatter, wide
from tests.evictor.test_dry_run import dry_running
from webhook.addons.moves.live import MovePreview
from webhook.core.model.policy_addons import Window


def previewing(stage, policy, shown):
    return dry_running(stage, policy, shown, lambda view: MovePreview(view, stage.connection, clock=stage.now).lines)


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
    async with previewing(stage, policy, shown):
        await stage.until(lambda: any("would get room on" in line for line in shown))
    [line] = [line for line in shown if "would get room on" in line]
    assert line.startswith(f"{want}: would get room on n0 by 1 move: team-a/j-n0 to n")
    assert stage.api.evictions == []
    assert [stage.taints(f"n{number}") for number in range(3)] == [[], [], []]


async def test_a_dry_run_says_why_no_pods_would_be_moved(stage):
    scatter(stage, "n0", "n1", "n2")
    wide(stage)
    shown = []
    async with previewing(stage, rules(moves_per_hour=0), shown):
        await stage.until(lambda: any("no pods would be moved" in line for line in shown))
    assert (
        "team-b/wide: no pods would be moved for it: it takes more moves than policy still allows in this hour" in shown
    )
    assert stage.api.evictions == []


async def test_a_dry_run_without_moves_in_policy_shows_none(stage):
    scatter(stage, "n0", "n1", "n2")
    wide(stage)
    shown = []
    async with previewing(stage, stage.policy, shown):
        await stage.until(lambda: shown != [])
        await asyncio.sleep(30)
    assert not any("moved" in line or "would get room" in line for line in shown)
