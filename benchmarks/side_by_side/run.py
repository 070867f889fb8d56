"""One run of one system: a control plane of its own, the load, and what was measured of it."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from benchmarks.clusters.load import cpu_of
from benchmarks.side_by_side.figures import Gap, fair_gap, per_second, slot_waits
from benchmarks.side_by_side.loads import GPUS_PER_NODE, Load, Order, Sizes, Work, load_of
from benchmarks.side_by_side.sightings import Part, Sight, Sightings, watching
from benchmarks.side_by_side.systems import System, namespaces
from tests.chaos.client import ask, session
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.commands import API_SERVER, CONTROLLER_MANAGER, SCHEDULER
from tests.control_plane.workbench import make_namespace, make_nodes

SETTLE_SECONDS: Final = 3
"""Between what runs before and the measurement: its last writes."""

SLOTS: Final = ("freed to released", "freed to bound", "freed to running")
ITSELF: Final = "itself"
PROCESSES: Final = {"API server": API_SERVER, "scheduler": SCHEDULER, "controllers": CONTROLLER_MANAGER}

_REQUESTS = re.compile(r"^apiserver_request_total\{(.*)\} ([0-9.e+]+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WRITES = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE"})
_STORED_NOWHERE = frozenset({"subjectaccessreviews", "selfsubjectaccessreviews", "tokenreviews"})
_BY_TIME = frozenset({"leases"})
"""Renewed whatever the load is."""


@dataclass(slots=True)
class Reading:
    """What one system needed for one load; `seconds` is None if it was not done in time."""

    pods: int
    done: int
    seconds: float | None
    milliseconds: dict[str, float] = field(default_factory=dict)
    writes: Counter[str] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    gap: Gap = field(default_factory=Gap)
    assembly: list[float] = field(default_factory=list)
    evicted_gpus: int = 0
    asked_gpus: int = 0
    slots: dict[str, list[float]] = field(default_factory=dict)
    releases_per_second: float = 0.0
    early_ends: int = 0


def run(system: System, work: Work, sizes: Sizes, *, connections: int, timeout: float) -> Reading:
    """Run a work on a new control plane."""
    load = load_of(work, sizes)
    with ControlPlane() as cluster:
        make_nodes(cluster, sizes.nodes, gpus=GPUS_PER_NODE, timeout=900)
        for name in namespaces(load):
            make_namespace(cluster, name)
        with system.run(cluster, load.shares):
            return asyncio.run(_measure(cluster, system, load, connections=connections, seconds=timeout))


async def _measure(cluster: ControlPlane, system: System, load: Load, *, connections: int, seconds: float) -> Reading:
    async with watching(cluster) as seen:
        client = _Client(cluster, system, seen, connections)
        await client.create(load.before, Part.BEFORE)
        expected = len(load.before)
        if not await seen.until(lambda: seen.running[Part.BEFORE] >= expected, seconds=seconds):
            raise SystemExit(f"{system.name}: {seen.running[Part.BEFORE]} of the first {expected} pods run")
        await asyncio.sleep(SETTLE_SECONDS if load.before else 0)
        with ExitStack() as stack:
            spent = {name: stack.enter_context(cpu_of(cluster, wanted.__eq__)) for name, wanted in PROCESSES.items()}
            spent[ITSELF] = stack.enter_context(cpu_of(cluster, system.owns))
            writes = api_writes(cluster.api.get("/metrics"))
            began = time.perf_counter()
            await client.create(load.orders, Part.ORDERS)
            created = time.perf_counter()
            done = seen.ended if load.until_ended else seen.running
            is_done = await seen.until(lambda: done[Part.ORDERS] >= load.pods, seconds=seconds)
            lasted = time.perf_counter() - began
            used = {name: each() * 1000 / load.pods for name, each in spent.items()}
        writes = api_writes(cluster.api.get("/metrics")) - writes
        reading = Reading(load.pods, done[Part.ORDERS], lasted if is_done else None, used, writes)
        _add_sights(reading, seen, load, created=created)
        return reading


@dataclass(frozen=True, slots=True)
class _Client:
    cluster: ControlPlane
    system: System
    seen: Sightings
    connections: int

    async def create(self, orders: Sequence[Order], part: Part) -> None:
        """Create objects in order, some at a time; SystemExit where one is refused.

        What runs before is to end at its time, however long the creation of all of it takes.
        """
        waiting = iter(orders)
        began = time.perf_counter()
        async with session(self.cluster, connections=self.connections) as api, asyncio.TaskGroup() as group:

            async def worker() -> None:
                for order in waiting:
                    self.seen.create(order, part)
                    is_early = part is Part.BEFORE and order.seconds is not None
                    made = order.ending_earlier(time.perf_counter() - began) if is_early else order
                    status, answer = await ask(api, "POST", order.path, self.system.manifest(made))
                    if status != HTTPStatus.CREATED:
                        raise SystemExit(f"{self.system.name}: {order.name} was refused: {answer.get('message')}")

            for _ in range(self.connections):
                group.create_task(worker())


def _add_sights(reading: Reading, seen: Sightings, load: Load, *, created: float) -> None:
    """Complete a reading with what was seen of the pods."""
    before, sights = seen.of(Part.BEFORE), seen.of(Part.ORDERS)
    reading.waits = seen.waits()
    reading.gap = fair_gap(seen.changes())
    reading.assembly = list(_assembly(sights))
    reading.evicted_gpus = sum(sight.order.gpus for sight in before if sight.evicted)
    reading.asked_gpus = load.gpus
    ended = sorted(sight.ended for sight in before if sight.ended)
    if ended:
        reading.slots = _slots([*before, *sights], len(load.before))
        reading.releases_per_second = per_second(ended)
        reading.early_ends = sum(1 for each in ended if each < created)


def _assembly(sights: Iterable[Sight]) -> Iterable[float]:
    """Yield, for each gang, the seconds from its first running pod to its last."""
    gangs: dict[str, list[float]] = {}
    for sight in sights:
        if sight.order.pods > 1 and sight.running:
            gangs.setdefault(sight.order.name, []).append(sight.running)
    return (max(times) - min(times) for times in gangs.values())


def _slots(sights: Sequence[Sight], slots: int) -> dict[str, list[float]]:
    ended = [sight.ended for sight in sights if sight.ended]
    times = {
        "freed to released": [sight.released for sight in sights if sight.released],
        "freed to bound": [sight.bound for sight in sights if sight.bound],
        "freed to running": [sight.running for sight in sights if sight.running],
    }
    return {name: slot_waits(ended, times[name], slots=slots) for name in SLOTS}


def api_writes(metrics: str) -> Counter[str]:
    """Count the writes that the API server carried out, by resource, from its metrics."""
    found: Counter[str] = Counter()
    for labels, value in _REQUESTS.findall(metrics):
        known = dict(_LABEL.findall(labels))
        if (
            known["verb"] in _WRITES
            and known["code"].startswith("2")
            and not known.get("dry_run")
            and known["resource"] not in _STORED_NOWHERE | _BY_TIME
        ):
            found["/".join(filter(None, [known["resource"], known["subresource"]]))] += int(float(value))
    return found
