"""Two ways to charge one team's object on a real kube-apiserver: PUT over a version, PATCH under CEL.

`put` is Fairgate's own ledger: compare-and-swap, a watch of its objects, batches. `patch` is the alternative: a merge
patch without resourceVersion adds the charges of a batch and drops those that were seen, and a CEL rule in the CRD
rejects a sum over the limit. Requests come at a fixed rate, spread over the writers; a charge is seen 30 ms after its
answer, and its pod ends at once, so that both objects hold only charges in flight.

The figures of docs/adr/0022-not-built.md are those of
    python benchmarks/ledger_paths.py
"""

import argparse
import asyncio
import itertools
import json
import os
import statistics
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.control_plane import build
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.versions import CONTROL_PLANE
from webhook.cluster.api.client import ApiConnection, connect
from webhook.cluster.ledger.ledger import ApiLedger
from webhook.cluster.ledger.ledger_objects import PATH
from webhook.cluster.watch.feed import Feed
from webhook.cluster.writes.reports import CrdInstaller
from webhook.core.model.amounts import ONE_GPU, Namespace, ResourceName, TeamName, Uid
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge, NotApplicable
from webhook.core.model.demand import demand_of
from webhook.core.model.pod import Resident
from webhook.core.model.policy import BUILT_IN_RESOURCES, Policy, Share, Team
from webhook.core.model.reasons import Code, Reason
from webhook.core.quota.charges import InFlightCharge, LedgerDecision
from webhook.core.world.world import World
from webhook.kube.ledger.team_ledger import team_ledger_crd

TEAM = TeamName("hot")
SEEN_SECONDS = 0.03
ADMITTED = NotApplicable(Reason(Code.COUNTED_ONLY, "a benchmark's pod"))
TICKS = os.sysconf("SC_CLK_TCK")
SUMS = "/apis/bench.fairgate.dev/v1/sums"
Charger = Callable[[int], Awaitable[None]]


@dataclass
class Counts:
    """Counts the writers' work; implements webhook.cluster.ledger.ledger_writer.Recorder."""

    writes: int = 0
    conflicts: int = 0
    taken: list[float] = field(default_factory=list)

    def wrote(self, result: str, *, charges: int, seconds: float) -> None:  # noqa: ARG002 - the protocol's
        self.writes += result == "written"
        self.conflicts += result == "conflict"

    def waited(self, seconds: float) -> None:
        """Count nothing: no watch lags here."""

    def withdrew(self) -> None:
        """Count nothing: no caller leaves."""


def flight(number: int) -> InFlightCharge:
    demand = demand_of({ResourceName("nvidia.com/gpu"): 1, ResourceName("cpu"): 6000}, BUILT_IN_RESOURCES)
    uid = Uid(f"00000000-0000-0000-0000-{number:012d}")
    pod = Resident(uid, Namespace("hot"), f"train-{number}", demand, None, None, TEAM, "guaranteed")
    return InFlightCharge(pod, Charge(TEAM, Tier.GUARANTEED, ONE_GPU), None)


@asynccontextmanager
async def put_writers(connections: Sequence[ApiConnection], counts: Counts) -> AsyncIterator[list[Charger]]:
    worlds = [World(Policy(teams=(Team(TEAM, gpus=Share(0, 10_000 * ONE_GPU)),))) for _ in connections]
    ledgers = [
        ApiLedger(connection, world, reached=lambda: 0, recorder=counts, known=lambda _name: None, on_restored=print)
        for connection, world in zip(connections, worlds, strict=True)
    ]

    def charger(ledger: ApiLedger) -> Charger:
        async def charge(number: int) -> None:
            wanted = flight(number)
            deadline = asyncio.get_running_loop().time() + 10
            answer = await ledger.commit(
                lambda: LedgerDecision(ADMITTED, wanted), deadline=deadline, is_gone=lambda: False
            )
            assert answer is ADMITTED, answer
            asyncio.get_running_loop().call_later(SEEN_SECONDS, see, wanted)

        return charge

    def see(wanted: InFlightCharge) -> None:
        for world in worlds:
            world.set_pod(wanted.pod)
            world.remove_pod(wanted.pod.uid)

    feeds = [
        asyncio.create_task(Feed(connection, (ledger.kind(),)).run())
        for connection, ledger in zip(connections, ledgers, strict=True)
    ]
    yield [charger(ledger) for ledger in ledgers]
    for feed in feeds:
        feed.cancel()
    await asyncio.gather(*feeds, return_exceptions=True)
    for ledger in ledgers:
        await ledger.close()
    await connections[0].send("DELETE", f"{PATH}/{TEAM}", action="delete teamledgers")


class Patcher:
    """A writer of the alternative: a batch is one patch, and the API server computes the sum."""

    def __init__(self, connection: ApiConnection, counts: Counts) -> None:
        self._connection = connection
        self._counts = counts
        self._queue: list[tuple[str, asyncio.Future[None]]] = []
        self._seen: list[str] = []
        self._work: asyncio.Task[None] | None = None

    async def charge(self, number: int) -> None:
        key, answer = f"00000000-0000-0000-0000-{number:012d}", asyncio.get_running_loop().create_future()
        self._queue.append((key, answer))
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._serve())
        await answer
        asyncio.get_running_loop().call_later(SEEN_SECONDS, self._seen.append, key)

    async def _serve(self) -> None:
        while self._queue:
            batch, self._queue = self._queue, []
            gone, self._seen = self._seen, []
            charges = dict.fromkeys(gone) | {key: ONE_GPU for key, _ in batch}
            body = json.dumps({"spec": {"charges": charges}}).encode()
            await self._connection.send(
                "PATCH", f"{SUMS}/hot", body, action="patch sums", content_type="application/merge-patch+json"
            )
            self._counts.writes += 1
            for _, answer in batch:
                answer.set_result(None)


@asynccontextmanager
async def patch_writers(connections: Sequence[ApiConnection], counts: Counts) -> AsyncIterator[list[Charger]]:
    made = {"apiVersion": "bench.fairgate.dev/v1", "kind": "Sum", "metadata": {"name": "hot"}}
    body = json.dumps(made | {"spec": {"limit": 10_000 * ONE_GPU, "charges": {}}}).encode()
    await connections[0].send("POST", SUMS, body, action="create sums")
    yield [Patcher(connection, counts).charge for connection in connections]
    await connections[0].send("DELETE", f"{SUMS}/hot", action="delete sums")


def sum_crd() -> dict[str, Any]:
    total = "{0}.charges.map(k, {0}.charges[k]).sum()"
    grows = f"{total.format('self')} <= self.limit || {total.format('self')} <= {total.format('oldSelf')}"
    number = {"type": "integer", "format": "int64"}
    charges = {"type": "object", "additionalProperties": number, "maxProperties": 1000}
    charges["x-kubernetes-map-type"] = "atomic"  # otherwise managedFields would list every key
    spec = {
        "type": "object",
        "properties": {"limit": number, "charges": charges},
        "x-kubernetes-validations": [{"rule": grows, "message": "over the limit"}],
    }
    version = {"name": "v1", "served": True, "storage": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "sums.bench.fairgate.dev"},
        "spec": {
            "group": "bench.fairgate.dev",
            "scope": "Cluster",
            "names": {"kind": "Sum", "plural": "sums", "singular": "sum", "listKind": "SumList"},
            "versions": [version | {"schema": schema}],
        },
    }


@dataclass(frozen=True)
class Case:
    """Requests per second, and the duration."""

    rate: int
    seconds: float


PATHS = {"put": put_writers, "patch": patch_writers}


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def wal_bytes(port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("etcd_disk_wal_write_bytes_total"))


async def load(chargers: Sequence[Charger], *, rate: int, seconds: float, first: int) -> list[float]:
    """Send requests at a fixed rate, independent of answers; return the seconds of each."""
    taken: list[float] = []

    async def one(number: int) -> None:
        began = time.perf_counter()
        await chargers[number % len(chargers)](number)
        taken.append(time.perf_counter() - began)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            group.create_task(one(first + number))
    return taken


async def row(cluster: ControlPlane, path: str, connections: Sequence[ApiConnection], case: Case) -> str:
    """Measure one path after a second of warm-up; return a row of the table."""
    counts, pid = Counts(), cluster.processes.pids()["kube-apiserver"]
    async with PATHS[path](connections, counts) as chargers:
        await load(chargers, rate=case.rate, seconds=1, first=0)
        counts.writes = counts.conflicts = 0
        cpu, written = cpu_seconds(pid), wal_bytes(cluster.ports.etcd)
        taken = await load(chargers, rate=case.rate, seconds=case.seconds, first=case.rate)
        cpu, written = cpu_seconds(pid) - cpu, wal_bytes(cluster.ports.etcd) - written
    cuts = [1000 * cut for cut in statistics.quantiles(taken, n=100)]
    cells = (
        path,
        len(connections),
        case.rate,
        f"{cuts[49]:.1f}",
        f"{cuts[98]:.1f}",
        f"{counts.writes / case.seconds:.0f}",
        counts.conflicts,
        f"{1000 * cpu / len(taken):.2f}",
        f"{written / len(taken):.0f}",
    )
    return " | ".join(("", *map(str, cells), "")).strip()


async def measure(cluster: ControlPlane, *, rates: Sequence[int], writers: Sequence[int], seconds: float) -> None:
    head = ("path", "writers", "requests/s", "p50, ms", "p99, ms", "writes/s", "conflicts")
    print(" | ".join(("", *head, "API server CPU, ms a request", "etcd log, bytes a request", "")).strip())
    print("|" + " --- |" * (len(head) + 2))
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(await connect(cluster.kubeconfig)) for _ in range(max(writers))]
        for crd in (team_ledger_crd(), sum_crd()):
            await CrdInstaller(connections[0], crd).ensure()
        for count, rate, path in itertools.product(writers, rates, PATHS):
            print(await row(cluster, path, connections[:count], Case(rate, seconds)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each row (default 5)")
    parser.add_argument("--rates", type=int, nargs="+", default=[50, 200], help="requests per second (default 50 200)")
    parser.add_argument("--writers", type=int, nargs="+", default=[1, 3], help="writers at once (default 1 3)")
    arguments = parser.parse_args()
    build.ensure(CONTROL_PLANE)
    with ControlPlane() as cluster:
        asyncio.run(measure(cluster, rates=arguments.rates, writers=arguments.writers, seconds=arguments.seconds))


if __name__ == "__main__":
    main()
