"""Room under limits: evicts borrowing pods for pods that wait in the queue inside their teams' guaranteed shares.

For each such pod: it is marked, so that no replica admits a borrower into the room that comes; its victims get their
notice and are evicted; the leader of the webhook starts it once the limit has room. The mark goes when it starts, when
it could no longer start, or when it does not use the room.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from webhook.cluster.api.client import ClusterError
from webhook.core.model.amounts import NodeName, TeamName, Uid
from webhook.core.reclaim.holds import Beneficiary, limit_place
from webhook.core.reclaim.limit_plan import LimitMove, LimitRound
from webhook.core.reclaim.reclaim_plan import NotPlanned, ReclaimSnapshot
from webhook.core.reclaim.snapshot import take_snapshot
from webhook.core.starting.line_reclaim import NOTHING, plan_line
from webhook.evictor.cluster_view import EvictorContext
from webhook.evictor.executor import Executor
from webhook.evictor.hold_manager import HoldManager, LimitActions
from webhook.evictor.reporter import EvictionReporter
from webhook.evictor.unevictable import LONG_SECONDS

UNUSED_SECONDS: Final = 30.0
"""How long room under limits is kept for a pod that does not start although it could, as far as the evictor sees.
Then it is paused for as long, the next time four times as long, and so on."""

FAILED_SECONDS: Final = 2.0
"""Pause after a request for a pod failed."""

_log: Final = logging.getLogger("webhook.evictor.limit_reclaimer")


class LimitReclaimer:
    """The holds of room under limits, and what is in progress for them, for as long as this evictor leads."""

    def __init__(
        self, context: EvictorContext, manager: HoldManager, executor: Executor, reporter: EvictionReporter
    ) -> None:
        cluster_view = context.cluster_view
        self.refused: tuple[NotPlanned, ...] = ()
        self._cluster_view = cluster_view
        self._world = cluster_view.world
        self._reclaim_index = cluster_view.reclaim_index
        self._evictions = cluster_view.reclaim_index.evictions
        self._manager = manager
        self._executor = executor
        self._reporter = reporter
        self._clock = context.clock
        self._served: dict[Uid, TeamName] = {}  # pods that others were evicted for
        self._unused_since: dict[Uid, float] = {}
        self._unused: dict[Uid, int] = {}  # how often
        self._busy: dict[NodeName, asyncio.Task[None]] = {}
        self._failed: dict[NodeName, float] = {}

    def plan(self) -> LimitRound:
        """Return what is to be done by the present view."""
        world, manager = self._world, self._manager
        if not world.policy.is_enforced or not len(world.waiting):
            return NOTHING
        return plan_line(
            world,
            self._reclaim_index,
            self._snapshot,
            held=manager.node_holds,
            before=self._before(),
            paused=manager.waiting.paused(),
            paused_teams=manager.teams.paused(),
        )

    def untried(self, found: LimitRound) -> tuple[LimitMove, ...]:
        """Return the moves with new victims, and only these victims."""
        known = self._evictions.listed_for_limits()
        moves = (
            move._replace(victims=tuple([each for each in move.victims if each.uid not in known]))
            for move in found.moves
        )
        return tuple([move for move in moves if move.victims])

    def accept(self, found: LimitRound) -> bool:
        """Keep the holds of the pods that still wait, add those of new ones, end the others; return if one ended."""
        self._settle()
        self.refused = found.refused
        now, notice_seconds = int(self._clock()), self._world.policy.reclaim.notice_seconds
        done = self._evictions.keep_limits(
            [move for move in found.moves if not self._is_unused(move)],
            since=now,
            at=now + notice_seconds,
            is_going=self._reclaim_index.is_going,
            may_begin=lambda move: bool(move.levels) or self._is_marked(move.waiting.uid),  # by an earlier leader
        )
        for hold in done.ended:
            self._unused_since.pop(hold.beneficiaries[0].uid, None)
        planned = [move for move in done.begun if move.levels]
        self._reporter.limits_planned(planned, at=now + notice_seconds, is_notice=notice_seconds > 0)
        return bool(done.ended)

    def start_due(self, group: asyncio.TaskGroup) -> None:
        """Start what is due, one request at a time for each pod."""
        now = asyncio.get_running_loop().time()
        self._failed = {place: until for place, until in self._failed.items() if until > now}
        for place, work in self._due():
            if place not in self._busy and place not in self._failed:
                self._busy[place] = group.create_task(self._carry_out(place, work))

    # -- holds

    def _snapshot(self) -> ReclaimSnapshot:
        manager = self._manager
        return take_snapshot(
            self._reclaim_index,
            self._world,
            now=int(self._clock()),
            refused=manager.unevictable.paused(),
            immovable=manager.unevictable.immovable(),
        )

    def _before(self) -> dict[Uid, set[Uid]]:
        """Return the victims that are chosen and not on their way, by the pod that they are chosen for."""
        return {
            hold.beneficiaries[0].uid: {each.uid for each in hold.targets if not self._reclaim_index.is_going(each.uid)}
            for hold in self._evictions.limit_holds.values()
        }

    def _settle(self) -> None:
        """Count the pods that ended although others were evicted for them, and follow those that started."""
        self._unused = {uid: times for uid, times in self._unused.items() if uid in self._world.waiting}
        for uid, team in list(self._served.items()):
            if uid in self._world.waiting:
                continue
            del self._served[uid]
            if self._reclaim_index.get(uid) is not None:
                self._manager.started(uid, team)
            else:
                self._manager.waste(team)

    def _is_unused(self, move: LimitMove) -> bool:
        """Whether a pod has had room under all limits for too long; then it is paused, and its team may be."""
        uid = move.waiting.uid
        hold = self._evictions.limit_holds.get(limit_place(uid))
        if hold is None:
            return False
        if move.levels or hold.targets:
            self._unused_since.pop(uid, None)
            return False
        if self._clock() < self._unused_since.setdefault(uid, self._clock()) + UNUSED_SECONDS:
            return False
        if uid in self._served:
            self._manager.waste(self._served.pop(uid))
        times = self._unused[uid] = self._unused.get(uid, 0) + 1
        seconds = min(LONG_SECONDS, UNUSED_SECONDS * 4 ** (times - 1))
        self._manager.waiting.pause(uid, seconds)
        self._reporter.gave_up(hold.beneficiaries[0], seconds=seconds)
        return True

    def _is_marked(self, uid: Uid) -> bool:
        waiting = self._world.waiting.get(uid)
        return waiting is not None and waiting.keeps_room

    # -- actions

    def _due(self) -> Iterator[tuple[NodeName, LimitActions | Beneficiary]]:
        """Yield what is to be done for each pod; a pod alone is no longer to keep room."""
        now = self._clock()
        for place, hold in self._evictions.limit_holds.items():
            beneficiary = hold.beneficiaries[0]
            waiting = self._world.waiting.get(beneficiary.uid)
            if waiting is None:
                continue
            if waiting.keeps_room:
                self._evictions.written(hold)
            actions = LimitActions(
                place=place,
                waiting=beneficiary,
                team=waiting.team,
                since=hold.since,
                is_marked=waiting.keeps_room,
                notices=tuple(self._evictions.unannounced(hold, now=now)),
                evictions=self._evictions.due(hold, now=now),
            )
            if not actions.is_empty:
                yield place, actions
        for waiting in self._world.waiting.keeping():
            place = limit_place(waiting.uid)
            if place not in self._evictions.limit_holds:
                yield place, Beneficiary(waiting.uid, waiting.pod.namespace, waiting.pod.name)

    async def _carry_out(self, place: NodeName, work: LimitActions | Beneficiary) -> None:
        try:
            if isinstance(work, Beneficiary):
                await self._executor.keep_room(work, since=None)
                return
            await self._executor.make_room(work, self._manager)
        except ClusterError as error:
            _log.warning("room under limits: %s", error)
            self._failed[place] = asyncio.get_running_loop().time() + FAILED_SECONDS
        finally:
            if isinstance(work, LimitActions) and any(self._reclaim_index.is_going(t.uid) for t in work.evictions):
                self._served[work.waiting.uid] = work.team
            del self._busy[place]
            self._cluster_view.changed.set()
