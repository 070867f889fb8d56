"""The cost of a commit: bytes that the ledger writes to etcd per pod, and the added time of a creation.

Part one creates pods in a team with few running pods and in one with many, and sums the ledger objects of every watched
write, compared with the pod's own bytes in etcd (protobuf, as first written). Part two creates pods at a rate with no
webhook, with one ResourceQuota per namespace, and with Fairgate in one and in several replicas, in one busy team and in
many; it prints the times seen by clients and the API server's time for admission. Run it from the repository's root:
`python benchmarks/commit.py --pods 1000 --per-second 200`.

The figures of docs/benchmarks.md are those of
    python benchmarks/commit.py --nodes 100 --pods 400 --running 100 4000 --per-second 200 --teams 1
"""

import argparse
import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import aiohttp
from clusters.load import clear, create, quantile

from tests.chaos.client import session
from tests.chaos.replicas import replicas
from tests.control_plane import build
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import pod
from tests.control_plane.versions import CONTROL_PLANE
from tests.control_plane.workbench import make_namespace, make_nodes, wait_for

LEDGERS = "/apis/fairgate.dev/v1alpha1/teamledgers"


@dataclass(slots=True)
class Written:
    """The watched writes to ledger objects."""

    bytes: int = 0
    writes: int = 0


async def written(cluster: ControlPlane, namespaces: list[str], count: int, *, prefix: str, rate: float) -> Written:
    """Create pods and sum every version of every ledger object, as JSON: the format of custom resources in etcd."""
    total = Written()
    async with session(cluster) as api:
        watching = asyncio.create_task(_add_up(api, total))
        made = await create(cluster, namespaces, count, prefix=prefix, per_second=rate)
        await asyncio.sleep(2)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    if failures := made.failures():
        raise SystemExit(f"{len(failures)} of {count} creations failed, one with: {failures[0]}")
    return total


async def _add_up(api: aiohttp.ClientSession, total: Written) -> None:
    async with api.get(LEDGERS, raise_for_status=True) as answer:
        version = (await answer.json())["metadata"]["resourceVersion"]
    params = {"watch": "1", "resourceVersion": version}
    async with api.get(LEDGERS, params=params, raise_for_status=True) as answer:
        async for line in answer.content:
            total.writes += 1
            total.bytes += len(json.dumps(json.loads(line)["object"], separators=(",", ":")))


async def first_write(cluster: ControlPlane, namespace: str) -> int:
    """Return the bytes of a pod in etcd when first written: protobuf, before scheduler and kubelet add to it."""
    request = {
        "json": pod("probe", gpus=1, cpu="100m", memory="1Gi"),
        "params": {"dryRun": "All"},
        "headers": {"Accept": "application/vnd.kubernetes.protobuf"},
    }
    path = f"/api/v1/namespaces/{namespace}/pods"
    async with session(cluster) as api, api.post(path, raise_for_status=True, **request) as answer:
        return len(await answer.read())


def report_bytes(cluster: ControlPlane, options: argparse.Namespace) -> None:
    """Print part one."""
    print("| running in the team | ledger writes per pod | ledger bytes per pod | the pod's own first write, bytes |")
    print("| --- | --- | --- | --- |")
    with replicas(cluster, options.replicas, teams=1, limit=100_000) as running:
        names = [team.namespace for team in running.teams]
        there = 0
        for wanted in options.running:
            asyncio.run(create(cluster, names, wanted - there, prefix=f"there-{wanted}"))
            counted = options.pods // 4
            total = asyncio.run(
                written(cluster, names, counted, prefix=f"counted-{wanted}", rate=options.per_second / 4)
            )
            own = asyncio.run(first_write(cluster, names[0]))
            there = wanted + counted
            print(f"| {wanted} | {total.writes / counted:.2f} | {total.bytes / counted:,.0f} | {own:,} |")
        clear(cluster, names)


@contextmanager
def nothing(cluster: ControlPlane, teams: int) -> Iterator[list[str]]:
    """Without webhooks."""
    yield [make_namespace(cluster) for _ in range(teams)]


@contextmanager
def quotas(cluster: ControlPlane, teams: int) -> Iterator[list[str]]:
    """With a ResourceQuota in each namespace, enforced by the API server."""
    names = [make_namespace(cluster) for _ in range(teams)]
    spec = {"hard": {"requests.nvidia.com/gpu": "100000"}}
    for name in names:
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus"}, "spec": spec}
        cluster.api.create(f"/api/v1/namespaces/{name}/resourcequotas", quota)
    for name in names:
        path = f"/api/v1/namespaces/{name}/resourcequotas/gpus"
        wait_for(cluster, lambda path=path: "hard" in cluster.api.get(path)["status"], what="the quota is in force")
    yield names


@contextmanager
def fairgate(cluster: ControlPlane, teams: int, *, count: int) -> Iterator[list[str]]:
    """With Fairgate in this many replicas."""
    with replicas(cluster, count, teams=teams, limit=100_000) as running:
        yield [team.namespace for team in running.teams]


def admission_seconds(cluster: ControlPlane) -> tuple[float, float]:
    """Return the seconds that the API server spent validating creations, and their number."""
    wanted = 'apiserver_admission_step_admission_duration_seconds_{}{{operation="CREATE",rejected="false",type="{}"}}'
    lines = cluster.api.get("/metrics").splitlines()
    values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}
    both = ("admit", "validate")
    spent = sum(values.get(wanted.format("sum", part), 0.0) for part in both)
    return spent, values.get(wanted.format("count", "validate"), 0.0)


def report_latency(cluster: ControlPlane, options: argparse.Namespace) -> None:
    """Print part two."""
    print(f"\n{options.pods} creations at {options.per_second:g}/s; load {os.getloadavg()[0]:.1f}\n")
    print("| | teams | created/s | client p50, ms | p99 | p99 over no webhook | admission in the API server, mean ms |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    rivals = {
        "no webhook": nothing,
        "ResourceQuota": quotas,
        "fairgate, 1 replica": lambda cluster, teams: fairgate(cluster, teams, count=1),
        f"fairgate, {options.replicas} replicas": lambda cluster, teams: fairgate(
            cluster, teams, count=options.replicas
        ),
    }
    for teams in options.teams:
        base = 0.0
        for name, rival in rivals.items():
            with rival(cluster, teams) as names:
                asyncio.run(create(cluster, names, 50, prefix="warm"))
                spent, count = admission_seconds(cluster)
                made = asyncio.run(create(cluster, names, options.pods, prefix="made", per_second=options.per_second))
                now = admission_seconds(cluster)
                clear(cluster, names)
            if failures := made.failures():
                raise SystemExit(f"{name}: {len(failures)} creations failed, one with: {failures[0]}")
            p50, p99 = (quantile([one.milliseconds for one in made.creations], share) for share in (0.5, 0.99))
            base = base or p99
            mean = (now[0] - spent) / max(1.0, now[1] - count) * 1000
            print(
                f"| {name} | {teams} | {made.per_second:.0f} | {p50:.1f} | {p99:.1f} | {p99 - base:+.1f} "
                f"| {mean:.2f} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--pods", type=int, default=400, help="creations per row; part one counts a quarter of them")
    parser.add_argument("--per-second", type=float, default=100)
    parser.add_argument("--teams", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--running", type=int, nargs="+", default=[100, 400], help="pods in the team, in part one")
    parser.add_argument("--replicas", type=int, default=3)
    options = parser.parse_args()
    build.ensure(CONTROL_PLANE)
    with ControlPlane() as cluster:
        make_nodes(cluster, options.nodes, gpus=8, timeout=600)
        report_bytes(cluster, options)
        report_latency(cluster, options)


if __name__ == "__main__":
    main()
