"""Metrics of the moves that the evictor makes."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from webhook.core.defragment.move_bounds import Bound
from webhook.core.defragment.move_plan import NoMoves
from webhook.core.model.amount import ONE_GPU, Units
from webhook.core.model.names import TeamName


class Stopped(StrEnum):
    """Why a plan ended before all of its pods were moved, or with one that did not come back."""

    ROOM_TAKEN = "RoomTaken"
    NOT_NEEDED = "NotNeeded"
    RECLAIM_FIRST = "ReclaimFirst"
    REFUSED = "Refused"
    NOT_BACK = "NotBack"


WHY_STOPPED: Final = {
    Stopped.ROOM_TAKEN: "other pods took room that was kept for it",
    Stopped.NOT_NEEDED: "the pod that it was made for no longer waits for it",
    Stopped.RECLAIM_FIRST: "a team takes back its guaranteed share first",
    Stopped.REFUSED: "the API server does not evict one of its pods",
    Stopped.NOT_BACK: "the replacement of a moved pod did not come to its place in time",
}
"""The same for people, of a plan."""


class MoveMetrics:
    """What is moved; labels are teams and enums, never pods."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._plans = Counter("fairgate_moves_plans", "Plans of moves that began.", registry=registry)
        self._moved = Counter(
            "fairgate_moves_pods", "Pods evicted to be moved, by their team.", ["team"], registry=registry
        )
        self._back = Counter(
            "fairgate_moves_arrived", "Moved pods whose replacements are on a node again.", registry=registry
        )
        self._lost = Counter(
            "fairgate_moves_lost_gpu_seconds",
            "GPU-seconds since moved pods' last checkpoints, or starts: work that is done again.",
            ["team"],
            registry=registry,
        )
        self._stopped = Counter(
            "fairgate_moves_stopped",
            "Plans that were stopped, and moved pods that did not come back. `reason`: RoomTaken, NotNeeded, "
            "ReclaimFirst, Refused, NotBack.",
            ["reason"],
            registry=registry,
        )
        self._waiting = Gauge(
            "fairgate_moves_waiting_pods",
            "Pods and gangs that wait, and for which no moves are made now. `cause`: NoNode, TooFewFree, "
            "NotEnoughMovable, TooMuchWork, NoDomain, MovesPerHour, LostPerGpu, NotWorthIt.",
            ["cause"],
            registry=registry,
        )
        self._causes = (*(each for each in NoMoves if each is not NoMoves.FITS), *Bound)
        for reason in Stopped:
            self._stopped.labels(reason)
        self.refused({})

    def began(self) -> None:
        """Count a plan."""
        self._plans.inc()

    def moved(self, team: TeamName, *, gpu_unit_seconds: Units) -> None:
        """Count a pod that was evicted to be moved, and the work that is done again."""
        self._moved.labels(team).inc()
        self._lost.labels(team).inc(float(gpu_unit_seconds / ONE_GPU))

    def arrived(self) -> None:
        """Count a moved pod that is on a node again."""
        self._back.inc()

    def stopped(self, reason: Stopped) -> None:
        """Count a plan that was stopped."""
        self._stopped.labels(reason).inc()

    def refused(self, causes: Mapping[str, int]) -> None:
        """Set for how many pods and gangs no moves are made, by cause."""
        for cause in self._causes:
            self._waiting.labels(cause).set(causes.get(cause, 0))
