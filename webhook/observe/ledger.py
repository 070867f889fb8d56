"""Metrics of the ledger on the API: what is written, how long it takes, what is lost on the way.

Implements webhook.cluster.desk.Recorder. At most some hundred writes a second: the library's own metrics will do.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from webhook.core.names import TeamName

WRITE_BOUNDS: Final = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0)
BATCH_BOUNDS: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""A write without charges folds, takes back or tells people."""

RESULTS: Final = ("written", "conflict", "unknown", "refused")


@dataclass(frozen=True, slots=True)
class Standing:
    """How a team's ledger object stands, as this replica knows it; `lag` in resourceVersions."""

    team: TeamName
    in_flight: int
    lag: int


class LedgerMetrics:
    """Counts what the ledger does, and what came past it."""

    def __init__(self, registry: CollectorRegistry, *, standings: Callable[[], Iterable[Standing]]) -> None:
        self._writes = Counter(
            "fairgate_ledger_writes", "Writes of ledger objects, by result.", ["result"], registry=registry
        )
        self._batch = Histogram(
            "fairgate_ledger_batch_charges", "Charges in a write.", buckets=BATCH_BOUNDS, registry=registry
        )
        self._seconds = Histogram(
            "fairgate_ledger_write_duration_seconds",
            "Time of a write, failed ones included.",
            buckets=WRITE_BOUNDS,
            registry=registry,
        )
        self._waits = Counter(
            "fairgate_ledger_wait_seconds", "Time that charges waited for a view that was behind.", registry=registry
        )
        self._withdrawn = Counter(
            "fairgate_ledger_withdrawn", "Charges taken back since their caller had gone.", registry=registry
        )
        self._orphans = Counter(
            "fairgate_ledger_orphans", "Charges dropped since their pod never came.", registry=registry
        )
        self._bypasses = Counter(
            "fairgate_bypassing_pods", "GPU pods that never passed the gate.", ["team"], registry=registry
        )
        for result in RESULTS:
            self._writes.labels(result)
        registry.register(_Standings(standings))

    def wrote(self, result: str, *, charges: int, seconds: float) -> None:
        """Record a write."""
        self._writes.labels(result).inc()
        self._batch.observe(charges)
        self._seconds.observe(seconds)

    def waited(self, seconds: float) -> None:
        """Record that charges had to wait for a view that was behind."""
        self._waits.inc(seconds)

    def withdrew(self) -> None:
        """Record a charge that is taken back because its caller had gone."""
        self._withdrawn.inc()

    def orphan(self) -> None:
        """Record a charge that is dropped because its pod never came."""
        self._orphans.inc()

    def bypass(self, team: TeamName) -> None:
        """Record a GPU pod of a team that never passed the gate."""
        self._bypasses.labels(team).inc()


class _Standings(Collector):
    def __init__(self, standings: Callable[[], Iterable[Standing]]) -> None:
        self._standings = standings

    def describe(self) -> Iterator[Metric]:
        """Name the metrics without asking the ledger, which may not be there yet when this is registered."""
        yield from self._families()

    def collect(self) -> Iterator[Metric]:
        in_flight, lag = families = self._families()
        for standing in self._standings():
            in_flight.add_metric([standing.team], standing.in_flight)
            lag.add_metric([standing.team], standing.lag)
        yield from families

    @staticmethod
    def _families() -> list[GaugeMetricFamily]:
        return [
            GaugeMetricFamily(f"fairgate_ledger_{name}", text, labels=["team"])
            for name, text in (
                ("in_flight", "Charges whose pods no replica has confirmed yet."),
                ("lag", "ResourceVersions that this replica's view of the pods is behind what was folded."),
            )
        ]
