"""Three replicas, fifty clients, five teams: no team is over its limit at any moment, and in the end ledger = pods.

`CHAOS_SECONDS` says how long each of them makes trouble; `make chaos` gives them minutes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.chaos.bystander import bystander
from tests.chaos.load import Load
from tests.chaos.observer import Observer
from tests.chaos.replicas import Replicas, replicas
from tests.control_plane.commands import API_SERVER
from tests.control_plane.processes import free_ports
from tests.control_plane.workbench import make_nodes

SECONDS = float(os.environ.get("CHAOS_SECONDS", "15"))
SETTLE_SECONDS = 100  # orphans are gone within 90

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(SECONDS * 4 + 600)]


@asynccontextmanager
async def observed(running: Replicas) -> AsyncIterator[Observer]:
    observer = Observer(running.cluster, {team.namespace: team.limit for team in running.teams})
    watching = asyncio.create_task(observer.run())
    try:
        yield observer
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def settle(running: Replicas, observer: Observer) -> None:
    """Wait until every replica's ledger says what the pods say, team by team, and the objects hold nothing more."""
    until = asyncio.get_running_loop().time() + SETTLE_SECONDS
    while True:
        held = observer.held()
        want = {team.name: float(held[team.namespace]) for team in running.teams}
        said = [await asyncio.to_thread(running.charged, number) for number in range(len(running.ports))]
        if all(charged == want for charged in said):
            return
        assert asyncio.get_running_loop().time() < until, f"pods hold {want}, the replicas' ledgers say {said}"
        await asyncio.sleep(0.5)


def check(observer: Observer, load: Load) -> None:
    assert observer.breaches == []
    assert load.heard.lost_races == [], "a user saw a lost race"
    assert load.heard.counts["created"] > 20, load.heard.counts
    assert load.heard.counts["over the limit"] > 0, "no team ever came to its limit: this showed nothing"


async def test_no_team_is_ever_over_its_limit(cluster, tmp_path):
    await asyncio.to_thread(make_nodes, cluster, 20)
    with replicas(cluster) as running:
        load = Load(cluster, running.teams)
        async with observed(running) as observer, bystander(cluster, tmp_path, *free_ports(1)):
            await load.run(SECONDS)
            await settle(running, observer)
        check(observer, load)
        assert load.heard.failures == []
        assert load.heard.counts["refused by the bystander"] > 0


async def test_no_team_is_ever_over_its_limit_whatever_breaks(cluster, tmp_path):
    await asyncio.to_thread(make_nodes, cluster, 20)
    with replicas(cluster, wrong_clock={2: -420.0}) as running:
        load = Load(cluster, running.teams)
        async with observed(running) as observer, bystander(cluster, tmp_path, *free_ports(1)):
            loading = asyncio.create_task(load.run())
            for name, trouble in TROUBLES.items():
                await asyncio.sleep(SECONDS / len(TROUBLES))
                await trouble(running)
                assert observer.breaches == [], f"after {name}"
            await asyncio.sleep(SECONDS / len(TROUBLES))
            load.stopping.set()
            await loading
            await settle(running, observer)
        check(observer, load)


async def killed(running: Replicas) -> None:
    await asyncio.to_thread(running.stop, 0, signal.SIGKILL)
    await asyncio.to_thread(running.start, 0)


async def ended(running: Replicas) -> None:
    await asyncio.to_thread(running.stop, 1, signal.SIGTERM)
    await asyncio.to_thread(running.start, 1)


async def paused(running: Replicas) -> None:
    running.signal(2, signal.SIGSTOP)
    await asyncio.sleep(30)
    running.signal(2, signal.SIGCONT)


async def api_server_restarted(running: Replicas) -> None:
    await asyncio.to_thread(running.cluster.restart, API_SERVER)


async def compacted(running: Replicas) -> None:
    """Forget all history, and cut the watches: they come back with a version that is gone."""
    version = running.cluster.api.get("/api/v1/pods", limit="1")["metadata"]["resourceVersion"]
    request = urllib.request.Request(
        f"http://127.0.0.1:{running.cluster.ports.etcd}/v3/kv/compaction",
        data=json.dumps({"revision": version, "physical": True}).encode(),
    )
    await asyncio.to_thread(urllib.request.urlopen, request)
    await asyncio.to_thread(running.cut)


async def cut(running: Replicas) -> None:
    await asyncio.to_thread(running.cut, seconds=3)


TROUBLES = {
    "a replica killed": killed,
    "a replica ended": ended,
    "a replica paused for 30 s": paused,
    "the API server restarted": api_server_restarted,
    "etcd compacted": compacted,
    "the watches cut": cut,
}


async def test_a_rolling_restart_under_load_fails_no_creation(cluster):
    await asyncio.to_thread(make_nodes, cluster, 20)
    with replicas(cluster, limit=10_000) as running:
        load = Load(cluster, running.teams, clients=8, pause_seconds=0.1)
        loading = asyncio.create_task(load.run())
        for number in range(len(running.ports)):
            await asyncio.to_thread(running.stop, number, signal.SIGTERM)
            await asyncio.to_thread(running.start, number)
            await asyncio.sleep(1.5)  # a rollout goes on when the Service knows the new one
        load.stopping.set()
        await loading
        unheard = [what for what in load.heard.counts if what.startswith("no answer")]
        assert (load.heard.failures, load.heard.lost_races, unheard) == ([], [], [])
        assert load.heard.counts["created"] > 50, load.heard.counts
