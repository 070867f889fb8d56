"""GPUs held on nodes at one moment, summed pod by pod: the input of usage accounting over time.

Waiting pods hold none, even though their team is charged for them. A terminating pod still holds its GPUs.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from webhook.core.model.amount import Units
from webhook.core.model.names import GpuModel, NodeName, TeamName, Uid
from webhook.core.model.node import NO_MODEL, Node
from webhook.core.model.policy import Policy
from webhook.core.model.tier import Tier
from webhook.core.world.world import World


class UsageKey(NamedTuple):
    """The key of a sum: a team's pods of one tier on nodes of one GPU model."""

    team: TeamName
    model: GpuModel
    tier: Tier


@dataclass(slots=True)
class Occupancy:
    """GPU units on nodes: by holder, and by node."""

    by_holder: dict[UsageKey, Units] = field(default_factory=dict)
    by_node: dict[NodeName, Units] = field(default_factory=dict)

    def add(self, uid: Uid, world: World) -> None:
        """Add a pod; one that is gone, waits or holds no GPU adds nothing."""
        pod, entry = world.pod(uid), world.entry_of(uid)
        if pod is None or entry is None or pod.node is None or entry.is_reserved:
            return
        gpus = entry.charge.gpus
        node = world.fleet.get(pod.node)
        # As in the ledger: a pod that bypassed the webhook counts against the guaranteed share.
        tier = Tier.GUARANTEED if entry.is_unlabeled else entry.charge.tier
        holder = UsageKey(entry.charge.team, NO_MODEL if node is None else node.model, tier)
        self.by_holder[holder] = self.by_holder.get(holder, 0) + gpus
        self.by_node[pod.node] = self.by_node.get(pod.node, 0) + gpus


def capacity_of(node: Node, policy: Policy) -> Units:
    """Return the GPU units of a node, as policy weighs each resource."""
    return node.gpus(policy.resources)
