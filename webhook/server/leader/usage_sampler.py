"""A duty of the leader: counts GPU-seconds, by looking at who holds GPUs on nodes every few seconds."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

from webhook.core.model.amount import Units
from webhook.core.world.occupancy import Occupancy, UsageKey, capacity_of
from webhook.core.world.world import World
from webhook.observe.gpu_time import Accounting, NodeGpus

LOOK_SECONDS: Final = 10.0
"""Rest between two looks. What a pod holds counts from the first look at it to the last: on average the right time."""
AT_ONCE: Final = 500
"""Pods or nodes in one turn of the event loop, about half a millisecond: reviews come first."""


class Accountant:
    """Adds to the accounting while `run` runs."""

    def __init__(
        self, world: World, accounting: Accounting, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._world = world
        self._accounting = accounting
        self._monotonic = monotonic

    async def run(self) -> None:
        """Count until cancelled: then what is still uncounted is added, and no node is shown any more."""
        held: Mapping[UsageKey, Units] = {}
        since = self._monotonic()
        try:
            while True:
                now = self._monotonic()
                self._accounting.add(held, seconds=now - since)
                since = now
                held = await self._look()
                self._accounting.add(held, seconds=0)
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._accounting.add(held, seconds=self._monotonic() - since)
            self._accounting.set_nodes(())

    async def _look(self) -> Mapping[UsageKey, Units]:
        """Add up who holds what; what changes during the look is seen before or after its change."""
        seen = Occupancy()
        for number, uid in enumerate([pod.uid for pod in self._world.pods()]):
            seen.add(uid, self._world)
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        nodes: list[NodeGpus] = []
        for number, node in enumerate(list(self._world.fleet.nodes())):
            if capacity := capacity_of(node, self._world.policy):
                nodes.append(NodeGpus(node.name, node.model, capacity, seen.by_node.get(node.name, 0)))
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        self._accounting.set_nodes(tuple(nodes))
        return seen.by_holder
