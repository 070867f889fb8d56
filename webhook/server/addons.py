"""What an add-on of a server may do: it watches objects and refusals, runs tasks, answers paths, adds to the report.

Enforcement knows no add-on: what it decides is the same without any. A method that one does not override does nothing.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.writes.lease import Lease
from webhook.cluster.writes.reports import ReplicaReporter
from webhook.core.model.pod import Pod
from webhook.core.model.reasons import Reason
from webhook.core.world.world import World
from webhook.kube.admission.reviews import Review
from webhook.kube.ledger.reports import ReplicaReport
from webhook.observe.logs import Logs
from webhook.observe.metrics import Metrics
from webhook.policy.watch import InForce
from webhook.server.http.app import Handler

Task = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerParts:
    """What an add-on is made from when a server starts."""

    world: World
    logs: Logs
    metrics: Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedCluster:
    """The live cluster of a server.

    `why_stale` returns why the world may not be current, `wait_synced` waits until it is complete, `in_force` returns
    the policy in force with its files, `describe` this replica's report as of a time of day.
    """

    connection: ApiConnection
    world: World
    lease: Lease
    reporter: ReplicaReporter
    why_stale: Callable[[], str | None]
    wait_synced: Callable[[], Awaitable[None]]
    in_force: Callable[[], InForce]
    describe: Callable[[str], ReplicaReport]


class ServerAddon:
    """One add-on in a server. Neither `note` nor `refused` may raise or block: a watch and decisions call them."""

    def note(self, kind: str, found: msgspec.Struct | None, handle: str) -> None:
        """Take note of an object of a watched kind that changed, None if it is gone; after the world applied it."""

    def refused(self, review: Review, pod: Pod | None, reason: Reason) -> None:
        """Take note of a refused request; `pod` is None where it could not be read."""

    def connected(self, cluster: ServedCluster) -> None:
        """Take the live cluster, before any task runs; not called where the world is a file."""

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return what runs for as long as the server does."""
        return ()

    def leading(self) -> Mapping[str, Task]:
        """Return tasks that one replica runs for all, by name."""
        return {}

    def routes(self) -> Mapping[str, Handler]:
        """Return what answers GET requests, by path."""
        return {}

    def report(self) -> Mapping[str, Any]:
        """Return its fields of this replica's report."""
        return {}


MakeServerAddon = Callable[[ServerParts], ServerAddon]
