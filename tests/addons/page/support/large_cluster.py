"""A cluster of many nodes with eight GPUs each, busy with pods: for tests and benchmarks of the page."""

import random
from dataclasses import replace

import msgspec

from tests import builders as b
from tests.addons.page.support.pages import waiting
from tests.core.support import make
from webhook.core.model.amounts import NodeName
from webhook.core.model.pod import Owner
from webhook.kube.objects import objects
from webhook.kube.pod.waiting import to_waiting

NODES, TEAMS = 5_000, ("vision", "nlp", "serving")


def filled(state, nodes=NODES):
    """Put nodes of eight GPUs and their pods into the world."""
    rolls = random.Random(3)
    for number in range(nodes):
        name, left = f"gpu-{number}", 8
        model = rolls.choice((b.A100, "NVIDIA-H100-80GB-HBM3"))
        state.world.set_node(make.node(name, gpus=8, model=model))
        while left and rolls.random() < 0.9:
            gpus = min(left, rolls.choice((1, 1, 2, 4, 8)))
            left -= gpus
            state.world.set_pod(pod(f"pod-{number}-{left}", name, gpus, rolls.choice(TEAMS)))
    state.touch_all()
    return state


def pod(name, node, gpus, team, tier="guaranteed"):
    """A pod of a Job on a node."""
    more = {"name": name, "node": NodeName(node), "owner": Owner("Job", "train"), "created": 1_795_338_000}
    return make.resident(gpus, uid=f"uid-{name}", namespace=team, tier=tier, **more)


def add_pod(state, node):
    """Start a pod of one GPU on a node."""
    state.world.set_pod(pod(f"on-{node}", node, 1, "vision", "preemptible"))
    state.touch(NodeName(node))


def add_line(state, pods):
    """Put pods in line."""
    decoded = msgspec.json.decode(msgspec.json.encode(waiting("w", gpus=8)), type=objects.Pod)
    first = to_waiting(decoded, state.world.policy.resources)
    for number in range(pods):
        named = first.pod._replace(uid=f"w{number}", name=f"w{number}")
        state.world.set_waiting(replace(first, pod=named))
