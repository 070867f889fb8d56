"""What reclaim does for a pod that waits, or with one that borrows: made from the objects of a world. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from webhook.cli.explain.beside import Beside
from webhook.core.explain.explanation import Explanation
from webhook.core.model.decision import Admit
from webhook.core.model.names import Uid
from webhook.core.model.pod import Resident
from webhook.core.model.policy import Policy
from webhook.core.model.selector import HELD
from webhook.core.model.tier import Tier
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_outlook import Impossible, Outlook, eviction_of, outlook
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.reclaim.reservation import NodeHold
from webhook.core.world.world import World
from webhook.kube.objects import objects
from webhook.kube.reclaim.holds import read_holding
from webhook.kube.reclaim.reclaim_pods import ReclaimPodObject, to_reclaim_pod

_HYPOTHETICAL: Final = Uid("explained")
_pod_decoder: Final = msgspec.json.Decoder(ReclaimPodObject)


@dataclass(frozen=True, slots=True)
class Evictions:
    """The evictor's view of a cluster: its world, where held nodes are open, its roll, and what nodes keep."""

    world: World
    reclaim_index: ReclaimIndex
    holdings: tuple[NodeHold, ...]

    @classmethod
    def of(
        cls, found: Iterable[Mapping[str, Any]], world: World, beside: Beside, holdings: tuple[NodeHold, ...]
    ) -> "Evictions":
        """Read the objects of a world as the evictor does; `world` is made of them and becomes the evictor's."""
        policy = world.policy
        reclaim_index = ReclaimIndex(policy.reclaim)
        for budget in beside.budgets:
            reclaim_index.set_disruption(budget)
        for each in found:
            if each.get("kind") == "Pod":
                _enroll(each, reclaim_index, world, policy)
        for node in list(world.fleet.nodes()):
            if any(taint.key == HELD for taint in node.taints):
                world.set_node(replace(node, taints=tuple(taint for taint in node.taints if taint.key != HELD)))
        return cls(world, reclaim_index, holdings)

    def outlook(self, told: Explanation, uid: str, *, now: int) -> Outlook | None:
        """Tell what reclaim can do for a pod; None where it needs nothing.

        `uid` is that of a pod that exists, "" where the explanation is of one that would be created now.
        """
        tenant = self.reclaim_index.get(Uid(uid)) if uid else None
        if tenant is not None:
            if tenant.pod.node is not None or tenant.pod.is_terminating:
                return None
            if tenant.pod.tier is None:
                return Impossible("Fairgate did not decide on it")
            return outlook(tenant, self.reclaim_index, self.world, holdings=self.holdings, now=now)
        is_guaranteed = isinstance(told.decision, Admit) and told.decision.charge.tier is Tier.GUARANTEED
        if uid or told.team is None or told.runs_now or not is_guaranteed:
            return None
        pool = next((step.pool for step in told.pools if step.nodes is not None), None)
        pod = told.pod
        constraints = pod.constraints if pool is None else self.world.joined(pod.constraints, pool)
        team, tier = told.team.name, Tier.GUARANTEED.value
        made = Resident(_HYPOTHETICAL, pod.namespace, pod.name, pod.demand, None, None, team, tier, created=now)
        waiting = ReclaimPod(made, labels=pod.labels, constraints=constraints, topology=pod.topology)
        return outlook(waiting, self.reclaim_index, self.world, holdings=self.holdings, now=now)


def holdings_of(found: Iterable[Mapping[str, Any]]) -> tuple[NodeHold, ...]:
    """Read what the nodes of a world keep."""
    nodes = (each["metadata"] for each in found if each.get("kind") == "Node")
    read = (read_holding(msgspec.convert(metadata, objects.ObjectMeta)) for metadata in nodes)
    return tuple([holding for holding in read if holding is not None])


def beneficiary(uid: str, holdings: Iterable[NodeHold]) -> str:
    """Name the pod for which another one is evicted; "" where that is not known."""
    found = eviction_of(Uid(uid), holdings)
    if found is None:
        return ""
    holding, target = found
    return next((f"{each.namespace}/{each.name}" for each in holding.claims if each.uid == target.claim), "")


def _enroll(found: Mapping[str, Any], reclaim_index: ReclaimIndex, world: World, policy: Policy) -> None:
    """Put a pod on the roll, counted as the world counts it: what claims come to is known there alone."""
    try:
        tenant = to_reclaim_pod(_pod_decoder.decode(msgspec.json.encode(found)), policy.resources)
    except ValueError:
        return
    if tenant is None:
        return
    counted = world.pod(tenant.pod.uid) or tenant.pod
    at_rest = replace(counted, promised=None)
    if counted.promised is not None:
        world.set_pod(at_rest)
    if counted.demand.gpus:
        reclaim_index.set(replace(tenant, pod=at_rest))
