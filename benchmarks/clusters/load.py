"""Shared code of benchmarks on a control plane: pods created at a rate or at full speed, and CPU time of processes."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tests.chaos.client import ask, session
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import job, pod
from tests.control_plane.workbench import wait_for

POD_BYTES = ("JSON", "protobuf")
"""The forms in which a pod is measured: as most clients read it, and as etcd, kube-scheduler and kubelet have it."""

_PROTOBUF = "application/vnd.kubernetes.protobuf"
_SAMPLE = 20


@dataclass(frozen=True, slots=True)
class Request:
    """An object to create: the path of its collection and the object."""

    path: str
    body: dict[str, Any]


def one_gpu_pod(name: str, namespace: str) -> Request:
    """A bare pod of one GPU."""
    return Request(
        f"/api/v1/namespaces/{namespace}/pods", pod(name, namespace=namespace, gpus=1, cpu="100m", memory="1Gi")
    )


def one_gpu_job(name: str, namespace: str) -> Request:
    """A Job of one such pod."""
    return Request(f"/apis/batch/v1/namespaces/{namespace}/jobs", job(name, gpus=1, cpu="100m", memory="1Gi"))


@dataclass(frozen=True, slots=True)
class Creation:
    """One creation as seen by the client: its time, retries included, and the server's last answer."""

    milliseconds: float
    status: int
    words: str


@dataclass(frozen=True, slots=True)
class Made:
    """A series of creations and its total time."""

    creations: list[Creation]
    seconds: float

    def failures(self) -> list[str]:
        """The messages of all failed creations."""
        return [f"{made.status} {made.words}" for made in self.creations if made.status != HTTPStatus.CREATED]

    @property
    def per_second(self) -> float:
        return len(self.creations) / self.seconds

    def quantile(self, share: float) -> float:
        """The milliseconds within which this share of the creations was answered."""
        return quantile([made.milliseconds for made in self.creations], share)


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile of the values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def spread(values: Sequence[float]) -> str:
    """Median and range, for a table."""
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


async def create(
    cluster: ControlPlane,
    namespaces: Sequence[str],
    count: int,
    *,
    prefix: str,
    connections: int = 50,
    per_second: float | None = None,
    make: Callable[[str, str], Request] = one_gpu_pod,
) -> Made:
    """Create objects, the namespaces in turn: at a rate independent of answers, or at full speed."""
    numbers = iter(range(count))
    creations: list[Creation] = []
    started = time.perf_counter()
    async with session(cluster, connections=connections) as api, asyncio.TaskGroup() as group:

        async def one(number: int) -> None:
            creations.append(await _create(api, make(f"{prefix}-{number}", namespaces[number % len(namespaces)])))

        async def worker() -> None:
            for number in numbers:
                await one(number)

        if per_second is None:
            for _ in range(connections):
                group.create_task(worker())
        else:
            for number in numbers:
                await asyncio.sleep(max(0.0, started + number / per_second - time.perf_counter()))
                group.create_task(one(number))
    return Made(creations, time.perf_counter() - started)


async def _create(api: aiohttp.ClientSession, request: Request) -> Creation:
    started = time.perf_counter()
    status, answer = await ask(api, "POST", request.path, request.body)
    return Creation((time.perf_counter() - started) * 1000, status, str(answer.get("message", "")))


def wait_bound(cluster: ControlPlane, namespaces: Sequence[str], count: int, *, timeout: float = 600) -> float:
    """Wait until this many pods exist, all with a node; return the time when that was seen."""
    return asyncio.run(_wait_all(cluster, namespaces, count, lambda pod: bool(pod.spec.nodeName), timeout))


def wait_running(cluster: ControlPlane, namespaces: Sequence[str], count: int, *, timeout: float = 600) -> float:
    """Wait until this many pods exist, all running; return the time when that was seen."""
    return asyncio.run(_wait_all(cluster, namespaces, count, lambda pod: pod.status.phase == "Running", timeout))


class _Metadata(msgspec.Struct):
    uid: str


class _Spec(msgspec.Struct):
    nodeName: str = ""  # noqa: N815 - the API's name


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec
    status: _Status


class _Change(msgspec.Struct):
    type: str
    object: _Pod


async def _wait_all(
    cluster: ControlPlane, namespaces: Sequence[str], count: int, is_so: Callable[[_Pod], bool], seconds: float
) -> float:
    """Wait by watches: repeated lists of thousands of pods would be much of the API server's work."""
    pods: dict[str, dict[str, bool]] = {}
    done = asyncio.Event()

    async def watch(api: aiohttp.ClientSession, name: str) -> None:
        query = {"watch": "true", "timeoutSeconds": str(int(seconds) + 1)}
        path = f"/api/v1/namespaces/{name}/pods"
        while True:  # the API server ends a slow watch; a new one starts with all objects
            mine = pods[name] = {}
            async with api.get(path, params=query, timeout=aiohttp.ClientTimeout()) as answer:
                answer.raise_for_status()
                async for line in answer.content:
                    change = msgspec.json.decode(line, type=_Change)
                    mine[change.object.metadata.uid] = is_so(change.object)
                    if change.type == "DELETED":
                        del mine[change.object.metadata.uid]
                    if sum(map(len, pods.values())) >= count and all(all(each.values()) for each in pods.values()):
                        done.set()

    async with (
        session(cluster, connections=len(namespaces)) as api,
        asyncio.timeout(seconds),
        asyncio.TaskGroup() as group,
    ):
        watches = [group.create_task(watch(api, name)) for name in namespaces]
        await done.wait()
        ended = time.perf_counter()
        for each in watches:
            each.cancel()
    return ended


async def pod_bytes(cluster: ControlPlane, namespace: str) -> dict[str, float]:
    """Return the median size of some pods of a namespace, by form."""
    async with session(cluster) as api:
        path = f"/api/v1/namespaces/{namespace}/pods"
        async with api.get(path, params={"limit": str(_SAMPLE)}) as answer:
            names = [item["metadata"]["name"] for item in (await answer.json())["items"]]
        sizes: dict[str, list[int]] = {form: [] for form in POD_BYTES}
        for name in names:
            for form, accept in zip(POD_BYTES, ("application/json", _PROTOBUF), strict=True):
                async with api.get(f"{path}/{name}", headers={"Accept": accept}) as answer:
                    sizes[form].append(len(await answer.read()))
    return {form: statistics.median(found) for form, found in sizes.items()}


def clear(cluster: ControlPlane, namespaces: Sequence[str]) -> None:
    """Delete Jobs and pods and wait until they are gone.

    Not by force: a pod that was deleted by force is charged until its grace period is over.
    """
    for name in namespaces:
        delete_all(cluster, f"/apis/batch/v1/namespaces/{name}/jobs", {"propagationPolicy": "Background"})
        delete_all(cluster, f"/api/v1/namespaces/{name}/pods", {})


def delete_all(cluster: ControlPlane, path: str, how: dict[str, Any]) -> None:
    """Delete a whole collection, by several requests if needed: the API server limits each to a minute."""

    def is_empty() -> bool:
        cluster.api.delete(path, how, limit="250")
        return not cluster.api.list(path, limit="1")

    wait_for(cluster, is_empty, what=f"nothing is left of {path}", timeout=900)


@contextmanager
def cpu_of(cluster: ControlPlane, names: Callable[[str], bool]) -> Iterator[Callable[[], float]]:
    """Return the CPU seconds that processes of these names have used since the block began."""
    pids = [pid for name, pid in cluster.processes.pids().items() if names(name)]
    before = sum(map(_cpu_seconds, pids))
    yield lambda: sum(map(_cpu_seconds, pids)) - before


def _cpu_seconds(pid: int) -> float:
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
