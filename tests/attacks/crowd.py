"""A crowded cluster in memory with a webhook, for attacks that need only requests."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.blackbox.in_process import ask
from webhook.core.model.amounts import (
    CPU,
    MEMORY,
    ONE_GPU,
    PODS,
    GpuModel,
    Namespace,
    NodeName,
    PoolName,
    ResourceName,
    TeamName,
    Uid,
)
from webhook.core.model.constraints import Tier, pack
from webhook.core.model.demand import Demand, demand_of
from webhook.core.model.node import Node
from webhook.core.model.pod import Resident
from webhook.core.model.policy import BUILT_IN_RESOURCES, Policy, Pool, Share, Team
from webhook.core.world.world import World
from webhook.kube.admission.reviews import ReviewError
from webhook.server.review.reviewer import AdmissionReviewer
from webhook.server.review.verdicts import Answer, MemoryLedger

GPU = ResourceName("nvidia.com/gpu")
GIB = 1 << 30
MODELS = ("NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3")
NOW = "2026-01-01T00:00:00Z"


def policy() -> Policy:
    """Two large teams, one with shares per model, and two pools: the more ways to place a pod, the higher the cost."""
    whole = Share(200_000 * ONE_GPU, 400_000 * ONE_GPU)
    teams = (
        Team(TeamName("vision"), ("vision",), gpus=whole, models={GpuModel(model): whole for model in MODELS}),
        Team(TeamName("nlp"), ("nlp",), gpus=whole),
        Team(TeamName("mallory"), ("mallory",), gpus=whole),
    )
    pools = tuple(Pool(PoolName(name), node_selector=(("pool", name),)) for name in ("left", "right"))
    return Policy(teams=teams, pools=pools, hash="crowd")


def demand(gpus: int) -> Demand:
    return demand_of({GPU: gpus, CPU: 4000, MEMORY: 16 * GIB, PODS: 1}, BUILT_IN_RESOURCES)


def crowded(nodes: int) -> World:
    """Nodes of eight GPUs in ten zones with ten pods of two templates each, a few of which hold GPUs."""
    world = World(policy())
    for i in range(nodes):
        name, model = NodeName(f"node-{i:05}"), GpuModel(MODELS[i % 2])
        labels = {
            "kubernetes.io/hostname": name,
            "topology.kubernetes.io/zone": f"zone-{i % 10}",
            "nvidia.com/gpu.product": model,
            "pool": "left" if i % 4 < 2 else "right",
            "nvidia.com/gpu.memory": str(40_000 + i % 8),
        }
        offered = {CPU: 96_000, MEMORY: 768 * GIB, GPU: 8, PODS: 110}
        world.set_node(Node(name, offered, labels, model=model, model_label="nvidia.com/gpu.product"))
        for p in range(10):
            packed = pack({"app": f"app-{p % 2}", "index": str(p)})
            uid, gpus = Uid(f"{i}-{p}"), int(p < i % 6)
            team, tier = ("nlp", Tier.GUARANTEED) if gpus else (None, None)
            made = Resident(uid, Namespace("nlp"), uid, demand(gpus), name, None, team, tier, packed=packed)
            world.set_pod(made)
    world.sort_nodes()
    return world


def reviewer(world: World) -> AdmissionReviewer:
    """Return a reviewer of a world whose clock does not move."""
    return AdmissionReviewer(world, MemoryLedger(world, time.monotonic), now_text=lambda: NOW)


class Turn(NamedTuple):
    """The result of a review, and its processor time: no other request was answered meanwhile."""

    answer: Answer | ReviewError
    milliseconds: float


def turn(at: AdmissionReviewer, method: str, body: bytes) -> Turn:
    """Run a review, which must not wait, to its end."""
    before = time.thread_time()
    try:
        answer: Answer | ReviewError = ask(at, method, body)
    except ReviewError as error:
        answer = error
    return Turn(answer, 1000 * (time.thread_time() - before))


IDLE_MILLISECONDS = 7.0
"""Duration of the work of `slowness` on an idle machine, for which the bounds are meant."""


def slowness() -> float:
    """How many times longer the same work takes here and now; 1 on a faster machine."""

    def took() -> float:
        began = time.thread_time()
        sum(number * number for number in range(200_000))
        return 1000 * (time.thread_time() - began)

    return max(1.0, min(took() for _ in range(3)) / IDLE_MILLISECONDS)


def is_longer(milliseconds: Callable[[int], float], bound: float) -> float | None:
    """Measure up to six times; return the least if each is over the bound, scaled to this machine, else None.

    Other processes lengthen one turn, but not six in a row. `milliseconds` receives the number of the attempt, so
    that it can send a different request each time.
    """
    least = milliseconds(0)
    for number in range(1, 6):
        if least <= bound:
            return None
        least = min(least, milliseconds(number))
    return least if least > bound * slowness() else None


def memory_mib() -> float:
    """The resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20
