"""A task of the leader: releases waiting pods in their turn, and keeps the reason why the others wait up to date."""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, NamedTuple, NoReturn

from webhook.cluster.api.client import ApiError, ClusterError
from webhook.cluster.writes.pod_writes import ReleaseResult, hold_in_line, release_pod
from webhook.core.explain.line_rows import EarlierWaits
from webhook.core.line.entries import Way
from webhook.core.model.amounts import TeamName, Uid, exact_units
from webhook.core.model.decision import Admit, Decision
from webhook.core.model.reasons import Code, Reason
from webhook.core.quota.charges import InFlightCharge, LedgerDecision
from webhook.core.starting.awaited_room import FREE_SECONDS, AwaitedRoom, unfinished
from webhook.core.starting.starts import AssumedStart, AssumedStarts, StalledLine, together
from webhook.core.world.waiting_pods import WaitingPod
from webhook.kube.nodes.holds import rfc3339
from webhook.observe.logs import pod_fields
from webhook.server.leader.registration_loop import LeaderContext
from webhook.server.leader.waiting_reasons import GangWatch, WaitingReasons

AT_ONCE: Final = 64
"""Pods whose releases may be under way: their charges share ledger writes."""

_ROOM_FOR_PASS: Final = AT_ONCE // 2
"""With less room for releases than this there is no pass: one would judge the queue for few of them."""

SETTLE_SECONDS: Final = 0.02
"""Delay before a pass: changes at the same time are handled together."""

GATHER_SECONDS: Final = 0.1
"""The same while releases are under way: many slots come free, and fewer passes and ledger writes serve them."""

PASS_SECONDS: Final = 0.02
"""So long after its first start a pass judges no further entry: reviews wait for it. The next one goes on."""

SYNC_AT_ONCE: Final = 200
"""Pods that are taken note of in one turn of the event loop."""

_PAUSES: Final = 4
"""For so many times as long as the last pass took there is no other: a line of odd sizes leaves time for reviews."""

POLL_SECONDS: Final = 1.0
"""Between two passes while pods wait: nodes, taints and claims change without a change of usage."""

WATCH_SECONDS: Final = 5.0
"""Between two looks whether the queue stands still."""

CHARGE_SECONDS: Final = 4.0
FENCE_SECONDS: Final = 1.0
"""For how long a pass waits for ledgers to be written, once per term: those that take longer wait for the next one."""

_PAUSE_SECONDS: Final = 5.0
"""Pause of a pod whose release failed."""


@dataclass(slots=True)
class QueueCounts:
    """What was released, by team and way, waits in seconds, and gangs that did not come in time, by team."""

    released: dict[tuple[TeamName, Way], int] = field(default_factory=dict)
    timed_out: dict[TeamName, int] = field(default_factory=dict)
    on_wait: Callable[[TeamName, float], None] = lambda _team, _seconds: None
    waits: EarlierWaits = field(default_factory=EarlierWaits)


class _Bound:
    """A time that begins with the first question whether it is over."""

    def __init__(self, seconds: float) -> None:
        self.was_over = False
        self._seconds = seconds
        self._end: float | None = None

    def is_over(self) -> bool:
        """Return whether the time is over."""
        now = time.perf_counter()
        if self._end is None:
            self._end = now + self._seconds
        self.was_over = now >= self._end
        return self.was_over


class _Charged(NamedTuple):
    """The decision on a turn at its charge. `is_own`: the charge was made now, and no leader before knows of it."""

    turn: AssumedStart
    decision: Decision
    is_own: bool


class StartLoop:
    """Releases pods. Run `run` while leading; call `note_usage` when usage changed.

    A pass judges the queue, and releases go on while the next one does: what they start is assumed in the world.
    """

    def __init__(self, context: LeaderContext, *, clock: Callable[[], float]) -> None:
        self.counts = QueueCounts()
        self._clock = clock
        self._context = context
        self._world = context.world
        self._ledger = context.ledger
        self._has_changed = asyncio.Event()
        self._gangs = GangWatch(context, timed_out=self.counts.timed_out)
        self._reasons = WaitingReasons(context)
        self.stalled = StalledLine(context.world)

    def wake(self) -> None:
        """Look for pods to release soon."""
        self._has_changed.set()

    def note_usage(self) -> None:
        """Look soon if a pod waits or room is kept for one; mostly there is none, and then no pass is due.

        A pod that comes wakes by itself.
        """
        if len(self._world.waiting) or self._world.gang_reservations.gangs():
            self.wake()

    async def run(self) -> NoReturn:
        """Release pods until cancelled. Each term begins with the world as it is, and what the ledger lists."""
        self._active: set[Uid] = set()  # being charged, patched or held
        self._awaited_room = AwaitedRoom(self._world)
        self._starts = starts = AssumedStarts(
            self._world, listed=self._ledger.listed, active=self._active, awaiting=self._awaited_room
        )
        self._pass_seconds = 0.0
        self._term = term = object()
        self._is_in_term = lambda: self._term is term and self._context.is_leading()
        self._began = asyncio.get_running_loop().time()
        self._paused: dict[Uid, float] = {}  # loop time until which a failed release is not repeated
        self._released: set[Uid] = set()  # and not seen without their gate yet
        self._held: dict[Uid, int] = {}  # charged in part of a gang: the version from which on no patch is on its way
        self._reasons.begin()
        self._gangs.begin()
        starts.entries.on_change = self.wake
        try:
            async with asyncio.TaskGroup() as group:  # what fails ends all of it: nothing goes on after the term
                group.create_task(self._watch())
                while True:
                    self._has_changed.clear()
                    is_current = self._context.why_stale() is None and self._world.knows_all_namespaces
                    if is_current and await self._reconcile(group):
                        continue
                    with suppress(TimeoutError):
                        async with asyncio.timeout(FREE_SECONDS if self._awaited_room.is_settling else POLL_SECONDS):
                            await self._has_changed.wait()
                    await asyncio.sleep(self._pause())
        finally:
            self._term = None
            starts.close()
            self.stalled.look((), now=0)

    async def _watch(self) -> NoReturn:
        """Watch that the first in the queue start, whatever becomes of the passes."""
        while True:
            self.stalled.look(self._starts.firsts(), now=int(self._clock()))
            await asyncio.sleep(WATCH_SECONDS)

    def _pause(self) -> float:
        """Return the delay before the next pass."""
        return max(GATHER_SECONDS if self._active else SETTLE_SECONDS, _PAUSES * self._pass_seconds)

    async def _reconcile(self, group: asyncio.TaskGroup) -> bool:
        """Begin to finish what is charged, and to release who is next; return whether more may be due at once."""
        now = int(self._clock())
        self._put_back()
        self._released = {uid for uid in self._released if uid in self._world.waiting}
        self._held = {uid: version for uid, version in self._held.items() if uid in self._world.waiting}
        while not self._starts.sync(now=now, most=SYNC_AT_ONCE):  # noqa: ASYNC110 - others have their turn
            await asyncio.sleep(0)
        began = time.perf_counter()
        self._start_with_room(group)
        self._pass_seconds = time.perf_counter() - began
        if unfinished_charges := await self._unfinished():
            charged = {flight.pod.uid for flight in self._in_line()}
            for waiting, admit in unfinished(self._world, unfinished_charges):
                self._continue(group, waiting, admit, charged=charged, now=now)
        await self._gangs.read(self._starts.entries.gangs, now=now)
        if (room := AT_ONCE - len(self._active)) < _ROOM_FOR_PASS:
            return False  # the end of a release begins the next pass
        began, bound = time.perf_counter(), _Bound(PASS_SECONDS)
        turns = self._starts.due(now=now, count=room, is_enough=bound.is_over, is_looked_at=True)
        self._pass_seconds += time.perf_counter() - began
        if bound.was_over:
            self.wake()
        for members in together(turns):
            self._active |= {turn.waiting.uid for turn in members}
            group.create_task(self._start(group, members))
        self._gangs.update(self._starts)
        self._reasons.report(self._starts.changed)
        judgments = self._starts.blocked | self._starts.behind(now=now)
        for judged in self._reasons.due(judgments):
            group.create_task(self._reasons.write(judged))
        return self._starts.entries.gangs.has_unread(now=int(self._clock()))

    def _start_with_room(self, group: asyncio.TaskGroup) -> None:
        """Remove the gates of charged pods whose room reclaim has taken back."""
        loop_time, count = asyncio.get_running_loop().time(), AT_ONCE - len(self._active)
        for waiting, admit in self._awaited_room.take(now=loop_time, count=count):
            self._active.add(waiting.uid)
            group.create_task(self._remove_gate(waiting, admit, Way.IN_TURN))

    def _in_line(self) -> Iterable[InFlightCharge]:
        """Return the charges of pods that still have the gate."""
        waiting = self._world.waiting
        if not len(waiting):
            return []  # mostly no pod waits: look at no charge
        return self._ledger.charged(waiting)

    async def _unfinished(self) -> list[InFlightCharge]:
        """Return the charges with which to go on, once it is certain that they are listed and stay so.

        An earlier leader may have taken one back by a write that this replica has not seen, or that is on its way.
        """
        deadline = asyncio.get_running_loop().time() + FENCE_SECONDS
        fenced: set[Uid] = set()
        for flight in self._in_line():
            uid, team = flight.pod.uid, flight.charge.team
            left_alone = (self._active, self._paused, self._released, self._awaited_room)
            if any(uid in pods for pods in left_alone):
                continue
            if await self._ledger.fence(team, uid, since=self._began, deadline=deadline):
                fenced.add(uid)
        return [flight for flight in self._in_line() if flight.pod.uid in fenced] if fenced else []

    def _continue(
        self, group: asyncio.TaskGroup, waiting: WaitingPod, admit: Admit, *, charged: Collection[Uid], now: int
    ) -> None:
        """Remove the gate of a charged pod; or take its charge back where others of its gang are not `charged`."""
        is_partly = self._starts.entries.gangs.is_partly_charged(waiting, charged=charged, now=now)
        if is_partly is None:
            return
        if not is_partly:
            if self._awaits_room(waiting, admit.charge.team):
                return
            self._active.add(waiting.uid)
            group.create_task(self._remove_gate(waiting, admit, Way.IN_TURN))
        elif waiting.uid not in self._held:
            self._active.add(waiting.uid)
            group.create_task(self._hold(waiting, admit.charge.team))
        elif int(waiting.version) >= self._held[waiting.uid]:  # seen since: the others have not started before that
            self._withdraw(waiting, admit.charge.team)

    def _awaits_room(self, waiting: WaitingPod, team: TeamName) -> bool:
        """Whether a charged pod keeps its gate until reclaim has taken back its room; it is looked after, then."""
        flight = self._ledger.listed(team, waiting.uid)
        if flight is None or not flight.takes_back:
            return False
        self._awaited_room.add(waiting, flight, now=asyncio.get_running_loop().time())
        return True

    def _put_back(self) -> None:
        now = asyncio.get_running_loop().time()
        for uid in [uid for uid, until in self._paused.items() if until <= now]:
            del self._paused[uid]
            self._starts.entries.resume(uid)

    async def _start(self, group: asyncio.TaskGroup, turns: Sequence[AssumedStart]) -> None:
        """Charge a pod, or all members of a gang, and remove their gates; nothing starts unless all are charged."""
        async with asyncio.TaskGroup() as charging:
            charges = [charging.create_task(self._charge(turn)) for turn in turns]
        charged = [each.result() for each in charges]
        if all(isinstance(each.decision, Admit) for each in charged):
            stay: set[Uid] = set()
            for turn, decision, _ in charged:
                if turn.is_reservation or self._awaits_room(turn.waiting, turn.admit.charge.team):
                    stay.add(turn.waiting.uid)
                elif isinstance(decision, Admit):
                    group.create_task(self._remove_gate(turn.waiting, decision, turn.attempt.way))
            self._end(stay)
            return
        self._end({turn.waiting.uid for turn in turns})
        self.wake()
        for turn, decision, is_own in charged:  # what an earlier leader charged is held first, in the next pass
            if isinstance(decision, Admit) and (is_own or turn.is_reservation):
                self._withdraw(turn.waiting, decision.charge.team)

    async def _charge(self, turn: AssumedStart) -> _Charged:
        team, uid = turn.admit.charge.team, turn.waiting.uid
        is_judged = is_own = False

        def judge() -> LedgerDecision:
            nonlocal is_judged, is_own
            is_judged, is_own = True, self._ledger.listed(team, uid) is None
            return self._starts.judge_again(turn)

        deadline = asyncio.get_running_loop().time() + CHARGE_SECONDS
        try:
            decision = await self._ledger.charge_waiting(
                team, judge, deadline=deadline, is_gone=lambda: not self._context.is_leading()
            )
        finally:
            if not is_judged:
                self._starts.drop_assumed(turn)
        if not isinstance(decision, Admit):  # a write that still arrives is found by a later pass
            self._starts.keep_reservation(turn)
            self._starts.entries.put_back(uid)
        elif (kept := turn.reservation) is not None and self._ledger.listed(kept.charge.team, kept.pod.uid) is not None:
            self._ledger.withdraw(kept.charge.team, kept.pod.uid)  # listed elsewhere: the team is being moved
        return _Charged(turn, decision, is_own)

    def _end(self, uids: Collection[Uid]) -> None:
        """Note that releases are over, whatever came of them."""
        if AT_ONCE - len(self._active) < _ROOM_FOR_PASS:
            self.wake()
        self._active.difference_update(uids)

    async def _hold(self, waiting: WaitingPod, team: TeamName) -> None:
        """Keep patches of an earlier leader from removing the gate of a pod, and learn what was done before."""
        try:
            version = await hold_in_line(self._context.connection, waiting)
        except ClusterError:
            return
        finally:
            self._end([waiting.uid])
        if version is None:
            self._released.add(waiting.uid)
        elif version:
            self._held[waiting.uid] = version
        else:
            self._withdraw(waiting, team, is_gone=True)

    async def _remove_gate(self, waiting: WaitingPod, admit: Admit, way: Way) -> None:
        """Remove the gate of a pod whose charge is listed, or take the charge back."""
        self._held.pop(waiting.uid, None)
        try:
            await self._patch(waiting, admit, way)
        finally:
            self._end([waiting.uid])

    async def _patch(self, waiting: WaitingPod, admit: Admit, way: Way) -> None:
        try:
            result = await release_pod(
                self._context.connection,
                waiting,
                admit,
                seen=self._world.waiting.get(waiting.uid),
                now_text=rfc3339(int(self._clock())),
                weights=self._world.policy.resources,
                is_leading=self._context.is_leading,
            )
        except ClusterError as error:
            self._paused[waiting.uid] = asyncio.get_running_loop().time() + _PAUSE_SECONDS
            self._starts.entries.pause(waiting.uid)
            self._context.logs.event.warning("pod not released", **_subject(waiting), why=str(error))
            if isinstance(error, ApiError) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                failed = Reason(Code.WAITS_IN_LINE, "its release failed: {error}", {"error": str(error)})
                await self._keep_waiting(waiting, admit.charge.team, failed)
            return
        match result:
            case ReleaseResult.DONE | ReleaseResult.ALREADY:
                self._released.add(waiting.uid)
                self._count(waiting, admit, way)
            case ReleaseResult.GONE:
                self._withdraw(waiting, admit.charge.team, is_gone=True)
            case ReleaseResult.CHANGED:
                await self._keep_waiting(waiting, admit.charge.team)

    async def _keep_waiting(self, waiting: WaitingPod, team: TeamName, why: Reason | None = None) -> None:
        """Take a charge back, unless the gate is gone.

        The write first: a patch that is still on its way then finds another decision.
        """
        with suppress(ClusterError):
            version = await hold_in_line(self._context.connection, waiting, why)
            if version is None:
                self._released.add(waiting.uid)
            else:
                self._withdraw(waiting, team, is_gone=not version)

    def _withdraw(self, waiting: WaitingPod, team: TeamName, *, is_gone: bool = False) -> None:
        """Withdraw a charge: in this term only, unless the pod is gone, since the next leader may remove the gate."""
        if is_gone:
            self._ledger.withdraw(team, waiting.uid)
        else:
            self._ledger.withdraw(team, waiting.uid, if_still=self._is_in_term)
        self._starts.entries.put_back(waiting.uid)

    def _count(self, waiting: WaitingPod, admit: Admit, way: Way) -> None:
        team, counts = admit.charge.team, self.counts
        counts.released[team, way] = counts.released.get((team, way), 0) + 1
        if waiting.created:
            seconds = max(0.0, self._clock() - waiting.created)
            counts.on_wait(team, seconds)
            counts.waits.note(team, exact_units(admit.charge.gpus), int(seconds))
        terms = {"tier": admit.charge.tier, "nodes": ",".join(admit.node_choice.nodes), "way": way}
        self._context.logs.event.info("pod released", **_subject(waiting), **terms)


def _subject(waiting: WaitingPod) -> dict[str, str]:
    return {**pod_fields(waiting.pod), "team": waiting.team}
