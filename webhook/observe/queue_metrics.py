"""Metrics of the queue: how many pods wait in line, how long they waited, and how they were released.

The depth is exported by every replica; releases and waits by the one that leads.
"""

from collections.abc import Callable, Mapping
from typing import Final

from prometheus_client import Histogram

from webhook.core.explain.range_scores import Score
from webhook.core.model.names import TeamName
from webhook.core.queue.verdict import Way
from webhook.core.world.world import World
from webhook.observe.process import ProcessMetrics
from webhook.observe.table import Row

WAIT_BOUNDS: Final = (1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0, 259200.0)

_DEPTH: Final = {
    "fairgate_queue_depth": "Pods of the team that wait in line, those that other controllers' gates hold included.",
    "fairgate_queue_charged": "Pods of the team that are charged and keep their gate while reclaim makes their room.",
}
_WAIT: Final = (
    "fairgate_queue_wait_seconds",
    "Time from the creation of a pod to its release from the line, observed by the leader: sum over replicas.",
)
_RELEASES: Final = (
    "fairgate_queue_releases",
    "Pods that were released from the line, counted by the leader: sum over replicas. `way`: inTurn, backfill.",
)
_TIMED_OUT: Final = (
    "fairgate_gangs_timed_out",
    "Gangs whose pods did not all come within queue.gangTimeout, counted by the leader: sum over replicas.",
)

_STARTS: Final = (
    "fairgate_likely_starts",
    "Likely starts whose outcome is known, counted by the leader: sum over replicas. `result`: inside the range, "
    "earlier, later (or not at all).",
)

_STALLED: Final = (
    "fairgate_queue_stalled_seconds",
    "For how long the first pod in line could have started and was not released, by the leader; 0 if none waits so.",
)


class QueueMetrics:
    """Exports the line of each team; `waited` is called for each release."""

    def __init__(self, process: ProcessMetrics, world: World) -> None:
        self._process = process
        self._world = world
        process.add_table(_DEPTH, self._depths, labels=["team"])
        self._waits = Histogram(*_WAIT, ["team"], buckets=WAIT_BOUNDS, registry=process.registry)

    def watch_releases(self, released: Mapping[tuple[TeamName, Way], int]) -> None:
        """Export the releases that this replica made."""

        def counts() -> Mapping[tuple[TeamName, Way], int]:
            return {(team.name, way): 0 for team in self._world.policy.teams for way in Way} | dict(released)

        self._process.add_counts(*_RELEASES, counts, labels=["team", "way"])

    def watch_timeouts(self, timed_out: Mapping[TeamName, int]) -> None:
        """Export the gangs that this replica saw not come in time."""
        self._process.add_counts(*_TIMED_OUT, lambda: timed_out, labels=["team"])

    def watch_stalled(self, seconds: Callable[[], float]) -> None:
        """Export for how long the line has stood still."""
        self._process.add_gauge(*_STALLED, seconds)

    def watch_starts(self, scored: Callable[[], Score]) -> None:
        """Export how the likely starts came true that this replica forecast."""
        self._process.add_counts(*_STARTS, lambda: scored()._asdict(), labels=["result"])

    def waited(self, team: TeamName, seconds: float) -> None:
        """Record how long a pod waited that was released."""
        self._waits.labels(team).observe(seconds)

    def _depths(self) -> list[Row]:
        """Return a row for each team of the policy, and for others that have pods in line."""
        names = dict.fromkeys([team.name for team in self._world.policy.teams])
        for name in names:  # series of waits begin at 0: rate() does not see the first value of a series
            self._waits.labels(name)
        waiting = self._world.waiting
        return [
            Row((name,), (waiting.uncharged(name).pods, waiting.charged(name).pods))
            for name in names | dict.fromkeys(waiting.teams())
        ]
