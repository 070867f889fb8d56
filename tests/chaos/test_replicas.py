"""Three replicas, fifty clients, five teams: no level is over its limit at any moment, and in the end ledger = pods.

Three of the teams are in departments, whose limits are less than those of their teams together.

In calm, while the replicas are replaced one by one, and while all breaks that can break. `CHAOS_SECONDS` says how long
there is calm and trouble, with production's waits; `make chaos` gives them minutes. Without it there are seconds, and
shorter waits.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import urllib.request
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.chaos.bystander import bystander
from tests.chaos.load import Load
from tests.chaos.observer import Observer
from tests.chaos.replicas import Department, Replicas, Waits, replicas
from tests.control_plane.commands import API_SERVER
from tests.control_plane.processes import free_ports
from tests.control_plane.workbench import make_nodes

IS_LONG = "CHAOS_SECONDS" in os.environ
SECONDS = float(os.environ.get("CHAOS_SECONDS", "6"))
# A creation that one replica allowed may take as long as the API server waits for a webhook, and some more.
WAITS = Waits() if IS_LONG else Waits(lease=6, unseen=15)
PAUSE_SECONDS = 30 if IS_LONG else 12  # longer than a lease, and than the API server waits for a webhook
ROLLED_OUT = 3 if IS_LONG else 2
SETTLE_SECONDS = 100  # production's orphans are gone within 90

# Each team may hold 20: the limits of departments come first.
DEPARTMENTS = (Department("top", 20, (2,)), Department("left", 12, (0, 1), parent="top"))

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(SECONDS * 4 + 600)]


@asynccontextmanager
async def observed(running: Replicas) -> AsyncIterator[Observer]:
    observer = Observer(running.cluster, running.limits, above=running.above)
    watching = asyncio.create_task(observer.run())
    try:
        yield observer
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def charged(running: Replicas, number: int) -> dict[str, float] | None:
    """A replica's ledger; None where it gave no answer, as on a busy machine: it must run, and is asked again."""
    try:
        return running.charged(number)
    except OSError:
        running.cluster.processes.check_running(running.name(number))
        return None


async def settle(running: Replicas, observer: Observer) -> None:
    """Wait until every replica's ledger equals the pods, team by team, and the objects hold nothing more."""
    for number in range(len(running.ports)):
        await asyncio.to_thread(running.wait_ready, number)
    until = asyncio.get_running_loop().time() + SETTLE_SECONDS
    while True:
        held = observer.held()
        want = {team.name: float(held[team.namespace]) for team in running.teams}
        said = [await asyncio.to_thread(charged, running, number) for number in range(len(running.ports))]
        if all(ledger == want for ledger in said):
            return
        assert asyncio.get_running_loop().time() < until, f"pods hold {want}, the replicas' ledgers say {said}"
        await asyncio.sleep(0.5)


async def test_no_level_is_ever_over_its_limit_during_failures(cluster, tmp_path):
    await asyncio.to_thread(make_nodes, cluster, 20)
    with replicas(cluster, drain_seconds=2.0, wrong_clock={2: -420}, waits=WAITS, departments=DEPARTMENTS) as running:
        async with observed(running) as observer, bystander(cluster, tmp_path, *free_ports(1)):
            alive = defaultdict(list)
            for phase in (calm, rolled_out, troubled):
                await phase(running, alive)
                assert observer.breaches == [], f"after {phase.__name__}"
            await settle(running, observer)
            assert observer.breaches == []


async def calm(running: Replicas, alive: dict[str, list[str]]) -> None:
    """Fifty clients at their teams' limits; no user ever sees a lost race or an error."""
    load = Load(running.cluster, running.teams, alive=alive)
    responses = await load.run(SECONDS)
    assert (responses.failures, responses.lost_races) == ([], [])
    check(load)
    assert responses.counts["refused by the bystander"] > 0


async def rolled_out(running: Replicas, alive: dict[str, list[str]]) -> None:
    """Replicas are replaced one by one, and no creation fails."""
    load = Load(running.cluster, running.teams, clients=8, pause_seconds=0.1, alive=alive)
    async with running_meanwhile(load):
        for number in range(ROLLED_OUT):
            await asyncio.to_thread(running.stop, number, signal.SIGTERM)
            await asyncio.to_thread(running.start, number)
            await asyncio.sleep(1.5)  # a rollout continues when the Service knows the new one
    responses = load.responses
    unanswered = [what for what in responses.counts if what.startswith("no answer")]
    assert (responses.failures, responses.lost_races, unanswered) == ([], [], [])
    # Pods that are deleted by force stay charged for half a minute, so few or none may fit into the small departments.
    answered = responses.counts["created"] + responses.counts["over the limit"]
    assert answered > 50, responses.counts


async def troubled(running: Replicas, alive: dict[str, list[str]]) -> None:
    """One failure after the other; no user ever sees a lost race."""
    load = Load(running.cluster, running.teams, alive=alive)
    async with running_meanwhile(load):
        for trouble in TROUBLES:
            await asyncio.sleep(SECONDS / len(TROUBLES))
            await trouble(running)
        await asyncio.sleep(SECONDS / len(TROUBLES))
    assert load.responses.lost_races == []
    check(load)


@asynccontextmanager
async def running_meanwhile(load: Load) -> AsyncIterator[None]:
    loading = asyncio.create_task(load.run())
    try:
        yield
    finally:
        load.stopping.set()
        await loading


def check(load: Load) -> None:
    assert load.responses.counts["created"] > 20, load.responses.counts
    assert load.responses.counts["over the limit of a department"] > 0, load.responses.counts
    assert load.responses.counts["over the limit"] > 0, "no team reached its limit: the test is without effect"


async def killed(running: Replicas) -> None:
    await asyncio.to_thread(running.stop, 0, signal.SIGKILL)
    await asyncio.to_thread(running.start, 0)


async def ended(running: Replicas) -> None:
    await asyncio.to_thread(running.stop, 1, signal.SIGTERM)
    running.launch(1)  # it comes back while the next one is paused


async def paused(running: Replicas) -> None:
    running.signal(2, signal.SIGSTOP)
    await asyncio.sleep(PAUSE_SECONDS)
    running.signal(2, signal.SIGCONT)


async def api_server_restarted(running: Replicas) -> None:
    await asyncio.to_thread(running.cluster.restart, API_SERVER)


async def compacted(running: Replicas) -> None:
    """Have etcd compact all history, and break the watches: they resume at a version that is gone."""
    version = running.cluster.api.get("/api/v1/pods", limit="1")["metadata"]["resourceVersion"]
    request = urllib.request.Request(
        f"http://127.0.0.1:{running.cluster.ports.etcd}/v3/kv/compaction",
        data=json.dumps({"revision": version, "physical": True}).encode(),
    )
    await asyncio.to_thread(urllib.request.urlopen, request)
    await asyncio.to_thread(running.cut)


async def cut(running: Replicas) -> None:
    await asyncio.to_thread(running.cut, seconds=3)


TROUBLES = (killed, ended, paused, api_server_restarted, compacted, cut)
