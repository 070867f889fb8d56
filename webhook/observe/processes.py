"""Process, leader, ledger metrics.

Metrics that are computed on each scrape: a table with a column per metric and a row per set of label values.
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from webhook import __version__
from webhook.core.model.amounts import TeamName


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


# The metrics of both server and evictor, which are separate processes with a registry each.


EVENT_OUTCOMES: Final = ("written", "held_back", "dropped")

_BLOCKED_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Component(StrEnum):
    """Which process exports the metrics."""

    SERVER = "server"
    EVICTOR = "evictor"


@dataclass(frozen=True, slots=True)
class Exposition:
    """The text of all metrics, in the format that the scraper requested; each piece is generated when it is read.

    The server yields to its event loop after each: with many teams the whole text takes milliseconds.
    """

    content_type: str
    pieces: Iterator[bytes]

    @property
    def body(self) -> bytes:
        """All pieces at once."""
        return b"".join(self.pieces)


@dataclass(frozen=True, slots=True)
class LeaderStatus:
    """The state of one candidate for leader: its Lease, and its Events by EVENT_OUTCOMES."""

    lease: str
    is_leading: bool
    terms: int
    events: Mapping[str, int]


class Kind(Protocol):
    """The kind of a watch."""

    @property
    def name(self) -> str:
        """The plural of the resource."""
        ...


class Watch(Protocol):
    """The counters of the watch of one kind."""

    events: int
    relists: int
    last_contact: float | None

    @property
    def rejected(self) -> int:
        """The number of objects that could not be decoded or were invalid."""
        ...

    @property
    def kind(self) -> Kind:
        """The kind that is watched."""
        ...


class ProcessMetrics:
    """The metrics of every process. Label values come from enums and from what admins configure, never from pods."""

    def __init__(self, component: Component) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        Info("fairgate_build", "What is running; always 1. `component`: server, evictor.", registry=self.registry).info(
            {"component": component, "version": __version__, "python_version": platform.python_version()}
        )
        self._reloads = Counter(
            "fairgate_policy_reloads",
            "Loads of the policy: the first, and one per change. `result`: success, failure.",
            ["result"],
            registry=self.registry,
        )
        self._reload_successful = Gauge(
            "fairgate_policy_last_reload_successful",
            "1 if the newest policy is in force, 0 if a broken edit was ignored.",
            registry=self.registry,
        )
        for result in ("success", "failure"):
            self._reloads.labels(result)
        self._blocked = Histogram(
            "fairgate_event_loop_held_seconds",
            "Time for which the event loop was blocked, if 50 ms or more: no request was answered meanwhile. `by`: "
            "what ran, such as mutate, validate, workloads, watch, ledger, evictor; stall if the process got no CPU "
            "time.",
            ["by"],
            buckets=_BLOCKED_BUCKETS,
            registry=self.registry,
        )

    def loop_blocked(self, by: str, seconds: float) -> None:
        """Record that the event loop was blocked for so long."""
        self._blocked.labels(by).observe(seconds)

    def policy_reload(self, *, is_success: bool) -> None:
        """Record one load of the policy folder, including the first one."""
        self._reloads.labels("success" if is_success else "failure").inc()
        self._reload_successful.set(is_success)

    def watch_policy(self, policy_hash: Callable[[], str]) -> None:
        """Export which policy is in force."""
        text = "The policy in force, by its hash; always 1. If replicas differ, some have not loaded the last edit."
        self.add_table({"fairgate_policy_info": text}, lambda: [Row((policy_hash(),), (1,))], labels=["policy"])

    def watch_feed(self, watches: Sequence[Watch], *, clock: Callable[[], float]) -> None:
        """Export the counters of each watch, and the longest silence of any."""

        def age_seconds() -> float:
            now = clock()
            return max(float("inf") if w.last_contact is None else now - w.last_contact for w in watches)

        self.add_gauge(
            "fairgate_world_age_seconds",
            "The longest time since a watch last received anything. Up to 60 is normal; over 120 is unready.",
            age_seconds,
        )
        counted = {
            "fairgate_watch_events": "Changes that the watch of a kind received.",
            "fairgate_watch_relists": "Full lists after the first: the resourceVersion of the watch had expired.",
            "fairgate_watch_rejected_objects": "Objects that could not be decoded completely. Pods count by their "
            "readable part, others not at all. Should stay 0.",
        }
        self.add_table(
            counted,
            lambda: [Row((w.kind.name,), (w.events, w.relists, w.rejected)) for w in watches],
            labels=["kind"],
            family=CounterMetricFamily,
        )

    def watch_leader(self, leader_status: Callable[[], LeaderStatus]) -> None:
        """Export whether this process leads, and the outcomes of its Events."""
        self.add_table(
            {"fairgate_leader": "1 on the process that certainly leads now; 0 on the others."},
            lambda: [Row((leader_status().lease,), (leader_status().is_leading,))],
            labels=["lease"],
        )
        self.add_counts(
            "fairgate_leader_terms",
            "How often this process became leader.",
            lambda: {leader_status().lease: leader_status().terms},
            labels=["lease"],
        )
        self.add_counts(
            "fairgate_events",
            "Events. `outcome`: written, held_back (too many on one object), dropped (rejected by the API server, or "
            "the queue was full).",
            lambda: {outcome: leader_status().events.get(outcome, 0) for outcome in EVENT_OUTCOMES},
            labels=["outcome"],
        )

    def add_table(
        self,
        columns: Mapping[str, str],
        rows: Callable[[], Iterable[Row]],
        *,
        labels: Sequence[str],
        family: Family = GaugeMetricFamily,
    ) -> None:
        """Export a table whose rows are computed on each scrape."""
        self.registry.register(Table(columns, rows, labels=labels, family=family))

    def add_counts(
        self, name: str, text: str, counts: Callable[[], Mapping[Any, float]], *, labels: Sequence[str] = ()
    ) -> None:
        """Export counters that are kept elsewhere, by the value of their label or a tuple of the values of several."""

        def rows() -> Iterator[Row]:
            for key, count in counts().items():
                yield Row((key,) if isinstance(key, str) else key, (count,))

        self.add_table({name: text}, rows, labels=labels, family=CounterMetricFamily)

    def add_gauge(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """Export a gauge that is read on each scrape."""
        Gauge(name, documentation, registry=self.registry).set_function(read)

    def expose(self, accept: str = "") -> Exposition:
        """Return all metrics in the format that an Accept header requests; plain text by default."""
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # OpenMetrics with an invalid version
            encode, content_type = choose_encoder("")
        return Exposition(content_type, self._pieces(encode))

    def _pieces(self, encode: Callable[[Collector], bytes]) -> Iterator[bytes]:
        for metric in self.registry.collect():
            yield encode(_Single(metric)).removesuffix(_END)
        yield encode(_NOTHING)  # the end of OpenMetrics; in plain text it is empty


class _Single(Collector):
    """Passes one metric to an encoder, or none."""

    def __init__(self, *metrics: Metric) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


_END: Final = b"# EOF\n"
_NOTHING: Final = _Single()


# Metrics of the ledger on the API: writes and their durations, withdrawn and orphaned charges, bypassing pods.
#
# Implements the Recorder of the ledger. At most some hundred writes a second: the library's metrics are fast enough.


WRITE_BOUNDS: Final = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0)
BATCH_BOUNDS: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""A write without charges removes settled or withdrawn charges, or updates the status."""

RESULTS: Final = ("written", "conflict", "too_large", "unknown", "refused")


_WRITES: Final = (
    "fairgate_ledger_writes",
    "Writes of TeamLedgers. `result`: written, conflict (another replica wrote first), too_large (then split and "
    "written), unknown (no response), refused.",
)
_BATCH: Final = (
    "fairgate_ledger_batch_charges",
    "Charges in a write; 0 if it only removes charges or updates the status.",
)
_SECONDS: Final = ("fairgate_ledger_write_duration_seconds", "Duration of a write, failed ones included.")
_WAITS: Final = (
    "fairgate_ledger_wait_seconds",
    "Time that charges waited because this replica's view of the pods was older than the ledger.",
)
_WITHDRAWN: Final = ("fairgate_ledger_withdrawn", "Charges withdrawn because their caller disconnected.")
_ORPHANS: Final = ("fairgate_ledger_orphans", "Charges dropped because their pod was never created.")
_STATES: Final = {
    "fairgate_ledger_in_flight": "Charges whose pods no replica has confirmed yet.",
    "fairgate_ledger_lag": "By how many resourceVersions this replica's view of the pods is behind the ledger. If it "
    "stays above 0, the watch is stuck, and the replica charges nothing.",
}
_BYPASSES: Final = (
    "fairgate_bypassing_pods",
    "GPU pods that bypassed the webhook since the start, outside of exempt namespaces.",
)


@dataclass(frozen=True, slots=True)
class LedgerState:
    """The state of a team's ledger object, as this replica knows it; `lag` in resourceVersions."""

    team: TeamName
    in_flight: int
    lag: int


class LedgerMetrics:
    """Counts the ledger's writes and withdrawals, and pods that bypassed the webhook."""

    def __init__(
        self,
        process: ProcessMetrics,
        *,
        states: Callable[[], Iterable[LedgerState]],
        teams: Callable[[], Iterable[TeamName]],
    ) -> None:
        self._bypasses: dict[TeamName, int] = {}
        self._writes = Counter(*_WRITES, ["result"], registry=process.registry)
        self._batch = Histogram(*_BATCH, buckets=BATCH_BOUNDS, registry=process.registry)
        self._seconds = Histogram(*_SECONDS, buckets=WRITE_BOUNDS, registry=process.registry)
        self._waits = Counter(*_WAITS, registry=process.registry)
        self._withdrawn = Counter(*_WITHDRAWN, registry=process.registry)
        self._orphans = Counter(*_ORPHANS, registry=process.registry)
        for result in RESULTS:
            self._writes.labels(result)
        process.add_table(
            _STATES,
            lambda: [Row((each.team,), (each.in_flight, each.lag)) for each in states()],
            labels=["team"],
        )
        process.add_counts(*_BYPASSES, lambda: dict.fromkeys(teams(), 0) | self._bypasses, labels=["team"])

    def wrote(self, result: str, *, charges: int, seconds: float) -> None:
        """Record a write."""
        self._writes.labels(result).inc()
        self._batch.observe(charges)
        self._seconds.observe(seconds)

    def waited(self, seconds: float) -> None:
        """Record that charges waited for the watched pods to catch up."""
        self._waits.inc(seconds)

    def withdrew(self) -> None:
        """Record a charge that is withdrawn because its caller disconnected."""
        self._withdrawn.inc()

    def orphan(self) -> None:
        """Record a charge that is dropped because its pod was never created."""
        self._orphans.inc()

    def bypass(self, team: TeamName) -> None:
        """Record a GPU pod of a team that bypassed the webhook."""
        self._bypasses[team] = self._bypasses.get(team, 0) + 1
