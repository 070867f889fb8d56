"""What users see of pods that wait in line: one Event for each pod, and the reason in its annotation."""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ClusterError
from webhook.cluster.writes.events import EventWriter
from webhook.cluster.writes.queue_release import write_waiting_text
from webhook.core.model.names import Uid
from webhook.core.model.text import printable
from webhook.core.release.judge import Judged
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World
from webhook.kube.objects.events import Event, EventReason, EventType, ObjectRef

TEXTS_AT_ONCE: Final = 8
"""Texts that are being rewritten: releases come first."""

REPORT_SECONDS: Final = 1.0
"""A pod that starts sooner, such as the member of a gang that comes whole, gets no Event and no other text."""

TEXT_SECONDS: Final = 5.0
"""Least time between two texts of a pod: the cause may change with every pod that starts, and each text is a write."""

_EARLIER_SECONDS: Final = 60
"""A pod that waited so long when this replica began to lead has its Event already."""

_NUMBERS: Final = re.compile(r"\d[\d.,]*(st|nd|rd|th)?|; [^;]* in line$")


@dataclass(slots=True)
class _Written:
    """The cause that a pod's text names, the loop time until which it stays, and the size of a gang that is whole."""

    cause: str
    until: float
    gang_whole: int


class WaitingTexts:
    """Writes Events and reasons. Call `begin` when leading begins; after each look at the queue `report` and `due`.

    A cause is written once for each pod: what its owner writes over it stays. A text stays for some seconds, unless a
    gang came whole or is not whole any more: the evictor waits for that.
    """

    def __init__(self, connection: ApiConnection, world: World, events: EventWriter) -> None:
        self._connection = connection
        self._world = world
        self._events = events
        self._written: dict[Uid, _Written] = {}
        self._writing: set[Uid] = set()
        self._new: OrderedDict[Uid, float] = OrderedDict()  # without an Event yet, with the loop time of their coming
        self._began = 0

    def begin(self) -> None:
        """Forget what an earlier term wrote."""
        self._written.clear()
        self._writing.clear()
        self._new.clear()
        self._began = int(time.time())

    def report(self, changed: Iterable[Uid]) -> None:
        """Write an Event for each pod that has come into the line, and waits."""
        now = asyncio.get_running_loop().time()
        for uid in changed:
            waiting = self._world.waiting.get(uid)
            if waiting is None:
                self._written.pop(uid, None)
            elif uid not in self._written:
                self._written[uid] = _Written(_cause(waiting.text), now + REPORT_SECONDS, waiting.gang_whole)
                if waiting.created >= self._began - _EARLIER_SECONDS:
                    self._new[uid] = now
        while self._new and (first := next(iter(self._new.items())))[1] <= now - REPORT_SECONDS:
            del self._new[first[0]]
            waiting = self._world.waiting.get(first[0])
            if waiting is not None and not self._world.is_assumed(waiting.uid):
                self._report(waiting)

    def due(self, blocked: Mapping[Uid, Judged]) -> list[Judged]:
        """Return the pods whose reason is to be written now, since it is another one; a few at a time."""
        room, now = TEXTS_AT_ONCE - len(self._writing), asyncio.get_running_loop().time()
        found = list(islice((each for each in blocked.values() if self._is_due(each, now=now)), room))
        for judged in found:
            self._written[judged.waiting.uid] = _Written(_cause(judged.text), now + TEXT_SECONDS, judged.gang_whole)
        self._writing.update(judged.waiting.uid for judged in found)
        return found

    async def write(self, judged: Judged) -> None:
        """Write the reason of a pod that is due; one that is not as it was seen is due again."""
        waiting = judged.waiting
        try:
            text, gang_whole = printable(judged.text), judged.gang_whole
            is_written = await write_waiting_text(self._connection, waiting, text, gang_whole=gang_whole)
        except ClusterError:
            return
        finally:
            self._writing.discard(waiting.uid)
        if not is_written and (known := self._written.get(waiting.uid)) is not None:
            known.cause, known.gang_whole = _cause(waiting.text), waiting.gang_whole

    def _report(self, waiting: WaitingPod) -> None:
        about = ObjectRef("Pod", waiting.pod.namespace, waiting.pod.name, waiting.uid)
        self._events.record(Event(about, EventType.NORMAL, EventReason.QUEUED, "Queue", waiting.text))

    def _is_due(self, judged: Judged, *, now: float) -> bool:
        uid = judged.waiting.uid
        known = self._written.get(uid)
        if known is None or not judged.text:
            return False
        is_new = known.gang_whole != judged.gang_whole or (known.until <= now and known.cause != _cause(judged.text))
        return is_new and uid in self._world.waiting and not self._world.is_assumed(uid)


def _cause(text: str) -> str:
    """Return a text without its numbers and its place in line."""
    return _NUMBERS.sub("", text).strip()
