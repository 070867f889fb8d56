"""Remembers how long the pods of the watch ran, for forecasts: each replica does, since any may lead next."""

from collections.abc import Callable

import msgspec

from webhook.core.model.names import Uid
from webhook.core.world.world import World
from webhook.kube.objects import objects
from webhook.kube.pod.run_times import run_of
from webhook.simulation.forecast.seen_runs import SeenRuns


class RunLog:
    """Remembers runs as `runs`, and hands each change on to `then`."""

    def __init__(
        self,
        world: World,
        then: Callable[[str, msgspec.Struct | None, str], None],
        clock: Callable[[], float],
    ) -> None:
        self.runs = SeenRuns()
        self._world = world
        self._then = then
        self._clock = clock

    def note(self, kind: str, found: msgspec.Struct | None, handle: str) -> None:
        """Note an object of a watched kind that changed, None if it is gone; after the world applied it."""
        self._then(kind, found, handle)
        uid = Uid(handle)
        if kind != "pods":
            return
        if found is None:
            self.runs.end(uid, now=int(self._clock()))
        elif uid not in self.runs and isinstance(found, objects.Pod):
            charge = self._world.charge_of(uid)
            self.runs.add(None if charge is None else run_of(found, uid, charge))
