"""Devices that nodes offer and policy does not count, or counts as more GPUs than there are."""

from collections.abc import Iterator, Sequence

from webhook.core.model.gpu_names import looks_like_gpu
from webhook.core.model.gpu_shares import DEVICE
from webhook.core.model.names import DEVICE_CLASS, NodeName, ResourceName
from webhook.core.model.policy import Policy, UnknownGpu
from webhook.core.model.replicas import REPLICAS
from webhook.core.model.text import plural, printable
from webhook.core.world.world import World

_MOST_NAMES = 5


def unknown_devices(policy: Policy, world: World) -> Iterator[str]:
    """Yield a text for each resource of the nodes that looks like a GPU and that policy does not name."""
    nodes: dict[ResourceName, list[NodeName]] = {}
    for node in world.fleet.nodes():
        for name in dict.fromkeys((*node.allocatable, *node.at_best)):
            if node.amount_at_best(name) and _is_unknown(name, policy, world):
                nodes.setdefault(name, []).append(node.name)
    effect = "are refused" if policy.defaults.unknown_gpu is UnknownGpu.REJECT else "count nothing (unknownGpu: ignore)"
    for name, offering in sorted(nodes.items()):
        counts = [held for pod in world.pods() for each, held in pod.demand.requests if each == name]
        have = "has" if len(counts) == 1 else "have"
        pods = f"; {plural(len(counts), 'pod')} here {have} {sum(counts)}, uncounted" if counts else ""
        yield (
            f"{printable(name)} looks like a GPU, is offered by {listed(offering)}, and policy does not say how much "
            f"of one it is: pods that ask for it {effect}{pods}; name it in resources: gpus or perGpu for what it "
            "counts, gpus: 0 if it is none"
        )


def counted_replicas(policy: Policy, world: World) -> Iterator[str]:
    """Yield a text for each number of replicas that nodes offer of a GPU while policy counts a GPU for each."""
    if policy.counts_replicas or DEVICE not in policy.resources:
        return
    nodes: dict[int, list[NodeName]] = {}
    for node in world.fleet.nodes():
        replicas = node.by_replicas(is_counted=True).replicas
        if replicas > 1 and node.slice is None and node.amount_at_best(DEVICE):
            nodes.setdefault(replicas, []).append(node.name)
    for replicas, offering in sorted(nodes.items()):
        yield (
            f"one GPU is offered as {replicas} pieces of {DEVICE} by {listed(offering)} (label {REPLICAS}), and each "
            f"of them counts a GPU; write resources: {{{DEVICE}: {{perReplica: true}}}} to count parts, or have the "
            "device plugin rename them (renameByDefault) and weigh nvidia.com/gpu.shared"
        )


def listed(names: Sequence[str]) -> str:
    """Return the first of some names, and how many follow."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _is_unknown(name: ResourceName, policy: Policy, world: World) -> bool:
    if name in policy.resources or name in policy.ignored_resources or "/" not in name:
        return False
    return looks_like_gpu(name) and not name.startswith(DEVICE_CLASS) and not world.claims.classes.knows(name)
