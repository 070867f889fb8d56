"""What users see of pods that wait in line: one Event for each pod, and the reason in its annotation."""

import asyncio
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, Protocol

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ClusterError
from webhook.cluster.writes.queue_release import write_waiting_text
from webhook.core.model.names import Uid
from webhook.core.model.text import printable
from webhook.core.release.judge import Judged
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World
from webhook.kube.objects.events import Event, EventReason, EventType, ObjectRef

TEXTS_AT_ONCE: Final = 8
"""Texts that are rewritten after a look: releases come first."""

_EARLIER_SECONDS: Final = 60
"""A pod that waited so long when this replica began to lead has its Event already."""

_NUMBERS: Final = re.compile(r"\d[\d.,]*(st|nd|rd|th)?|; [^;]* in line$")


class EventRecorder(Protocol):
    """Writes Events."""

    def record(self, event: Event) -> None:
        """Queue an event to be written."""
        ...


class WaitingTexts:
    """Writes Events and reasons. Call `begin` when leading begins, and `update` after each look at the queue.

    A cause is written once for each pod: what its owner writes over it stays.
    """

    def __init__(self, connection: ApiConnection, world: World, events: EventRecorder) -> None:
        self._connection = connection
        self._world = world
        self._events = events
        self._written: dict[Uid, tuple[str, int]] = {}
        self._began = 0

    def begin(self) -> None:
        """Forget what an earlier term wrote."""
        self._written.clear()
        self._began = int(time.time())

    async def update(self, changed: Iterable[Uid], blocked: Mapping[Uid, Judged]) -> None:
        """Write an Event for each pod that is new in the line, and the reason where it is another one."""
        for uid in changed:
            waiting = self._world.waiting.get(uid)
            if waiting is None:
                self._written.pop(uid, None)
            elif uid not in self._written:
                self._written[uid] = _cause(waiting.text, waiting.gang_whole)
                self._report(waiting)
        due = [each for each in blocked.values() if self._is_due(each)][:TEXTS_AT_ONCE]
        await asyncio.gather(*map(self._write, due))

    def _report(self, waiting: WaitingPod) -> None:
        if waiting.created >= self._began - _EARLIER_SECONDS:
            about = ObjectRef("Pod", waiting.pod.namespace, waiting.pod.name, waiting.uid)
            self._events.record(Event(about, EventType.NORMAL, EventReason.QUEUED, "Queue", waiting.text))

    def _is_due(self, judged: Judged) -> bool:
        uid = judged.waiting.uid
        known = self._written.get(uid)
        is_new = bool(judged.text) and known is not None and known != _cause(judged.text, judged.gang_whole)
        return is_new and uid in self._world.waiting and not self._world.is_assumed(uid)

    async def _write(self, judged: Judged) -> None:
        self._written[judged.waiting.uid] = _cause(judged.text, judged.gang_whole)
        with suppress(ClusterError):
            text, gang_whole = printable(judged.text), judged.gang_whole
            await write_waiting_text(self._connection, judged.waiting, text, gang_whole=gang_whole)


def _cause(text: str, gang_whole: int) -> tuple[str, int]:
    """Return a text without its numbers and its place in line, and the size of a gang that is whole."""
    return _NUMBERS.sub("", text).strip(), gang_whole
