"""A live cluster as the world: its feed, the ledger on its API, and what it takes to trust both."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webhook.cluster.api.client import ApiConnection, connect
from webhook.cluster.api.errors import ClusterError
from webhook.cluster.ledger.ledger import ApiLedger
from webhook.cluster.watch.feed import Feed
from webhook.cluster.watch.quotas import quota_kind
from webhook.cluster.watch.world_kinds import world_kinds
from webhook.cluster.writes.crd_installer import CrdInstaller
from webhook.core.model.pod import Resident
from webhook.core.quota.in_flight import InFlightCharge
from webhook.core.quota.resource_quotas import QuotaIndex
from webhook.core.tiers.shadow_labels import ShadowLabels
from webhook.core.world.pod_index import holder_of
from webhook.core.world.world import World
from webhook.kube.ledger.report_crd import report_crd
from webhook.kube.ledger.team_ledger_crd import team_ledger_crd
from webhook.observe.ledger_metrics import LedgerMetrics, Standing
from webhook.observe.logs import Logs
from webhook.observe.metrics import Metrics
from webhook.server.leader.bypass_detector import Witness
from webhook.server.settings import StartupError


@dataclass(frozen=True, slots=True)
class Live:
    """A world that a cluster feeds, and the ledger that its replicas share."""

    connection: ApiConnection
    feed: Feed
    world: World
    ledger: ApiLedger
    definition: CrdInstaller
    reports: CrdInstaller
    witness: Witness
    shadow_labels: ShadowLabels
    counts: LedgerMetrics

    @classmethod
    async def connect(
        cls, kubeconfig: Path | None, world: World, stack: AsyncExitStack, *, metrics: Metrics, logs: Logs
    ) -> "Live":
        """Connect to a cluster until the stack closes; raises StartupError where there are no credentials for one."""
        try:
            connection = await stack.enter_async_context(await connect(kubeconfig))
        except ClusterError as exc:
            raise StartupError(str(exc)) from exc
        counts = metrics.watch_ledger(
            lambda: [Standing(*state) for state in ledger.states()],
            teams=lambda: [team.name for team in world.policy.teams],
        )
        quotas = QuotaIndex()
        ledger = ApiLedger(
            connection,
            world,
            reached=lambda: pods.reached,
            recorder=counts,
            known=lambda name: pods.handle(name),  # noqa: PLW0108 - made below
            quotas=quotas,
        )
        stack.push_async_callback(ledger.close)
        shadow_labels = ShadowLabels(world)
        witness = Witness(
            world, shadow_labels, report=lambda pod: _tell_bypass(pod, world, counts, logs), linger=ledger.linger
        )
        kinds = world_kinds(world, pods=witness, lose=witness.lose_pod)
        feed = Feed(connection, (quota_kind(quotas), *kinds, ledger.kind()))
        pods = next(watch for watch in feed.watches if watch.kind.name == "pods")
        metrics.watch_feed(feed.watches, clock=asyncio.get_running_loop().time)
        definition, reports = CrdInstaller(connection, team_ledger_crd()), CrdInstaller(connection, report_crd())
        return cls(connection, feed, world, ledger, definition, reports, witness, shadow_labels, counts)

    def chores(
        self, logs: Logs, *, settled: Callable[[], None], is_leader: Callable[[], bool]
    ) -> list[Coroutine[Any, Any, None]]:
        """List what runs for as long as the server does."""
        return [
            self.definition.ensure(),
            self.reports.ensure(),
            self.feed.run(),
            self._arrange(logs, settled),
            self.ledger.drop_orphans(is_leader=is_leader, report=lambda flight: self._tell_orphan(flight, logs)),
            self.ledger.reconcile(is_leader=is_leader),
        ]

    def why_stale(self) -> str | None:
        """Tell why decisions should not be made on this world: not listed yet, or silent for too long."""
        return self.feed.readiness()

    def why_no_ledger(self) -> str | None:
        """Tell why nothing can be charged: the API server does not know our kind of object yet."""
        return self.definition.problem

    def why_not_synced(self) -> str | None:
        """Tell why nothing can be decided yet."""
        return self.feed.why_not_synced()

    async def _arrange(self, logs: Logs, settled: Callable[[], None]) -> None:
        """Order the nodes by name once the first lists are in, and look out for pods that come past the gate."""
        await self.feed.wait_synced()
        self.world.sort_nodes()
        self.shadow_labels.relabel_all()
        settled()
        if unlabelled := sum(1 for _ in self.witness.open()):
            logs.event.warning("pods never passed the gate", count=unlabelled)

    def _tell_orphan(self, flight: InFlightCharge, logs: Logs) -> None:
        self.counts.orphan()
        pod, team = flight.pod, flight.charge.team
        logs.event.warning("charge taken back", team=team, namespace=pod.namespace, name=pod.name, uid=pod.uid)


def _tell_bypass(pod: Resident, world: World, counts: LedgerMetrics, logs: Logs) -> None:
    team = world.tenancy(pod.namespace).team_name
    counts.bypass(team)
    holder = holder_of(pod.namespace, pod.name, pod.owner)
    logs.event.warning("pod never passed the gate", team=team, holder=holder, name=pod.name, uid=pod.uid)
