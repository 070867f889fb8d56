"""Dry run: shows which pods would be evicted for which, or moved, each time that changes."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from webhook.core.line_reclaim.line_plan import plan_line
from webhook.core.model.amount import gpus_text
from webhook.core.model.text import plural_gpus
from webhook.core.reclaim.limit_plan import LimitMove
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_plan import Move, NoPlan, Round
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.reclaim.reclaim_snapshot import pods_within_share, select_pods, take_snapshot
from webhook.evictor.cluster_view import ClusterView
from webhook.evictor.moves.preview import MovePreview

SETTLE_SECONDS: Final = 0.25
"""Pause before each look: a dry run is not urgent."""

LOOK_AGAIN_SECONDS: Final = 10.0
"""When to look without a change: minimum runtimes end."""


class DryRun:
    """Plans as the evictor does, without any action."""

    def __init__(
        self,
        cluster_view: ClusterView,
        moves: MovePreview,
        *,
        why_stale: Callable[[], str | None],
        show: Callable[[str], None],
        clock: Callable[[], float],
        is_due: Callable[[], bool] = lambda: True,
    ) -> None:
        self._is_due = is_due
        self._clock = clock
        self._cluster_view = cluster_view
        self._moves = moves
        self._why_stale = why_stale
        self._show = show

    async def run(self) -> None:
        """Show plans until cancelled."""
        shown: list[str] = []
        while True:
            self._cluster_view.changed.clear()
            if self._is_due() and self._why_stale() is None and self._cluster_view.world.knows_all_namespaces:
                lines = await self._lines()
                if lines != shown:
                    shown = lines
                    for line in lines:
                        self._show(line)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN_SECONDS):
                    await self._cluster_view.changed.wait()
            await asyncio.sleep(SETTLE_SECONDS)

    async def _lines(self) -> list[str]:
        self._cluster_view.update_tiers()
        reclaim_index, world = self._cluster_view.reclaim_index, self._cluster_view.world
        now = int(self._clock())
        world.tick(now)
        selected = select_pods(pods_within_share(reclaim_index, world), reclaim_index, now=now)
        found = (
            plan(selected.waiting, take_snapshot(reclaim_index, world, now=now)) if selected.waiting else Round((), ())
        )
        in_line = plan_line(world, reclaim_index, partial(take_snapshot, reclaim_index, world, now=now))
        lines = [_line(move) for move in found.moves]
        lines += [_limit_line(move) for move in in_line.moves if move.levels]
        lines += [
            f"{each.waiting.namespace}/{each.waiting.name}: nothing would be done: {each.cause}"
            for each in found.refused + in_line.refused
            if each.cause is not NoPlan.FITS
        ]
        lines += [] if found.moves else await self._moves.lines()  # reclaim goes first
        return lines or ["no pod waits for borrowed GPUs"]


def _who(waiting: ReclaimPod) -> str:
    return f"{waiting.namespace}/{waiting.name} ({plural_gpus(waiting.demand.gpus)}, team {waiting.team})"


def _limit_line(move: LimitMove) -> str:
    who, limits = _who(move.waiting), " and ".join(move.levels)
    if not move.victims:
        return f"{who}: would get room under the limits of {limits} that becomes free"
    names = ", ".join(f"{victim.namespace}/{victim.name}" for victim in move.victims)
    return f"{who}: would get room under the limits of {limits}, {len(move.victims)} evicted: {names}"


def _line(move: Move) -> str:
    who = _who(move.waiting)
    if not move.victims:
        return f"{who}: would get room on {move.node} that becomes free"
    names = ", ".join(f"{victim.namespace}/{victim.name}" for victim in move.victims)
    return (
        f"{who}: would get room on {move.node}, {len(move.victims)} evicted: {names} "
        f"(gangs broken {move.cost.gangs}, GPUs beyond need {gpus_text(move.cost.surplus)})"
    )
