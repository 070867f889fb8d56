"""The tasks of the elected leader: started and stopped by a Lease, run whenever the world's usage changes."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.ledger.ledger import ApiLedger
from webhook.cluster.writes.events import EventWriter, OwnerEventQueue, OwnerLookup
from webhook.cluster.writes.lease import DEFAULT_TIMING, Lease, Timing, own_identity
from webhook.core.tiers.shadow_labels import ShadowLabels
from webhook.core.world.world import World
from webhook.kube.objects import keys
from webhook.kube.objects.events import Event, EventReason, ObjectRef
from webhook.observe.logs import Logs
from webhook.observe.processes import LeaderStatus
from webhook.server.leader.registration_loop import LeaderContext, RegistrationLoop
from webhook.server.leader.retries import RejectionReporter, Retrier
from webhook.server.leader.start_loop import StartLoop
from webhook.server.leader.tiers import Adopter, BypassReporter, TierUpdater
from webhook.server.leader.waiting_reasons import WaitPublisher

LEASE_NAME: Final = keys.SERVER_LEASE
COMPONENT: Final = "fairgate"

SETTLE_SECONDS: Final = 0.25
"""Delay before a reconciliation: changes at the same time (a Job that ends, a relist) are handled together."""

RESYNC_SECONDS: Final = 10.0
"""Between two reconciliations without a change: the last one may have failed, or the world was stale."""

RESTART_SECONDS: Final = 5.0
"""Before a task that failed starts again: longer than what it left unfinished may take."""


class Leader:
    """One candidate and its tasks. Start `run`, `events.run` and `owner_events.run` as tasks.

    `is_static` as of `RegistrationLoop`. A task that raises starts again after RESTART_SECONDS: what one object makes
    of it stops neither the other tasks nor this replica's reviews. `task_failures` counts that by name.
    """

    def __init__(
        self,
        connection: ApiConnection,
        world: World,
        logs: Logs,
        *,
        namespace: str,
        ledger: ApiLedger,
        shadow_labels: ShadowLabels,
        why_stale: Callable[[], str | None],
        why_not_serving: Callable[[], str | None],
        is_static: bool = False,
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        identity = own_identity()
        self._has_changed = asyncio.Event()
        self.lease = Lease(connection, namespace=namespace, name=LEASE_NAME, identity=identity, timing=timing)
        self.events = EventWriter(connection, component=COMPONENT, instance=identity)
        self.owner_events = OwnerEventQueue(OwnerLookup(connection), self.events)
        context = LeaderContext(
            connection=connection,
            world=world,
            ledger=ledger,
            events=self.events,
            logs=logs,
            is_leading=lambda: self.lease.is_leading,
            why_stale=why_stale,
            notify_owner=self.owner_events.take,
        )
        self.tiers = TierUpdater(context)
        self.retrier = Retrier(context, wake=self._has_changed.set)
        self._lease_ref = ObjectRef("Lease", namespace, LEASE_NAME, api_version=keys.LEASE_API)
        self.adopter = Adopter(context)
        self._shadow_labels = shadow_labels
        self._bypasses = BypassReporter(context)
        self.rejections = RejectionReporter(context)
        self.registration = RegistrationLoop(context, why_not_serving=why_not_serving, is_static=is_static)
        self.queue = StartLoop(context, clock=connection.unix_time)
        self.waits = WaitPublisher(context, self.queue.counts.waits)
        self._world = world
        self._why_stale = why_stale
        self._logs = logs
        self._tasks: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "registration": self.registration.run,
            "labels": self._reconcile_on_change,
            "queue": self.queue.run,
            "refusals": self.retrier.watch_refusals,
            "waits": self.waits.run,
        }
        self.task_failures = dict.fromkeys(self._tasks, 0)
        world.on_usage_changed = self._wake

    def add(self, tasks: Mapping[str, Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """Run more tasks while leading, each under a name; before `run`."""
        self._tasks |= tasks
        self.task_failures |= dict.fromkeys(tasks, 0)

    def _wake(self) -> None:
        self._has_changed.set()
        self.queue.note_usage()

    async def run(self) -> None:
        """Take part in the election, and run the tasks while leading, until cancelled."""
        await self.lease.run(self._run_tasks)

    def should_clean_up(self) -> bool:
        """Return whether this replica does tasks that one replica should do and that are harmless in several.

        True for the leader, and for a replica that cannot read the Lease, such as for a missing right.
        """
        return self.lease.is_leading or self.lease.problem is not None

    def report_policy_refused(self, text: str) -> None:
        """Write an Event about a broken policy edit; every replica writes the same one."""
        self.events.record(Event(self._lease_ref, EventReason.POLICY_REFUSED, text))

    def leader_status(self) -> LeaderStatus:
        """Return the state of leader election, for the metrics."""
        lease = self.lease
        return LeaderStatus(LEASE_NAME, is_leading=lease.is_leading, terms=lease.terms, events=self.events.counts())

    def is_registration_in_step(self) -> bool:
        """Return whether the webhook configurations match the policy; True on a replica that does not lead."""
        return not self.lease.is_leading or self.registration.problem is None

    def webhooks_missing(self) -> int:
        """Return how many webhook configurations the policy requires and the cluster lacks; 0 without the lead."""
        return len(self.registration.missing) if self.lease.is_leading else 0

    def registration_problem(self) -> str | None:
        """Return why the webhook configurations may not match the policy; None on a replica that does not lead."""
        return self.registration.problem if self.lease.is_leading else None

    async def _run_tasks(self) -> None:
        self._logs.event.info("leading", identity=self.lease.identity)
        try:
            async with asyncio.TaskGroup() as group:
                for name, task in self._tasks.items():
                    group.create_task(self._keep_running(name, task))
        finally:
            self._logs.event.info("no longer leading", identity=self.lease.identity)

    async def _keep_running(self, name: str, task: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await task()
            except Exception as bug:
                self.task_failures[name] += 1
                self._logs.event.error("bug", task=name, exc_info=bug)
            await asyncio.sleep(RESTART_SECONDS)

    async def _reconcile_on_change(self) -> None:
        while True:
            self._has_changed.clear()
            if self._why_stale() is None and self._world.knows_all_namespaces:
                await self._reconcile()
            with suppress(TimeoutError):
                async with asyncio.timeout(RESYNC_SECONDS):
                    await self._has_changed.wait()
            await asyncio.sleep(SETTLE_SECONDS)

    async def _reconcile(self) -> None:
        """Update labels and Events to match the policy; write nothing while it is not enforced."""
        if self._world.policy.is_enforced:
            self._bypasses.report_new()
            self.rejections.report_new()
            await self.adopter.adopt_new()
            await self.tiers.reconcile()
            await self.retrier.request_due()
        else:
            self._bypasses.skip_existing()
            self._shadow_labels.update_tiers(team.name for team in self._world.policy.teams)
