"""The loop: whenever something changes, plan for all that wait, and see to what is under way."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.cluster.writes.evictions import Later, Refused
from webhook.core.model.names import NodeName
from webhook.core.reclaim.held_nodes import HeldNodes, held_nodes
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_plan import Move, Round
from webhook.core.reclaim.reclaim_snapshot import asking, entitled, scene
from webhook.core.reclaim.reservation import targets_of
from webhook.evictor.cluster_view import ClusterView
from webhook.evictor.executor import Executor
from webhook.evictor.hold_manager import REFUSED_SECONDS, Keeper
from webhook.evictor.reporter import Account
from webhook.observe.reclaim import ReclaimMetrics

SETTLE_SECONDS: Final = 0.02
"""Rest before a look: the pods of a Job come some milliseconds apart, and one plan for all is better than one each."""

FRUITLESS_SHARE: Final = 9
"""Rest after a plan that does nothing, in times of what it took: where pods wait for what nobody can give them, every
change of a large cluster would otherwise be planned for, and nothing else be done …"""

FRUITLESS_SECONDS: Final = 0.5
"""… but not longer than this."""

DUE_SECONDS: Final = 0.1
"""Rest where something is due already: it is being done, and its end is a change."""

LOOK_AGAIN_SECONDS: Final = 10.0
"""When to look though nothing changed: minimum runtimes end, and the world could not be trusted."""

GROWN_SECONDS: Final = 1.0
"""When to look again at a gang that was growing."""

FAILED_SECONDS: Final = 2.0
"""How long a node is left alone after the API server could not be reached for it."""

PLANS: Final = 10
"""Plans made in a row when the API server would not let victims go; the rest waits for the next look."""

_NO_LOCK: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN})
"""HeldNodes are not defined, or not ours to write: an older installation. The other locks hold."""

_log: Final = logging.getLogger("webhook.evictor.loop")


class Reclaimer:
    """One leader's work, from its election to its end."""

    def __init__(
        self,
        cluster_view: ClusterView,
        keeper: Keeper,
        executor: Executor,
        account: Account,
        metrics: ReclaimMetrics,
        *,
        why_stale: Callable[[], str | None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._lookout = cluster_view
        self._keeper = keeper
        self._executor = executor
        self._account = account
        self._metrics = metrics
        self._why_stale = why_stale
        self._clock = clock
        self._busy: dict[NodeName, asyncio.Task[None]] = {}
        self._failed: dict[NodeName, float] = {}
        self._settle_seconds = SETTLE_SECONDS
        self._is_growing = False
        self._locked: HeldNodes | None = None
        self._locked_at = 0.0
        self._lock_problem: str | None = None

    async def run(self) -> None:
        """Work until cancelled."""
        is_adopted = False
        async with asyncio.TaskGroup() as group:
            while True:
                self._lookout.changed.clear()
                if self._why_stale() is None and self._lookout.world.knows_all_namespaces:
                    if not is_adopted:
                        self._keeper.adopt()
                        is_adopted = True
                    if not self._lookout.world.policy.is_enforced:
                        self._keeper.abandon()
                    await self._look()
                    if await self._lock_nodes():
                        self._see_to_nodes(group)
                await self._rest()

    async def _look(self) -> None:
        await self._calm()
        for _ in range(PLANS):
            found = self._plan()
            if not found.moves or await self._is_allowed(found.moves):
                break
        else:
            return
        self._account.not_planned(found.refused)
        if found.moves:
            notice_seconds = self._lookout.world.policy.reclaim.notice_seconds
            at = int(self._clock()) + notice_seconds
            self._account.planned(found.moves, at=at, is_notice=notice_seconds > 0)
            self._keeper.accept(found.moves, notice_seconds=notice_seconds)
            await self._calm()  # what changed while the API server was asked

    def _plan(self) -> Round:
        self._settle_seconds = SETTLE_SECONDS
        keeper, reclaim_index, world = self._keeper, self._lookout.reclaim_index, self._lookout.world
        held = keeper.holds()
        tenants = entitled(reclaim_index, world)
        keeper.heed(tenant.pod.uid for tenant in tenants)
        asked = asking(tenants, reclaim_index, now=int(self._clock()), resting=keeper.resting(), has_holds=bool(held))
        self._is_growing = asked.is_growing
        if not (asked.waiting and world.policy.is_enforced):
            return Round((), asked.refused if world.policy.is_enforced else ())
        began = time.perf_counter()
        there = scene(
            reclaim_index,
            world,
            now=int(self._clock()),
            holds=held,
            chosen=keeper.under_way(),
            refused=keeper.victims.resting(),
            immovable=keeper.immovable.resting(),
            evicted=keeper.evicted(),
        )
        found = plan(asked.waiting, there)
        took = time.perf_counter() - began
        self._metrics.planning(took)
        if not found.moves:
            self._settle_seconds = max(SETTLE_SECONDS, min(FRUITLESS_SECONDS, took * FRUITLESS_SHARE))
        return Round(found.moves, found.refused + asked.refused)

    async def _is_allowed(self, moves: tuple[Move, ...]) -> bool:
        """Try all victims out; those that may not go are left alone, and the plan is worth nothing."""
        targets = targets_of(moves, at=0)
        refused = await self._executor.try_out(targets)
        for target in targets:
            match refused.get(target.uid):
                case Refused(why):
                    self._keeper.leave_alone(target, REFUSED_SECONDS)
                    self._account.refused(target, why)
                case Later(seconds=seconds):
                    self._keeper.leave_alone(target, seconds)
                case None:
                    pass
        return not refused

    async def _calm(self) -> None:
        calmed = self._keeper.tidy()
        for target in calmed:
            self._account.cancelled(target)
        with suppress(ClusterError):
            await self._executor.calm(calmed)
            for claim in self._keeper.released():
                await self._executor.release(claim)
                self._keeper.forget_nomination(claim)

    async def _lock_nodes(self) -> bool:
        """Keep the lock of held nodes in step with what is held, before any pod goes; False: nothing may be done yet.

        It is written again now and then while it holds: a former leader, or an admin, may have changed it.
        """
        held = held_nodes(self._keeper.holdings.values(), self._lookout.world.policy)
        now = asyncio.get_running_loop().time()
        if held == self._locked and (not held.nodes or now < self._locked_at + LOOK_AGAIN_SECONDS):
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

    def _see_to_nodes(self, group: asyncio.TaskGroup) -> None:
        now = asyncio.get_running_loop().time()
        self._failed = {node: until for node, until in self._failed.items() if until > now}
        for node in {**self._keeper.holdings, **self._lookout.marked}:
            if node not in self._busy and node not in self._failed and not self._keeper.node_actions(node).is_empty:
                self._busy[node] = group.create_task(self._see_to(node))

    async def _see_to(self, node: NodeName) -> None:
        try:
            await self._executor.carry_out(self._keeper.node_actions(node), self._keeper)
        except ClusterError as error:
            _log.warning("node %s: %s", node, error)
            self._failed[node] = asyncio.get_running_loop().time() + FAILED_SECONDS
        finally:
            del self._busy[node]
            self._lookout.changed.set()

    async def _rest(self) -> None:
        """Wait until something changes or is due."""
        due = self._keeper.next_due()
        seconds = LOOK_AGAIN_SECONDS if due is None else min(LOOK_AGAIN_SECONDS, max(DUE_SECONDS, due - self._clock()))
        if self._failed or self._locked is None:
            seconds = min(seconds, FAILED_SECONDS)
        if self._is_growing:
            seconds = min(seconds, GROWN_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._lookout.changed.wait()
        await asyncio.sleep(self._settle_seconds)
