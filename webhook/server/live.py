"""A live cluster as the world: its feed, what it takes to trust it, and charges whose pods never came."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from webhook.cluster.client import ApiConnection, connect
from webhook.cluster.errors import ClusterError
from webhook.cluster.feed import Feed
from webhook.cluster.kinds import namespace_kind, node_kind, pod_kind, priority_class_kind
from webhook.core.world import World
from webhook.kube import objects
from webhook.kube.nodes import to_namespace, to_node, to_priority
from webhook.kube.pods import to_resident
from webhook.observe.logs import Logs
from webhook.observe.metrics import Watched
from webhook.server.devices import device_kinds
from webhook.server.settings import StartupError

_REAP_SECONDS: Final = 5.0
"""How often reservations of pods that never came are looked for: well inside the 90 s after which they must be gone."""


@dataclass(frozen=True, slots=True)
class Live:
    """A world that a cluster feeds."""

    feed: Feed
    world: World

    @classmethod
    async def connect(cls, kubeconfig: Path | None, world: World, stack: AsyncExitStack) -> "Live":
        """Connect to a cluster until the stack closes; raises StartupError where there are no credentials for one."""
        try:
            connection = await stack.enter_async_context(await connect(kubeconfig))
        except ClusterError as exc:
            raise StartupError(str(exc)) from exc
        return cls(_feed(connection, world), world)

    def why_untrusted(self) -> str | None:
        """Tell why decisions should not be made on this world: not listed yet, or silent for too long."""
        return self.feed.readiness()

    def why_cold(self) -> str | None:
        """Tell why nothing can be decided yet."""
        return self.feed.why_cold()

    def age_seconds(self) -> float:
        """Tell for how long the quietest watch has been silent; infinity before it was heard."""
        now = asyncio.get_running_loop().time()
        return max(
            now - watch.last_contact if watch.last_contact is not None else float("inf") for watch in self.feed.watches
        )

    def watched(self) -> Iterable[Watched]:
        """Tell what each watch has brought."""
        return [Watched(w.kind.name, w.events, w.relists, w.rejected) for w in self.feed.watches]

    async def arrange(self, settled: Callable[[], None]) -> None:
        """Order the nodes by name once the first lists are in."""
        await self.feed.wait_warm()
        self.world.arrange()
        settled()

    async def reap(self, logs: Logs) -> None:
        """Take back what was charged for pods that never came."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(_REAP_SECONDS)
            for pod in self.world.forget_unseen(clock()):
                logs.event.warning("charge taken back", namespace=pod.namespace, name=pod.name, uid=pod.uid)


def _feed(connection: ApiConnection, world: World) -> Feed:
    return Feed(
        connection,
        (
            node_kind(world, objects.Node, to_node),
            namespace_kind(world, objects.Namespace, to_namespace),
            priority_class_kind(world, objects.PriorityClass, to_priority),
            *device_kinds(world),
            pod_kind(world, objects.Pod, lambda pod: to_resident(pod, world.policy.resources)),
        ),
    )
