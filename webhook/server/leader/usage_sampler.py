"""A task of the leader: counts GPU-seconds by sampling every few seconds which pods hold GPUs on nodes."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

from webhook.core.model.amount import Units
from webhook.core.world.occupancy import Occupancy, UsageKey, capacity_of
from webhook.core.world.world import World
from webhook.observe.gpu_time import GpuTimeMetrics, NodeGpus

SAMPLE_SECONDS: Final = 10.0
"""Between two samples. A pod's GPUs count from its first sample to its last: on average the right time."""
AT_ONCE: Final = 500
"""Pods or nodes in one turn of the event loop, about half a millisecond: reviews have priority."""


class UsageSampler:
    """Adds GPU-seconds to the metrics while `run` runs."""

    def __init__(
        self, world: World, accounting: GpuTimeMetrics, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._world = world
        self._accounting = accounting
        self._monotonic = monotonic

    async def run(self) -> None:
        """Sample until cancelled; then add the time since the last sample, and remove the nodes from the metrics."""
        held: Mapping[UsageKey, Units] = {}
        since = self._monotonic()
        try:
            while True:
                now = self._monotonic()
                self._accounting.add(held, seconds=now - since)
                since = now
                held = await self._sample()
                self._accounting.add(held, seconds=0)
                await asyncio.sleep(SAMPLE_SECONDS)
        finally:
            self._accounting.add(held, seconds=self._monotonic() - since)
            self._accounting.set_nodes(())

    async def _sample(self) -> Mapping[UsageKey, Units]:
        """Add up the held GPUs by holder; a change meanwhile counts either before or after it."""
        occupancy = Occupancy()
        for number, uid in enumerate([pod.uid for pod in self._world.pods()]):
            occupancy.add(uid, self._world)
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        nodes: list[NodeGpus] = []
        for number, node in enumerate(list(self._world.fleet.nodes())):
            if capacity := capacity_of(node, self._world.policy):
                nodes.append(NodeGpus(node.name, node.model, capacity, occupancy.by_node.get(node.name, 0)))
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        self._accounting.set_nodes(tuple(nodes))
        return occupancy.by_holder
