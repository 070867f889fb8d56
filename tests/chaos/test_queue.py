"""Three replicas and fifty clients whose pods wait in line: no limit is passed, and none waits that could start.

The replicas are killed, paused and cut off while pods are released. Departments have limits below those of their teams.
A part of the pods comes in gangs, of which no part starts alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from contextlib import suppress

import pytest

from tests.chaos import test_replicas as chaos
from tests.chaos.load import GANG, GANG_SIZE, Load
from tests.chaos.observer import Observer, gpus_of, is_queued
from tests.chaos.replicas import Replicas, replicas
from tests.control_plane.api import ApiError
from tests.control_plane.workbench import list_pods, make_nodes

QUEUES = "defaults: {onLimit: queue, onNoRoom: queue}\nqueue: {depth: 80}\n"
TROUBLES = (chaos.killed, chaos.paused, chaos.cut)
SETTLE_SECONDS = 100
DRAIN_SECONDS = 300

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(chaos.SECONDS * 4 + 600)]


@pytest.mark.long
async def test_no_level_is_over_its_limit_while_pods_are_released_during_failures(cluster):
    await asyncio.to_thread(make_nodes, cluster, 20)
    with replicas(
        cluster, drain_seconds=2.0, waits=chaos.WAITS, departments=chaos.DEPARTMENTS, policy=QUEUES
    ) as running:
        async with chaos.observed(running) as observer:
            alive: dict[str, list[str]] = defaultdict(list)
            seen: Counter[str] = Counter()
            for trouble in (None, *TROUBLES):
                load = Load(running.cluster, running.teams, clients=50, pause_seconds=0.1, alive=alive, gangs=0.1)
                async with chaos.running_meanwhile(load):
                    await asyncio.sleep(chaos.SECONDS / 2)
                    pods = await all_pods(running)
                    note(pods, seen)
                    if trouble is not None:
                        await trouble(running)
                assert load.responses.counts["created"] > 5, load.responses.counts
                assert load.responses.lost_races == []
            await at_rest(running, observer)
            assert [waits for starts, waits in gangs_of(await all_pods(running)) if starts and waits] == []
            assert observer.breaches == []
            await drained(running, observer, seen)
            assert observer.breaches == []
            assert min(seen["waiting"], seen["whole gangs"]) > 0, f"the test is without effect: {seen}"


def note(pods: list[dict], seen: Counter[str]) -> None:
    """Count what shows that the test has an effect."""
    seen["waiting"] += sum(map(is_queued, pods))
    seen["whole gangs"] += sum(bool(starts and not waits) for starts, waits in gangs_of(pods))


async def all_pods(running: Replicas) -> list[dict]:
    return [
        pod for team in running.teams for pod in await asyncio.to_thread(list_pods, running.cluster, team.namespace)
    ]


async def at_rest(running: Replicas, observer: Observer) -> None:
    """Wait until no pod waits that would fit, and the ledgers equal the pods."""
    until = asyncio.get_running_loop().time() + SETTLE_SECONDS
    while left := entitled(running, observer, await all_pods(running)):
        assert asyncio.get_running_loop().time() < until, f"still queued: {left}"
        await asyncio.sleep(0.5)
    await chaos.settle(running, observer)


def gangs_of(pods: list[dict]) -> list[tuple[list[str], list[str]]]:
    """The names of the pods of each gang: those that were released, and those in line."""
    found: dict[tuple[str, str], tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for pod in pods:
        meta = pod["metadata"]
        if gang := meta.get("labels", {}).get(GANG):
            found[meta["namespace"], gang][is_queued(pod)].append(meta["name"])
    return list(found.values())


def entries_of(pods: list[dict]) -> list[list[dict]]:
    """What waits in line and may start: pods alone, and gangs of which all pods are there."""
    waiting = [pod for pod in pods if is_queued(pod)]
    gangs: dict[tuple[str, str], list[dict]] = defaultdict(list)
    for pod in waiting:
        if gang := pod["metadata"].get("labels", {}).get(GANG):
            gangs[pod["metadata"]["namespace"], gang].append(pod)
    alone = [[pod] for pod in waiting if GANG not in pod["metadata"].get("labels", {})]
    return alone + [members for members in gangs.values() if len(members) >= gang_size(members[0])]


def gang_size(pod: dict) -> int:
    return int(pod["metadata"]["annotations"][GANG_SIZE])


def entitled(running: Replicas, observer: Observer, pods: list[dict]) -> list[str]:
    """Return what waits though every level has room for it."""
    held = observer.held()
    found = []
    for entry in entries_of(pods):
        namespace, gpus = entry[0]["metadata"]["namespace"], sum(map(gpus_of, entry))
        room = min(running.limits[level] - held[level] for level in (namespace, *running.above[namespace]))
        if gpus <= room:
            found.append(f"{entry[0]['metadata']['name']} of {namespace}: {gpus} of {room}")
    return found


async def drained(running: Replicas, observer: Observer, seen: Counter[str]) -> None:
    """Delete what runs again and again: everything that may start does in the end."""
    until = asyncio.get_running_loop().time() + DRAIN_SECONDS
    while left := entries_of(pods := await all_pods(running)):
        assert asyncio.get_running_loop().time() < until, f"{len(left)} entries are still in the queue"
        note(pods, seen)
        for pod in pods:
            if not is_queued(pod):
                meta = pod["metadata"]
                path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
                with suppress(ApiError):
                    await asyncio.to_thread(running.cluster.api.delete, path, {"gracePeriodSeconds": 0})
        await asyncio.sleep(0.5)
    await chaos.settle(running, observer)
