"""The composition root: the only place that knows every part of `fairgate serve` and wires them together."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from webhook.cluster.api.client import ClusterError
from webhook.cluster.api.requests import own_namespace
from webhook.cluster.writes.events import OwnerEvent
from webhook.cluster.writes.lease import lease_timing
from webhook.cluster.writes.reports import ReplicaReporter
from webhook.core.admission.pools import maintenance_texts
from webhook.core.model.pod import Pod
from webhook.core.model.policy import Policy
from webhook.core.model.reasons import Reason
from webhook.core.tiers.shadow_labels import ShadowLabels
from webhook.core.world.world import World
from webhook.http.server import run_beside, stop_signals
from webhook.kube.admission.reviews import Review
from webhook.kube.world_file.world_file import WorldFileError, read_world
from webhook.observe.logs import Logs, Watchdog, open_logs
from webhook.observe.metrics import Metrics
from webhook.policy.documents import PolicyError, PolicyUnreadable, Problem
from webhook.policy.watch import PolicyHolder
from webhook.server.addons import MakeServerAddon, ServedCluster, ServerAddon, ServerParts
from webhook.server.certificates import Certificates, CertificateStatus, open_certificates
from webhook.server.http.app import App, serve
from webhook.server.http.handlers import Readiness
from webhook.server.leader.leader import Leader
from webhook.server.leader.registration_loop import PolicyPublisher
from webhook.server.leader.replica_report import LedgerLag, ServerState
from webhook.server.live_world import LiveWorld, keep_time
from webhook.server.review.reviewer import AdmissionReviewer
from webhook.server.review.verdicts import Ledger, MemoryLedger
from webhook.server.settings import FileWorld, LiveCluster, ServerSettings, StartupError


async def run(
    settings: ServerSettings,
    *,
    addons: Iterable[MakeServerAddon] = (),
    on_listening: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; `on_listening` receives the URL to call.

    Raises StartupError if a part is not available, ClusterError if the API server is too old, RestoredError once etcd
    was restored.
    """
    logs = open_logs(settings.log_format)
    logs.capture_libraries()
    holder = _load_policy(settings)
    is_embedded = isinstance(settings.world, FileWorld)
    world = World(holder.current, is_live=not is_embedded)
    metrics, readiness = Metrics(), Readiness("policy")
    _watch_world(world, metrics, readiness)
    async with AsyncExitStack() as stack:
        stop = stack.enter_context(stop_signals(logs.stop_at_once))
        certificates = await open_certificates(settings, stack, CertificateStatus(readiness, metrics, logs))
        tasks: list[Coroutine[Any, Any, None]] = []
        why_not_synced: Callable[[], str | None] = _always_ready
        made = [make(ServerParts(world=world, logs=logs, metrics=metrics)) for make in addons]
        report_refused: Callable[[str], None] = _ignore
        notify_owner: Callable[[OwnerEvent], None] | None = None
        unix_time: Callable[[], float] = time.time
        ledger: Ledger
        match settings.world:
            case FileWorld(path=path):
                _read_world_file(path, world, metrics)
                shadow_labels = ShadowLabels(world)
                shadow_labels.relabel_all()
                ledger = MemoryLedger(world, asyncio.get_running_loop().time)
            case LiveCluster(kubeconfig=kubeconfig):
                live = await LiveWorld.connect(kubeconfig, world, stack, metrics=metrics, logs=logs, note=_noting(made))
                leader = Leader(
                    live.connection,
                    world,
                    logs,
                    namespace=settings.namespace or await _own_namespace(kubeconfig),
                    ledger=live.ledger,
                    shadow_labels=live.shadow_labels,
                    why_stale=live.why_stale,
                    why_not_serving=readiness.why_not,
                    is_static=settings.is_static,
                    timing=lease_timing(settings.lease_seconds),
                )
                leader.add({"policy": PolicyPublisher(live.connection, holder.in_force, logs).run})
                _watch_leader(leader, metrics, world)
                readiness.watch("world", live.why_stale)
                readiness.watch("ledger", live.why_no_ledger)
                ledger, shadow_labels, why_not_synced = live.ledger, live.shadow_labels, live.why_not_synced
                unix_time = live.connection.unix_time
                tasks = [
                    *live.background_tasks(
                        logs, on_synced=lambda: _log_world(world, logs), is_leader=leader.should_clean_up
                    ),
                    leader.run(),
                    leader.events.run(),
                    leader.owner_events.run(),
                    _connect_addons(made, live, leader, holder, readiness, certificates=certificates).run(),
                ]
                notify_owner, report_refused = leader.owner_events.take, leader.report_policy_refused
        reviewer = AdmissionReviewer(
            world,
            ledger,
            now_text=lambda: _second_text(int(unix_time())),
            shadow_labels=shadow_labels,
            unix_time=unix_time,
            notify_owner=notify_owner,
            on_refusal=_telling(made),
        )

        tasks += [
            holder.run(
                on_change=lambda policy: _set_policy(policy, shadow_labels.set_policy, readiness, metrics, logs),
                on_problem=lambda problems: report_refused(_keep_policy(problems, holder, readiness, metrics, logs)),
            ),
            certificates.renew(),
            keep_time(world, unix_time),
            Watchdog(metrics, logs).run(),
            *(task for each in made for task in each.tasks()),
        ]
        app = App(
            reviewer,
            readiness,
            metrics,
            logs,
            why_not_synced=why_not_synced,
            check_caller=certificates.check_caller,
            routes={path: handle for each in made for path, handle in each.routes().items()},
        )

        def announce(url: str) -> None:
            _log_policy(world.policy, logs)
            if is_embedded:
                _log_world(world, logs)
            if on_listening is not None:
                on_listening(url)

        await run_beside(tasks, serve(app, settings, certificates.context, stop=stop, on_listening=announce))
    logs.flush()


def _watch_world(world: World, metrics: Metrics, readiness: Readiness) -> None:
    readiness.set_ok("policy", remark=f"policy {world.policy.hash}")
    metrics.policy_reload(is_success=True)
    metrics.watch_world(world)
    metrics.watch_readiness(lambda: {name: each.ok for name, each in readiness.conditions().items()})


def _noting(addons: Iterable[ServerAddon]) -> Callable[[str, Any, str], None]:
    """Return what every change of a watched object is passed to."""

    def note(kind: str, found: Any, handle: str) -> None:  # noqa: ANN401 - of any kind
        for each in addons:
            each.note(kind, found, handle)

    return note


def _telling(addons: Iterable[ServerAddon]) -> Callable[[Review, Pod | None, Reason], None]:
    """Return what every refusal is passed to."""

    def tell(review: Review, pod: Pod | None, reason: Reason) -> None:
        for each in addons:
            each.refused(review, pod, reason)

    return tell


def _watch_leader(leader: Leader, metrics: Metrics, world: World) -> None:
    metrics.watch_leader(leader.leader_status)
    metrics.watch_leader_tasks(leader.task_failures)
    metrics.watch_tier_changes(leader.tiers.changes)
    metrics.watch_registration(leader.is_registration_in_step, leader.webhooks_missing)
    queue_metrics = metrics.watch_queue(world)
    queue_metrics.watch_releases(leader.queue.counts.released)
    queue_metrics.watch_timeouts(leader.queue.counts.timed_out)
    queue_metrics.watch_stalled(lambda: leader.queue.stalled.seconds)
    leader.queue.counts.on_wait = queue_metrics.waited


def _connect_addons(
    addons: Iterable[ServerAddon],
    live: LiveWorld,
    leader: Leader,
    holder: PolicyHolder,
    readiness: Readiness,
    *,
    certificates: Certificates,
) -> ReplicaReporter:
    """Give add-ons the cluster and the leader their tasks; return what publishes this replica's report."""

    def of_addons() -> Mapping[str, Any]:
        return {name: value for each in addons for name, value in each.report().items()}

    state = ServerState(
        holder=holder,
        readiness=readiness,
        lease=leader.lease,
        certificate=certificates.pem,
        registration=leader.registration_problem,
        lag=LedgerLag(live.ledger.states, asyncio.get_running_loop().time),
        rejecting=leader.rejections.texts,
        stalled=lambda: leader.queue.stalled.problem,
        maintained=partial(maintenance_texts, live.world),
        unreviewed=leader.registration.unreviewed,
        world=live.world,
        autoscalers=live.autoscalers,
        left_out=live.feed.left_out,
        of_addons=of_addons,
    )
    reporter = ReplicaReporter(live.connection, identity=leader.lease.identity, describe=state.report)
    cluster = ServedCluster(
        connection=live.connection,
        world=live.world,
        lease=leader.lease,
        reporter=reporter,
        why_stale=live.why_stale,
        wait_synced=live.feed.wait_synced,
        in_force=holder.in_force,
        describe=state.report,
    )
    for each in addons:
        each.connected(cluster)
        leader.add(each.leading())
    return reporter


async def _own_namespace(kubeconfig: Path | None) -> str:
    try:
        return await own_namespace(kubeconfig)
    except ClusterError as exc:
        raise StartupError(str(exc)) from exc


def _always_ready() -> None:
    return None


def _ignore(_text: str) -> None:
    return None


def _load_policy(settings: ServerSettings) -> PolicyHolder:
    try:
        return PolicyHolder(settings.policy, enforce=settings.enforce, unread=settings.unread)
    except PolicyError as exc:
        listed = "\n  ".join(str(problem) for problem in exc.problems)
        raise StartupError(f"policy {settings.policy} has problems:\n  {listed}") from exc
    except PolicyUnreadable as exc:
        raise StartupError(str(exc)) from exc


def _set_policy(
    policy: Policy, apply: Callable[[Policy], None], readiness: Readiness, metrics: Metrics, logs: Logs
) -> None:
    apply(policy)
    readiness.set_ok("policy", remark=f"policy {policy.hash}")
    metrics.policy_reload(is_success=True)
    _log_policy(policy, logs)


def _log_policy(policy: Policy, logs: Logs) -> None:
    sizes = {"teams": len(policy.teams), "pools": len(policy.pools)}
    logs.event.info("policy loaded", policy=policy.hash, enforce=policy.enforce.value, **sizes)


def _keep_policy(
    problems: tuple[Problem, ...], holder: PolicyHolder, readiness: Readiness, metrics: Metrics, logs: Logs
) -> str:
    """Keep the last valid policy, stay ready, and report the problems; return the text."""
    kept = holder.current.hash
    text = f"a broken edit was ignored, policy {kept} stays in force: {holder.problem}"
    readiness.set_ok("policy", remark=text)
    metrics.policy_reload(is_success=False)
    logs.event.error("policy edit refused", kept=kept, problems=[str(problem) for problem in problems])
    return text


def _read_world_file(path: Path, world: World, metrics: Metrics) -> None:
    try:
        read_world(world, path)
    except WorldFileError as exc:
        raise StartupError(str(exc)) from exc
    metrics.watch_queue(world)


def _log_world(world: World, logs: Logs) -> None:
    logs.event.info("world loaded", nodes=len(world.fleet), pods=sum(1 for _ in world.pods()))


@lru_cache(maxsize=1)
def _second_text(second: int) -> str:
    """Return a second of Unix time as RFC 3339; formatting it for each decision would cost a tenth of a decision."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
