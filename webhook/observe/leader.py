"""How a replica stands as a candidate for leader, and what it did as one, as metrics."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from webhook.core.names import TeamName
from webhook.core.tier import Tier


@dataclass(frozen=True, slots=True)
class Candidacy:
    """What one replica tells: `changes` counts pods by team and new tier, `events` by what became of them."""

    is_leading: bool
    terms: int
    changes: Mapping[tuple[TeamName, Tier], int]
    events: Mapping[str, int]


class LeaderMetrics(Collector):
    """Asks for the candidacy on each scrape."""

    def __init__(self, candidacy: Callable[[], Candidacy]) -> None:
        self._candidacy = candidacy

    def collect(self) -> Iterator[Metric]:
        """Write the metrics."""
        candidacy = self._candidacy()
        yield GaugeMetricFamily("fairgate_leader", "1 on the replica that leads.", value=candidacy.is_leading)
        yield CounterMetricFamily(
            "fairgate_leader_terms", "How often this replica began to lead.", value=candidacy.terms
        )
        changes = CounterMetricFamily("fairgate_tier_changes", "Pods by their new tier.", labels=["team", "tier"])
        for (team, tier), count in candidacy.changes.items():
            changes.add_metric([team, tier], count)
        yield changes
        events = CounterMetricFamily("fairgate_events", "Kubernetes Events by what became of them.", labels=["outcome"])
        for outcome, count in candidacy.events.items():
            events.add_metric([outcome], count)
        yield events
