"""Different nodes and pods of several shapes: the load of the benchmark of the affinity modes.

Nodes have two sizes and three zones, run different amounts of other work, and half of them already have the image of
the pods: every score of kube-scheduler applies. The load is determined by a seed.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import aiohttp

from clusters.load import delete_all
from tests.chaos.client import ask, session
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import job, pod, pod_spec
from tests.control_plane.workbench import make_namespace, make_nodes

GPUS_PER_NODE = 8
CPU_PER_GPU, MEMORY_GIB_PER_GPU = 4, 32
SIZES = {"std": (64, 512), "big": (128, 1024)}
ZONES = ("za", "zb", "zc")
IMAGE_BYTES = 8_000_000_000
BUSY = "busy"
SHAPE = "shape"

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
GPUS_BY_TURN = (1, 1, 2, 1, 4, 1, 2, 8)
"""Most pods are small, as in the traces of real clusters."""

REPLICAS = 10

SHAPES = ("Job", "Deployment", "bare", "StatefulSet", "soft-spread", "hard-spread", "apart", "together")


@dataclass(frozen=True, slots=True)
class Order:
    """An object to create, and the number of its pods."""

    path: str
    body: dict[str, Any]
    pods: int


def make_cluster(cluster: ControlPlane, count: int, *, seed: int) -> list[str]:
    """Create the nodes, with images on half of them and other work on most."""
    dice = random.Random(seed)
    kinds = [(size, zone) for zone in ZONES for size in SIZES]
    names: list[str] = []
    for number, (size, zone) in enumerate(kinds):
        cpu, memory = SIZES[size]
        names += make_nodes(
            cluster,
            count // len(kinds) + (number < count % len(kinds)),
            prefix=f"{zone}-{size}",
            gpus=GPUS_PER_NODE,
            cpu=str(cpu),
            memory=f"{memory}Gi",
            labels={ZONE: zone},
            timeout=900,
        )
    image = pod_spec()["containers"][0]["image"]
    images = {"images": [{"names": [image], "sizeBytes": IMAGE_BYTES}]}
    patches = [(f"/api/v1/nodes/{name}/status", {"status": images}) for name in names if dice.random() < 0.5]
    make_namespace(cluster, BUSY)
    orders = [Order(f"/api/v1/namespaces/{BUSY}/pods", _other_work(name, dice), 1) for name in names]
    asyncio.run(_patch_all(cluster, patches))
    asyncio.run(create_all(cluster, orders))
    return names


def _other_work(node: str, dice: random.Random) -> dict[str, Any]:
    """A pod without GPUs that leaves its node enough cpu and memory for eight one-GPU pods."""
    cpu, memory = SIZES[node.split("-")[1]]
    requests = {
        "cpu": f"{dice.uniform(0, 1) * (cpu - GPUS_PER_NODE * CPU_PER_GPU):.1f}",
        "memory": f"{dice.uniform(0, 1) * (memory - GPUS_PER_NODE * MEMORY_GIB_PER_GPU):.0f}Gi",
    }
    return pod(f"busy-{node}", nodeName=node, **requests)


def orders(namespace: str, pods: int, *, prefix: str, shapes: Sequence[str] = SHAPES) -> list[Order]:
    """Return objects with about this many pods, of every shape in turn; the label `shape` names it."""
    found: list[Order] = []
    made = 0
    for number in itertools.count():
        shape, gpus = shapes[number % len(shapes)], GPUS_BY_TURN[number // len(shapes) % len(GPUS_BY_TURN)]
        if made >= pods:
            break
        size = {"gpus": gpus, "cpu": str(gpus * CPU_PER_GPU), "memory": f"{gpus * MEMORY_GIB_PER_GPU}Gi"}
        name = f"{prefix}-{number}"
        found += _ordered(shape, namespace, name, size, few=gpus > 2)
        made = sum(order.pods for order in found)
    return found


def _ordered(shape: str, namespace: str, name: str, size: dict[str, Any], *, few: bool) -> list[Order]:
    labels = {SHAPE: shape, "app": name}
    count = 2 if few else REPLICAS
    if shape == "bare":
        path = f"/api/v1/namespaces/{namespace}/pods"
        return [Order(path, pod(f"{name}-{i}", labels=labels, **size), 1) for i in range(count)]
    if shape == "Job":
        return [
            Order(f"/apis/batch/v1/namespaces/{namespace}/jobs", job(name, pods=count, labels=labels, **size), count)
        ]
    own = {
        "soft-spread": _spread(labels, HOSTNAME, "ScheduleAnyway"),
        "hard-spread": _spread(labels, ZONE, "DoNotSchedule"),
        "apart": {"affinity": {"podAntiAffinity": _required(labels, HOSTNAME)}},
        "together": {"affinity": {"podAffinity": _required(labels, ZONE)}},
    }.get(shape, {})
    kind = "StatefulSet" if shape == "StatefulSet" else "Deployment"
    path = f"/apis/apps/v1/namespaces/{namespace}/{kind.lower()}s"
    return [Order(path, _replicated(kind, name, count, labels, {**size, **own}), count)]


def _spread(labels: dict[str, str], key: str, how: str) -> dict[str, Any]:
    rule = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": how, "labelSelector": {"matchLabels": labels}}
    return {"topologySpreadConstraints": [rule]}


def _required(labels: dict[str, str], key: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _replicated(kind: str, name: str, count: int, labels: dict[str, str], spec: dict[str, Any]) -> dict[str, Any]:
    body = {
        "replicas": count,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod_spec(**spec)},
    }
    if kind == "StatefulSet":
        body |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": body}


async def create_all(cluster: ControlPlane, wanted: Sequence[Order], *, connections: int = 8) -> None:
    """Create all objects, some at a time; SystemExit where one is refused."""
    async with session(cluster, connections=connections) as api:
        answers = await asyncio.gather(*(ask(api, "POST", order.path, order.body) for order in wanted))
    if failures := [answer for status, answer in answers if status != HTTPStatus.CREATED]:
        raise SystemExit(f"{len(failures)} of {len(wanted)} creations failed, one with: {failures[0]}")


async def _patch_all(cluster: ControlPlane, patches: Sequence[tuple[str, dict[str, Any]]]) -> None:
    async with session(cluster, connections=20) as api:
        await asyncio.gather(*(_patch(api, path, body) for path, body in patches))


async def _patch(api: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> None:
    async with api.patch(path, json=body, headers={"Content-Type": "application/merge-patch+json"}) as answer:
        answer.raise_for_status()


def set_cordoned(cluster: ControlPlane, names: Sequence[str], *, is_cordoned: bool) -> None:
    """Cordon nodes, or uncordon them."""
    body = {"spec": {"unschedulable": is_cordoned}}
    asyncio.run(_patch_all(cluster, [(f"/api/v1/nodes/{name}", body) for name in names]))


def clear(cluster: ControlPlane, namespace: str) -> None:
    """Delete all workloads and pods, and wait until the pods are gone; not by force, as in `load.clear`."""
    at_once = {"propagationPolicy": "Background"}
    for group, kinds in (("/apis/apps/v1", ("deployments", "statefulsets")), ("/apis/batch/v1", ("jobs",))):
        for kind in kinds:
            delete_all(cluster, f"{group}/namespaces/{namespace}/{kind}", at_once)
    delete_all(cluster, f"/api/v1/namespaces/{namespace}/pods", {})
