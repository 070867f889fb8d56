"""Remembers how long the pods of the watch ran, for forecasts: each replica does, since any may lead next."""

import time
from collections.abc import Callable

import msgspec

from webhook.core.model.names import Uid
from webhook.kube.objects import objects
from webhook.kube.pod.run_times import run_of
from webhook.simulation.forecast.seen_runs import SeenRuns


class RunLog:
    """Remembers runs as `runs`, and hands each change on to `then`."""

    def __init__(
        self, then: Callable[[str, msgspec.Struct | None, str], None], clock: Callable[[], float] = time.time
    ) -> None:
        self.runs = SeenRuns()
        self._then = then
        self._clock = clock

    def note(self, kind: str, found: msgspec.Struct | None, handle: str) -> None:
        """Note an object of a watched kind that changed, None if it is gone."""
        self._then(kind, found, handle)
        if kind != "pods":
            return
        if found is None:
            self.runs.end(Uid(handle), now=int(self._clock()))
        elif isinstance(found, objects.Pod) and Uid(handle) not in self.runs:
            self.runs.add(run_of(found))
