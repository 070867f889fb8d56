"""Processes of watch.py that follow the API server: Fairgate's feed, kubernetes_asyncio's models, a bare download."""

import asyncio
import gc
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from serving.inputs import policy

from webhook.cluster.api.client import connect
from webhook.cluster.watch.feed import Feed
from webhook.cluster.watch.watch import Watch
from webhook.core.model.amounts import NodeName, Uid
from webhook.core.model.demand import Amounts
from webhook.core.model.node import Node
from webhook.core.model.pod import Resident
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.core.world.world import World
from webhook.kube.pod.existing import to_resident
from webhook.kube.watched.kinds import pod_kind
from webhook.kube.watched.world_kinds import NAMESPACES, NODES, PRIORITY_CLASSES
from webhook.policy.watch import load

MEBIBYTE = 1 << 20
PAGE = 500
PATHS = ("/api/v1/nodes", "/api/v1/pods")


def resident_bytes() -> int:
    """Return the memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Stopwatch:
    """Wall and processor time since its creation."""

    wall: float = field(default_factory=time.perf_counter)
    cpu: float = field(default_factory=time.process_time)

    def seconds(self) -> dict[str, float]:
        return {"sync_seconds": time.perf_counter() - self.wall, "sync_cpu_seconds": time.process_time() - self.cpu}

    def per_event(self, events: int) -> dict[str, float]:
        return {"events": events, "event_us": (time.process_time() - self.cpu) / events * 1e6}


@dataclass(slots=True)
class Turns:
    """Processor time between two turns of a busy task: how long one turn of the event loop delays others.

    Processor time, because on a shared machine wall time includes other load.
    """

    taken: list[float] = field(default_factory=list)
    collections: list[float] = field(default_factory=list)

    async def watch(self, seconds: float) -> None:
        begun = 0.0

        def collected(phase: str, _info: dict[str, int]) -> None:
            nonlocal begun
            if phase == "start":
                begun = time.thread_time()
            else:
                self.collections.append(time.thread_time() - begun)

        gc.callbacks.append(collected)
        end, last = time.monotonic() + seconds, time.thread_time()
        while time.monotonic() < end:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.taken.append(now - last)
            last = now
        gc.callbacks.remove(collected)

    def summary(self) -> dict[str, float]:
        return {
            "turns": len(self.taken),
            "longest_turn_ms": max(self.taken) * 1e3,
            "turns_over_1_ms": sum(taken > 0.001 for taken in self.taken),
            "turns_over_half_ms": sum(taken > 0.0005 for taken in self.taken),
            "longest_collection_ms": max(self.collections, default=0.0) * 1e3,
        }


@asynccontextmanager
async def ordered(url: str, **orders: float) -> AsyncIterator[None]:
    """Let the API server change pods until the block ends."""
    async with aiohttp.ClientSession() as session:
        await (await session.get(f"{url}/control", params={name: str(value) for name, value in orders.items()})).read()
        yield
        await (await session.get(f"{url}/control")).read()


def kubeconfig(folder: Path, url: str) -> Path:
    """Write a kubeconfig for the API server."""
    path = folder / "kubeconfig"
    entry = {"name": "it", "cluster": {"server": url}}
    context = {"name": "it", "context": {"cluster": "it", "user": "it"}}
    users = [{"name": "it", "user": {}}]
    path.write_text(
        json.dumps(
            {"current-context": "it", "clusters": [entry], "contexts": [context], "users": users, "kind": "Config"}
        )
    )
    return path


def world_for(folder: Path, *, gpus: int) -> World:
    """Return an empty world under the benchmark's policy."""
    path = folder / "policy.yaml"
    path.write_text(json.dumps(policy(gpus)))
    return World(load(path))


class Records:
    """Keeps reported objects in dicts, as other clients keep the decoded models."""

    def __init__(self) -> None:
        self.nodes: dict[NodeName, Node] = {}
        self.residents: dict[Uid, Resident] = {}
        self.set_namespace = self.remove_namespace = self.set_priority_class = self.remove_priority_class = print

    def set_node(self, node: Node) -> None:
        self.nodes[node.name] = node

    def remove_node(self, name: NodeName) -> None:
        del self.nodes[name]

    def set_pod(self, pod: Resident) -> None:
        self.residents[pod.uid] = pod

    def remove_pod(self, uid: Uid) -> None:
        del self.residents[uid]


@dataclass(slots=True)
class Following:
    """A running feed, and the cost of its sync."""

    feed: Feed
    result: dict[str, Any]

    @property
    def pods(self) -> Watch[Any]:
        return self.feed.watches[-1]

    async def take_events(self, url: str, count: int) -> None:
        """Measure the processor time of an event at full speed."""
        await asyncio.sleep(0.5)
        async with ordered(url, rate=-1):
            start, watch = self.pods.events, Stopwatch()
            while self.pods.events - start < count:  # noqa: ASYNC110  # there is no notification of an event, on purpose
                await asyncio.sleep(0.02)
            self.result |= watch.per_event(self.pods.events - start)


@asynccontextmanager
async def following(
    url: str, folder: Path, sink: World | Records, weights: Amounts, *, settle: Callable[[], None]
) -> AsyncIterator[Following]:
    """Sync a sink by Fairgate's own feed, and follow until the block ends."""
    async with await connect(kubeconfig(folder, url)) as connection:
        kinds = (
            NODES.watched(sink),
            NAMESPACES.watched(sink),
            PRIORITY_CLASSES.watched(sink),
            pod_kind(sink, lambda pod: to_resident(pod, weights)),
        )
        feed = Feed(connection, kinds)
        gc.collect()
        before, watch = resident_bytes(), Stopwatch()
        task = asyncio.create_task(feed.run())
        await feed.wait_synced()
        result: dict[str, Any] = watch.seconds()
        settle()
        gc.collect()
        gc.freeze()
        yield Following(feed, result | {"added_mb": (resident_bytes() - before) / MEBIBYTE})
        task.cancel()
        await asyncio.wait([task])


async def run_records(url: str, folder: Path, *, events: int, seconds: float) -> dict[str, Any]:  # noqa: ARG001
    """Follow into records: the same work as `typed`."""
    async with following(url, folder, Records(), BUILT_IN_RESOURCES, settle=lambda: None) as run:
        await run.take_events(url, events)
    return run.result


async def run_fairgate(url: str, folder: Path, *, events: int, seconds: float) -> dict[str, Any]:
    """Follow into a world, and watch the loop while changes and relists go on."""
    world = world_for(folder, gpus=1_000_000)
    async with following(url, folder, world, world.policy.resources, settle=world.sort_nodes) as run:
        run.result["pods"] = sum(1 for _ in world.pods())
        await run.take_events(url, events)
        await asyncio.sleep(0.5)
        turns, relists = Turns(), run.pods.relists
        async with ordered(url, rate=2000, relist=0.5):
            await turns.watch(seconds)
        return run.result | turns.summary() | {"relists": run.pods.relists - relists}


async def run_typed(url: str, _folder: Path, *, events: int, seconds: float) -> dict[str, Any]:
    """Do the same by kubernetes_asyncio: list models by pages, keep them by UID, watch; the turns are of one page."""
    from kubernetes_asyncio import client, watch  # noqa: PLC0415 - 70 MB, only in this role

    async with client.ApiClient(client.Configuration(host=url)) as api:
        core = client.CoreV1Api(api)
        gc.collect()
        before, stopwatch = resident_bytes(), Stopwatch()
        kept: dict[str, Any] = {}
        for list_page in (core.list_node, core.list_pod_for_all_namespaces):
            token = ""
            while token is not None:
                page = await list_page(limit=PAGE, _continue=token)
                kept |= {thing.metadata.uid: thing for thing in page.items}
                version, token = page.metadata.resource_version, page.metadata._continue
        result = stopwatch.seconds()
        gc.collect()
        result["added_mb"] = (resident_bytes() - before) / MEBIBYTE
        turns = Turns()
        async with asyncio.TaskGroup() as group:
            group.create_task(turns.watch(seconds))
            await core.list_pod_for_all_namespaces(limit=PAGE)
        result |= turns.summary()
        seen = 0
        async with ordered(url, rate=-1), watch.Watch() as stream:
            async for event in stream.stream(core.list_pod_for_all_namespaces, resource_version=version):
                if seen == 0:
                    stopwatch = Stopwatch()
                kept[event["object"].metadata.uid] = event["object"]
                seen += 1
                if seen > events:
                    break
        return result | stopwatch.per_event(events)


async def run_bare(url: str, _folder: Path, *, events: int, seconds: float) -> dict[str, Any]:  # noqa: ARG001
    """Download the same pages and read only the token of the next one."""
    async with aiohttp.ClientSession() as session:
        before, stopwatch, size = resident_bytes(), Stopwatch(), 0
        for path in PATHS:
            start = 0
            while True:
                async with session.get(url + path, params={"limit": str(PAGE), "continue": str(start)}) as answer:
                    body = await answer.read()
                size += len(body)
                start += PAGE
                if b'"continue"' not in body[:200]:
                    break
        return stopwatch.seconds() | {"added_mb": (resident_bytes() - before) / MEBIBYTE, "bytes": size}
