"""A task of the leader: releases waiting pods in their turn, and keeps the reason why the others wait up to date."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final, NoReturn, Protocol

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.cluster.writes.queue_release import ReleaseResult, release_pod, write_waiting_text
from webhook.core.model.decision import Admit, Decision
from webhook.core.model.names import TeamName, Uid
from webhook.core.queue.verdict import Way
from webhook.core.quota.in_flight import InFlightCharge, LedgerDecision
from webhook.core.release.releases import Releases, Turn, unfinished
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World
from webhook.observe.logs import Logs
from webhook.server.leader.gang_watch import GangWatch
from webhook.server.leader.waiting_texts import EventRecorder, WaitingTexts

AT_ONCE: Final = 64
"""Pods that are released together: their charges share ledger writes."""

SETTLE_SECONDS: Final = 0.02
"""Delay before a pass: changes at the same time are handled together."""

POLL_SECONDS: Final = 1.0
"""Between two passes while pods wait: nodes, taints and claims change without a change of usage."""

CHARGE_SECONDS: Final = 4.0
_REST_SECONDS: Final = 5.0
"""Pause of a pod whose release failed."""


class ReleaseLedger(Protocol):
    """Charges waiting pods; implemented by ApiLedger."""

    async def charge_waiting(
        self, team: TeamName, judge: Callable[[], LedgerDecision], *, deadline: float, is_gone: Callable[[], bool]
    ) -> Decision:
        """Decide a release on the current world, and charge it."""
        ...

    def charged(self) -> Iterable[InFlightCharge]:
        """Return the charges of all replicas whose pods were not seen to use anything yet."""
        ...

    def listed(self, team: TeamName, uid: Uid) -> InFlightCharge | None:
        """Return the charge of a pod that the ledger lists; None where it does not."""
        ...

    def withdraw(self, team: TeamName, uid: Uid) -> None:
        """Withdraw the charge of a pod that certainly keeps its gate."""
        ...


@dataclass(slots=True)
class QueueCounts:
    """What was released, by team and way, and gangs that did not come in time, by team.

    Waits in seconds are handed to `on_wait`.
    """

    released: dict[tuple[TeamName, Way], int] = field(default_factory=dict)
    timed_out: dict[TeamName, int] = field(default_factory=dict)
    on_wait: Callable[[TeamName, float], None] = lambda _team, _seconds: None


class QueueReleaser:
    """Releases pods. Run `run` while leading; call `wake` when usage changed."""

    def __init__(
        self,
        world: World,
        connection: ApiConnection,
        *,
        ledger: ReleaseLedger,
        events: EventRecorder,
        logs: Logs,
        is_leading: Callable[[], bool],
        why_stale: Callable[[], str | None],
    ) -> None:
        self.counts = QueueCounts()
        self._world = world
        self._connection = connection
        self._ledger = ledger
        self._logs = logs
        self._is_leading = is_leading
        self._why_stale = why_stale
        self._has_changed = asyncio.Event()
        self._gangs = GangWatch(connection, world, events=events, ledger=ledger, timed_out=self.counts.timed_out)
        self._texts = WaitingTexts(connection, world, events)

    def wake(self) -> None:
        """Look for pods to release soon."""
        self._has_changed.set()

    async def run(self) -> NoReturn:
        """Release pods until cancelled. Each term begins with the world as it is, and what the ledger lists."""
        self._releases = releases = Releases(self._world, listed=self._ledger.listed, withdraw=self._ledger.withdraw)
        self._active: set[Uid] = set()  # being charged or patched
        self._resting: dict[Uid, float] = {}  # loop time until which a failed release is not repeated
        self._released: set[Uid] = set()  # and not seen without their gate yet
        self._texts.begin()
        self._gangs.begin()
        releases.view.on_change = self.wake
        try:
            while True:
                self._has_changed.clear()
                is_current = self._why_stale() is None and self._world.knows_all_namespaces
                if is_current and await self._reconcile():
                    continue
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await self._has_changed.wait()
                await asyncio.sleep(SETTLE_SECONDS)
        finally:
            releases.view.close()

    async def _reconcile(self) -> bool:
        """Finish what is charged, then release who is next; return whether more may be due at once."""
        now = int(time.time())
        self._world.tick(now)
        self._put_back()
        self._released = {uid for uid in self._released if uid in self._world.waiting}
        tasks: list[Awaitable[None]] = []
        charged = self._ledger.charged() if len(self._world.waiting) else ()  # mostly no pod waits: look at no charge
        for waiting, admit in unfinished(self._world, charged):
            if not any(waiting.uid in left_alone for left_alone in (self._active, self._resting, self._released)):
                if self._releases.view.gangs.is_partly_charged(waiting):
                    self._withdraw(waiting, admit.charge.team)
                    continue
                self._active.add(waiting.uid)
                tasks.append(self._remove_gate(waiting, admit, Way.IN_TURN))
        await self._gangs.read(self._releases.view.gangs, now=now)
        turns = self._releases.due(now=now, count=AT_ONCE)
        tasks += [self._release(members) for members in _together(turns)]
        await asyncio.gather(*tasks)
        self._gangs.update(self._releases)
        await self._texts.update(self._releases.changed, self._releases.blocked)
        return len(turns) >= AT_ONCE or self._gangs.has_unread(self._releases.view.gangs, now=int(time.time()))

    def _put_back(self) -> None:
        now = asyncio.get_running_loop().time()
        for uid in [uid for uid, until in self._resting.items() if until <= now]:
            del self._resting[uid]
            self._releases.view.resume(uid)

    async def _release(self, turns: Sequence[Turn]) -> None:
        """Charge a pod, or all members of a gang, and remove their gates; nothing starts unless all are charged."""
        uids = {turn.waiting.uid for turn in turns}
        self._active |= uids
        try:
            decisions = await asyncio.gather(*map(self._charge, turns))
        finally:
            self._active -= uids
        charged = [(turn, each) for turn, each in zip(turns, decisions, strict=True) if isinstance(each, Admit)]
        if len(charged) == len(turns):
            pods = [(turn, admit) for turn, admit in charged if not turn.is_reservation]
            self._active |= {turn.waiting.uid for turn, _ in pods}
            await asyncio.gather(*(self._remove_gate(turn.waiting, admit, turn.way) for turn, admit in pods))
            return
        for turn, admit in charged:
            self._withdraw(turn.waiting, admit.charge.team)

    async def _charge(self, turn: Turn) -> Decision:
        team = turn.admit.charge.team
        is_judged = False

        def judge() -> LedgerDecision:
            nonlocal is_judged
            is_judged = True
            return self._releases.judge_again(turn)

        deadline = asyncio.get_running_loop().time() + CHARGE_SECONDS
        try:
            decision = await self._ledger.charge_waiting(
                team, judge, deadline=deadline, is_gone=lambda: not self._is_leading()
            )
            if not isinstance(decision, Admit):
                await self._give_up(turn)
        finally:
            if not is_judged:
                self._releases.drop_assumed(turn)
        return decision

    async def _give_up(self, turn: Turn) -> None:
        """Take back a charge that was not made in time: its write may still arrive."""
        waiting, team = turn.waiting, turn.admit.charge.team
        if self._ledger.listed(team, waiting.uid) is None:
            self._withdraw(waiting, team)
        elif waiting.uid in self._world.waiting:
            await self._keep_waiting(waiting, team, waiting.text)

    async def _remove_gate(self, waiting: WaitingPod, admit: Admit, way: Way) -> None:
        try:
            result = await release_pod(
                self._connection,
                waiting,
                admit,
                now_text=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                weights=self._world.policy.resources,
                is_leading=self._is_leading,
            )
        except ClusterError as error:
            self._resting[waiting.uid] = asyncio.get_running_loop().time() + _REST_SECONDS
            self._releases.view.rest(waiting.uid)
            self._logs.event.warning("pod not released", **_subject(waiting), why=str(error))
            if isinstance(error, ApiError) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                await self._keep_waiting(waiting, admit.charge.team, f"waits: its release failed: {error}")
            return
        finally:
            self._active.discard(waiting.uid)
        match result:
            case ReleaseResult.DONE | ReleaseResult.ALREADY:
                self._released.add(waiting.uid)
                self._count(waiting, admit, way)
            case ReleaseResult.GONE:
                self._withdraw(waiting, admit.charge.team)
            case ReleaseResult.CHANGED:
                await self._keep_waiting(waiting, admit.charge.team, waiting.text)

    async def _keep_waiting(self, waiting: WaitingPod, team: TeamName, text: str) -> None:
        """Take a charge back. The write first: a patch that is still on its way then finds another resourceVersion."""
        with suppress(ClusterError):
            await write_waiting_text(self._connection, waiting, text)
            self._withdraw(waiting, team)

    def _withdraw(self, waiting: WaitingPod, team: TeamName) -> None:
        self._ledger.withdraw(team, waiting.uid)
        self._releases.view.put_back(waiting.uid)

    def _count(self, waiting: WaitingPod, admit: Admit, way: Way) -> None:
        key = (admit.charge.team, way)
        self.counts.released[key] = self.counts.released.get(key, 0) + 1
        if waiting.created:
            self.counts.on_wait(admit.charge.team, max(0.0, time.time() - waiting.created))
        terms = {"tier": admit.charge.tier, "nodes": ",".join(admit.node_choice.nodes), "way": way}
        self._logs.event.info("pod released", **_subject(waiting), **terms)


def _together(turns: Sequence[Turn]) -> list[list[Turn]]:
    """Return the turns in groups that start together or not at all: a pod alone, or the members of a gang."""
    found: list[list[Turn]] = []
    for turn in turns:
        if found and turn.gang is not None and turn.gang == found[-1][0].gang:
            found[-1].append(turn)
        else:
            found.append([turn])
    return found


def _subject(waiting: WaitingPod) -> dict[str, str]:
    pod = waiting.pod
    return {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "team": waiting.team}
