"""Carries out a plan; dry run.

Dry run: shows which pods would be evicted for which, or moved: once, or each time that changes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from webhook.cluster.api.client import ApiError, ClusterError
from webhook.cluster.writes import evictions
from webhook.cluster.writes.evictions import Evicted, Later, Refused
from webhook.core.model.amounts import NodeName, TeamName, Uid, gpus_text, plural_gpus
from webhook.core.reclaim.holds import Beneficiary, EvictionTarget, HeldNodes, NodeHold
from webhook.core.reclaim.limit_plan import LimitMove
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_plan import Move, NoPlan, Round
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.core.reclaim.snapshot import pods_within_share, select_pods, take_snapshot
from webhook.core.starting.line_reclaim import plan_line
from webhook.evictor.cluster_view import ClusterView, EvictorContext
from webhook.evictor.hold_manager import HoldManager, LimitActions, NodeActions

SETTLE_SECONDS: Final = 0.25
"""Pause before each look: a dry run is not urgent."""

LOOK_AGAIN_SECONDS: Final = 10.0
"""When to look without a change: minimum runtimes end."""


class DryRun:
    """Plans as the evictor does, without any action; `more` are lines that follow where reclaim has nothing to do."""

    def __init__(
        self,
        cluster_view: ClusterView,
        *,
        more: Callable[[], Awaitable[list[str]]],
        why_stale: Callable[[], str | None],
        show: Callable[[str], None],
        clock: Callable[[], float],
        is_due: Callable[[], bool] = lambda: True,
    ) -> None:
        self._is_due = is_due
        self._clock = clock
        self._cluster_view = cluster_view
        self._more = more
        self._why_stale = why_stale
        self._show = show

    async def run(self, *, shown_once: asyncio.Event | None = None) -> None:
        """Show plans until cancelled; with an event, show the first one and set it."""
        shown: list[str] = []
        while True:
            self._cluster_view.changed.clear()
            if self._is_due() and self._why_stale() is None and self._cluster_view.world.knows_all_namespaces:
                lines = await self._lines()
                if lines != shown:
                    shown = lines
                    for line in lines:
                        self._show(line)
                if shown_once is not None:
                    if not lines:
                        self._show("no pod would be evicted or moved")
                    shown_once.set()
                    return
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
        lines += [] if found.moves else await self._more()  # reclaim goes first
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


# Carries out the actions on one node: first its hold, then tolerations and notices, then evictions.


_T = TypeVar("_T")

AT_ONCE: Final = 32
"""Concurrent requests: the API server handles a few dozen at a time, and other clients need some of them."""


class Executor:
    """Sends the evictor's requests, a bounded number at a time. Raises ClusterError where the API server fails."""

    def __init__(self, context: EvictorContext) -> None:
        self._connection = context.connection
        self._is_leading = context.is_leading
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._eviction_slots = asyncio.Semaphore(AT_ONCE)  # one takes ten seconds where its pod keeps changing

    async def try_out(
        self, targets: Sequence[EvictionTarget], *, is_guarded: Callable[[EvictionTarget], bool]
    ) -> dict[Uid, Refused | Later]:
        """Evict targets in a dry run; return those that the API server would not evict."""
        trials = (
            evictions.evict(self._connection, target, is_guarded=is_guarded(target), is_trial=True)
            for target in targets
        )
        outcomes = await asyncio.gather(*map(self._limited, trials))
        return {
            target.uid: outcome
            for target, outcome in zip(targets, outcomes, strict=True)
            if not isinstance(outcome, Evicted)
        }

    async def carry_out(self, node_actions: NodeActions, progress: HoldManager) -> None:
        """Carry out the actions on a node: no pod is evicted before the node states for which pod."""
        if node_actions.is_news and self._is_leading():
            await self._limited(evictions.write_hold(self._connection, node_actions.node, node_actions.node_hold))
            progress.wrote(node_actions.node, node_actions.node_hold)
        node_hold = node_actions.node_hold
        if node_hold is None:
            return
        done = await asyncio.gather(  # first: waiting pods get free room immediately
            *(
                self._tolerate_hold(each, node_hold, progress, is_first=each.uid in node_actions.first)
                for each in node_actions.to_tolerate
            ),
            *(self._wake(each, node_hold, progress) for each in node_actions.to_wake),
            *(self._give_notice(target, team, node_actions.node, progress) for target, team in node_actions.notices),
            return_exceptions=True,  # a failure for one pod must not stop the others
        )
        done += await asyncio.gather(
            *(self._evict(target, node_actions.node, progress) for target in node_actions.evictions),
            return_exceptions=True,
        )
        if failure := next((outcome for outcome in done if isinstance(outcome, BaseException)), None):
            raise failure

    async def make_room(self, actions: LimitActions, progress: HoldManager) -> None:
        """Carry out the actions for a queued pod: no pod is evicted before all replicas can see for which one."""
        if not actions.is_marked:
            await self.keep_room(actions.waiting, since=actions.since)
            return
        done = await asyncio.gather(
            *(self._give_notice(target, actions.team, actions.place, progress) for target in actions.notices),
            *(self._evict(target, actions.place, progress) for target in actions.evictions),
            return_exceptions=True,
        )
        if failure := next((outcome for outcome in done if isinstance(outcome, BaseException)), None):
            raise failure

    async def keep_room(self, waiting: Beneficiary, *, since: int | None) -> None:
        """Have room under limits kept for a queued pod; None: keep none."""
        if self._is_leading():
            await self._limited(evictions.keep_room(self._connection, waiting, since=since))

    async def lock(self, held: HeldNodes) -> None:
        """Publish the held nodes: the API server keeps other pods off these, and off no others."""
        if self._is_leading():
            await evictions.lock_nodes(self._connection, held)

    async def withdraw_notices(self, targets: Iterable[EvictionTarget]) -> None:
        """Withdraw the announcements of evictions; one that cannot be withdrawn keeps none of the others."""
        for target in targets:
            with suppress(ClusterError):
                await self._limited(evictions.take_notice_back(self._connection, target))

    async def _tolerate_hold(
        self, beneficiary: Beneficiary, node_hold: NodeHold, progress: HoldManager, *, is_first: bool
    ) -> None:
        await self._limited(evictions.tolerate_hold(self._connection, beneficiary, node_hold.id, is_first=is_first))
        progress.admitted(beneficiary, node_hold)

    async def _wake(self, beneficiary: Beneficiary, node_hold: NodeHold, progress: HoldManager) -> None:
        if self._is_leading():
            await self._limited(evictions.wake(self._connection, beneficiary, node_hold.id))
            progress.woke(beneficiary, node_hold)

    async def _give_notice(self, target: EvictionTarget, team: TeamName, node: NodeName, progress: HoldManager) -> None:
        """Announce an eviction on the victim; one that cannot be changed is evicted without, at the same time."""
        with suppress(ApiError):
            await self._limited(evictions.give_notice(self._connection, target, team))
        progress.noticed(target, node)

    async def _evict(self, target: EvictionTarget, node: NodeName, progress: HoldManager) -> None:
        async with self._eviction_slots:
            if self._is_leading() and (eviction := progress.begin(target, node)) is not None:
                is_guarded, is_repeated = progress.is_guarded(target), progress.was_put_off(target)
                evicting = evictions.evict(self._connection, target, is_guarded=is_guarded, is_repeated=is_repeated)
                progress.answered(eviction, await evicting)

    async def _limited(self, request: Coroutine[Any, Any, _T]) -> _T:
        async with self._slots:
            return await request
