"""Metrics of an evictor: reclaim, idle GPUs, moves.

Metrics of GPUs that pods hold and do not use. Labels are teams and enums, never pods.
"""

from collections import Counter as Counts
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from webhook.core.defragment.candidates import Bound, NoMoves
from webhook.core.model.amounts import ONE_GPU, TeamName, Units
from webhook.core.reclaim.reclaim_plan import NoPlan
from webhook.observe.processes import Component, ProcessMetrics

STATES: Final = ("idle", "used", "low", "excused", "unknown", "not_judged")
"""What is known of a pod: idle by policy; used, low or excused in the last reading; unknown without a reading; not
judged, where utilization says nothing about it."""


class JudgedPod(NamedTuple):
    """A pod with GPUs on a node: its team, its GPU units, and one of STATES."""

    team: TeamName
    gpus: Units
    state: str
    is_low: bool


class IdleMetrics:
    """What the evictor knows of the use of GPUs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gpus = Gauge(
            "fairgate_idle_gpus", "GPUs of pods that do not use them, by policy.", ["team"], registry=registry
        )
        self._pods = Gauge(
            "fairgate_idle_pods",
            "Pods with GPUs. `state`: idle (by policy), or by the last reading: used, low, excused (it starts or "
            "saves), unknown (no reading), not_judged (it shares a GPU, or policy exempts it).",
            ["state"],
            registry=registry,
        )
        self._seconds = Counter(
            "fairgate_idle_gpu_seconds",
            "GPU-seconds below the bound of policy, from the first reading on; starts and gaps do not count.",
            ["team"],
            registry=registry,
        )
        self._readings = Counter(
            "fairgate_idle_readings",
            "Readings of utilization. `outcome`: read, empty (no series), failed.",
            ["outcome"],
            registry=registry,
        )
        self._evictions = Counter(
            "fairgate_idle_evictions", "Pods evicted since they did not use their GPUs.", ["team"], registry=registry
        )
        for outcome in ("read", "empty", "failed"):
            self._readings.labels(outcome)
        for state in STATES:
            self._pods.labels(state)

    def reading(self, outcome: str) -> None:
        """Count a reading."""
        self._readings.labels(outcome).inc()

    def looked(self, pods: Iterable[JudgedPod], *, seconds: float, teams: Iterable[TeamName]) -> None:
        """Set what is known now, and add the time since the last look."""
        counts: Counts[str] = Counts()
        idle: dict[TeamName, Units] = dict.fromkeys(teams, 0)
        low: dict[TeamName, Units] = dict.fromkeys(idle, 0)
        for pod in pods:
            counts[pod.state] += 1
            for sums, is_counted in ((idle, pod.state == "idle"), (low, pod.is_low)):
                sums[pod.team] = sums.get(pod.team, 0) + (pod.gpus if is_counted else 0)
        self._set(counts, idle)
        for team, gpus in low.items():
            self._seconds.labels(team).inc(float(gpus / ONE_GPU) * seconds)

    def forget(self) -> None:
        """Show no pods: nothing is read."""
        self._set({}, {})

    def evicted(self, team: TeamName) -> None:
        """Count a pod that was evicted."""
        self._evictions.labels(team).inc()

    def _set(self, counts: Mapping[str, int], idle: Mapping[TeamName, Units]) -> None:
        for state in STATES:
            self._pods.labels(state).set(counts.get(state, 0))
        self._gpus.clear()
        for team, gpus in idle.items():
            self._gpus.labels(team).set(float(gpus / ONE_GPU))


# Metrics of the moves that the evictor makes.


class Stopped(StrEnum):
    """Why a plan ended before all of its pods were moved, or with one that did not come back."""

    ROOM_TAKEN = "RoomTaken"
    NOT_NEEDED = "NotNeeded"
    RECLAIM_FIRST = "ReclaimFirst"
    REFUSED = "Refused"
    NOT_BACK = "NotBack"


WHY_STOPPED: Final = {
    Stopped.ROOM_TAKEN: "other pods took room that was reserved for it",
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


# Metrics of the evictor.


SEATED_BOUNDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
PLAN_BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
OUTCOMES: Final = ("evicted", "deleted", "overtaken", "gone", "refused", "later")
"""Deleted: the Eviction API failed, or budgets no longer count. Overtaken: the pod changed faster than these."""
OBSTACLES: Final = ("budget", "policy", "failure", "stuck")
"""What keeps borrowing pods from going; stuck: its eviction was accepted, and it does not end."""


class ReclaimMetrics(ProcessMetrics):
    """What the evictor does and for which teams; labels are teams and enums, never pods."""

    def __init__(self) -> None:
        super().__init__(Component.EVICTOR)
        self.idle = IdleMetrics(self.registry)
        self._plans = self._counter("plans", "Waiting pods for which room was planned.", "team")
        self._victims = self._counter("victims", "Pods evicted, by the team that lost them.", "team")
        self._lost = self._counter(
            "lost_gpu_seconds", "GPU-seconds since victims' last checkpoints, or starts.", "team"
        )
        self._trimmed = self._counter(
            "surplus_victims", "Victims beyond their workload's minimum of replicas, by team.", "team"
        )
        self._evictions = self._counter(
            "evictions", "Evictions requested. `outcome`: evicted, deleted, overtaken, gone, refused, later.", "outcome"
        )
        self._broken = self._counter("broken_holds", "Holds given up before their pods had their room.")
        self._seated = Histogram(
            "fairgate_reclaim_duration_seconds",
            "From the first look at a waiting pod that may reclaim until it was on a node.",
            buckets=SEATED_BOUNDS,
            registry=self.registry,
        )
        self._planning = Histogram(
            "fairgate_reclaim_planning_seconds", "Time to make a plan.", buckets=PLAN_BOUNDS, registry=self.registry
        )
        self._refused = Gauge(
            "fairgate_reclaim_waiting_pods",
            "Guaranteed pods that wait and for which nothing can be done. `cause`: Fits, NoNode, TopologyUnmet, "
            "NotEnoughVictims, LimitsFull, GangIncomplete, NotForRoom, NoDomain, RoomRefused, NoEffect.",
            ["cause"],
            registry=self.registry,
        )
        self._unevictable = Gauge(
            "fairgate_reclaim_unevictable_pods",
            "Borrowing pods that were to be evicted and are still there. `obstacle`: budget, policy, failure, stuck.",
            ["obstacle"],
            registry=self.registry,
        )
        for outcome in OUTCOMES:
            self._evictions.labels(outcome)
        for cause in NoPlan:
            self._refused.labels(cause)
        for obstacle in OBSTACLES:
            self._unevictable.labels(obstacle)

    def planned(self, team: TeamName) -> None:
        """Count a waiting pod whose room is planned."""
        self._plans.labels(team).inc()

    def planning(self, seconds: float) -> None:
        """Record how long a plan took."""
        self._planning.observe(seconds)

    def eviction(self, outcome: str) -> None:
        """Count a call of the Eviction API, by one of OUTCOMES."""
        self._evictions.labels(outcome).inc()

    def victim(self, team: TeamName, *, gpu_unit_seconds: Units, is_surplus: bool = False) -> None:
        """Count a pod that was evicted, the work that is lost with it, and whether its workload could spare it."""
        self._victims.labels(team).inc()
        self._trimmed.labels(team).inc(is_surplus)
        self._lost.labels(team).inc(float(gpu_unit_seconds / ONE_GPU))

    def placed(self, seconds: float) -> None:
        """Record how long a pod waited for its room."""
        self._seated.observe(seconds)

    def broken(self) -> None:
        """Count a hold that was given up."""
        self._broken.inc()

    def refused(self, causes: Mapping[NoPlan, int]) -> None:
        """Set for how many waiting pods nothing can be done, by cause."""
        for cause in NoPlan:
            self._refused.labels(cause).set(causes.get(cause, 0))

    def unevictable(self, counts: Mapping[str, int]) -> None:
        """Set how many borrowing pods do not go, by one of OBSTACLES."""
        for obstacle in OBSTACLES:
            self._unevictable.labels(obstacle).set(counts.get(obstacle, 0))

    def watch(self, *, held_nodes: Callable[[], int], largest_room: Callable[[], int]) -> None:
        """Read on each scrape how many nodes hold room, and the most room that one could give (in GPU units)."""
        self.add_gauge(
            "fairgate_reclaim_largest_seat_gpus",
            "GPUs that one pod could have on one node without all possible victims: what a guaranteed share is worth "
            "in one piece.",
            lambda: largest_room() / ONE_GPU,
        )
        self.add_gauge("fairgate_reclaim_held_nodes", "Nodes that hold room for waiting pods.", held_nodes)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"fairgate_reclaim_{name}", text, labels, registry=self.registry)
