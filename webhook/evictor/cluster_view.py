"""What the evictor sees of the cluster: the world, the roll of its GPU pods, and what nodes say they keep."""

import asyncio
from dataclasses import replace
from typing import Any, Final

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.watch.dra_kinds import device_kinds
from webhook.cluster.watch.failures import failure_kinds
from webhook.cluster.watch.feed import Feed
from webhook.cluster.watch.watched_kind import WatchedKind
from webhook.core.model.names import Namespace, NodeName, Uid
from webhook.core.model.policy import Policy
from webhook.core.reclaim.failures import FailureBudget, WorkloadId
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_pod import Tenant
from webhook.core.reclaim.reservation import Holding
from webhook.core.tiers.shadow_labels import ShadowLabels
from webhook.core.world.world import World
from webhook.kube.nodes.nodes import to_namespace, to_node
from webhook.kube.objects import keys, objects
from webhook.kube.objects.large_objects import without_large_parts
from webhook.kube.reclaim.disruptions import DisruptionBudget, to_disruption
from webhook.kube.reclaim.holds import is_marked, read_holding
from webhook.kube.reclaim.reclaim_pods import ReclaimPodObject, to_reclaim_pod

ALIVE: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""Finished pods stay for days and hold nothing; the server reports the end of one as DELETED."""


class ClusterView:
    """Keeps all of it by events. `changed` is set with each of them; `marked` are the nodes that carry a hold."""

    def __init__(self, policy: Policy) -> None:
        self.world = World(policy, is_live=True)
        self.reclaim_index = ReclaimIndex(policy.reclaim)
        self.marked: dict[NodeName, Holding | None] = {}
        self.changed = asyncio.Event()
        self._onlooker = ShadowLabels(self.world)
        self._claiming: set[Uid] = set()

    def feed(self, connection: ApiConnection) -> Feed:
        """Make the feed that keeps it true."""
        devices = (self._followed(kind) for kind in device_kinds(self.world))
        budgets = (*failure_kinds(self._set_failure_budget), self._disruptions())
        return Feed(connection, (self._nodes(), self._namespaces(), *devices, *budgets, self._pods()))

    def set_policy(self, policy: Policy) -> None:
        """Judge from now on by another policy."""
        self.world.set_policy(policy)
        self.reclaim_index.set_rules(policy.reclaim)
        self._onlooker.relabel_all()
        for pod in self.world.pods():
            tenant = self.reclaim_index.get(pod.uid)
            if tenant is not None and tenant.pod.tier_label != pod.tier_label:
                self._enrol(tenant)
        self.changed.set()

    def settle(self) -> None:
        """Give pods without a decision the tiers that they would have by now, while policy is not enforced."""
        for uid in self._onlooker.settle(team.name for team in self.world.policy.teams):
            tenant = self.reclaim_index.get(uid)
            if tenant is not None:
                self._enrol(tenant)

    def _enrol(self, tenant: Tenant) -> None:
        """Put a pod on the roll as the world counts it: what its device claims come to is known there alone."""
        uid, counted = tenant.pod.uid, self.world.pod(tenant.pod.uid) or tenant.pod
        if counted.claims:
            self._claiming.add(uid)
        if counted.demand.gpus:
            self.reclaim_index.set(replace(tenant, pod=counted))
            self.changed.set()
        elif self.reclaim_index.get(uid) is not None:
            self.reclaim_index.remove(uid)

    def _followed(self, kind: WatchedKind[Any]) -> WatchedKind[Any]:
        """Have the pods that claim devices counted anew after each change of a claim, a class or a device."""

        def recount() -> None:
            for uid in self._claiming:
                tenant, counted = self.reclaim_index.get(uid), self.world.pod(uid)
                if tenant is not None and counted is not None and tenant.pod.demand != counted.demand:
                    self._enrol(tenant)
            self.changed.set()

        def apply(found: Any) -> bool:  # noqa: ANN401 - of whatever kind this is
            is_kept = kind.apply(found)
            recount()
            return is_kept

        def remove(handle: str) -> None:
            kind.remove(handle)
            recount()

        return replace(kind, apply=apply, remove=remove)

    def _nodes(self) -> WatchedKind[objects.Node]:
        def apply(node: objects.Node) -> bool:
            made, name = to_node(node), NodeName(node.metadata.name)
            if is_marked(node):
                self.marked[name] = read_holding(node.metadata)
                # our own taint keeps nobody out whom we would not let in
                made = replace(made, taints=tuple(taint for taint in made.taints if taint.key != keys.HELD))
            else:
                self.marked.pop(name, None)
            self.world.set_node(made)
            self.changed.set()
            return True

        def remove(name: str) -> None:
            self.marked.pop(NodeName(name), None)
            self.world.remove_node(NodeName(name))
            self.changed.set()

        return WatchedKind(
            name="nodes", path="/api/v1/nodes", item=objects.Node, key=_name, handle=_name, apply=apply, remove=remove
        )

    def _namespaces(self) -> WatchedKind[objects.Namespace]:
        def apply(namespace: objects.Namespace) -> bool:
            self.world.set_namespace(to_namespace(namespace))
            self.changed.set()
            return True

        return WatchedKind(
            name="namespaces",
            path="/api/v1/namespaces",
            item=objects.Namespace,
            key=_name,
            handle=_name,
            apply=apply,
            remove=lambda name: self.world.remove_namespace(Namespace(name)),
        )

    def _pods(self) -> WatchedKind[ReclaimPodObject]:
        def apply(pod: ReclaimPodObject) -> bool:
            tenant = to_reclaim_pod(pod, self.world.policy.resources)
            if tenant is None:
                return False
            self._onlooker.set_pod(tenant.pod)
            self._enrol(tenant)
            return True

        def remove(uid: str) -> None:
            self._onlooker.remove_pod(Uid(uid))
            self.reclaim_index.remove(Uid(uid))
            self._claiming.discard(Uid(uid))
            self.changed.set()

        return WatchedKind(
            name="pods",
            path="/api/v1/pods",
            params={"fieldSelector": ALIVE},
            item=ReclaimPodObject,
            trim=without_large_parts,
            key=_full_name,
            handle=lambda pod: pod.metadata.uid,
            apply=apply,
            remove=remove,
        )

    def _set_failure_budget(self, workload: WorkloadId, budget: FailureBudget | None) -> None:
        self.reclaim_index.set_failure_budget(workload, budget)
        self.changed.set()

    def _disruptions(self) -> WatchedKind[DisruptionBudget]:
        def apply(budget: DisruptionBudget) -> bool:
            self.reclaim_index.set_disruption(to_disruption(budget))
            self.changed.set()
            return True

        def remove(name: str) -> None:
            namespace, _, own = name.partition("/")
            self.reclaim_index.remove_disruption(Namespace(namespace), own)
            self.changed.set()

        return WatchedKind(
            name="poddisruptionbudgets",
            path=f"/apis/{keys.BUDGET_API}/poddisruptionbudgets",
            item=DisruptionBudget,
            trim=without_large_parts,
            key=_full_name,
            handle=_full_name,
            apply=apply,
            remove=remove,
        )


def _name(thing: objects.Node | objects.Namespace) -> str:
    return thing.metadata.name


def _full_name(thing: ReclaimPodObject | DisruptionBudget) -> str:
    return f"{thing.metadata.namespace}/{thing.metadata.name}"
