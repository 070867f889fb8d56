"""What reclaim can do for a waiting pod, or does to a borrowing one, from the objects of a world. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import msgspec

from webhook.cli.explain.beside import ClusterDetails
from webhook.core.explain.explanation import Explanation
from webhook.core.line_reclaim.line_pods import as_charged
from webhook.core.model.decision import Admit
from webhook.core.model.names import Uid
from webhook.core.model.pod import Resident
from webhook.core.model.policy import Policy
from webhook.core.model.tier import Tier
from webhook.core.quota.in_flight import InFlightCharge
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_outlook import Impossible, Outlook, RoomKept, outlook
from webhook.core.reclaim.reclaim_plan import NoPlan
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.reclaim.reservation import NodeHold
from webhook.core.tiers.adoption import unlabeled_borrowers
from webhook.core.world.world import World
from webhook.kube.ledger.team_ledger import TeamLedger, reclaiming
from webhook.kube.objects import keys, objects
from webhook.kube.reclaim.disruptions import DisruptionBudget, to_disruption
from webhook.kube.reclaim.holds import read_node_hold
from webhook.kube.reclaim.reclaim_pods import to_reclaim_pod

_HYPOTHETICAL: Final = Uid("explained")
_pod_decoder: Final = msgspec.json.Decoder(objects.Pod)


@dataclass(frozen=True, slots=True)
class Evictions:
    """The evictor's view of a cluster: its world, where held nodes are open, and its reclaim index with the holds.

    `held` are the slots of those nodes.
    """

    world: World
    reclaim_index: ReclaimIndex
    held: int

    @classmethod
    def of(
        cls, found: Sequence[Mapping[str, Any]], world: World, details: ClusterDetails, node_holds: tuple[NodeHold, ...]
    ) -> "Evictions":
        """Return the evictor's view of the objects of a world; `world` is made of them, and is changed."""
        policy = world.policy
        reclaim_index = ReclaimIndex(policy.reclaim, world.minimums)
        for budget in details.budgets:
            reclaim_index.set_disruption(budget)
        for workload, failure_budget in details.failures.items():
            reclaim_index.set_failure_budget(workload, failure_budget)
        for each in found:
            if each.get("kind") == "Pod":
                _index(each, reclaim_index, world, policy)
            elif each.get("kind") == "PodDisruptionBudget":
                with suppress(ValueError):
                    reclaim_index.set_disruption(to_disruption(msgspec.convert(each, DisruptionBudget)))
        reclaim_index.set_borrowing(unlabeled_borrowers(world))
        held = world.fleet.held_bits
        for node in list(world.fleet.nodes()):
            if node.is_held:
                world.set_node(replace(node.unheld, kept=node.kept))
        for gpu_pod in list(_charged_in_line(found, world)):
            world.drop_reservation(gpu_pod.uid)
            world.set_pod(gpu_pod.pod)
            reclaim_index.set(replace(gpu_pod, pod=world.pod(gpu_pod.uid) or gpu_pod.pod))
        for node_hold in node_holds:
            reclaim_index.evictions.pick_up(node_hold, noticed=lambda _: False)
        return cls(world, reclaim_index, held)

    def outlook(self, explanation: Explanation, uid: str, *, now: int) -> Outlook | None:
        """Return what reclaim can do for a pod; None where it needs nothing.

        `uid` is that of a pod that exists, "" where the explanation is of one that would be created now.
        """
        for hold in self.reclaim_index.evictions.holds.values() if uid else ():
            if any(place.key == uid for place in hold.places):
                return RoomKept(hold, tuple([target for target in hold.targets if target.beneficiary == uid]))
        gpu_pod = self.reclaim_index.get(Uid(uid)) if uid else None
        if gpu_pod is not None:
            if gpu_pod.pod.node is not None or gpu_pod.pod.is_terminating:
                return None
            if gpu_pod.pod.tier is None:
                return Impossible("Fairgate did not decide on it")
            found = outlook(gpu_pod, self.reclaim_index, self.world, now=now)
            has_room = isinstance(found, Impossible) and found.cause is NoPlan.FITS
            return None if has_room and gpu_pod.in_line is not None else found  # the line says that it starts
        is_guaranteed = isinstance(explanation.decision, Admit) and explanation.decision.charge.tier is Tier.GUARANTEED
        if uid or explanation.team is None or explanation.runs_now or not is_guaranteed:
            return None
        pool = next((step.pool for step in explanation.pools if step.nodes is not None), None)
        pod = explanation.pod
        constraints = pod.constraints if pool is None else self.world.pools.joined(pod.constraints, pool)
        team, tier = explanation.team.name, Tier.GUARANTEED.value
        made = Resident(_HYPOTHETICAL, pod.namespace, pod.name, pod.demand, None, None, team, tier, created=now)
        waiting = ReclaimPod(made, labels=pod.labels, constraints=constraints, topology=pod.topology)
        return outlook(waiting, self.reclaim_index, self.world, now=now)


def node_holds_of(found: Iterable[Mapping[str, Any]]) -> tuple[NodeHold, ...]:
    """Return the holds of the nodes of a world."""
    nodes = (each["metadata"] for each in found if each.get("kind") == "Node")
    read = (read_node_hold(msgspec.convert(metadata, objects.ObjectMeta)) for metadata in nodes)
    return tuple([node_hold for node_hold in read if node_hold is not None])


class EvictedFor(NamedTuple):
    """The pod for which another one is evicted, and the node with a place for its replacement; "" where unknown."""

    pod: str = ""
    moves_to: str = ""


def evicted_for(uid: str, node_holds: Iterable[NodeHold]) -> EvictedFor:
    """Return why a pod is evicted."""
    holds = tuple(node_holds)
    wanted = {target.beneficiary for hold in holds for target in hold.targets if target.uid == uid}
    named = [(each.uid, f"{each.namespace}/{each.name}") for hold in holds for each in hold.beneficiaries]
    named += [(Uid(place.key), place.name) for hold in holds for place in hold.places if place.key]
    moves_to = next((hold.node for hold in holds for place in hold.places if uid and place.replaces == uid), "")
    return EvictedFor(next((name for key, name in named if key in wanted), ""), moves_to)


def _charged_in_line(found: Iterable[Mapping[str, Any]], world: World) -> Iterator[ReclaimPod]:
    """Yield the charged pods in line whose room the evictor makes, and which it plans for like pods without a gate."""
    ledgers = [msgspec.convert(each, TeamLedger) for each in found if each.get("kind") == keys.TEAM_LEDGER]
    due = {uid for ledger in ledgers for uid in reclaiming(ledger)}
    for waiting in world.waiting.all():
        uid = waiting.uid
        entry, pod = world.entry_of(uid), world.pod(uid)
        if entry is not None and pod is not None and (uid in due or not ledgers):
            flight = InFlightCharge(pod, entry.charge, world.node_of(uid), takes_back=True)
            if (charged := as_charged(waiting, flight, world)) is not None:
                yield charged


def _index(found: Mapping[str, Any], reclaim_index: ReclaimIndex, world: World, policy: Policy) -> None:
    """Index a pod with the demand that the world counts: only the world resolves its device claims."""
    try:
        gpu_pod = to_reclaim_pod(_pod_decoder.decode(msgspec.json.encode(found)), policy.resources)
    except ValueError:
        return
    if gpu_pod is None:
        return
    counted = world.pod(gpu_pod.pod.uid) or gpu_pod.pod
    unpromised = counted.for_reclaim
    if counted != unpromised:  # a pod that is known keeps the room that it was promised
        world.remove_pod(counted.uid)
        world.set_pod(unpromised)
    if counted.demand.gpus or counted.demand.devices:
        reclaim_index.set(replace(gpu_pod, pod=unpromised))
