"""The loop: whenever something changes, plan for all waiting pods, and carry out what is due."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from webhook.cluster.api.client import ApiError, ClusterError
from webhook.cluster.writes.evictions import Refused
from webhook.core.model.amounts import NodeName
from webhook.core.reclaim.holds import EvictionTarget, HeldNodes, held_nodes
from webhook.core.reclaim.limit_plan import LimitMove
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_plan import Move, NoPlan, Round
from webhook.core.reclaim.snapshot import pods_within_share, select_pods, take_snapshot
from webhook.evictor.cluster_view import EvictorContext
from webhook.evictor.executor import Executor
from webhook.evictor.hold_manager import HoldManager
from webhook.evictor.limit_reclaimer import LimitReclaimer
from webhook.evictor.reporter import EvictionReporter

SETTLE_SECONDS: Final = 0.02
"""Pause before each look: the pods of a Job come milliseconds apart, and one plan for all is better than one each."""

BURST_SECONDS: Final = 0.2
"""Pause after a look that planned evictions: where many pods come at once, kube-scheduler reports them one by one, and
each plan writes to nodes. The first plan does not wait, nor do evictions. It doubles with each plan in a row …"""

LONG_BURST_SECONDS: Final = 0.8
"""… up to this. Each write to a node makes kube-scheduler check all pods that wait, and several pods share a node …"""

BURST_END_SECONDS: Final = 2.0
"""… until nothing was planned for so long."""

LOOK_SHARE: Final = 4
"""Pause after any look, as a multiple of its duration: with thousands of pods each look costs more, and so do the
writes that it causes. Fewer looks decide the same …"""

LOOK_PAUSE_SECONDS: Final = 1.0
"""… but one is never later than this."""

FRUITLESS_SHARE: Final = 9
"""Pause after a plan that does nothing, as a multiple of its duration: where pods wait for room that no eviction makes,
every change of a large cluster would otherwise cause a plan, which would use all CPU time …"""

FRUITLESS_SECONDS: Final = 0.5
"""… but not longer than this."""

DUE_SECONDS: Final = 0.1
"""Pause where something is due already: it is in progress, and its end is a change."""

LOOK_AGAIN_SECONDS: Final = 10.0
"""When to look without a change: minimum runtimes end, and the world may become trustworthy."""

GROWN_SECONDS: Final = 1.0
"""When to look again at a gang that was growing, and after a look in which too many victims were refused."""

FAILED_SECONDS: Final = 2.0
"""Pause of a node after a request for it failed."""

PLANS: Final = 10
"""Plans in a row whose victims the API server does not evict; the rest waits for the next look."""

_NO_LOCK: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN})
"""HeldNodes are not defined, or the evictor may not write them: an older installation. The taint holds."""

_log: Final = logging.getLogger("webhook.evictor.loop")


class Reclaimer:
    """Reclaims for as long as this evictor leads; `after_round` is called before anything is carried out."""

    def __init__(
        self,
        context: EvictorContext,
        manager: HoldManager,
        executor: Executor,
        reporter: EvictionReporter,
        after_round: Callable[[Round], Awaitable[None]],
    ) -> None:
        self._cluster_view = context.cluster_view
        self._manager = manager
        self._executor = executor
        self._reporter = reporter
        self._limits = LimitReclaimer(context, manager, executor, reporter)
        self._after_round = after_round
        self._round = Round((), ())
        self._metrics = context.metrics
        self._why_stale = context.why_stale
        self._clock = context.clock
        self._busy: dict[NodeName, asyncio.Task[None]] = {}
        self._failed: dict[NodeName, float] = {}
        self._settle_seconds = SETTLE_SECONDS
        self._burst_seconds = BURST_SECONDS
        self._planned_at = float("-inf")
        self._is_growing = False
        self._is_unfinished = False
        self._locked: HeldNodes | None = None
        self._locked_at = 0.0
        self._lock_problem: str | None = None

    async def run(self) -> None:
        """Run until cancelled."""
        has_resumed = False
        async with asyncio.TaskGroup() as group:
            while True:
                began = asyncio.get_running_loop().time()
                self._cluster_view.changed.clear()
                self._cluster_view.world.tick(int(self._clock()))
                if self._why_stale() is None and self._cluster_view.world.knows_all_namespaces:
                    if not has_resumed:
                        self._manager.resume()
                        has_resumed = True
                    if not self._cluster_view.world.policy.is_enforced:
                        self._manager.abandon()
                    self._cluster_view.find_borrowers()
                    await self._look()
                    await self._look_at_limits()
                    if not self._is_unfinished:
                        await self._after_round(self._round)
                    if await self._lock_nodes():
                        self._start_due(group)
                        self._limits.start_due(group)
                await self._pause(took=asyncio.get_running_loop().time() - began)

    async def _look(self) -> None:
        await self._withdraw_notices()
        clock = asyncio.get_running_loop().time
        began, self._is_unfinished = clock(), False
        for _ in range(PLANS):
            found = self._plan()
            if not found.moves or await self._is_allowed(found.moves):
                break
            if clock() > began + LOOK_PAUSE_SECONDS:  # a foreign webhook answers slowly: other work is due
                self._is_unfinished = True
                return
        else:
            self._is_unfinished = True
            return
        self._round = found
        refused = found.refused + self._limits.refused
        self._reporter.not_planned(refused, unseen=found.unseen, without_effect=len(self._manager.without_effect()))
        if found.moves:
            notice_seconds = self._cluster_view.world.policy.reclaim.notice_seconds
            at = int(self._clock()) + notice_seconds
            self._reporter.planned(found, at=at, is_notice=notice_seconds > 0)
            self._manager.accept(found.moves, notice_seconds=notice_seconds)
            self._settle_seconds = self._burst_pause()
            await self._withdraw_notices()  # changes during the dry run

    def _burst_pause(self) -> float:
        """Return the pause after a look that planned evictions, just now."""
        now = asyncio.get_running_loop().time()
        is_first = now > self._planned_at + BURST_END_SECONDS
        self._burst_seconds = BURST_SECONDS if is_first else min(LONG_BURST_SECONDS, 2 * self._burst_seconds)
        self._planned_at = now
        return self._burst_seconds

    async def _look_at_limits(self) -> None:
        for _ in range(PLANS):
            began = time.perf_counter()
            found = self._limits.plan()
            took, untried = time.perf_counter() - began, self._limits.untried(found)
            if await self._is_allowed(untried):
                if self._limits.accept(found):
                    await self._withdraw_notices()
                if not untried:
                    self._settle_seconds = max(self._settle_seconds, min(FRUITLESS_SECONDS, took * FRUITLESS_SHARE))
                return

    def _plan(self) -> Round:
        self._settle_seconds = SETTLE_SECONDS
        manager, reclaim_index, world = self._manager, self._cluster_view.reclaim_index, self._cluster_view.world
        now = int(self._clock())
        gpu_pods = pods_within_share(reclaim_index, world)
        manager.note_waiting(gpu_pod.uid for gpu_pod in gpu_pods)
        selected = select_pods(gpu_pods, reclaim_index, now=now, paused=manager.paused())
        self._is_growing = selected.is_growing
        if not world.policy.is_enforced:
            return Round((), ())
        if not selected.waiting:
            return Round((), selected.refused)
        began = time.perf_counter()
        there = take_snapshot(
            reclaim_index,
            world,
            now=now,
            refused=manager.unevictable.paused() | reclaim_index.evictions.listed_for_limits(),
            immovable=manager.unevictable.immovable(),
            refused_nodes=manager.scheduler.refused_nodes(),
        )
        found = plan(selected.waiting, there, under_way=manager.under_way())
        fitting = (each.waiting.uid for each in found.refused if each.cause is NoPlan.FITS)
        manager.scheduler.note_free({*found.unseen, *fitting})
        took = time.perf_counter() - began
        self._metrics.planning(took)
        if not found.moves:
            self._settle_seconds = max(SETTLE_SECONDS, min(FRUITLESS_SECONDS, took * FRUITLESS_SHARE))
        return Round(found.moves, found.refused + selected.refused, found.unseen)

    async def _is_allowed(self, moves: tuple[Move, ...] | tuple[LimitMove, ...]) -> bool:
        """Evict doubtful victims in a dry run; False where the API server refuses any: they are left alone for a while.

        A dry run costs the API server as much as an eviction, so it is not made for the others; but once one fails,
        others of its namespace are tried with the same plan, since what refused it is likely to refuse these.
        """
        refused = await self._try_out(self._manager.unevictable.doubtful(moves))
        await self._try_out(self._manager.unevictable.peers(refused))
        return not refused

    async def _try_out(self, targets: list[EvictionTarget]) -> list[EvictionTarget]:
        """Leave the victims alone for a while that the API server would not evict; return those that it refused."""
        unevictable = self._manager.unevictable
        outcomes = await self._executor.try_out(targets, is_guarded=unevictable.is_guarded)
        found = [target for target in targets if target.uid in outcomes]
        for target in found:
            outcome = unevictable.tried(target, outcomes[target.uid])
            seconds = unevictable.leave_alone(target, outcome)
            if isinstance(outcome, Refused):
                self._reporter.refused(target, outcome, pause_seconds=seconds)
        return found

    async def _withdraw_notices(self) -> None:
        withdrawn = self._manager.tidy()
        self._metrics.unevictable(self._manager.unevictable.counts())
        for target in withdrawn:
            self._reporter.cancelled(target)
        with suppress(ClusterError):
            await self._executor.withdraw_notices(withdrawn)

    async def _lock_nodes(self) -> bool:
        """Update the object HeldNodes before any eviction; False: nothing may be done yet.

        It is written again now and then while nodes are held: a former leader or an admin may have changed it. Pods
        that got their room are not worth a write each: they leave it with the next one.
        """
        held = held_nodes(self._manager.node_holds.values(), self._cluster_view.world.policy)
        now = asyncio.get_running_loop().time()
        is_recent = not held.nodes or now < self._locked_at + LOOK_AGAIN_SECONDS
        if is_recent and self._locked is not None and self._locked.covers(held):
            return True
        try:
            await self._executor.lock(held)
        except ClusterError as error:
            if str(error) != self._lock_problem:
                _log.warning("held nodes are not guarded against pods that tolerate every taint: %s", error)
            self._lock_problem = str(error)
            if not (isinstance(error, ApiError) and error.status in _NO_LOCK):
                self._locked = None
                return False
        else:
            self._lock_problem = None
        self._locked, self._locked_at = held, now
        return True

    def _start_due(self, group: asyncio.TaskGroup) -> None:
        now = asyncio.get_running_loop().time()
        self._failed = {node: until for node, until in self._failed.items() if until > now}
        for node in {**self._manager.node_holds, **self._cluster_view.marked}:
            if node not in self._busy and node not in self._failed and not self._manager.node_actions(node).is_empty:
                self._busy[node] = group.create_task(self._carry_out(node))

    async def _carry_out(self, node: NodeName) -> None:
        try:
            await self._executor.carry_out(self._manager.node_actions(node), self._manager)
        except ClusterError as error:
            _log.warning("node %s: %s", node, error)
            self._failed[node] = asyncio.get_running_loop().time() + FAILED_SECONDS
        finally:
            del self._busy[node]
            self._cluster_view.changed.set()

    async def _pause(self, *, took: float) -> None:
        """Wait until something changes or is due, and as long as a look that `took` so many seconds requires."""
        clock = asyncio.get_running_loop().time
        ready_at = clock() + max(self._settle_seconds, min(LOOK_PAUSE_SECONDS, took * LOOK_SHARE))
        due = self._manager.next_due()
        seconds = LOOK_AGAIN_SECONDS if due is None else min(LOOK_AGAIN_SECONDS, max(DUE_SECONDS, due - self._clock()))
        if self._failed or self._locked is None:
            seconds = min(seconds, FAILED_SECONDS)
        if self._is_growing or self._is_unfinished:
            seconds = min(seconds, GROWN_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._cluster_view.changed.wait()
        await asyncio.sleep(max(SETTLE_SECONDS, ready_at - clock()))
