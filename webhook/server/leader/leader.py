"""What only one replica does: its turn by a Lease, its work whenever the books change."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.writes.events import EventWriter
from webhook.cluster.writes.lease import DEFAULT_TIMING, Lease, Timing, own_identity
from webhook.cluster.writes.owner_events import OwnerEventQueue
from webhook.cluster.writes.owners import OwnerLookup
from webhook.core.tiers.shadow_labels import ShadowLabels
from webhook.core.world.world import World
from webhook.kube.objects import keys
from webhook.kube.objects.events import Event, EventReason, EventType, ObjectRef
from webhook.observe.gpu_time import Accounting
from webhook.observe.logs import Logs
from webhook.observe.process import LeaderStatus
from webhook.server.leader.adopter import Adopter
from webhook.server.leader.bypass_reporter import Bypasses
from webhook.server.leader.controller_retries import Retrier
from webhook.server.leader.registration_loop import Registrar
from webhook.server.leader.tiers import Shares, Tiers
from webhook.server.leader.usage_sampler import Accountant

LEASE_NAME: Final = "fairgate"
COMPONENT: Final = "fairgate"

SETTLE_SECONDS: Final = 0.25
"""Rest before a look: what changes together (a Job that ends, a list after a gap) is looked at once."""

LOOK_AGAIN_SECONDS: Final = 10.0
"""When to look though nothing changed: something failed, or the world could not be trusted then."""


class Leader:
    """One candidate and its duties. Start `run`, `events.run` and `owner_events.run` as tasks.

    `duties` run beside its own.
    """

    def __init__(
        self,
        connection: ApiConnection,
        world: World,
        logs: Logs,
        *,
        namespace: str,
        shares: Shares,
        shadow_labels: ShadowLabels,
        why_stale: Callable[[], str | None],
        why_not_serving: Callable[[], str | None],
        accounting: Accounting,
        timing: Timing = DEFAULT_TIMING,
        duties: Iterable[Callable[[], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        identity = own_identity()
        self._has_changed = asyncio.Event()
        self.lease = Lease(connection, namespace=namespace, name=LEASE_NAME, identity=identity, timing=timing)
        self.events = EventWriter(connection, component=COMPONENT, instance=identity)
        self.owner_events = OwnerEventQueue(OwnerLookup(connection), self.events)
        self.tiers = Tiers(
            world,
            connection,
            shares=shares,
            teller=self.events,
            logs=logs,
            is_leading=lambda: self.lease.is_leading,
        )
        self.retrier = Retrier(
            connection, world, logs, is_leading=lambda: self.lease.is_leading, wake=self._has_changed.set
        )
        self._about_us = ObjectRef("Lease", namespace, LEASE_NAME, api_version=keys.LEASE_API)
        self.adopter = Adopter(
            world, connection, teller=self.events, logs=logs, is_leading=lambda: self.lease.is_leading
        )
        self._onlooker = shadow_labels
        self._bypasses = Bypasses(world, self.events)
        self._accountant = Accountant(world, accounting)
        self._registrar = Registrar(connection, world, logs, why_not_serving=why_not_serving)
        self._world = world
        self._why_stale = why_stale
        self._logs = logs
        self._duties = tuple(duties)
        world.on_usage_changed = self._has_changed.set

    async def run(self) -> None:
        """Stand for election, and work while elected, until cancelled."""
        await self.lease.run(self._work)

    def may_tidy(self) -> bool:
        """Tell whether to do what one replica should do, and what does no harm where several do.

        The leader should; so should a replica that cannot find out who leads, as where a right is missing.
        """
        return self.lease.is_leading or self.lease.problem is not None

    def tell_policy_refused(self, text: str) -> None:
        """Tell of a broken policy edit where `kubectl get events` shows it; every replica does, with the same event."""
        self.events.tell(Event(self._about_us, EventType.WARNING, EventReason.POLICY_REFUSED, "Keep", text))

    def leader_status(self) -> LeaderStatus:
        """Tell how it stands, for the metrics."""
        lease = self.lease
        return LeaderStatus(LEASE_NAME, is_leading=lease.is_leading, terms=lease.terms, events=self.events.counts())

    def is_registration_in_step(self) -> bool:
        """Tell whether the webhook configurations follow the policy, as far as this replica has to see to it."""
        return not self.lease.is_leading or self._registrar.problem is None

    def registration_problem(self) -> str | None:
        """Tell why the webhook configurations may not follow the policy; None where another replica sees to it."""
        return self._registrar.problem if self.lease.is_leading else None

    async def _work(self) -> None:
        self._logs.event.info("leading", identity=self.lease.identity)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._registrar.run())
                group.create_task(self._accountant.run())
                group.create_task(self._settle())
                group.create_task(self.retrier.listen())
                for duty in self._duties:
                    group.create_task(duty())
        finally:
            self._logs.event.info("no longer leading", identity=self.lease.identity)

    async def _settle(self) -> None:
        while True:
            self._has_changed.clear()
            if self._why_stale() is None and self._world.knows_all_namespaces:
                await self._look()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN_SECONDS):
                    await self._has_changed.wait()
            await asyncio.sleep(SETTLE_SECONDS)

    async def _look(self) -> None:
        """Bring what is written in line with policy; while policy is not enforced, nothing is written."""
        if self._world.policy.is_enforced:
            self._bypasses.look()
            await self.adopter.look()
            await self.tiers.settle()
            await self.retrier.look()
        else:
            self._bypasses.excuse()
            self._onlooker.settle(team.name for team in self._world.policy.teams)
