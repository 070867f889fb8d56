"""Feeds a sink with the cluster's nodes, pods, namespaces and priority classes, and tells whether it can be trusted."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Protocol

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.watch.pace import DEFAULT_PACE, Pace
from webhook.cluster.watch.watch import Watch
from webhook.cluster.watch.watched_kind import WatchedKind
from webhook.core.model.names import Namespace, NodeName, Uid
from webhook.core.model.node import Node
from webhook.core.model.pod import NamespaceFacts, PriorityTriple, Resident

STALE_SECONDS: Final = 120.0
"""Silence that makes a watch untrustworthy: bookmarks come about every 60 s, so one is missing for sure."""


class PodSink(Protocol):
    """Keeps the cluster's pods as the decisions read them."""

    def set_pod(self, pod: Resident) -> None:
        """Keep a pod, by UID."""

    def remove_pod(self, uid: Uid) -> None:
        """Drop a pod that ended or was deleted."""


class Sink(PodSink, Protocol):
    """Keeps the cluster's state as the decisions read it. Every call replaces or removes one whole object."""

    def set_node(self, node: Node) -> None:
        """Keep a node, by name."""

    def remove_node(self, name: NodeName) -> None:
        """Drop a node."""

    def set_namespace(self, facts: NamespaceFacts) -> None:
        """Keep what decisions read of a namespace."""

    def remove_namespace(self, name: Namespace) -> None:
        """Drop a namespace."""

    def set_priority_class(self, triple: PriorityTriple) -> None:
        """Keep a priority class, by name."""

    def remove_priority_class(self, name: str) -> None:
        """Drop a priority class."""


class Feed:
    """Runs one watch per kind. Start `run` as a task."""

    def __init__(
        self,
        connection: ApiConnection,
        kinds: Sequence[WatchedKind[Any]],
        *,
        pace: Pace = DEFAULT_PACE,
        stale_seconds: float = STALE_SECONDS,
    ) -> None:
        self.watches = tuple(Watch(connection, kind, pace=pace) for kind in kinds)
        self._stale_seconds = stale_seconds

    async def run(self) -> None:
        """Feed until cancelled. Failures of the cluster never end it; a bug in a translation does, as a group."""
        async with asyncio.TaskGroup() as group:
            for watch in self.watches:
                group.create_task(watch.run(), name=f"watch {watch.kind.name}")

    def why_not_synced(self) -> str | None:
        """Tell which kinds were never listed whole: until then nothing can be decided at all."""
        names = [watch.kind.name for watch in self.watches if not watch.synced]
        return f"not listed yet: {', '.join(names)}" if names else None

    async def wait_synced(self) -> None:
        """Wait until every kind was listed whole once."""
        for watch in self.watches:
            await watch.listed.wait()

    def readiness(self) -> str | None:
        """Tell why decisions must not be made on this state; None when every kind is listed and fresh."""
        now = asyncio.get_running_loop().time()
        reasons = (_distrust(watch, now, self._stale_seconds) for watch in self.watches)
        return "; ".join(reason for reason in reasons if reason) or None


def _distrust(watch: Watch[Any], now: float, stale_seconds: float) -> str | None:
    name = watch.kind.name
    if watch.synced and watch.last_contact is not None:
        silence = now - watch.last_contact
        if silence <= stale_seconds:
            return None
        state = f"{name}: nothing heard from the API server for {silence:.0f} s"
    else:
        state = f"{name}: not listed yet"
    return f"{state}: {watch.problem}" if watch.problem else state
