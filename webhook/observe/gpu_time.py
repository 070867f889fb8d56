"""GPU-seconds by team, model and tier, and the GPUs of each node: metrics that only the leader exports.

Every replica watches the same pods. If each counted their time, a sum over replicas would count it several times, and
a maximum would lose the counts of a terminated replica. So only the leader counts: `sum(increase(...))` is right
across changes of leader.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from webhook.core.model.amount import ONE_GPU, Units
from webhook.core.model.names import GpuModel, NodeName
from webhook.core.world.occupancy import UsageKey

MAX_NODES: Final = 2000
"""Clusters with more GPU nodes get no series by node: at this size writing one of the two blocks the loop for 10 ms."""


class NodeGpus(NamedTuple):
    """The GPUs of one node, in GPU units."""

    node: NodeName
    model: GpuModel
    capacity: Units
    used: Units


class GpuTimeMetrics(Collector):
    """Adds up GPU-seconds. Labels are teams, models and tiers, which admins configure."""

    def __init__(self) -> None:
        self._seconds: dict[UsageKey, float] = {}
        self._nodes: tuple[NodeGpus, ...] = ()

    def add(self, held: Mapping[UsageKey, Units], *, seconds: float) -> None:
        """Add GPUs that were held for some seconds; 0 seconds start a series at 0, as `increase` requires."""
        for holder, gpus in held.items():
            self._seconds[holder] = self._seconds.get(holder, 0.0) + gpus * seconds / ONE_GPU

    def set_nodes(self, nodes: tuple[NodeGpus, ...]) -> None:
        """Export these nodes from now on."""
        self._nodes = nodes if len(nodes) <= MAX_NODES else ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        counter = CounterMetricFamily(
            "fairgate_gpu_seconds",
            "GPU-seconds that pods held on nodes, counted by the leader only: sum over replicas. `model`: of the node. "
            "`tier`: guaranteed, preemptible.",
            labels=["team", "model", "tier"],
        )
        for holder, seconds in self._seconds.items():
            counter.add_metric(holder, seconds)
        yield counter
        capacity = GaugeMetricFamily(
            "fairgate_node_gpus_capacity",
            f"GPUs of a node, exported by the leader only, in clusters of up to {MAX_NODES} GPU nodes.",
            labels=["node", "model"],
        )
        used = GaugeMetricFamily(
            "fairgate_node_gpus_used",
            "GPUs that pods hold on a node; exported as fairgate_node_gpus_capacity is.",
            labels=["node", "model"],
        )
        for each in self._nodes:
            capacity.add_metric((each.node, each.model), float(each.capacity / ONE_GPU))
            used.add_metric((each.node, each.model), float(each.used / ONE_GPU))
        yield capacity
        yield used
