"""A hostile tenant among honest ones, over three replicas and an evictor: no limit is passed, and no other notices.

`CHAOS_SECONDS` says for how long; `make chaos` gives it minutes. Quiet times and attacks take turns, so that both meet
the same machine.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import multiprocessing
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from urllib.error import HTTPError

import pytest

from tests.attacks.attacker import make_attacker
from tests.chaos.attacks.means import Scene
from tests.chaos.foe import HostileTenant, Outcome, access_to, decoy_of
from tests.chaos.load import Load
from tests.chaos.observer import Observer
from tests.chaos.owner import Owner
from tests.chaos.patience import GuaranteedWaits
from tests.chaos.replicas import Replicas, replicas
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.workbench import make_namespace, make_nodes
from tests.scenarios.evictor import evictor

SECONDS = float(os.environ.get("CHAOS_SECONDS", "8"))
SEED = os.environ.get("CHAOS_SEED") or secrets.token_hex(4)
IS_LONG = SECONDS >= 120
TURNS = 4 if IS_LONG else 1
QUIET, DECOY, ATTACK = "quiet", "decoy", "attack"
SHARES = {QUIET: 0.3, DECOY: 0.2, ATTACK: 0.5} if IS_LONG else {QUIET: 0.2, ATTACK: 0.8}
SECONDS_OF = {kind: SECONDS * share for kind, share in SHARES.items()}
REST_SECONDS = 2.0
NOTICE_SECONDS, GRACE_SECONDS = 1, 30
WAIT_SECONDS = NOTICE_SECONDS + GRACE_SECONDS + (5 if IS_LONG else 30)
ANSWER_SECONDS = 2.0 if IS_LONG else 10.0  # `make chaos-attack` runs alone; what runs beside other tests may be late
CLIENTS = 50

LOG = logging.getLogger(__name__)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(SECONDS * 2 + 300)]

POLICY = f"""\
defaults:
  deviceAccess: reject
  maximumGracePeriod: {GRACE_SECONDS}s
pools:
  - name: ordinary
    nodeSelector: {{pool: ordinary}}
  - name: devices
    nodeSelector: {{pool: devices}}
  - name: scarce
    nodeSelector: {{pool: scarce}}
  - name: closed
    nodeSelector: {{pool: closed}}
    teams: [t0]
reclaim:
  notice: {NOTICE_SECONDS}s
  budgets: 0s
"""
MODEL = "NVIDIA-H100-80GB-HBM3"
LIMIT, PER_USER, SCARCE = 12, 6, 2
SHARE = 8
DRIVER = "gpu.nvidia.com"


@dataclass
class Readiness:
    """Polls the readiness of every replica; records when one was not ready, or slow to respond."""

    running: Replicas
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0

    async def run(self) -> None:
        while True:
            for number in range(len(self.running.ports)):
                began = time.monotonic()
                try:
                    said = await asyncio.to_thread(self.running.get, number, "/readyz")
                except HTTPError as error:
                    said = f"{error.code} {error.read().decode()}"
                except OSError as error:
                    said = repr(error)
                took = time.monotonic() - began
                self.slowest = max(self.slowest, took)
                if '"ready":true' not in said or took > ANSWER_SECONDS:
                    self.failures.append(f"replica {number} after {took:.1f} s: {said[:1000]}")
            await asyncio.sleep(0.25)


@dataclass(frozen=True, slots=True)
class Stage:
    """The running parts: replicas, the attacker, and an attacker whose large bodies reach only the API server."""

    running: Replicas
    tenant: HostileTenant
    decoy: HostileTenant
    owner: str


@contextmanager
def with_foe(cluster: ControlPlane) -> Iterator[Stage]:
    """Three replicas, nodes of every kind, honest teams, and an attacker who is admin of two teams' namespaces."""
    ordinary = make_nodes(cluster, 4, prefix="node", labels={"pool": "ordinary"})
    [scarce] = make_nodes(
        cluster, 1, prefix="scarce", gpus=4, labels={"pool": "scarce", "nvidia.com/gpu.product": MODEL}
    )
    [closed] = make_nodes(cluster, 1, prefix="closed", gpus=4, labels={"pool": "closed"})
    make_devices(cluster)
    names = [make_namespace(cluster), make_namespace(cluster)]
    owner, decoy = make_namespace(cluster), make_namespace(cluster)
    cluster.kubectl("annotate", "namespace", names[1], "owner=mallory-1")
    gpus = {"guaranteed": 4, "limit": LIMIT}
    hostile = [
        {"name": "m0", "namespaces": [names[0]], "gpus": gpus, "models": {MODEL: {"limit": SCARCE}}},
        {"name": "m1", "namespaces": [names[1]], "gpus": gpus | {"limit": 30}, "perUser": {"limit": PER_USER}},
    ]
    owning = {"name": "owner", "namespaces": [owner], "gpus": {"guaranteed": SHARE, "limit": SHARE}}
    policy = f"{POLICY}exempt: {{namespaces: [{decoy}]}}\n"
    with replicas(cluster, limit=10, others=[*hostile, owning], policy=policy) as running, evictor(running):
        hostile_users = [(name, f"mallory-{number}") for number, name in enumerate(names)]
        decoys = [(decoy, f"decoy-{number}") for number in range(len(names))]
        for namespace, user in (*hostile_users, *decoys):
            make_attacker(cluster, namespace, user)
        victims = tuple(team.namespace for team in running.teams)
        port = int(running.url.rpartition(":")[2])
        scene = Scene(victims, tuple(ordinary), scarce, closed, ("127.0.0.1", port))
        tenant = HostileTenant(access_to(cluster), tuple(hostile_users), scene)
        yield Stage(running, tenant, decoy_of(tenant, *decoys), owner)


def make_devices(cluster: ControlPlane) -> None:
    """A node whose GPUs are handed out by claims, a class for them, and one for anything."""
    [node] = make_nodes(cluster, 1, prefix="claimed", gpus=0, labels={"pool": "devices"})
    api = "/apis/resource.k8s.io/v1"
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    cluster.api.create(f"{api}/deviceclasses", {"metadata": {"name": DRIVER}, "spec": {"selectors": selectors}})
    cluster.api.create(f"{api}/deviceclasses", {"metadata": {"name": "anything"}, "spec": {}})
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{number}", "attributes": {"type": {"string": "gpu"}}} for number in range(32)]
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    cluster.api.create(f"{api}/resourceslices", {"metadata": {"name": node}, "spec": spec})


def limits(stage: Stage) -> dict[str, int]:
    """The limits that no tenant may exceed."""
    tenant = stage.tenant
    first, second = (namespace for namespace, _ in tenant.users)
    nowhere = {f"{namespace} on {tenant.scene.closed_node}": 0 for namespace in (first, second)}
    honest = {team.namespace: team.limit for team in stage.running.teams} | {stage.owner: SHARE}
    return honest | nowhere | {first: LIMIT, second: PER_USER, f"{first} on {tenant.scene.scarce_node}": SCARCE}


@asynccontextmanager
async def in_background(*coroutines: object) -> AsyncIterator[None]:
    """Run these until the end of the block."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        yield
        for task in tasks:
            assert not task.done() or task.exception() is None, task.exception()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def take_turns(stage: Stage, outcome: Outcome) -> dict[str, list[tuple[float, float]]]:
    """Alternate quiet times, decoys and attacks; returns when each began and ended."""
    turns: dict[str, list[tuple[float, float]]] = {kind: [] for kind in SECONDS_OF}
    loop, players = asyncio.get_running_loop(), {DECOY: stage.decoy, ATTACK: stage.tenant}
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        await loop.run_in_executor(process, os.getpid)  # it exists before the first turn
        for turn in range(TURNS):
            for kind, seconds in SECONDS_OF.items():
                began = time.monotonic()
                if kind in players:
                    play = functools.partial(players[kind].play, seconds / TURNS, f"{SEED}/{turn}")
                    outcome.add(await loop.run_in_executor(process, play))
                    turns[kind].append((began, began + seconds / TURNS))
                    await asyncio.sleep(REST_SECONDS)
                else:
                    await asyncio.sleep(seconds / TURNS)
                    turns[kind].append((began, began + seconds / TURNS))
    return turns


async def test_a_hostile_tenant_exceeds_no_limit_and_affects_no_other_tenant(cluster):
    with with_foe(cluster) as stage:
        waits = GuaranteedWaits(frozenset([*stage.tenant.scene.victims, stage.owner]), stage.tenant.scene.closed)
        observer = Observer(cluster, limits(stage), listener=waits.take)
        load = Load(cluster, stage.running.teams, CLIENTS, pause_seconds=CLIENTS / 5, sizes=(1,))
        owner = Owner(cluster, stage.owner, gpus=SHARE, idle_seconds=3.0, most_seconds=2 * WAIT_SECONDS)
        readiness, outcome = Readiness(stage.running), Outcome()
        async with in_background(observer.run(), readiness.run(), load.run(), owner.run()):
            await asyncio.wait_for(load.warmed_up.wait(), 60)
            took = latencies(await take_turns(stage, outcome), load)
            load.stopping.set()
        LOG.info("seed %s\n%s", SEED, "\n".join(summary(took)))
        LOG.info("slowest beside these attacks: %s", "; ".join(slowest_beside(outcome, load)))
        LOG.info("honest tenants: %s", load.responses)
        LOG.info("attacks: %s\noutages: %s", dict(sorted(outcome.answers.items())), dict(outcome.outages))
        LOG.info("owner waited %s s; the longest wait was %.1f s", [round(s, 1) for s in owner.waits], waits.longest())
        LOG.info("readyz took up to %.2f s; peaks %s", readiness.slowest, dict(observer.peaks))
        assert observer.breaches == []
        assert (outcome.reached, outcome.outages) == (set(), {})
        assert readiness.failures == []
        assert (load.responses.failures, owner.refused) == ([], [])
        assert max(waits.longest(), *owner.waits) <= WAIT_SECONDS, waits.state()
        if IS_LONG:
            assert quantile(took[ATTACK], 0.99) <= 2 * max(quantile(took[kind], 0.99) for kind in (QUIET, DECOY))


def latencies(turns: dict[str, list[tuple[float, float]]], load: Load) -> dict[str, list[float]]:
    """Seconds of the honest creations that began in the turns of each kind."""
    return {
        kind: [took for at, took in load.timed if any(began <= at < ended for began, ended in spans)]
        for kind, spans in turns.items()
    }


def slowest_beside(outcome: Outcome, load: Load) -> Iterator[str]:
    """List the attacks during the slowest honest creations, the slowest first."""
    for at, took in sorted(load.timed, key=lambda each: -each[1])[:8]:
        met = {name for name, began, ended in outcome.spans if began < at + took and at < ended}
        yield f"{took:.2f} s: {', '.join(sorted(met))}"


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))] if values else 0.0


def summary(took: dict[str, list[float]]) -> Iterator[str]:
    for kind, found in took.items():
        shares = ", ".join(f"p{int(share * 100)} {quantile(found, share):.3f}" for share in (0.5, 0.9, 0.99, 1))
        yield f"{kind}: {len(found)} creations, {shares}"
