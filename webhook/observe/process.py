"""The metrics that server and evictor share, each in a registry of its own: they are processes of their own."""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from webhook import __version__
from webhook.observe.table import Family, Row, Table

EVENT_OUTCOMES: Final = ("written", "held_back", "dropped")

_HELD_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Component(StrEnum):
    """Which process tells."""

    SERVER = "server"
    EVICTOR = "evictor"


@dataclass(frozen=True, slots=True)
class Exposition:
    """The text of all metrics, in the format the scraper asked for; each piece is read and written when it is taken.

    A server takes a turn on its event loop after each: the whole is milliseconds where there are many teams.
    """

    content_type: str
    pieces: Iterator[bytes]

    @property
    def body(self) -> bytes:
        """Write all pieces at once."""
        return b"".join(self.pieces)


@dataclass(frozen=True, slots=True)
class LeaderStatus:
    """What one candidate for leader tells: of which Lease, and what became of its Events, by EVENT_OUTCOMES."""

    lease: str
    is_leading: bool
    terms: int
    events: Mapping[str, int]


class Kind(Protocol):
    """What a watch is about."""

    @property
    def name(self) -> str:
        """Name it."""
        ...


class Watch(Protocol):
    """What the watch of one kind has brought since the start."""

    events: int
    relists: int
    last_contact: float | None

    @property
    def rejected(self) -> int:
        """Count the objects that could not be read and do not count."""
        ...

    @property
    def kind(self) -> Kind:
        """Tell what it is about."""
        ...


class ProcessMetrics:
    """What every process shows. Labels come from enums and from what admins name; pods and free text never do."""

    def __init__(self, component: Component) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        Info("fairgate_build", "What is running; always 1. `component`: server, evictor.", registry=self.registry).info(
            {"component": component, "version": __version__, "python_version": platform.python_version()}
        )
        self._reloads = Counter(
            "fairgate_policy_reloads",
            "Policies read: the first, and each changed one. `result`: success, failure.",
            ["result"],
            registry=self.registry,
        )
        self._reload_successful = Gauge(
            "fairgate_policy_last_reload_successful",
            "1 if the newest policy is in force, 0 if a broken edit was left out.",
            registry=self.registry,
        )
        for result in ("success", "failure"):
            self._reloads.labels(result)
        self._held = Histogram(
            "fairgate_event_loop_held_seconds",
            "Turns of the event loop of 50 ms and more: nobody was answered meanwhile. `by`: whose work it was, such "
            "as mutate, validate, workloads, watch, ledger, evictor; stall where the process got no processor.",
            ["by"],
            buckets=_HELD_BUCKETS,
            registry=self.registry,
        )

    def loop_held(self, by: str, seconds: float) -> None:
        """Record that the event loop was held for so long."""
        self._held.labels(by).observe(seconds)

    def policy_reload(self, *, is_success: bool) -> None:
        """Record one reading of the policy folder, the first one included."""
        self._reloads.labels("success" if is_success else "failure").inc()
        self._reload_successful.set(is_success)

    def watch_policy(self, policy_hash: Callable[[], str]) -> None:
        """Show on each scrape which policy is in force."""
        text = "The policy in force, by its hash; always 1. Replicas that differ have not all seen the last edit."
        self.ask({"fairgate_policy_info": text}, lambda: [Row((policy_hash(),), (1,))], labels=["policy"])

    def watch_feed(self, watches: Sequence[Watch], *, clock: Callable[[], float]) -> None:
        """Show on each scrape what each watch has brought, and for how long the quietest has been silent."""

        def age_seconds() -> float:
            now = clock()
            return max(float("inf") if w.last_contact is None else now - w.last_contact for w in watches)

        self.add_gauge(
            "fairgate_world_age_seconds",
            "For how long the quietest watch has been silent, or listing. Up to 60 is normal; over 120 is unready.",
            age_seconds,
        )
        counted = {
            "fairgate_watch_events": "Changes that the watch of a kind brought.",
            "fairgate_watch_relists": "Full lists after the first: the API server forgot where the watch was.",
            "fairgate_watch_rejected_objects": "Objects that could not be read whole. Pods count by what can "
            "be read of them, others not at all. Should stay 0.",
        }
        self.ask(
            counted,
            lambda: [Row((w.kind.name,), (w.events, w.relists, w.rejected)) for w in watches],
            labels=["kind"],
            family=CounterMetricFamily,
        )

    def watch_leader(self, leader_status: Callable[[], LeaderStatus]) -> None:
        """Show on each scrape whether this process leads, and what became of its Events."""
        self.ask(
            {"fairgate_leader": "1 on the process that leads, for sure at this moment; 0 on the others."},
            lambda: [Row((leader_status().lease,), (leader_status().is_leading,))],
            labels=["lease"],
        )
        self.ask(
            {"fairgate_leader_terms": "How often this process began to lead."},
            lambda: [Row((leader_status().lease,), (leader_status().terms,))],
            labels=["lease"],
            family=CounterMetricFamily,
        )
        self.ask(
            {
                "fairgate_events": "Events. `outcome`: written, held_back (too many on one object), dropped (not taken "
                "by the API server, or too many waiting)."
            },
            lambda: [Row((outcome,), (leader_status().events.get(outcome, 0),)) for outcome in EVENT_OUTCOMES],
            labels=["outcome"],
            family=CounterMetricFamily,
        )

    def ask(
        self,
        columns: Mapping[str, str],
        rows: Callable[[], Iterable[Row]],
        *,
        labels: Sequence[str],
        family: Family = GaugeMetricFamily,
    ) -> None:
        """Ask for a table on each scrape."""
        self.registry.register(Table(columns, rows, labels=labels, family=family))

    def add_gauge(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """Ask for one number on each scrape."""
        Gauge(name, documentation, registry=self.registry).set_function(read)

    def expose(self, accept: str = "") -> Exposition:
        """Write all metrics in the format that an Accept header asks for, or in plain text where it asks for none."""
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # OpenMetrics of a version that is no number
            encode, content_type = choose_encoder("")
        return Exposition(content_type, self._pieces(encode))

    def _pieces(self, encode: Callable[[Collector], bytes]) -> Iterator[bytes]:
        for metric in self.registry.collect():
            yield encode(_Single(metric)).removesuffix(_END)
        yield encode(_NOTHING)  # the end of OpenMetrics; in plain text it is empty


class _Single(Collector):
    """Gives one metric to an encoder, or none."""

    def __init__(self, *metrics: Metric) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


_END: Final = b"# EOF\n"
_NOTHING: Final = _Single()
