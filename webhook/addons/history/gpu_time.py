"""GPU-seconds by team, model and tier, the use of nodes, and the waits of jobs: metrics that only the leader exports.

Every replica measures the same pods. If each exported their time, a sum over replicas would count it several times, and
a maximum would lose the counts of a terminated replica. So only the leader counts what its record grows by while it
leads: `sum(increase(...))` is right across changes of leader.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from webhook.core.explain.line_rows import BOUNDS, SIZES, Start
from webhook.core.explain.node_rows import ClusterUse
from webhook.observe.metrics import Metrics

MAX_NODES: Final = 2000
"""Clusters with more GPU nodes get no series by node: at this size writing one of the two blocks the loop for 10 ms."""


_WAIT: Final = (
    "fairgate_job_wait_seconds",
    "Time from the creation of a job until its pods are on nodes, observed by the leader: sum over replicas. A job is "
    "a pod, or a gang. `size`: class of its GPUs.",
)
_PARTS: Final = {
    "fairgate_allocation_ratio": "Part of the GPUs of all nodes that pods hold",
    "fairgate_node_fragmentation_ratio": "Part of the GPU nodes of which pods hold some GPUs and not all",
    "fairgate_gang_beyond_fewest_ratio": "Part of gangs' nodes beyond the fewest that could hold them, by their GPUs",
}


class GpuHolder(NamedTuple):
    """The labels of a sum: a team's pods of one tier on nodes of one GPU model."""

    team: str
    model: str
    tier: str


class EvictedGpus(NamedTuple):
    """The labels of a sum: work of a team's evicted pods, lost, moved or saved."""

    team: str
    work: str


_Sums = Mapping[GpuHolder | EvictedGpus, float]


class NodeGpus(NamedTuple):
    """The GPUs of one node."""

    node: str
    model: str
    capacity: float
    used: float


class GpuTimeMetrics(Collector):
    """Counts GPU-seconds while `run` runs. Label values are teams, models and tiers, which admins configure."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._use: Callable[[], ClusterUse] = ClusterUse
        self._waits = Histogram(*_WAIT, ["size"], buckets=BOUNDS, registry=registry)
        self._seconds: Callable[[], _Sums] = dict
        self._nodes: Callable[[], Sequence[NodeGpus]] = tuple
        self._counted: _Sums = {}
        self._begun: _Sums | None = None  # None while this process does not lead

    def watch(
        self,
        seconds: Callable[[], _Sums],
        *,
        nodes: Callable[[], Sequence[NodeGpus]],
        use: Callable[[], ClusterUse],
    ) -> None:
        """Read the GPU-seconds since the start of the process, and the GPUs and use of the nodes now, from these."""
        self._seconds, self._nodes, self._use = seconds, nodes, use

    def started(self, start: Start) -> None:
        """Count a job that started, if this process leads."""
        if self._begun is not None:
            self._waits.labels(start.size).observe(start.wait)

    async def run(self) -> None:
        """Count until cancelled: a task of the leader."""
        self.begin()
        try:
            await asyncio.Event().wait()
        finally:
            self._counted, self._begun = self._sums(), None

    def begin(self) -> None:
        """Count from now on."""
        for size in SIZES:  # series of waits begin at 0: rate() does not see the first value of a series
            self._waits.labels(size)
        self._begun = dict(self._seconds())

    def _sums(self) -> _Sums:
        if self._begun is None:
            return self._counted
        begun, counted = self._begun, self._counted
        now = self._seconds()
        return {**counted, **{who: counted.get(who, 0.0) + now[who] - begun.get(who, 0.0) for who in now}}

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics without samples: their sources may not exist yet when this is registered."""
        yield from (*_families(), *(GaugeMetricFamily(name, _words(name)) for name in _PARTS))

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        counter, evicted, capacity, used = _families()
        parts = [GaugeMetricFamily(name, _words(name)) for name in _PARTS]
        for holder, seconds in self._sums().items():
            (counter if isinstance(holder, GpuHolder) else evicted).add_metric(holder, seconds)
        nodes = () if self._begun is None else self._nodes()
        for each in nodes if len(nodes) <= MAX_NODES else ():
            capacity.add_metric((each.node, each.model), each.capacity)
            used.add_metric((each.node, each.model), each.used)
        if self._begun is not None:
            use = self._use()
            for family, part in zip(parts, (use.allocation, use.fragmentation, use.beyond_fewest), strict=True):
                family.add_metric((), part)
        yield from (counter, evicted, capacity, used, *parts)


def _words(name: str) -> str:
    return f"{_PARTS[name]}; exported by the leader only."


def _families() -> tuple[CounterMetricFamily, CounterMetricFamily, GaugeMetricFamily, GaugeMetricFamily]:
    where = ["node", "model"]
    return (
        CounterMetricFamily(
            "fairgate_gpu_seconds",
            "GPU-seconds that pods held on nodes, counted by the leader only: sum over replicas. `model`: of the node. "
            "`tier`: guaranteed, preemptible.",
            labels=list(GpuHolder._fields),
        ),
        CounterMetricFamily(
            "fairgate_evicted_gpu_seconds",
            "GPU-seconds of evicted pods, counted by the leader only, once they have ended: sum over replicas. `work`: "
            "lost (since the last checkpoint or the start), moved (the same, of pods that were moved to make room), "
            "saved (by a checkpoint after the warning).",
            labels=list(EvictedGpus._fields),
        ),
        GaugeMetricFamily(
            "fairgate_node_gpus_capacity",
            f"GPUs of a node, exported by the leader only, in clusters of up to {MAX_NODES} GPU nodes.",
            labels=where,
        ),
        GaugeMetricFamily(
            "fairgate_node_gpus_used",
            "GPUs that pods hold on a node; exported as fairgate_node_gpus_capacity is.",
            labels=where,
        ),
    )


def watch_history(metrics: Metrics, problem: Callable[[], str | None], dropped: Callable[[], int]) -> None:
    """Export whether the history file can be written, and how many rows were lost since it cannot."""
    metrics.add_gauge(
        "fairgate_history_writable", "1 while the history file is written, 0 if not.", lambda: problem() is None
    )
    text = "Rows of the history that were dropped because they were never written."
    metrics.add_counts("fairgate_history_dropped_rows", text, lambda: {(): dropped()})
