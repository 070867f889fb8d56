"""Metrics that are asked for on each scrape: a table whose columns are metrics and whose rows are what labels name."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class Row(NamedTuple):
    """The values of the labels, and one value for each metric."""

    labels: Sequence[str]
    values: Sequence[float]


class Family(Protocol):
    """Makes a metric without samples."""

    def __call__(
        self, name: str, documentation: str, *, labels: Sequence[str]
    ) -> "GaugeMetricFamily | CounterMetricFamily":
        """Make it."""
        ...


class Table(Collector):
    """Gauges, or whatever `family` makes, with the same labels. `columns` are their names and what they mean."""

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
        """Name the metrics without asking for rows: who has them may not be there yet when this is registered."""
        yield from self._families()

    def collect(self) -> Iterator[Metric]:
        """Write the metrics."""
        families = self._families()
        for row in self._rows():
            for family, value in zip(families, row.values, strict=True):
                family.add_metric(row.labels, value)
        yield from families

    def _families(self) -> "list[GaugeMetricFamily | CounterMetricFamily]":
        return [self._family(name, text, labels=self._labels) for name, text in self._columns.items()]
