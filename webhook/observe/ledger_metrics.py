"""Metrics of the ledger on the API: writes and their durations, withdrawn and orphaned charges, bypassing pods.

Implements the Recorder of the ledger. At most some hundred writes a second: the library's metrics are fast enough.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from prometheus_client import Counter, Histogram

from webhook.core.model.names import TeamName
from webhook.observe.process import ProcessMetrics
from webhook.observe.table import Row

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
