"""Counts decisions and their durations.

Not the library's counter and histogram, which cost 1.9 us a decision with their locks; these cost 0.2 us, because only
the event loop's thread counts.
"""

from bisect import bisect_left
from collections.abc import Iterator
from enum import StrEnum
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from webhook.core.model.reason import Code

SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
"""Histogram bounds: a decision takes some 10 us; waiting for a ledger write takes milliseconds."""

OTHER_CODE: Final = "Other"
CODES: Final = frozenset(Code)


class Phase(StrEnum):
    """Which webhook was called."""

    MUTATE = "mutate"
    VALIDATE = "validate"
    WORKLOADS = "workloads"
    CLAIMS = "claims"
    JOBS = "jobs"
    GANGS = "gangs"


class Decisions(Collector):
    """Keeps plain integers, and exports them as metrics on each scrape."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str, str], int] = {}
        self._buckets = {phase: [0] * (len(SECONDS) + 1) for phase in Phase}
        self._sums = dict.fromkeys(Phase, 0.0)

    def add(self, phase: Phase, *, outcome: str, code: str, team: str, seconds: float) -> None:
        """Count a decision and its duration."""
        key = (phase, outcome, code if code in CODES else OTHER_CODE, team)
        self._counts[key] = self._counts.get(key, 0) + 1
        self._buckets[phase][bisect_left(SECONDS, seconds)] += 1
        self._sums[phase] += seconds

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        counts = CounterMetricFamily(
            "fairgate_decisions",
            "Decisions. `phase`: mutate, validate, workloads, claims, jobs, gangs. `outcome`: admit, warn, deny, "
            "retry, skip. `code`: a reason code, the first of several. "
            "`team`: empty if the request belongs to no team.",
            labels=["phase", "outcome", "code", "team"],
        )
        for key, count in self._counts.items():
            counts.add_metric(key, count)
        yield counts
        times = HistogramMetricFamily(
            "fairgate_decision_duration_seconds", "Time from the complete body to the response.", labels=["phase"]
        )
        bounds = [*(repr(bound) for bound in SECONDS), "+Inf"]
        for phase, buckets in self._buckets.items():
            cumulative = list(zip(bounds, map(float, accumulate(buckets)), strict=True))
            times.add_metric([phase], cumulative, self._sums[phase])
        yield times
