"""Metrics of an evictor. Labels are teams and enums, never pods."""

from collections.abc import Callable, Mapping
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from webhook.core.model.amounts import ONE_GPU, TeamName, Units
from webhook.core.reclaim.reclaim_plan import NoPlan
from webhook.observe.processes import Component, ProcessMetrics

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
        self._plans = self._counter("plans", "Waiting pods for which reclaim was planned.", "team")
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
        self._broken = self._counter("broken_holds", "Reservations withdrawn before their pods had their GPUs.")
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
        self.add_gauge("fairgate_reclaim_held_nodes", "Nodes that are reserved for waiting pods.", held_nodes)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"fairgate_reclaim_{name}", text, labels, registry=self.registry)
