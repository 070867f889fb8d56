"""Carries out what one node is to keep: the hold first, then who is let in, who is told, and who goes."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.writes import evictions, holds
from webhook.cluster.writes.evictions import Evicted, Later, Outcome, Refused
from webhook.core.model.names import NodeName, TeamName, Uid
from webhook.core.reclaim.held_nodes import HeldNodes
from webhook.core.reclaim.reservation import Claim, Holding, Target

AT_ONCE: Final = 32
"""Requests on their way at once: the API server works on a few dozen side by side, and others want some of it."""


@dataclass(frozen=True, slots=True)
class NodeActions:
    """What is to be done about one node now.

    `holding` is None where nothing is kept any more; `is_news`: the node does not say so yet. `first` are those of
    `let_in` without any toleration yet.
    """

    node: NodeName
    holding: Holding | None
    is_news: bool
    let_in: tuple[Claim, ...] = ()
    first: frozenset[Uid] = frozenset()
    notices: tuple[tuple[Target, TeamName], ...] = ()
    evictions: tuple[Target, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to do."""
        return not (self.is_news or self.let_in or self.notices or self.evictions)


class Log(Protocol):
    """Takes in what was done, as soon as it is, and says what is still to be done."""

    def wants(self, target: Target, node: NodeName) -> bool:
        """Tell whether a victim is still to go: much may change while it waits for its turn."""

    def wrote(self, node: NodeName, holding: Holding | None) -> None:
        """A node says what it keeps."""

    def admitted(self, claim: Claim, holding: Holding) -> None:
        """A waiting pod was let in."""

    def noticed(self, target: Target) -> None:
        """A victim was told."""

    def sent_away(self, target: Target, outcome: Outcome) -> None:
        """A victim was sent away, or not."""


class Executor:
    """Speaks to the API for the evictor, with so many requests at once. Raises ClusterError where it is not heard."""

    def __init__(self, connection: ApiConnection, *, is_leading: Callable[[], bool]) -> None:
        self._connection = connection
        self._is_leading = is_leading
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._under_way: set[Uid] = set()  # victims whose eviction was asked for and is not answered yet

    async def try_out(self, targets: Sequence[Target]) -> dict[Uid, Refused | Later]:
        """Ask the API whether victims may go, without sending them; gives those that may not."""
        outcomes = await asyncio.gather(*(self._try_out(target) for target in targets))
        return {
            target.uid: outcome
            for target, outcome in zip(targets, outcomes, strict=True)
            if not isinstance(outcome, Evicted)
        }

    async def carry_out(self, node_actions: NodeActions, log: Log) -> None:
        """Do an errand: nobody is evicted before the node says for whom.

        Nominations come before the taint. Its change has kube-scheduler try the waiting pods again, and it does not
        take in the nomination of a pod that it is just trying.
        """
        if node_actions.holding is not None:
            node = node_actions.holding.node
            await asyncio.gather(
                *(self._nominate(claim, node) for claim in node_actions.let_in), return_exceptions=True
            )
        if node_actions.is_news and self._is_leading():
            async with self._slots:
                await holds.write_hold(self._connection, node_actions.node, node_actions.holding)
            log.wrote(node_actions.node, node_actions.holding)
        holding = node_actions.holding
        if holding is None:
            return
        done = await asyncio.gather(  # first: room that becomes free is the claims' at once
            *(
                self._let_in(claim, holding, log, is_first=claim.uid in node_actions.first)
                for claim in node_actions.let_in
            ),
            *(self._tell(target, team, log) for target, team in node_actions.notices),
            return_exceptions=True,  # what fails for one pod must not stop the others
        )
        done += await asyncio.gather(
            *(self._send_away(target, node_actions.node, log) for target in node_actions.evictions),
            return_exceptions=True,
        )
        if failure := next((outcome for outcome in done if isinstance(outcome, BaseException)), None):
            raise failure

    async def lock(self, held: HeldNodes) -> None:
        """Have the API server keep other pods off these nodes, and off no others."""
        if self._is_leading():
            await holds.lock_nodes(self._connection, held)

    async def calm(self, targets: Iterable[Target]) -> None:
        """Tell pods that they may stay after all."""
        for target in targets:
            async with self._slots:
                await holds.take_notice_back(self._connection, target)

    async def release(self, claim: Claim) -> None:
        """Have kube-scheduler keep no room any more for a pod that waits on."""
        async with self._slots:
            await holds.nominate(self._connection, claim, None)

    async def _nominate(self, claim: Claim, node: NodeName) -> None:
        if self._is_leading():
            async with self._slots:
                await holds.nominate(self._connection, claim, node)

    async def _let_in(self, claim: Claim, holding: Holding, log: Log, *, is_first: bool) -> None:
        async with self._slots:
            await holds.let_in(self._connection, claim, holding.id, is_first=is_first)
        log.admitted(claim, holding)

    async def _tell(self, target: Target, team: TeamName, log: Log) -> None:
        async with self._slots:
            await holds.give_notice(self._connection, target, team)
        log.noticed(target)

    async def _send_away(self, target: Target, node: NodeName, log: Log) -> None:
        async with self._slots:
            if target.uid in self._under_way or not (self._is_leading() and log.wants(target, node)):
                return
            self._under_way.add(target.uid)
            try:
                outcome = await evictions.evict(self._connection, target)
            finally:
                self._under_way.discard(target.uid)
            log.sent_away(target, outcome)

    async def _try_out(self, target: Target) -> Outcome:
        async with self._slots:
            return await evictions.evict(self._connection, target, is_trial=True)
