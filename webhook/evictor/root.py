"""Composition, endpoints.

The evictor's HTTP endpoints: liveness, readiness and metrics.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from webhook.cluster.api.client import connect
from webhook.cluster.api.requests import own_namespace
from webhook.cluster.reads.listing import refuse_too_old
from webhook.cluster.watch.feed import Feed
from webhook.cluster.writes.events import EventWriter, OwnerEventQueue, OwnerLookup
from webhook.cluster.writes.lease import Lease, Timing, own_identity
from webhook.cluster.writes.reports import ReplicaReporter
from webhook.core.model.policy import Enforcement, Policy
from webhook.core.model.policy_addons import NotifyKind
from webhook.core.reclaim import snapshot
from webhook.core.reclaim.reclaim_index import STRANDED_SECONDS
from webhook.core.reclaim.reclaim_plan import Round
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.evictor.addons import EvictorAddon, EvictorParts, Leading, MakeEvictorAddon
from webhook.evictor.cluster_view import ClusterView, EvictorContext, EvictorState
from webhook.evictor.executor import DryRun, Executor
from webhook.evictor.hold_manager import HoldManager
from webhook.evictor.loop import Reclaimer
from webhook.evictor.repair import LostPods, Repair
from webhook.evictor.reporter import EvictionReporter
from webhook.evictor.unevictable import LISTED
from webhook.http.connections import Bounds
from webhook.http.server import connections_of, listening, open_sockets, run_beside, stop_signals
from webhook.kube.objects import keys
from webhook.observe.evictor import ReclaimMetrics
from webhook.observe.logs import LogFormat, Logs, Watchdog, open_logs
from webhook.observe.processes import LeaderStatus
from webhook.policy.documents import Problem
from webhook.policy.watch import PolicyHolder

BOUNDS: Final = Bounds(connections=256, of_address=64, idle_seconds=75.0)
"""A kubelet has one connection for each probe, and a Prometheus server one."""

FINISH_SECONDS: Final = 2.0
"""How long an answer may take after the end."""


class Endpoints:
    """Answers /healthz, /readyz and /metrics in plain HTTP, for kubelet and Prometheus."""

    def __init__(self, metrics: ReclaimMetrics, *, why_not_ready: Callable[[], str | None]) -> None:
        self._metrics = metrics
        self._why_not_ready = why_not_ready
        self._answers = {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": self._expose}

    @asynccontextmanager
    async def serving(self, host: str, port: int) -> AsyncIterator[str]:
        """Serve until the block ends; yield the URL. Raises OSError if the address cannot be bound."""
        sockets = open_sockets(host, port)
        connections = connections_of(self.handle, BOUNDS)
        async with listening(connections, sockets, finish_seconds=FINISH_SECONDS):
            bound = sockets[0].getsockname()
            yield f"http://{bound[0]}:{bound[1]}"

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Answer a request: GET and HEAD, without a body."""
        answer = self._answers.get(request.path)
        if answer is None:
            return web.Response(text=f"no such path; the paths are {', '.join(self._answers)}", status=404)
        if request.method not in ("GET", "HEAD"):
            return web.Response(text="GET and HEAD only", status=405, headers={"Allow": "GET, HEAD"})
        if request.body_exists:
            return web.Response(text="no body is read", status=413)
        return answer(request)

    def _healthz(self, _request: web.BaseRequest) -> web.Response:
        return web.Response(text="ok")

    def _readyz(self, _request: web.BaseRequest) -> web.Response:
        why = self._why_not_ready()
        return web.Response(text=why or "ok", status=503 if why else 200)

    def _expose(self, request: web.BaseRequest) -> web.Response:
        shown = self._metrics.expose(request.headers.get("Accept", ""))
        return web.Response(body=shown.body, headers={"Content-Type": shown.content_type})


# The composition root of `fairgate evict`: the only place that wires all parts together.


LEASE_NAME: Final = keys.EVICTOR_LEASE
COMPONENT: Final = "fairgate-evictor"
ID_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictorSettings:
    """The settings of `fairgate evict`. `listen` is host and port, None where nothing is served.

    Sections of the policy that are `unread` are a problem of it.
    """

    policy: Path
    kubeconfig: Path | None = None
    namespace: str | None = None
    listen: tuple[str, int] | None = None
    timing: Timing
    repair_after_seconds: int = STRANDED_SECONDS
    is_dry_run: bool = False
    enforce: Enforcement | None = None
    log_format: LogFormat = LogFormat.JSON
    unread: frozenset[str] = frozenset()


async def run(
    settings: EvictorSettings, *, addons: Iterable[MakeEvictorAddon] = (), show: Callable[[str], None]
) -> None:
    """Reclaim until SIGTERM or SIGINT; a dry run shows its plans, and ends.

    Raises PolicyError, PolicyUnreadable, ClusterError or OSError where a part cannot start; RestoredError once etcd was
    restored.
    """
    logs = open_logs(settings.log_format)
    logs.capture_libraries()
    holder = PolicyHolder(settings.policy, enforce=settings.enforce, unread=settings.unread)
    metrics = ReclaimMetrics()
    metrics.policy_reload(is_success=True)
    async with AsyncExitStack() as stack:
        stop = stack.enter_context(stop_signals(logs.stop_at_once))
        connection = await stack.enter_async_context(await connect(settings.kubeconfig))
        cluster_view = ClusterView(holder.current, clock=connection.unix_time)
        metrics.watch_policy(lambda: cluster_view.world.policy.hash)
        feed = cluster_view.feed(connection, note=lambda found: logs.autoscalers(*found))
        metrics.watch_feed(feed.watches, clock=asyncio.get_running_loop().time)
        tasks: list[Coroutine[Any, Any, None]] = [
            refuse_too_old(connection),
            feed.run(),
            feed.end_if_restored(),
            holder.run(_on_policy(cluster_view, metrics, logs), _on_refusal(holder, metrics, logs)),
            Watchdog(metrics, logs).run(),
        ]
        parts = EvictorParts(
            cluster_view=cluster_view, connection=connection, logs=logs, metrics=metrics, process=own_identity()
        )
        made = _Addons([make(parts) for make in addons])
        if settings.is_dry_run:
            dry_run = DryRun(
                cluster_view, more=made.preview, why_stale=feed.readiness, show=show, clock=connection.unix_time
            )
            tasks.append(dry_run.run(shown_once=stop))
        else:
            namespace = settings.namespace or await own_namespace(settings.kubeconfig)
            candidate = _Candidate(parts, feed, made, settings=settings, namespace=namespace)
            state = EvictorState(
                holder,
                candidate.lease,
                feed.readiness,
                candidate.unevictable,
                candidate.unserved,
                left_out=feed.left_out,
                of_addons=made.report,
            )
            reporter = ReplicaReporter(connection, identity=candidate.lease.identity, describe=state.report)
            tasks += [
                candidate.events.run(),
                candidate.owner_events.run(),
                candidate.lease.run(candidate.lead),
                reporter.run(),
                *(task for each in made.all for task in each.tasks()),
            ]
        if settings.listen is not None:
            endpoints = Endpoints(metrics, why_not_ready=feed.readiness)
            logs.event.info("listening", url=await stack.enter_async_context(endpoints.serving(*settings.listen)))
        await run_beside(tasks, stop.wait())
    logs.flush()


class _Addons:
    """All add-ons of an evictor."""

    def __init__(self, addons: Sequence[EvictorAddon]) -> None:
        self.all = addons

    def notify(self, kind: NotifyKind, gpu_pod: ReclaimPod, text: str) -> None:
        for each in self.all:
            each.notify(kind, gpu_pod, text)

    async def after_round(self, found: Round) -> None:
        for each in self.all:
            await each.after_round(found)

    async def preview(self) -> list[str]:
        return [line for each in self.all for line in await each.preview()]

    def report(self) -> Mapping[str, Any]:
        return {name: value for each in self.all for name, value in each.report().items()}


class _Candidate:
    """One candidate of the election, and what it does as leader."""

    def __init__(
        self, parts: EvictorParts, feed: Feed, addons: _Addons, *, settings: EvictorSettings, namespace: str
    ) -> None:
        connection, identity = parts.connection, parts.process
        self.lease = Lease(connection, namespace=namespace, name=LEASE_NAME, identity=identity, timing=settings.timing)
        self.events = EventWriter(connection, component=COMPONENT, instance=identity)
        self._owners = OwnerLookup(connection)
        self.owner_events = OwnerEventQueue(self._owners, self.events)
        self._parts = parts
        self._feed = feed
        self._addons = addons
        self._repair_after_seconds = settings.repair_after_seconds
        self._manager: HoldManager | None = None
        view, metrics = parts.cluster_view, parts.metrics
        metrics.watch(
            largest_room=lambda: snapshot.largest_room(view.reclaim_index, view.world),
            held_nodes=lambda: 0 if self._manager is None else len(self._manager.node_holds),
        )
        metrics.watch_leader(self._candidacy)

    async def lead(self) -> None:
        """Reclaim and repair until cancelled."""
        parts, addons, why_stale = self._parts, self._addons, self._feed.readiness
        cluster_view, logs, clock = parts.cluster_view, parts.logs, parts.connection.unix_time
        context = EvictorContext(
            cluster_view=cluster_view,
            connection=parts.connection,
            events=self.events,
            notify_owner=self.owner_events.take,
            notify=addons.notify,
            logs=logs,
            metrics=parts.metrics,
            why_stale=why_stale,
            is_leading=lambda: self.lease.is_leading,
            clock=clock,
        )
        reporter = EvictionReporter(context)
        manager = self._manager = HoldManager(context, reporter, new_id=lambda: secrets.token_hex(ID_BYTES))
        executor = Executor(context)
        leading = Leading(context=context, manager=manager, executor=executor, reporter=reporter, owners=self._owners)
        dry_run = DryRun(
            cluster_view,
            more=addons.preview,
            why_stale=why_stale,
            show=lambda line: logs.event.info("rehearsed", message=line),
            is_due=lambda: not cluster_view.world.policy.is_enforced,
            clock=clock,
        )
        tasks = [
            Reclaimer(context, manager, executor, reporter, addons.after_round).run(),
            Repair(context, after_seconds=self._repair_after_seconds).run(),
            LostPods(context).run(),
            dry_run.run(),
            *(task for each in addons.all for task in each.lead(leading)),
        ]
        logs.event.info("leading", identity=self.lease.identity)
        try:
            async with asyncio.TaskGroup() as group:
                for task in tasks:
                    group.create_task(task)
        finally:
            self._manager = None
            for each in addons.all:
                each.ended()
            logs.event.info("no longer leading", identity=self.lease.identity)

    def unevictable(self) -> list[str]:
        """Return which borrowing pods cannot be evicted, and why; nothing while it does not lead."""
        return [] if self._manager is None else self._manager.unevictable.texts()

    def unserved(self) -> list[str]:
        """Return for which waiting pods room was made without effect, with their schedulers' words."""
        found = [] if self._manager is None else self._manager.without_effect()[:LISTED]
        return [f"{each.namespace}/{each.name}: {'' if each.report is None else each.report.why}" for each in found]

    def _candidacy(self) -> LeaderStatus:
        lease = self.lease
        return LeaderStatus(LEASE_NAME, is_leading=lease.is_leading, terms=lease.terms, events=self.events.counts())


def _on_policy(cluster_view: ClusterView, metrics: ReclaimMetrics, logs: Logs) -> Callable[[Policy], None]:
    def apply(policy: Policy) -> None:
        metrics.policy_reload(is_success=True)
        cluster_view.set_policy(policy)
        sizes = {"teams": len(policy.teams), "pools": len(policy.pools)}
        logs.event.info("policy loaded", policy=policy.hash, enforce=policy.enforce.value, **sizes)

    return apply


def _on_refusal(holder: PolicyHolder, metrics: ReclaimMetrics, logs: Logs) -> Callable[[tuple[Problem, ...]], None]:
    def report(problems: tuple[Problem, ...]) -> None:
        metrics.policy_reload(is_success=False)
        logs.event.error("policy edit refused", kept=holder.current.hash, problems=[str(each) for each in problems])

    return report
