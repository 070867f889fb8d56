"""All watches: synced, stale; autoscalers.

Finds the autoscalers of a cluster, and looks again now and then: they may be installed and removed at any time.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from webhook.cluster.api.client import ApiConnection, ApiError, ClusterError, RestoredError
from webhook.cluster.api.requests import decoded, find
from webhook.cluster.watch.event_stream import DEFAULT_PACE, Pace
from webhook.cluster.watch.watch import Watch
from webhook.core.model.amounts import Namespace
from webhook.core.model.node import Autoscaler
from webhook.core.quota.charges import Quota, QuotaIndex
from webhook.core.world.world import World
from webhook.kube.nodes.nodes import (
    KARPENTER_PATHS,
    PATH,
    STATUS_PATH,
    ResourceQuota,
    decode_quotas,
    is_running,
    serves_karpenter,
    to_quota,
)
from webhook.kube.watched.kinds import WatchedKind, path_of, split_path

LOOK_SECONDS: Final = 60.0
"""Time between two looks: two small requests."""

_DISCOVER: Final = "discover karpenter.sh"
_GET: Final = "get configmaps"


class FoundAutoscalers(NamedTuple):
    """The autoscalers of a cluster; `why_unsure` says which of them could not be looked for, "" if all were."""

    autoscalers: frozenset[Autoscaler]
    why_unsure: str = ""


async def find_autoscalers(connection: ApiConnection) -> FoundAutoscalers:
    """Look for autoscalers. Raises ClusterError, but not for a missing right."""
    found: set[Autoscaler] = set()
    for path in KARPENTER_PATHS:
        body = await find(connection, path, action=_DISCOVER)
        if body is not None and decoded(body, serves_karpenter, action=_DISCOVER):
            found.add(Autoscaler.KARPENTER)
            break
    try:
        body = await find(connection, STATUS_PATH, action=_GET)
    except ApiError as error:
        if not error.is_forbidden:
            raise
        return FoundAutoscalers(frozenset(found), str(error))
    now = connection.server_time or time.time()
    if body is not None and decoded(body, lambda body: is_running(body, now=now), action=_GET):
        found.add(Autoscaler.CLUSTER_AUTOSCALER)
    return FoundAutoscalers(frozenset(found))


class AutoscalerWatch:
    """Keeps the autoscalers of a world up to date; what cannot be read stays as it was.

    `looked` is set after the first look, whatever came of it. `why_unsure` is as in FoundAutoscalers.
    """

    def __init__(
        self, connection: ApiConnection, world: World, *, note: Callable[[FoundAutoscalers], None] = lambda _: None
    ) -> None:
        self.looked = asyncio.Event()
        self.why_unsure = ""
        self._connection = connection
        self._world = world
        self._note = note

    async def run(self) -> NoReturn:
        """Look for autoscalers until cancelled; `note` is called with what changed."""
        while True:
            await self.look()
            self.looked.set()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Look for autoscalers once."""
        before = FoundAutoscalers(self._world.autoscalers, self.why_unsure)
        try:
            found = await find_autoscalers(self._connection)
        except ClusterError as error:
            found = FoundAutoscalers(before.autoscalers, str(error))
        self._world.autoscalers, self.why_unsure = found
        if found != before:
            self._note(found)


# Runs what keeps the cluster's state current, and reports whether that state is synced and fresh.


STALE_SECONDS: Final = 120.0
"""Silence after which a watch counts as stale: bookmarks come about every 60 s, so at least one is missing."""


class Feed:
    """Runs one watch per kind, and looks for autoscalers. Start `run` as a task.

    A process whose other parts have their own memory of the cluster starts `end_if_restored`, too; views need not.
    """

    def __init__(
        self,
        connection: ApiConnection,
        kinds: Sequence[WatchedKind[Any]],
        *,
        pace: Pace = DEFAULT_PACE,
        stale_seconds: float = STALE_SECONDS,
        autoscalers: AutoscalerWatch | None = None,
    ) -> None:
        self._restored: asyncio.Queue[RestoredError] = asyncio.Queue()
        self.watches = tuple(Watch(connection, kind, pace=pace, on_restored=self.note_restored) for kind in kinds)
        self._stale_seconds = stale_seconds
        self._autoscalers = autoscalers
        self._are_synced = False

    async def run(self) -> None:
        """Run all watches until cancelled. Cluster failures never end it; a bug raises an ExceptionGroup."""
        async with asyncio.TaskGroup() as group:
            for watch in self.watches:
                group.create_task(watch.run(), name=f"watch {watch.kind.name}")
            if self._autoscalers is not None:
                group.create_task(self._autoscalers.run(), name="autoscalers")

    def note_restored(self, error: RestoredError) -> None:
        """Note that a watch, or another reader of the cluster, found that etcd was restored."""
        self._restored.put_nowait(error)

    async def end_if_restored(self) -> NoReturn:
        """Raise RestoredError once that was found: the process is to start again.

        Ledgers, Leases, queued pods and what was published last are remembered with versions that no longer exist.
        """
        raise await self._restored.get()

    def why_not_synced(self) -> str | None:
        """Return which kinds have no complete list yet, None if all have: until then nothing can be decided."""
        if self._are_synced:  # for good: each review asks
            return None
        names = [watch.kind.name for watch in self.watches if not watch.synced]
        self._are_synced = not names
        return f"not listed yet: {', '.join(names)}" if names else None

    @property
    def forbidden(self) -> Watch[Any] | None:
        """A watch of a kind that is needed and that RBAC forbids, None if there is none."""
        return next((each for each in self.watches if each.is_forbidden and each.kind.needs_right), None)

    def left_out(self) -> list[str]:
        """Return the kinds that RBAC forbids and that count as kinds without objects."""
        return [each.kind.name for each in self.watches if each.is_forbidden and not each.kind.needs_right]

    async def wait_synced(self) -> None:
        """Wait until every kind has a first complete list, and autoscalers were looked for."""
        for watch in self.watches:
            await watch.listed.wait()
        if self._autoscalers is not None:
            await self._autoscalers.looked.wait()

    def readiness(self) -> str | None:
        """Return why decisions must not be made on this state; None if every kind is listed and fresh."""
        now = asyncio.get_running_loop().time()
        reasons = (_why_stale(watch, now, self._stale_seconds) for watch in self.watches)
        return "; ".join(reason for reason in reasons if reason) or None


def _why_stale(watch: Watch[Any], now: float, stale_seconds: float) -> str | None:
    name = watch.kind.name
    if watch.synced and watch.last_contact is not None:
        silence = now - watch.last_contact
        if silence <= stale_seconds:
            return None
        state = f"{name}: no event from the API server for {silence:.0f} s"
    else:
        state = f"{name}: not listed yet"
    return f"{state}: {watch.problem}" if watch.problem else state


# ResourceQuotas on the API: watched, and read live before a pod is refused for one.


def quota_kind(book: QuotaIndex) -> WatchedKind[ResourceQuota]:
    """Return the kind that keeps the quotas of a QuotaBook current, by namespace and name."""

    def apply(found: ResourceQuota) -> bool:
        quota = to_quota(found)
        if quota is not None:
            book.set(found.metadata.namespace, quota)
        return quota is not None

    return WatchedKind(
        name="resourcequotas",
        path=PATH,
        item=ResourceQuota,
        key=path_of,
        handle=path_of,
        apply=apply,
        remove=lambda path: book.remove(*split_path(path)),
    )


async def live_quotas(connection: ApiConnection, namespace: Namespace) -> list[Quota]:
    """Return the current quotas of a namespace. Raises ClusterError."""
    body = await connection.send("GET", f"/api/v1/namespaces/{namespace}/resourcequotas", action="list resourcequotas")
    try:
        return decode_quotas(body)
    except ValueError as cause:
        raise ClusterError(f"cannot list resourcequotas: the response is not a list of them: {cause}") from cause
