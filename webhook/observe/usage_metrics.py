"""Usage over time as metrics, exported by every replica: what `fairgate usage --prometheus` reads.

Every replica counts all pods, so a sum over replicas counts them several times: the command takes, of each interval,
the replica that observed it longest.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

GPU_SECONDS: Final = "fairgate_usage_gpu_seconds"
REFUSED: Final = "fairgate_usage_refused"
REFUSED_GPUS: Final = "fairgate_usage_refused_gpus"
OBSERVED: Final = "fairgate_usage_observed_seconds"

_HELP: Final = {
    GPU_SECONDS: "GPU-seconds as each replica sees them: take one replica, not the sum. `kind`: guaranteed and "
    "borrowed (held on nodes), waiting, unused (guaranteed shares beyond what guaranteed pods hold), free (by model).",
    REFUSED: "Requests that this replica refused, except dry runs.",
    REFUSED_GPUS: "GPUs that refused requests asked for.",
    OBSERVED: "Seconds in which this replica saw the cluster's events as they came.",
}
_LABELS: Final = {
    GPU_SECONDS: ("kind", "team", "department", "model"),
    REFUSED: ("team", "department"),
    REFUSED_GPUS: ("team", "department"),
    OBSERVED: (),
}


class UsageTotal(NamedTuple):
    """A sum since the process started: the metric, its label values and the amount."""

    metric: str
    labels: tuple[str, ...]
    amount: float


class UsageMetrics(Collector):
    """Exports totals that are read on each scrape."""

    def __init__(self, totals: Callable[[], Iterable[UsageTotal]]) -> None:
        self._totals = totals

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics without samples: their source may not exist yet when this is registered."""
        yield from self._families().values()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        families = self._families()
        for total in self._totals():
            families[total.metric].add_metric(total.labels, total.amount)
        yield from families.values()

    def _families(self) -> dict[str, CounterMetricFamily]:
        return {name: CounterMetricFamily(name, text, labels=_LABELS[name]) for name, text in _HELP.items()}
