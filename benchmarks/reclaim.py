"""Reclaiming a team's share on a real control plane: time from create to bound, and the evicted pods.

Nodes of 8 GPUs, all of them borrowed by one team; then another team requests GPUs inside its guaranteed share:
`one`     one pod of one GPU;
`whole`   one pod of 8 GPUs, a whole node, as in KAI-Scheduler's fixture of over-eviction;
`jobs`    many Jobs of one such pod at once;
`job`     the same where all borrowed GPUs belong to one Job, which survives its evictions;
`free`    the same without borrowed GPUs: the time of everything but the reclaim;
`gang`    one Job of as many pods, which are a gang;
`hero`    a Job of pods of 8 GPUs, a gang that asks for one of two zones and for all GPUs there, as KAI-Scheduler's;
`bare`    the floor of `hero`: without Fairgate a client that knows the victims evicts them, all at once, and stock
          kube-scheduler binds the same Job, whose pods ask for the zone by nodeSelector;
`floor`   the same of `jobs`;
`trim`    a Job of one pod of 8 GPUs a node borrows everything and states half of its pods as its minimum; then as many
          Jobs of one such pod come as it can lose, as in KAI-Scheduler's test of a trimmed elastic gang;
`seed`    8 GPUs on one node of 10, where all 40 GPUs of four nodes are borrowed by pods of one GPU, or of five.
Fake pods end at once, so these times contain no grace period. Run it from the repository's root:
`python benchmarks/reclaim.py`; docs/benchmarks.md used `--nodes 50 --pods 200`, and
`--works one gang jobs --nodes 500 --pods 4000 --gang 512`, `--works whole --nodes 128`,
`--works bare hero --nodes 512`, `--works trim --nodes 500` and
`--works floor jobs free --nodes 500 --pods 4000 --queue`.

The figures of docs/benchmarks.md are those of
    python benchmarks/reclaim.py --nodes 50 --pods 200
    python benchmarks/reclaim.py --works one gang jobs free --nodes 500 --pods 4000 --gang 512
    python benchmarks/reclaim.py --works whole --nodes 128
    python benchmarks/reclaim.py --works bare hero --nodes 512
    python benchmarks/reclaim.py --works trim --nodes 500
    python benchmarks/reclaim.py --works floor jobs free --queue
"""

import argparse
import asyncio
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

from clusters.load import clear, cpu_of, create, delete_all, wait_bound, wait_running

from tests.chaos.client import ask, session
from tests.control_plane import build
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import job, pod
from tests.control_plane.versions import CONTROL_PLANE
from tests.control_plane.workbench import create_pod, get_pod, list_pods, make_namespace, make_nodes, wait_for
from tests.scenarios.evictor import Evictor, alive, evictor, held_nodes
from tests.scenarios.standing_fairgate import FairgateServer, serve_fairgate
from webhook.evictor.executor import AT_ONCE

SMALL = {"cpu": "100m", "memory": "1Gi"}
HEAD = "apiVersion: fairgate.dev/v1alpha1\nkind: Policy\n"
ZONE = "topology.kubernetes.io/zone"
QUEUE = "defaults: {onNoRoom: queue}\nqueue: {depth: 100000}\n"


@dataclass(frozen=True, slots=True)
class Borrowed:
    """A cluster in which team a borrows all GPUs of team b."""

    cluster: ControlPlane
    fairgate: FairgateServer
    evictor: Evictor
    borrowed: int


@contextmanager
def filled(
    cluster: ControlPlane,
    *,
    borrowed: int,
    each: int = 1,
    is_job: bool = False,
    minimum: int = 0,
    has_queue: bool = False,
) -> Iterator[Borrowed]:
    """Create `borrowed` borrowing pods of `each` GPUs, bare ones or those of one Job, and start the evictor.

    With a `minimum` the Job is a gang that may lose pods down to it.
    """
    with serve_fairgate(cluster) as fairgate:
        shares = [("a", fairgate.team_a, 0), ("b", fairgate.team_b, 1_000_000)]
        teams = [{"name": n, "namespaces": [space], "gpus": {"guaranteed": g}} for n, space, g in shares]
        (fairgate.policy / "teams.yaml").write_text(f"{HEAD}teams: {json.dumps(teams)}\n{QUEUE if has_queue else ''}")
        time.sleep(3)  # an edit is in force within two seconds
        own = f"/apis/batch/v1/namespaces/{fairgate.team_a}/jobs"
        if is_job:
            elastic = {"fairgate.dev/gang": "true", "fairgate.dev/minimum": str(minimum)} if minimum else {}
            cluster.api.create(own, job("borrowed", pods=borrowed, annotations=elastic, gpus=each, **SMALL))
        elif each == 1:
            made = asyncio.run(create(cluster, [fairgate.team_a], borrowed, prefix="borrowed"))
            if failures := made.failures():
                raise SystemExit(f"{len(failures)} of {borrowed} creations failed, one with: {failures[0]}")
        else:
            for number in range(borrowed):
                create_pod(cluster, fairgate.team_a, pod(f"borrowed-{number}", gpus=each, **SMALL))
        if borrowed:
            wait_running(cluster, [fairgate.team_a], borrowed, timeout=900)
        with evictor(fairgate) as running:
            time.sleep(2)
            yield Borrowed(cluster, fairgate, running, borrowed)
            wait_for(cluster, lambda: not held_nodes(cluster), what="no hold is left")
            if is_job and (failed := cluster.api.get(f"{own}/borrowed")["status"].get("failed")):
                raise SystemExit(f"the Job that borrows counted {failed} failures")
        delete_all(cluster, own, {"propagationPolicy": "Background"})
        clear(cluster, [fairgate.team_a, fairgate.team_b])


def report(there: Borrowed, work: str, *, pods: int, seconds: float, cpu: float, since: float) -> dict[str, Any]:
    """Return the result of a scenario that began at the time `since`."""
    evicted = there.evictor.said("evicted")
    first = [line["seconds"] for line in there.evictor.said("placed")]
    after = {
        event: [datetime.fromisoformat(line["time"]).timestamp() - since for line in there.evictor.said(event)]
        for event in ("plan", "evicted")
    }
    return {
        "work": work,
        "pods": pods,
        "seconds": round(seconds, 2),
        "victims": there.borrowed - len(alive(there.cluster, there.fairgate.team_a)),
        "evictions": len(evicted),
        "planned_after": round(min(after["plan"], default=0.0), 2),
        "evicted_after": round(max(after["evicted"], default=0.0), 2),
        "plan_to_bound_max": round(max(first, default=0.0), 2),
        "evictor_cpu_seconds": round(cpu, 2),
    }


def one(there: Borrowed, work: str, *, gpus: int = 1) -> dict[str, Any]:
    """Create one pod."""
    with cpu_of(there.cluster, lambda name: name == there.evictor.name) as used:
        since, began = time.time(), time.perf_counter()
        create_pod(there.cluster, there.fairgate.team_b, pod("asks", gpus=gpus, **SMALL))
        while not get_pod(there.cluster, there.fairgate.team_b, "asks")["spec"].get("nodeName"):
            time.sleep(0.01)
        return report(there, work, pods=1, seconds=time.perf_counter() - began, cpu=used(), since=since)


def jobs(there: Borrowed, count: int, *, name: str = "jobs", gpus: int = 1) -> dict[str, Any]:
    """Create many Jobs of one pod at once."""
    return _submit(there, name, _single(count, gpus), count)


def _single(count: int, gpus: int = 1) -> list[dict[str, Any]]:
    return [job(f"asks-{number}", gpus=gpus, **SMALL) for number in range(count)]


def gang(there: Borrowed, count: int) -> dict[str, Any]:
    """Create one Job whose pods are a gang."""
    labels = {"scheduling.x-k8s.io/pod-group": "asks"}
    return _submit(there, "gang", [job("asks", pods=count, labels=labels, gpus=1, **SMALL)], count)


def hero(there: Borrowed, count: int) -> dict[str, Any]:
    """Create one Job whose pods of 8 GPUs take all of one zone."""
    body = job("asks", pods=count, annotations={"fairgate.dev/topology": f"required={ZONE}"}, gpus=8, **SMALL)
    return _submit(there, "hero", [body], count)


def _submit(there: Borrowed, work: str, bodies: list[dict[str, Any]], count: int) -> dict[str, Any]:
    space = there.fairgate.team_b
    with cpu_of(there.cluster, lambda name: name == there.evictor.name) as used:
        since, began = time.time(), time.perf_counter()
        asyncio.run(_create(there.cluster, f"/apis/batch/v1/namespaces/{space}/jobs", bodies))
        ended = wait_bound(there.cluster, [space], count, timeout=900)
        found = report(there, work, pods=count, seconds=ended - began, cpu=used(), since=since)
    names = {each["spec"]["nodeName"].rpartition("-")[0] for each in list_pods(there.cluster, space)}
    if work == "hero" and len(names) > 1:
        raise SystemExit(f"the gang that asks for one zone is in {', '.join(sorted(names))}")
    delete_all(there.cluster, f"/apis/batch/v1/namespaces/{space}/jobs", {"propagationPolicy": "Background"})
    return found


def bare(
    cluster: ControlPlane, work: str, bodies: list[dict[str, Any]], *, borrowed: int, zone: str = "", pods: int
) -> dict[str, Any]:
    """Evict the pods, of one zone if there is one, and create Jobs at the same time, in a cluster without Fairgate.

    The Jobs have so many pods.
    """
    space = make_namespace(cluster, "bare")
    made = asyncio.run(create(cluster, [space], borrowed, prefix="borrowed"))
    if failures := made.failures():
        raise SystemExit(f"{len(failures)} creations failed, one with: {failures[0]}")
    wait_running(cluster, [space], borrowed, timeout=900)
    victims = [each for each in list_pods(cluster, space) if each["spec"]["nodeName"].startswith(zone)]
    asks = make_namespace(cluster, "asks")
    path = f"/apis/batch/v1/namespaces/{asks}/jobs"
    with cpu_of(cluster, lambda _: True) as used:
        began = time.perf_counter()
        evicted = asyncio.run(_replace(cluster, space, victims, path, bodies)) - began
        seconds = wait_bound(cluster, [asks], pods, timeout=900) - began
        found = {"seconds": round(seconds, 2), "evicted_after": round(evicted, 2), "cpu_seconds": round(used(), 1)}
    delete_all(cluster, path, {"propagationPolicy": "Background"})
    clear(cluster, [space, asks])
    return {"work": work, "pods": pods, "victims": len(victims), **found}


async def _replace(
    cluster: ControlPlane, space: str, victims: list[dict[str, Any]], path: str, bodies: list[dict[str, Any]]
) -> float:
    """Create Jobs and evict pods at the same time; return when the last of those was evicted."""
    created = asyncio.create_task(_create(cluster, path, bodies))
    await _evict(cluster, space, victims)
    evicted = time.perf_counter()
    await created
    return evicted


async def _evict(cluster: ControlPlane, space: str, victims: list[dict[str, Any]]) -> None:
    async with session(cluster, connections=AT_ONCE) as api, asyncio.TaskGroup() as group:
        for each in victims:
            name = each["metadata"]["name"]
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": space}}
            group.create_task(ask(api, "POST", f"/api/v1/namespaces/{space}/pods/{name}/eviction", body))


async def _create(cluster: ControlPlane, path: str, bodies: list[dict[str, Any]]) -> None:
    async with session(cluster, connections=50) as api:
        answers = await asyncio.gather(*(ask(api, "POST", path, body) for body in bodies))
    if failures := [answer for status, answer in answers if status != HTTPStatus.CREATED]:
        raise SystemExit(f"{len(failures)} creations failed, one with: {failures[0]}")


def rest(there: Borrowed, seconds: float) -> dict[str, Any]:
    """Create no pod, and measure the idle cost."""
    with cpu_of(there.cluster, lambda name: name == there.evictor.name) as used:
        time.sleep(seconds)
        pid = there.cluster.processes.pids()[there.evictor.name]
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            kib = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
        return {"work": "rest", "cpu_share": round(used() / seconds, 4), "rss_mib": kib // 1024}


def measure(cluster: ControlPlane, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run the requested scenarios one by one, each on a newly filled cluster."""
    full, half = options.nodes * 8, options.nodes // 2
    fills = {"job": {"borrowed": full, "is_job": True}, "free": {"borrowed": 0}}
    fills["trim"] = {"borrowed": options.nodes, "each": 8, "is_job": True, "minimum": half}
    works = {
        "one": lambda there: [rest(there, 5), one(there, "one")],
        "whole": lambda there: [one(there, "whole", gpus=8)],
        "jobs": lambda there: [jobs(there, options.pods)],
        "job": lambda there: [jobs(there, options.pods, name="job")],
        "free": lambda there: [jobs(there, options.pods, name="free")],
        "gang": lambda there: [gang(there, options.gang or options.pods)],
        "hero": lambda there: [hero(there, half)],
        "trim": lambda there: [jobs(there, half, name="trim", gpus=8)],
    }
    if {*works, "bare", "floor"} & set(options.works):
        nodes = [
            name
            for zone, count in (("east", options.nodes - half), ("west", half))
            for name in make_nodes(cluster, count, prefix=zone, gpus=8, labels={ZONE: zone}, timeout=900)
        ]
        if "bare" in options.works:
            whole = job("asks", pods=half, gpus=8, nodeSelector={ZONE: "west"}, **SMALL)
            yield bare(cluster, "bare", [whole], borrowed=full, zone="west-", pods=half)
        if "floor" in options.works:
            yield bare(cluster, "floor", _single(options.pods), borrowed=full, pods=options.pods)
        for name in (work for work in options.works if work in works):
            with filled(cluster, **fills.get(name, {"borrowed": full}), has_queue=options.queue) as there:
                yield from works[name](there)
        for name in nodes:
            cluster.api.delete(f"/api/v1/nodes/{name}")
    if "seed" in options.works:
        make_nodes(cluster, 4, prefix="ten", gpus=10)
        for each in (1, 5):
            with filled(cluster, borrowed=40 // each, each=each) as there:
                yield one(there, f"seed, victims of {each}", gpus=8)


def main() -> None:
    """Read the flags, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", nargs="+", default=["one", "whole", "jobs", "job", "gang", "seed"])
    parser.add_argument("--nodes", type=int, default=8, help="nodes of 8 GPUs")
    parser.add_argument("--pods", type=int, default=20, help="Jobs at once, or pods of the gang")
    parser.add_argument("--gang", type=int, help="pods of the gang, if not as many as --pods")
    parser.add_argument("--queue", action="store_true", help="pods without room are queued (onNoRoom: queue)")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    options = parser.parse_args()
    build.ensure(CONTROL_PLANE)
    with ControlPlane() as cluster:
        for found in measure(cluster, options):
            if options.output == "json":
                print(json.dumps(found), flush=True)
            else:
                print("  ".join(f"{name} {value}" for name, value in found.items()), flush=True)
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
