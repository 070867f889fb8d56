"""What users see of pods that wait in line: Events, and the reason in their annotations."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from webhook.cluster.api.errors import ClusterError
from webhook.cluster.writes.owner_events import OwnerEvent
from webhook.cluster.writes.scheduling_gate import write_reason
from webhook.core.model.names import Uid
from webhook.core.model.reason import Reason, waits_for
from webhook.core.waiting.judged_pod import Judged
from webhook.core.world.waiting_pods import WaitingPod
from webhook.kube.objects.events import EventReason
from webhook.kube.pod.waiting_pods import WatchedPod
from webhook.server.leader.leader_context import LeaderContext

AT_ONCE: Final = 8
"""Reasons that are being rewritten: releases come first."""

IN_A_SECOND: Final = 32
NUMBERS_IN_A_SECOND: Final = 4
"""Reasons that are rewritten in a second, and those of which only numbers changed: after a change of policy or use all
pods in line may have another one, and each is a write that every watch of pods sees."""

REPORT_SECONDS: Final = 1.0
"""A pod that starts sooner, such as the member of a gang that gets complete, gets no Event and no other reason."""

CAUSE_SECONDS: Final = 5.0
"""Least time between two reasons of a pod: the cause may change with every pod that starts, and each is a write."""

NUMBERS_SECONDS: Final = 60.0
"""The same where only numbers changed, which they may do for all pods in line with each pod that starts or ends."""

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
        """Write an Event for each pod that has come into the line, and waits."""
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
