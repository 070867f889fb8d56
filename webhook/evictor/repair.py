"""Frees pods that are bound to nodes which will not have them: by a new pod where somebody makes one, else by word."""

import asyncio
from collections.abc import Callable
from typing import Final

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.writes import evictions
from webhook.cluster.writes.evictions import Evicted
from webhook.core.model.names import Uid
from webhook.core.reclaim.reclaim_pod import Tenant
from webhook.core.reclaim.reservation import Target
from webhook.core.reclaim.stranded import STRANDED_SECONDS, is_stranded
from webhook.evictor.cluster_view import ClusterView
from webhook.evictor.reporter import Teller
from webhook.kube.objects.events import Event, EventReason, EventType, ObjectRef
from webhook.observe.logs import Logs

LOOK_SECONDS: Final = 10.0
"""Time between two looks, or less: they are short beside what a pod waits."""

AT_ONCE: Final = 20
"""Pods replaced in one look: the new ones take room that the next look should see."""


class Repair:
    """Looks after stranded pods while this evictor leads."""

    def __init__(
        self,
        cluster_view: ClusterView,
        connection: ApiConnection,
        *,
        teller: Teller,
        logs: Logs,
        why_stale: Callable[[], str | None],
        is_leading: Callable[[], bool],
        clock: Callable[[], float],
        after_seconds: int = STRANDED_SECONDS,
    ) -> None:
        self._lookout = cluster_view
        self._connection = connection
        self._teller = teller
        self._logs = logs
        self._why_stale = why_stale
        self._is_leading = is_leading
        self._clock = clock
        self._after_seconds = after_seconds
        self._told: set[Uid] = set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(min(LOOK_SECONDS, self._after_seconds / 2))
            is_enforced = self._lookout.world.policy.is_enforced
            if is_enforced and self._why_stale() is None and self._lookout.world.knows_all_namespaces:
                await self.look()

    async def look(self) -> None:
        """Replace or report whoever is stranded now."""
        stranded = self._stranded()
        self._told &= {tenant.pod.uid for tenant in stranded}
        for tenant in [each for each in stranded if each.pod.owner is not None][:AT_ONCE]:
            if self._is_leading():
                await self._replace(tenant)
        for tenant in stranded:
            if tenant.pod.owner is None and tenant.pod.uid not in self._told:
                self._told.add(tenant.pod.uid)
                self._tell(tenant, EventType.WARNING, EventReason.STRANDED, "delete it and create it anew")

    def _stranded(self) -> list[Tenant]:
        world, now, after = self._lookout.world, int(self._clock()), self._after_seconds
        held = 0
        for node in self._lookout.marked:
            held |= world.fleet.bit(node)
        return [
            tenant
            for tenant in self._lookout.reclaim_index.pinned()
            if is_stranded(tenant, world, now=now, held=held, after_seconds=after)
        ]

    async def _replace(self, tenant: Tenant) -> None:
        pod = tenant.pod
        target = Target(pod.uid, pod.namespace, pod.name, pod.uid, 0)
        outcome = await evictions.evict(self._connection, target)
        if outcome is Evicted.ACCEPTED:
            self._tell(tenant, EventType.NORMAL, EventReason.REPLACED, "deleted, so that its controller makes it anew")
        elif not isinstance(outcome, Evicted):
            self._logs.event.warning("stranded pod not replaced", **_subject(tenant), why=outcome.why)

    def _tell(self, tenant: Tenant, kind: EventType, reason: EventReason, what: str) -> None:
        pod = tenant.pod
        nodes = ", ".join(tenant.chosen)
        why = "are gone, closed, full or have too many of its like, and others would take it"
        text = f"the nodes that were chosen for it ({nodes}) {why}: {what}"
        self._logs.event.info("stranded", **_subject(tenant), reason=str(reason))
        about = ObjectRef("Pod", pod.namespace, pod.name, pod.uid)
        self._teller.tell(Event(about, kind, reason, "Repair", text))


def _subject(tenant: Tenant) -> dict[str, str]:
    return {"namespace": tenant.pod.namespace, "name": tenant.pod.name, "uid": tenant.pod.uid}
