"""Why each waits, written.

Reads how many pods make a gang from the object that makes them, or from their PodGroup.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from http import HTTPStatus
from itertools import islice
from typing import Any, Final, NoReturn

import msgspec

from webhook.cluster.api.client import ApiConnection, ApiError, ClusterError
from webhook.cluster.writes.events import OwnerEvent
from webhook.cluster.writes.pod_writes import write_reason
from webhook.cluster.writes.reports import ReportWriter, read_report
from webhook.core.explain.line_rows import EarlierWaits
from webhook.core.line.gang_plans import EndedReservations, GangPlan, ended_reservations
from webhook.core.line.gangs import GangLine
from webhook.core.line.judged_pod import Judged
from webhook.core.model.amounts import GangId, TeamName, Uid, duration, plural, printable, shortened
from webhook.core.model.pod import Resident
from webhook.core.model.reasons import Reason, waits_for
from webhook.core.starting.starts import AssumedStarts
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World
from webhook.kube.kinds.model import mapping
from webhook.kube.kinds.table import kind_table
from webhook.kube.ledger import reports
from webhook.kube.objects import bounds
from webhook.kube.objects.events import EventReason
from webhook.kube.pod.waiting import WatchedPod
from webhook.kube.workloads.gang_size import UnknownSizeError, gang_plan
from webhook.kube.workloads.gangs import GangObject, gang_object
from webhook.server.leader.registration_loop import LeaderContext

SECONDS: Final = 1.0
"""Timeout of one read: releases wait for it. What cannot be read leaves the size unknown."""

_MAX_REASON: Final = 200
OnProblem = Callable[[WaitingPod, str], None]
_decoder: Final = msgspec.json.Decoder(dict[str, object])


class GangSizes:
    """Reads sizes of gangs. Call `read` before each pass; `reads` counts requests.

    `on_problem` is called with a pod of each gang whose object says nothing, and the reason.
    """

    def __init__(self, connection: ApiConnection, world: World, *, on_problem: OnProblem) -> None:
        self.reads = 0
        self._connection = connection
        self._world = world
        self._on_problem = on_problem

    async def read(self, gangs: GangLine, *, now: int) -> None:
        """Read the objects of gangs that wait for members, or for no others to come; each once in a while."""
        unread = gangs.unread(now=now)
        plans = await asyncio.gather(*map(self._plan, unread))
        for pod, plan in zip(unread, plans, strict=True):
            gang = pod.pod.gang
            if gang is not None and gangs.learn(gang.id, plan) and plan.problem:
                self._on_problem(pod, f"gang {printable(gang.name)}: {plan.problem}")

    async def _plan(self, waiting: WaitingPod) -> GangPlan:
        pod = waiting.pod
        found = None if pod.gang is None else gang_object(pod, pod.gang.id)
        if found is None or pod.gang is None:
            return GangPlan(problem="the object that makes its pods is not known")
        try:
            return await self._read(found, waiting)
        except UnknownSizeError as error:
            return _unknown(found, f"says no size: {printable(shortened(str(error), _MAX_REASON))}")
        except ApiError as error:
            if error.status in _REASONS:
                return _unknown(found, _REASONS[error.status])
            return _unknown(found, f"cannot be read ({error.status})", is_temporary=True)
        except (ValueError, RecursionError):
            return _unknown(found, "cannot be read")
        except ClusterError:
            return _unknown(found, "cannot be read now", is_temporary=True)

    async def _read(self, found: GangObject, waiting: WaitingPod) -> GangPlan:
        body = await self._get(found) or b"{}"
        if len(body) > bounds.LARGE_BYTES:  # tenants choose it, and the leader has other things to do
            raise UnknownSizeError(f"it has {len(body):,} bytes, and no more than {bounds.LARGE_BYTES:,} are read")
        document = _decoder.decode(body)
        if found.uid and mapping(document.get("metadata")).get("uid") != found.uid:
            return _unknown(found, "is another one than that of its pods")
        policy = self._world.policy
        kinds = kind_table(policy.workloads.kinds)
        return gang_plan(document, kinds=kinds, namespace=waiting.pod.namespace, weights=policy.resources)

    async def _get(self, found: GangObject) -> bytes | None:
        """Return an object of the first API version that has it."""
        for path in found.paths[:-1]:
            try:
                return await self._send(path)
            except ApiError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
        return await self._send(found.paths[-1])

    async def _send(self, path: str) -> bytes | None:
        self.reads += 1
        return await self._connection.send("GET", path, action=f"get {path.split('/')[-2]}", seconds=SECONDS)


_REASONS: Final[dict[int, str]] = {
    HTTPStatus.NOT_FOUND: "is not there, or its kind is not installed",
    HTTPStatus.FORBIDDEN: "may not be read by Fairgate",
}


def _unknown(found: GangObject, problem: str, *, is_temporary: bool = False) -> GangPlan:
    return GangPlan(problem=f"{found.kind} {printable(found.name)} {problem}", is_temporary=is_temporary)


# What the leader does about gangs besides releasing them: reads sizes, ends kept room, says what was assumed.


class GangWatch:
    """Keeps gangs from holding what they do not come for. `timed_out` counts those that did not come in time, by team.

    Call `begin` when leading begins, `read` before each look at the queue, and `update` after it.
    """

    def __init__(self, context: LeaderContext, *, timed_out: MutableMapping[TeamName, int]) -> None:
        self._context = context
        self._world = context.world
        self._ledger = context.ledger
        self._timed_out = timed_out
        self._sizes = GangSizes(context.connection, context.world, on_problem=self._report_unknown)
        self._ended: set[Uid] = set()

    def begin(self) -> None:
        """Forget what an earlier term ended."""
        self._ended.clear()

    async def read(self, gangs: GangLine, *, now: int) -> None:
        """Read the sizes of gangs that wait for members."""
        await self._sizes.read(gangs, now=now)

    def update(self, starts: AssumedStarts) -> None:
        """End the room that is not to be kept on, and report the gangs that did not come in time."""
        timeouts = starts.entries.gangs.timeouts
        for timeout in timeouts:
            waiting = timeout.waiting
            self._count(waiting.team)
            self._context.report(waiting.pod, EventReason.GANG_TIMED_OUT, timeout.cause.text)
        timeouts.clear()
        is_needed, is_in_view = starts.is_room_needed, self._ledger.shows_gang_of
        for lost in ended_reservations(self._world, is_needed=is_needed, is_in_view=is_in_view):
            self._end(lost)
        self._ended = {uid for uid in self._ended if self._world.is_assumed(uid)}

    def _end(self, lost: EndedReservations) -> None:
        new = [reservation for reservation in lost.reservations if reservation.pod.uid not in self._ended]
        for reservation in lost.reservations:
            self._ledger.withdraw(reservation.charge.team, reservation.pod.uid)
        self._ended.update(reservation.pod.uid for reservation in new)
        if not (new and lost.is_late):
            return
        self._count(new[0].charge.team)
        started = self._member(lost.gang)
        if started is not None:
            seconds = self._world.policy.queue.gang_timeout_seconds
            pods, whose = plural(len(new), "pod"), "its" if len(new) == 1 else "their"
            text = f"{pods} of its gang did not come within {duration(seconds)}: {whose} GPUs are no longer reserved"
            self._context.report(started, EventReason.GANG_TIMED_OUT, text)

    def _member(self, gang: GangId) -> Resident | None:
        uid = self._world.gangs.first(gang)
        return None if uid is None else self._world.pod(uid)

    def _count(self, team: TeamName) -> None:
        self._timed_out[team] = self._timed_out.get(team, 0) + 1

    def _report_unknown(self, waiting: WaitingPod, problem: str) -> None:
        text = f"{problem}: the pods that come without a pause are taken for the whole gang"
        self._context.report(waiting.pod, EventReason.GANG_SIZE_UNKNOWN, text)


# What users see of pods that wait in the queue: Events, and the reason in their annotations.


AT_ONCE: Final = 8
"""Reasons that are being rewritten: releases come first."""

IN_A_SECOND: Final = 32
NUMBERS_IN_A_SECOND: Final = 4
"""Reasons that are rewritten in a second, and those of which only numbers changed: after a change of policy or use all
queued pods may have another one, and each is a write that every watch of pods sees."""

REPORT_SECONDS: Final = 1.0
"""A pod that starts sooner, such as the member of a gang that gets complete, gets no Event and no other reason."""

CAUSE_SECONDS: Final = 5.0
"""Least time between two reasons of a pod: the cause may change with every pod that starts, and each is a write."""

NUMBERS_SECONDS: Final = 60.0
"""The same where only numbers changed, which they may do for all queued pods with each pod that starts or ends."""

_EARLIER_SECONDS: Final = 60
"""A pod that waited so long when this replica began to lead has its Event already."""


@dataclass(slots=True)
class _Written:
    """The reason on a pod, None where it cannot be read, the loop time of it, and the size of a gang that is whole."""

    reason: Reason | None
    since: float
    gang_whole: int


class WaitingReasons:
    """Writes Events and reasons. Call `begin` when leading begins; after each look at the queue `report` and `due`.

    A reason is written where its facts are others than those on the pod. It stays for some seconds, unless a gang got
    complete or no longer is: the evictor waits for that. An Event follows where more than numbers changed, and those of
    all pods of an owner become one on it.
    """

    def __init__(self, context: LeaderContext) -> None:
        self._context = context
        self._world = context.world
        self._written: dict[Uid, _Written] = {}
        self._writing: set[Uid] = set()
        self._new: OrderedDict[Uid, float] = OrderedDict()  # without an Event yet, with the loop time of their coming
        self._began = 0
        self._second = 0.0  # loop time from which these are counted
        self._in_second = self._numbers_in_second = 0

    def begin(self) -> None:
        """Forget what an earlier term wrote."""
        self._written.clear()
        self._writing.clear()
        self._new.clear()
        self._began = int(self._context.connection.unix_time())

    def report(self, changed: Iterable[Uid]) -> None:
        """Write an Event for each pod that has come into the queue, and waits."""
        now = asyncio.get_running_loop().time()
        for uid in changed:
            waiting = self._world.waiting.get(uid)
            if waiting is None:
                self._written.pop(uid, None)
            elif uid not in self._written:
                since = now + REPORT_SECONDS - CAUSE_SECONDS
                self._written[uid] = _Written(waiting.reason, since, waiting.gang_whole)
                if waiting.created >= self._began - _EARLIER_SECONDS:
                    self._new[uid] = now
        while self._new and (first := next(iter(self._new.items())))[1] <= now - REPORT_SECONDS:
            del self._new[first[0]]
            waiting = self._world.waiting.get(first[0])
            if waiting is not None and not self._world.is_assumed(waiting.uid):
                self._report(waiting, waiting.text)

    def due(self, blocked: Mapping[Uid, Judged]) -> list[Judged]:
        """Return the pods whose reason is to be written now, since it is another one; a few at a time."""
        now = asyncio.get_running_loop().time()
        if self._second + 1 <= now:
            self._second, self._in_second, self._numbers_in_second = now, 0, 0
        room = min(AT_ONCE - len(self._writing), IN_A_SECOND - self._in_second)
        found = list(islice(self._due(blocked.values(), now=now), max(0, room)))
        self._in_second += len(found)
        for judged in found:
            self._written[judged.waiting.uid] = _Written(judged.reason, now, judged.gang_whole)
        self._writing.update(judged.waiting.uid for judged in found)
        return found

    async def write(self, judged: Judged) -> None:
        """Write the reason of a pod that is due; one that is not as it was seen is due again."""
        waiting, why = judged.waiting, judged.reason
        if why is None:
            return
        try:
            is_written = await write_reason(self._context.connection, waiting, why, gang_whole=judged.gang_whole)
        except ClusterError:
            return
        finally:
            self._writing.discard(waiting.uid)
        if is_written:
            was = waiting.reason
            if was is not None and waiting.uid not in self._new and _kind(was) != _kind(why):
                self._report(waiting, waits_for(why.code, why.statement).text)
        elif (known := self._written.get(waiting.uid)) is not None:
            known.reason, known.gang_whole = waiting.reason, waiting.gang_whole

    def _report(self, waiting: WaitingPod, text: str) -> None:
        reason = EventReason.QUEUED
        self._context.report(waiting.pod, reason, text)
        if isinstance(waiting, WatchedPod) and waiting.controller is not None:
            self._context.notify_owner(OwnerEvent(waiting.controller, reason, text, series=reason))

    def _due(self, blocked: Iterable[Judged], *, now: float) -> Iterator[Judged]:
        """Yield what is to be written, reasons of another kind first."""
        later = []
        for judged in blocked:
            uid = judged.waiting.uid
            known = self._written.get(uid)
            if known is None or judged.reason is None or uid not in self._world.waiting or self._world.is_assumed(uid):
                continue
            if known.gang_whole != judged.gang_whole:
                yield judged
            elif known.since + CAUSE_SECONDS <= now and known.reason != judged.reason:
                if _kind(known.reason) != _kind(judged.reason):
                    yield judged
                elif known.since + NUMBERS_SECONDS <= now:
                    later.append(judged)
        for judged in later[: NUMBERS_IN_A_SECOND - self._numbers_in_second]:
            self._numbers_in_second += 1
            yield judged


def _kind(reason: Reason | None) -> object:
    return None if reason is None else (reason.code, reason.statement.kind)


# A task of the leader: publishes how long the last pods of each team and size waited in the queue.


PUBLISH_SECONDS: Final = 60.0
"""Between two writes of the report."""


class WaitPublisher:
    """Publishes `waits` while `run` runs; the queue notes in them the pods that this leader releases."""

    def __init__(self, context: LeaderContext, waits: EarlierWaits) -> None:
        self.writer = ReportWriter(context.connection, reports.STARTS)
        self._connection = context.connection
        self._waits = waits
        self._written: dict[str, Any] | None = None

    async def run(self) -> NoReturn:
        """Publish until cancelled."""
        self._waits.clear()
        self._written = None
        while True:
            await self.publish()
            await asyncio.sleep(PUBLISH_SECONDS)

    async def publish(self) -> None:
        """Write the report if it changed; nothing before it could be read once in this term."""
        if self._written is None:
            self._written = await self._take_over()
        patch = reports.starts_patch(self._waits)
        if self._written not in (None, patch) and await self.writer.write(patch) is not None:
            self._written = patch

    async def _take_over(self) -> dict[str, Any] | None:
        """Put what is published before what was noted meanwhile, and return it; None if it cannot be read."""
        try:
            report = await read_report(self._connection, reports.STARTS)
        except ApiError as error:
            if not error.is_missing:
                return None
            report = None
        except ClusterError:
            return None
        noted = list(self._waits)
        self._waits.clear()
        self._waits.add(reports.waits_of(report))
        published = reports.starts_patch(self._waits)
        self._waits.add(noted)
        return published
