"""Metrics in Prometheus' own terms, in a registry of their own. Labels come from enums; pods and free text never.

Two places are hand-made, because a library counter and histogram cost 1.9 us a decision with their locks and these
0.2: only the event loop's thread counts.
"""

import platform
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Info, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from webhook import __version__
from webhook.core.amount import ONE_GPU
from webhook.core.names import TeamName
from webhook.core.reason import Code
from webhook.core.tier import Tier
from webhook.observe.leader import Candidacy, LeaderMetrics
from webhook.observe.ledger import LedgerMetrics, Standing

SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
"""Bounds of the decision histogram: a decision takes some 10 us; waiting for a ledger write takes milliseconds."""

OTHER_CODE: Final = "Other"
CODES: Final = frozenset(Code)


class Phase(StrEnum):
    """Which webhook was called."""

    MUTATE = "mutate"
    VALIDATE = "validate"
    WORKLOADS = "workloads"


@dataclass(frozen=True, slots=True)
class Charged:
    """GPU units that a team has on its ledger in one tier."""

    team: TeamName
    tier: Tier
    gpus: int


@dataclass(frozen=True, slots=True)
class Watched:
    """What the watch of one kind has brought since the start: `rejected` objects could not be read and do not count."""

    kind: str
    events: int
    relists: int
    rejected: int


@dataclass(frozen=True, slots=True)
class Authorities:
    """The CAs of certificates in a Secret: when the signing one expires (Unix time), how many callers should trust."""

    expires_at: float
    trusted: int
    is_published: bool


@dataclass(frozen=True, slots=True)
class Exposition:
    """The text of all metrics, in the format the scraper asked for."""

    content_type: str
    body: bytes


class Metrics:
    """All metrics of one process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._decisions = _Decisions()
        self._registry.register(self._decisions)
        ProcessCollector(registry=self._registry)
        Info("fairgate_build", "What is running.", registry=self._registry).info(
            {"version": __version__, "python_version": platform.python_version()}
        )
        self._refused = Counter(
            "fairgate_refused_requests",
            "HTTP requests refused before any decision.",
            ["status"],
            registry=self._registry,
        )
        self._would = Counter(
            "fairgate_would_decisions",
            "Decisions that policy would have had, were it enforced.",
            ["enforce", "outcome", "code", "team"],
            registry=self._registry,
        )
        self._reloads = Counter(
            "fairgate_policy_reloads",
            "Changes of the policy folder that were read.",
            ["result"],
            registry=self._registry,
        )
        self._reload_successful = Gauge(
            "fairgate_policy_last_reload_successful",
            "1 if the policy in force is the folder's newest; 0 if a broken edit was left out.",
            registry=self._registry,
        )
        self._certificate_changes = Counter(
            "fairgate_certificate_changes",
            "Changes that this process wrote to the certificates' Secret.",
            ["change"],
            registry=self._registry,
        )
        for result in ("success", "failure"):
            self._reloads.labels(result)

    def decision(self, phase: Phase, *, outcome: str, code: str, seconds: float) -> None:
        """Count one decision and its time."""
        self._decisions.add(phase, outcome, code, seconds)

    def would(self, enforce: str, *, outcome: str, code: str, team: str) -> None:
        """Count what would have been decided."""
        self._would.labels(enforce, outcome, code if code in CODES else OTHER_CODE, team).inc()

    def refused(self, status: int) -> None:
        """Count a request that was answered with an HTTP error."""
        self._refused.labels(str(status)).inc()

    def policy_reload(self, *, is_success: bool) -> None:
        """Record one reading of the policy folder, the first one included."""
        self._reloads.labels("success" if is_success else "failure").inc()
        self._reload_successful.set(is_success)

    def watch_world_age(self, age_seconds: Callable[[], float]) -> None:
        """Show the age of the world on each scrape: seconds since anything was heard of it."""
        self._on_scrape(
            "fairgate_world_age_seconds", "Silence of the quietest watch; bookmarks come about every 60 s.", age_seconds
        )

    def watch_feed(self, watched: Callable[[], Iterable[Watched]]) -> None:
        """Show what each watch has brought on each scrape."""
        self._registry.register(_Watches(watched))

    def watch_leader(self, candidacy: Callable[[], Candidacy]) -> None:
        """Show on each scrape whether this replica leads, and what it did as leader."""
        self._registry.register(LeaderMetrics(candidacy))

    def watch_certificate(self, expires_at: Callable[[], float]) -> None:
        """Show when the serving certificate expires, as Unix time."""
        name = "fairgate_certificate_expiration_timestamp_seconds"
        self._on_scrape(name, "When the serving certificate expires, in Unix time.", expires_at)

    def watch_authorities(self, authorities: Callable[[], Authorities]) -> None:
        """Show on each scrape how it goes with the CAs of certificates that lie in a Secret."""
        self._on_scrape(
            "fairgate_ca_expiration_timestamp_seconds",
            "When the CA that signs the serving certificate expires, in Unix time.",
            lambda: authorities().expires_at,
        )
        self._on_scrape(
            "fairgate_ca_trusted",
            "CAs that callers are to trust: 2 while one takes over from another.",
            lambda: authorities().trusted,
        )
        self._on_scrape(
            "fairgate_ca_published",
            "1 if the webhook configurations are known to carry these CAs.",
            lambda: authorities().is_published,
        )

    def certificate_change(self, change: str) -> None:
        """Count a change that this process wrote to the certificates' Secret."""
        self._certificate_changes.labels(change).inc()

    def watch_charges(self, charges: Callable[[], Iterable[Charged]]) -> None:
        """Show the ledger's GPUs by team and tier on each scrape."""
        self._registry.register(_Charges(charges))

    def watch_ledger(self, standings: Callable[[], Iterable[Standing]]) -> LedgerMetrics:
        """Add the metrics of a ledger on the API; how each team's object stands is asked on each scrape."""
        return LedgerMetrics(self._registry, standings=standings)

    def expose(self, accept: str = "") -> Exposition:
        """Write all metrics in the format that an Accept header asks for, or in plain text where it asks for none."""
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # OpenMetrics of a version that is no number
            encode, content_type = choose_encoder("")
        return Exposition(content_type=content_type, body=encode(self._registry))

    def _on_scrape(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        Gauge(name, documentation, registry=self._registry).set_function(read)


class _Decisions(Collector):
    """Counts and times decisions with plain integers."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str], int] = {}
        self._buckets = {phase: [0] * (len(SECONDS) + 1) for phase in Phase}
        self._sums = dict.fromkeys(Phase, 0.0)

    def add(self, phase: Phase, outcome: str, code: str, seconds: float) -> None:
        key = (phase, outcome, code if code in CODES else OTHER_CODE)
        self._counts[key] = self._counts.get(key, 0) + 1
        self._buckets[phase][bisect_left(SECONDS, seconds)] += 1
        self._sums[phase] += seconds

    def collect(self) -> Iterator[Metric]:
        counts = CounterMetricFamily("fairgate_decisions", "Decisions made.", labels=["phase", "outcome", "code"])
        for key, count in self._counts.items():
            counts.add_metric(key, count)
        yield counts
        times = HistogramMetricFamily(
            "fairgate_decision_duration_seconds", "Time from the whole body to the answer.", labels=["phase"]
        )
        bounds = [*(repr(bound) for bound in SECONDS), "+Inf"]
        for phase, buckets in self._buckets.items():
            cumulative = list(zip(bounds, map(float, accumulate(buckets)), strict=True))
            times.add_metric([phase], cumulative, self._sums[phase])
        yield times


class _Charges(Collector):
    def __init__(self, charges: Callable[[], Iterable[Charged]]) -> None:
        self._charges = charges

    def describe(self) -> Iterator[Metric]:
        """Name the metric without reading the ledger, which may not be there yet when this is registered."""
        yield self._family()

    def collect(self) -> Iterator[Metric]:
        family = self._family()
        for charged in self._charges():
            family.add_metric([charged.team, charged.tier], charged.gpus / ONE_GPU)
        yield family

    @staticmethod
    def _family() -> GaugeMetricFamily:
        return GaugeMetricFamily("fairgate_gpus_charged", "GPUs on the ledger.", labels=["team", "tier"])


class _Watches(Collector):
    def __init__(self, watched: Callable[[], Iterable[Watched]]) -> None:
        self._watched = watched

    def describe(self) -> Iterator[Metric]:
        """Name the metrics without asking the watches, which may not be there yet when this is registered."""
        yield from self._families()

    def collect(self) -> Iterator[Metric]:
        events, relists, rejected = families = self._families()
        for watched in self._watched():
            events.add_metric([watched.kind], watched.events)
            relists.add_metric([watched.kind], watched.relists)
            rejected.add_metric([watched.kind], watched.rejected)
        yield from families

    @staticmethod
    def _families() -> list[CounterMetricFamily]:
        return [
            CounterMetricFamily(f"fairgate_watch_{name}", text, labels=["kind"])
            for name, text in (
                ("events", "Changes that the watch brought."),
                ("relists", "Full lists after the first."),
                ("rejected_objects", "Objects that could not be read and are not counted."),
            )
        ]
