"""Metrics that are computed on each scrape: a table with a column per metric and a row per set of label values."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class Row(NamedTuple):
    """The label values, and one value for each metric."""

    labels: Sequence[str]
    values: Sequence[float]


class Family(Protocol):
    """A constructor of a metric without samples."""

    def __call__(
        self, name: str, documentation: str, *, labels: Sequence[str]
    ) -> "GaugeMetricFamily | CounterMetricFamily":
        """Return the metric."""
        ...


class Table(Collector):
    """Metrics of type `family` with the same labels. `columns` are their names and help texts."""

    def __init__(
        self,
        columns: Mapping[str, str],
        rows: Callable[[], Iterable[Row]],
        *,
        labels: Sequence[str] = (),
        family: Family = GaugeMetricFamily,
    ) -> None:
        self._columns = columns
        self._rows = rows
        self._labels = labels
        self._family = family

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics without rows: their source may not exist yet when this is registered."""
        yield from self._families()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        families = self._families()
        for row in self._rows():
            for family, value in zip(families, row.values, strict=True):
                family.add_metric(row.labels, value)
        yield from families

    def _families(self) -> "list[GaugeMetricFamily | CounterMetricFamily]":
        return [self._family(name, text, labels=self._labels) for name, text in self._columns.items()]
