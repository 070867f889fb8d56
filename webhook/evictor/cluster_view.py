"""The evictor's view of the cluster: the world, the index of its GPU pods, and the holds that nodes state."""

import asyncio
from dataclasses import replace
from typing import Any

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.watch.feed import Feed
from webhook.cluster.watch.world_kinds import reclaim_kinds
from webhook.core.model.names import NodeName, Uid
from webhook.core.model.policy import Policy
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.reclaim.reservation import NodeHold
from webhook.core.tiers.shadow_labels import ShadowLabels
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World
from webhook.kube.objects import objects
from webhook.kube.reclaim.holds import is_marked, read_node_hold


class ClusterView:
    """The view, updated by watch events. `changed` is set with each; `marked` are the nodes that carry a hold."""

    def __init__(self, policy: Policy) -> None:
        self.world = World(policy, is_live=True)
        self.reclaim_index = ReclaimIndex(policy.reclaim)
        self.marked: dict[NodeName, NodeHold | None] = {}
        self.changed = asyncio.Event()
        self._shadow_labels = ShadowLabels(self.world)
        self._claiming: set[Uid] = set()

    def feed(self, connection: ApiConnection) -> Feed:
        """Return the feed that keeps it up to date."""
        kinds = reclaim_kinds(
            self.world,
            self.reclaim_index,
            pods=self,
            node=self._node_changed,
            device=self._device_changed,
            other=lambda *_: self.changed.set(),
        )
        return Feed(connection, kinds)

    def set_policy(self, policy: Policy) -> None:
        """Replace the policy."""
        self.world.set_policy(policy)
        self.reclaim_index.set_rules(policy.reclaim)
        self._shadow_labels.relabel_all()
        for pod in self.world.pods():
            gpu_pod = self.reclaim_index.get(pod.uid)
            if gpu_pod is not None and gpu_pod.pod.tier_label != pod.tier_label:
                self._index(gpu_pod)
        self.changed.set()

    def update_tiers(self) -> None:
        """Give pods without a decision the tiers that they would have by now, while policy is not enforced."""
        for uid in self._shadow_labels.update_tiers(team.name for team in self.world.policy.teams):
            gpu_pod = self.reclaim_index.get(uid)
            if gpu_pod is not None:
                self._index(gpu_pod)

    def set_pod(self, gpu_pod: ReclaimPod | WaitingPod) -> None:
        """Add a pod, or what changed of it."""
        if isinstance(gpu_pod, WaitingPod):
            self.world.set_waiting(gpu_pod)
            self.changed.set()
            return
        self._shadow_labels.set_pod(gpu_pod.pod)
        self._index(gpu_pod)

    def remove_pod(self, uid: Uid) -> None:
        """Remove a pod that ended."""
        self._shadow_labels.remove_pod(uid)
        self.reclaim_index.remove(uid)
        self._claiming.discard(uid)
        self.changed.set()

    def _index(self, gpu_pod: ReclaimPod) -> None:
        """Index a pod with the demand that the world counts: only the world resolves its device claims."""
        uid, counted = gpu_pod.uid, self.world.pod(gpu_pod.uid) or gpu_pod.pod
        if counted.claims:
            self._claiming.add(uid)
        if counted.demand.gpus:
            self.reclaim_index.set(replace(gpu_pod, pod=counted))
            self.changed.set()
        elif self.reclaim_index.get(uid) is not None:
            self.reclaim_index.remove(uid)

    def _device_changed(self, _found: Any, _handle: str) -> None:  # noqa: ANN401 - of any kind of device
        """Count the pods again that claim devices: a claim, a class or a device changed."""
        for uid in self._claiming:
            gpu_pod, counted = self.reclaim_index.get(uid), self.world.pod(uid)
            if gpu_pod is not None and counted is not None and gpu_pod.demand != counted.demand:
                self._index(gpu_pod)
        self.changed.set()

    def _node_changed(self, node: objects.Node | None, name: str) -> None:
        if node is not None and is_marked(node):
            self.marked[NodeName(name)] = read_node_hold(node.metadata)
        else:
            self.marked.pop(NodeName(name), None)
        self.changed.set()
