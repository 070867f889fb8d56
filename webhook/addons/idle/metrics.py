"""Metrics of GPUs that pods hold and do not use. Labels are teams and enums, never pods."""

from collections import Counter as Counts
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge

from webhook.core.model.amounts import ONE_GPU, TeamName, Units

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
