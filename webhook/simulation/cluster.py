"""The simulated cluster: the pods that exist, in the world of decisions and in the index of reclaim.

It does what the API server, kubelets and controllers do to a pod, at once and without failures. It decides nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from webhook.core.model.decision import Admit, Charge
from webhook.core.model.demand import Demand
from webhook.core.model.names import UNASSIGNED, NodeName, Uid
from webhook.core.model.pod import Obstacle, Pod, Resident, Unbound
from webhook.core.model.reason import Code
from webhook.core.model.selector import HELD, NO_CONSTRAINTS, Constraints, Effect, Taint
from webhook.core.model.tier import Tier
from webhook.core.quota.charged_pod import flight_of
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_pod import ReclaimPod, SchedulerReport
from webhook.core.reclaim.reservation import NodeHold
from webhook.core.world.world import World
from webhook.simulation.kube_scheduler import patched_constraints
from webhook.simulation.task import TaskRecord

_NO_CHARGE: Final = Charge(UNASSIGNED, Tier.PREEMPTIBLE, 0)


@dataclass(slots=True)
class PodOf:
    """A pod of a task: the task may have several, one after the other. `since` is when the present one started.

    `is_free_choice`: the webhook named no node for it, and kube-scheduler could have chosen another one.
    """

    record: TaskRecord
    uid: Uid
    pod: Pod
    constraints: Constraints = NO_CONSTRAINTS
    resident: Resident | None = None
    since: int | None = None
    is_free_choice: bool = False

    @property
    def is_bound(self) -> bool:
        """Whether it is on a node."""
        return self.since is not None


class SimulatedCluster:
    """Pods by UID. `unbound` wait in kube-scheduler, in the order in which they came there.

    `changes` counts what may have made room or freed a share, `version` every change.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.index = ReclaimIndex(world.policy.reclaim, world.minimums)
        self.pods: dict[Uid, PodOf] = {}
        self.unbound: dict[Uid, PodOf] = {}
        self.changes = 0
        self.version = 0
        self._lifted: dict[Uid, tuple[NodeName, Demand]] = {}  # promises that take no room now

    def admit(self, pod_of: PodOf, admitted: Admit) -> None:
        """Create a pod that was admitted, or take its gate; it waits in kube-scheduler until it is bound."""
        pod, charge, choice = pod_of.pod, admitted.charge, admitted.node_choice
        pod_of.constraints = patched_constraints(pod, choice)
        promised = choice.nodes[0] if choice.nodes else None
        decided = pod._replace(demand=admitted.demand, team_label=charge.team, tier_label=str(charge.tier))
        found = flight_of(decided, charge, is_watched=False).pod._replace(
            promised=promised,
            unbound=Unbound(Obstacle.ROOM),  # kube-scheduler comes to it at once
            requested_tier=pod.requested_tier,
            created=self.world.now,
            model=charge.model,
            is_backfill=admitted.reason.code is Code.BACKFILLS,
        )
        self._create(pod_of, found)
        report = SchedulerReport(self.world.now, is_for_room=True)
        reclaimable = self._reclaimable(pod_of, found.for_reclaim)
        self.index.set(replace(reclaimable, constraints=pod_of.constraints, chosen=choice.nodes, report=report))

    def has_room_for_promise(self, uid: Uid, node: NodeName, admitted: Admit) -> bool:
        """Whether a node has room for a pod that is assumed there: more may be promised than there is."""
        fleet, demand = self.world.fleet, admitted.demand
        fleet.take(node, demand, sign=-1, holder=uid)
        found = fleet.fits(node, demand)
        fleet.take(node, demand, holder=uid)
        return found

    def pass_by(self, pod_of: PodOf, charge: Charge | None) -> None:
        """Create a pod that is not decided on; one that takes no GPU is not known before it is on a node."""
        if charge is not None:
            pod_of.constraints = pod_of.pod.constraints
            found = flight_of(pod_of.pod, charge, is_watched=False).pod._replace(created=self.world.now)
            self._create(pod_of, found)
        else:
            pod_of.constraints = pod_of.pod.constraints
            self.pods[pod_of.uid] = self.unbound[pod_of.uid] = pod_of

    def bind(self, pod_of: PodOf, node: NodeName) -> None:
        """Start a pod on a node."""
        self.version += 1
        uid, now = pod_of.uid, self.world.now
        del self.unbound[uid]
        if (promise := self._lifted.pop(uid, None)) is not None:
            self.world.fleet.take(promise[0], promise[1], holder=uid)
        pod_of.since = now
        found = pod_of.resident or flight_of(pod_of.pod, _NO_CHARGE, is_watched=False).pod._replace(created=now)
        pod_of.resident = bound = found._replace(node=node, promised=None, unbound=None, is_ready=True)
        self.world.set_pod(bound)
        if bound.demand.gpus:
            self.index.set(replace(self._reclaimable(pod_of, bound), started_at=now))

    def move(self, pod_of: PodOf, node: NodeName) -> None:
        """Have a pod be on another node, where kube-scheduler put it elsewhere."""
        if pod_of.resident is not None:
            pod_of.resident = pod_of.resident._replace(node=node)
            self.world.set_pod(pod_of.resident)
            self.index.set(replace(self._reclaimable(pod_of, pod_of.resident), started_at=pod_of.since or 0))

    def adopt(self, resident: Resident) -> None:
        """Index a pod that the world has from the beginning."""
        gang = resident.gang
        self.index.set(ReclaimPod(resident, resident.labels, gang=gang, goes_with=gang, started_at=resident.created))

    def set_tier(self, uid: Uid, tier: Tier) -> None:
        """Write the tier label of a pod."""
        self.changes += 1
        self.version += 1
        found = self.world.pod(uid)
        if found is None:
            return
        found = found._replace(tier_label=str(tier))
        if (pod_of := self.pods.get(uid)) is not None:
            pod_of.resident = found
        self.world.set_pod(found)
        if (known := self.index.get(uid)) is not None:
            self.index.set(replace(known, pod=found.for_reclaim))

    def remove(self, uid: Uid) -> None:
        """Remove a pod, wherever it is."""
        self.changes += 1
        self.version += 1
        self.pods.pop(uid, None)
        self.unbound.pop(uid, None)
        self._lifted.pop(uid, None)
        self.world.remove_pod(uid)
        self.world.drop_reservation(uid)
        self.index.remove(uid)

    def hold(self, node: NodeName, held: NodeHold | None) -> None:
        """Write the taint of a hold on a node, or remove it."""
        self.changes += 1
        self.version += 1
        found = self.world.fleet.get(node)
        if found is None:
            return
        found = found.unheld
        if held is not None and held.beneficiaries:
            found = replace(found, taints=(*found.taints, Taint(HELD, Effect.NO_SCHEDULE, held.id)))
        self.world.set_node(found)

    @contextmanager
    def as_bound(self) -> Iterator[None]:
        """Count only pods on nodes, as kube-scheduler and the evictor do: a promise takes no room for them."""
        fleet = self.world.fleet
        for uid in self.unbound:
            pod, node = self.world.pod(uid), self.world.node_of(uid)
            if pod is not None and node is not None:
                self._lifted[uid] = node, pod.demand
                fleet.take(node, pod.demand, sign=-1, holder=uid)
        try:
            yield
        finally:
            for uid, (node, demand) in self._lifted.items():
                fleet.take(node, demand, holder=uid)
            self._lifted.clear()

    def _create(self, pod_of: PodOf, found: Resident) -> None:
        self.version += 1
        pod_of.resident = found
        self.pods[pod_of.uid] = self.unbound[pod_of.uid] = pod_of
        self.world.set_pod(found)
        self.world.drop_reservation(pod_of.uid)

    def _reclaimable(self, pod_of: PodOf, found: Resident) -> ReclaimPod:
        pod, gang = pod_of.pod, pod_of.pod.gang
        return ReclaimPod(
            found,
            labels=pod.labels,
            topology=pod.topology,
            gang=found.gang,
            goes_with=found.gang,
            gang_size=0 if gang is None else gang.size,
            grace_seconds=found.grace_seconds,
        )
