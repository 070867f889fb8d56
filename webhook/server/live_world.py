"""A world that a cluster's watches keep current, with the ledger on the cluster's API."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from webhook.cluster.api.client import ApiConnection, ClusterError, connect
from webhook.cluster.ledger.ledger import ApiLedger
from webhook.cluster.reads.listing import refuse_too_old
from webhook.cluster.watch.feed import AutoscalerWatch, Feed, FoundAutoscalers, quota_kind
from webhook.cluster.writes.reports import CrdInstaller
from webhook.core.model.node import Autoscaler
from webhook.core.model.pod import Resident
from webhook.core.quota.charges import InFlightCharge, QuotaIndex
from webhook.core.tiers.shadow_labels import ShadowLabels
from webhook.core.world.pod_index import holder_of
from webhook.core.world.world import World
from webhook.kube.ledger.reports import report_crd
from webhook.kube.ledger.team_ledger import team_ledger_crd
from webhook.kube.nodes.nodes import API, marks_of
from webhook.kube.watched.world_kinds import followed, world_kinds
from webhook.observe.logs import Logs
from webhook.observe.metrics import Metrics
from webhook.observe.processes import LedgerMetrics, LedgerState
from webhook.server.leader.tiers import BypassDetector
from webhook.server.settings import StartupError

TICK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class LiveWorld:
    """A world that a cluster's watches keep current, and the ledger that its replicas share."""

    connection: ApiConnection
    feed: Feed
    world: World
    ledger: ApiLedger
    definition: CrdInstaller
    reports: CrdInstaller
    bypass_detector: BypassDetector
    shadow_labels: ShadowLabels
    counts: LedgerMetrics
    autoscalers: AutoscalerWatch

    @classmethod
    async def connect(
        cls,
        kubeconfig: Path | None,
        world: World,
        stack: AsyncExitStack,
        *,
        metrics: Metrics,
        logs: Logs,
        note: Callable[[str, Any, str], None],
    ) -> "LiveWorld":
        """Connect to a cluster until the stack closes. Raises StartupError if there are no credentials.

        `note` is called with the name of a kind, the object and its handle after each change; None if it is gone.
        """
        try:
            connection = await stack.enter_async_context(await connect(kubeconfig))
        except ClusterError as exc:
            raise StartupError(str(exc)) from exc
        counts = metrics.watch_ledger(
            lambda: [LedgerState(*state) for state in ledger.states()],
            teams=lambda: [team.name for team in world.policy.teams],
        )
        quotas = QuotaIndex()
        ledger = ApiLedger(
            connection,
            world,
            reached=lambda: pods.reached,
            recorder=counts,
            known=lambda name: pods.handle(name),  # noqa: PLW0108 - made below
            on_restored=lambda error: feed.note_restored(error),  # noqa: PLW0108 - made below
            quotas=quotas,
        )
        stack.push_async_callback(ledger.close)
        shadow_labels = ShadowLabels(world)
        bypass_detector = BypassDetector(
            world, shadow_labels, report=lambda pod: _report_bypass(pod, world, counts, logs), linger=ledger.linger
        )
        kinds = [
            followed(kind, partial(note, kind.name))
            for kind in world_kinds(world, pods=bypass_detector, lose=bypass_detector.delete_pod)
        ]
        autoscalers = AutoscalerWatch(connection, world, note=_noting(logs, note))
        feed = Feed(
            connection,
            (quota_kind(quotas), *kinds, ledger.kind()),
            autoscalers=autoscalers,
        )
        pods = next(watch for watch in feed.watches if watch.kind.name == "pods")
        metrics.watch_feed(feed.watches, clock=asyncio.get_running_loop().time)
        definition, reports = CrdInstaller(connection, team_ledger_crd()), CrdInstaller(connection, report_crd())
        return cls(
            connection=connection,
            feed=feed,
            world=world,
            ledger=ledger,
            definition=definition,
            reports=reports,
            bypass_detector=bypass_detector,
            shadow_labels=shadow_labels,
            counts=counts,
            autoscalers=autoscalers,
        )

    def background_tasks(
        self, logs: Logs, *, on_synced: Callable[[], None], is_leader: Callable[[], bool]
    ) -> list[Coroutine[Any, Any, None]]:
        """Return what runs for as long as the server does."""
        return [
            refuse_too_old(self.connection),
            self.definition.run(),
            self.reports.run(),
            self.feed.run(),
            self.feed.end_if_restored(),
            self._prepare(logs, on_synced),
            self.ledger.drop_orphans(is_leader=is_leader, report=lambda flight: self._report_orphan(flight, logs)),
            self.ledger.reconcile(is_leader=is_leader),
        ]

    def why_stale(self) -> str | None:
        """Return why decisions should not be made on this world: not listed yet, or stale."""
        return self.feed.readiness()

    def why_no_ledger(self) -> str | None:
        """Return why nothing can be charged: the API server does not serve TeamLedgers yet."""
        return self.definition.problem

    def why_not_synced(self) -> str | None:
        """Return why nothing can be decided yet."""
        return self.feed.why_not_synced()

    async def _prepare(self, logs: Logs, on_synced: Callable[[], None]) -> None:
        """After the first lists, order the nodes by name and start to report pods that bypass the webhook."""
        await self.feed.wait_synced()
        self.world.sort_nodes()
        self.shadow_labels.relabel_all()
        on_synced()
        if unlabeled := sum(1 for _ in self.bypass_detector.start()):
            logs.event.warning("pods bypassed the webhook", count=unlabeled)

    def _report_orphan(self, flight: InFlightCharge, logs: Logs) -> None:
        self.counts.orphan()
        pod, team = flight.pod, flight.charge.team
        logs.event.warning("charge withdrawn", team=team, namespace=pod.namespace, name=pod.name, uid=pod.uid)


async def keep_time(world: World, clock: Callable[[], float]) -> NoReturn:
    """Have promises of room end, and deadlines pass, also while no request comes: later events are seen in time."""
    while True:
        world.tick(int(clock()))
        await asyncio.sleep(TICK_SECONDS)


def _noting(logs: Logs, note: Callable[[str, Any, str], None]) -> Callable[[FoundAutoscalers], None]:
    """Return a function that logs what was found, and notes what changed of it like objects of a watched kind."""
    noted: set[Autoscaler] = set()

    def note_found(found: FoundAutoscalers) -> None:
        logs.autoscalers(*found)
        for each in noted ^ found.autoscalers:
            for mark in marks_of(each, at=time.time()):
                note(API[type(mark)].plural, mark if each in found.autoscalers else None, mark.metadata.name)
        noted.clear()
        noted.update(found.autoscalers)

    return note_found


def _report_bypass(pod: Resident, world: World, counts: LedgerMetrics, logs: Logs) -> None:
    team = world.tenancy(pod.namespace).team_name
    counts.bypass(team)
    holder = holder_of(pod.namespace, pod.name, pod.owner)
    logs.event.warning("pod bypassed the webhook", team=team, holder=holder, name=pod.name, uid=pod.uid)
