"""Carries out the actions on one node: first its hold, then tolerations and notices, then evictions."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.cluster.writes import evictions, holds
from webhook.cluster.writes.evictions import Evicted, Later, Refused
from webhook.core.model.names import NodeName, TeamName, Uid
from webhook.core.reclaim.held_nodes import HeldNodes
from webhook.core.reclaim.reservation import Beneficiary, EvictionTarget, NodeHold
from webhook.evictor.actions import LimitActions, NodeActions
from webhook.evictor.evictor_context import EvictorContext
from webhook.evictor.hold_manager import HoldManager

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
            await self._limited(holds.write_hold(self._connection, node_actions.node, node_actions.node_hold))
            progress.wrote(node_actions.node, node_actions.node_hold)
        node_hold = node_actions.node_hold
        if node_hold is None:
            return
        done = await asyncio.gather(  # first: waiting pods get free room immediately
            *(
                self._tolerate_hold(each, node_hold, progress, is_first=each.uid in node_actions.first)
                for each in node_actions.to_tolerate
            ),
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
        """Carry out the actions for a pod in line: no pod is evicted before all replicas can see for which one."""
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
        """Have room under limits kept for a pod in line; None: keep none."""
        if self._is_leading():
            await self._limited(holds.keep_room(self._connection, waiting, since=since))

    async def lock(self, held: HeldNodes) -> None:
        """Publish the held nodes: the API server keeps other pods off these, and off no others."""
        if self._is_leading():
            await holds.lock_nodes(self._connection, held)

    async def withdraw_notices(self, targets: Iterable[EvictionTarget]) -> None:
        """Withdraw the announcements of evictions; one that cannot be withdrawn keeps none of the others."""
        for target in targets:
            with suppress(ClusterError):
                await self._limited(holds.take_notice_back(self._connection, target))

    async def _tolerate_hold(
        self, beneficiary: Beneficiary, node_hold: NodeHold, progress: HoldManager, *, is_first: bool
    ) -> None:
        await self._limited(holds.tolerate_hold(self._connection, beneficiary, node_hold.id, is_first=is_first))
        progress.admitted(beneficiary, node_hold)

    async def _give_notice(self, target: EvictionTarget, team: TeamName, node: NodeName, progress: HoldManager) -> None:
        """Announce an eviction on the victim; one that cannot be changed is evicted without, at the same time."""
        with suppress(ApiError):
            await self._limited(holds.give_notice(self._connection, target, team))
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
