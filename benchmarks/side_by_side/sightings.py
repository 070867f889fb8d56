"""What a client sees of all pods, by one watch: when each was created, released, bound, ran and ended.

All times are this client's, so they include the delays of the watch, which are the same for every system.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto

import aiohttp
import msgspec

from benchmarks.side_by_side.figures import Change
from benchmarks.side_by_side.loads import Order
from tests.chaos.client import session
from tests.control_plane.cluster import ControlPlane

PAUSE_SECONDS = 0.5
_JOB = "batch.kubernetes.io/job-name"


class _Metadata(msgspec.Struct):
    uid: str
    namespace: str
    name: str
    labels: dict[str, str] = {}
    deletionTimestamp: str = ""  # noqa: N815 - the API's name


class _Spec(msgspec.Struct):
    nodeName: str = ""  # noqa: N815 - the API's name
    schedulingGates: list[msgspec.Raw] = []  # noqa: N815 - the API's name


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec
    status: _Status


class _Change(msgspec.Struct):
    type: str
    object: _Pod


class Part(Enum):
    """Of a load."""

    BEFORE = auto()
    ORDERS = auto()


@dataclass(slots=True)
class Sight:
    """The times of one pod, each when it was first seen; 0: not seen."""

    order: Order
    part: Part
    released: float = 0.0
    bound: float = 0.0
    running: float = 0.0
    ended: float = 0.0
    evicted: float = 0.0


@dataclass(slots=True)
class Sightings:
    """The pods of the orders that were created so far."""

    created: dict[tuple[str, str], float] = field(default_factory=dict)
    pods: dict[str, Sight] = field(default_factory=dict)
    running: Counter[Part] = field(default_factory=Counter)
    ended: Counter[Part] = field(default_factory=Counter)
    _orders: dict[tuple[str, str], tuple[Order, Part]] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def create(self, order: Order, part: Part) -> None:
        """Note that an order is being created now."""
        key = (order.team.name, order.name)
        self._orders[key] = (order, part)
        self.created[key] = time.perf_counter()

    def of(self, part: Part) -> list[Sight]:
        """Return the pods of a part."""
        return [sight for sight in self.pods.values() if sight.part is part]

    def waits(self) -> list[float]:
        """Return the seconds from the creation of each pod's order until it ran."""
        return [
            sight.running - self.created[sight.order.team.name, sight.order.name]
            for sight in self.of(Part.ORDERS)
            if sight.running
        ]

    def changes(self) -> list[Change]:
        """Return how many GPUs of each team waited and ran, as changes."""
        found = []
        for key, (order, _) in self._orders.items():
            found.append(Change(self.created[key], order.team.name, order.pods * order.gpus, 0))
        for sight in self.pods.values():
            team, gpus = sight.order.team.name, sight.order.gpus
            if sight.running:
                found.append(Change(sight.running, team, -gpus, gpus))
            if sight.running and (sight.ended or sight.evicted):
                found.append(Change(sight.ended or sight.evicted, team, 0, -gpus))
        return found

    async def until(self, is_so: Callable[[], bool], *, seconds: float) -> bool:
        """Wait until something is so, and return whether it became so in this time."""
        try:
            async with asyncio.timeout(seconds):
                while not is_so():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def see(self, kind: str, pod: _Pod) -> None:
        """Note what is new about a pod."""
        known = self._orders.get((pod.metadata.namespace, pod.metadata.labels.get(_JOB, pod.metadata.name)))
        if known is None:
            return
        now = time.perf_counter()
        sight = self.pods.setdefault(pod.metadata.uid, Sight(*known))
        if not pod.spec.schedulingGates:
            sight.released = sight.released or now
        if pod.spec.nodeName:
            sight.bound = sight.bound or now
        if pod.status.phase in {"Running", "Succeeded"} and not sight.running:  # a new watch begins with the present
            sight.running = now
            self.running[sight.part] += 1
        if pod.status.phase == "Succeeded" and not sight.ended:
            sight.ended = now
            self.ended[sight.part] += 1
        is_going = kind == "DELETED" or pod.metadata.deletionTimestamp or pod.status.phase == "Failed"
        if is_going and sight.running and not sight.ended:
            sight.evicted = sight.evicted or now
        self._changed.set()


@asynccontextmanager
async def watching(cluster: ControlPlane) -> AsyncIterator[Sightings]:
    """Watch all pods until the end of the block."""
    seen = Sightings()
    async with session(cluster, connections=1) as api:
        watch = asyncio.create_task(_watch(api, seen))
        try:
            yield seen
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
    await asyncio.sleep(PAUSE_SECONDS)  # a TLS connection is closed some time after its session


async def _watch(api: aiohttp.ClientSession, seen: Sightings) -> None:
    query = {"watch": "true", "timeoutSeconds": "3600"}
    while True:  # the API server ends a slow watch, or refuses one for a moment; a new one starts with all objects
        with suppress(aiohttp.ClientError):
            async with api.get("/api/v1/pods", params=query, timeout=aiohttp.ClientTimeout()) as answer:
                answer.raise_for_status()
                async for line in answer.content:
                    change = msgspec.json.decode(line, type=_Change)
                    seen.see(change.type, change.object)
        await asyncio.sleep(PAUSE_SECONDS)
