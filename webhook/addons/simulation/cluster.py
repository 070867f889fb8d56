"""The simulated cluster, its reclaim and scheduler.

A stand-in for kube-scheduler: the node of a pod that the webhook admitted without room, or that asks for no GPU.

Pods that the webhook placed go to its first choice, as kube-scheduler does. For the others the room, the constraints
and the taints decide; of several nodes the one with the largest free part of cpu and memory is taken, as by its score
LeastAllocated, of equals the first by name.
"""

from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from webhook.addons.simulation.task import TaskRecord
from webhook.core.model.amounts import CPU, MEMORY, UNASSIGNED, NodeName, Uid
from webhook.core.model.constraints import (
    HELD,
    NO_CONSTRAINTS,
    NODE_NAME_FIELD,
    Constraints,
    Effect,
    NodeTerm,
    Operator,
    Requirement,
    Taint,
    Tier,
    Toleration,
)
from webhook.core.model.constraints import HELD as HELD_TAINT
from webhook.core.model.decision import Admit, Charge, NodeChoice
from webhook.core.model.demand import Demand
from webhook.core.model.pod import Obstacle, Pod, Resident, Unbound
from webhook.core.model.policy import Mode
from webhook.core.model.reasons import Code
from webhook.core.placement.fleet import Fleet
from webhook.core.quota.charges import flight_of
from webhook.core.reclaim.holds import EvictionTarget, NodeHold, is_limit_place
from webhook.core.reclaim.limit_plan import LimitMove
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_plan import Move, ReclaimSnapshot
from webhook.core.reclaim.reclaim_pods import ReclaimPod, SchedulerReport
from webhook.core.reclaim.snapshot import current, pods_within_share, select_pods, take_snapshot
from webhook.core.starting.line_reclaim import NOTHING, plan_line
from webhook.core.world.world import World

_NAMING: Final = frozenset({Mode.AUTO, Mode.REQUIRE})
_SCORE: Final = 100


def patched_constraints(pod: Pod, choice: NodeChoice) -> Constraints:
    """Return the constraints of a pod once the webhook has written its choice: both hold."""
    joined = pod.constraints.joined(node_selector=choice.node_selector, tolerations=choice.tolerations)
    nodes = choice.nodes if choice.mode in _NAMING else ()
    if not (choice.pool_terms or nodes):
        return joined
    own = (NodeTerm(),) if joined.terms is None else tuple(term for term in joined.terms if not term.is_empty)
    named: list[tuple[Requirement, ...]] = [(Requirement(NODE_NAME_FIELD, Operator.IN, (node,)),) for node in nodes]
    terms = tuple(
        NodeTerm(term.labels + pool, term.fields + fields)
        for term in own
        for pool in choice.pool_terms or ((),)
        for fields in named or [()]
    )
    return Constraints(joined.node_selector, terms, joined.tolerations, joined.volumes)


def with_hold(constraints: Constraints, hold: str) -> Constraints:
    """Return the constraints of a pod that may use the room of a hold."""
    return constraints.joined(tolerations=(Toleration(HELD_TAINT, value=hold),))


class Binding(NamedTuple):
    """The node of a pod, and whether kube-scheduler could have chosen another one."""

    node: NodeName
    is_free_choice: bool


def binding_for(pod: Pod, constraints: Constraints, fleet: Fleet) -> Binding | None:
    """Return the node where kube-scheduler binds a pod now; None where none has room."""
    room = fleet.with_room(pod.demand, fleet.matching(constraints) & fleet.open_bits)
    if not room:
        return None
    names = fleet.names_of(room)
    if len(names) == 1:
        return Binding(names[0], is_free_choice=False)
    return Binding(min(names, key=lambda name: (-_free_part(name, pod, fleet), name)), is_free_choice=True)


def _free_part(name: NodeName, pod: Pod, fleet: Fleet) -> int:
    """Return the free part of cpu and memory with the pod on the node, in hundredths, rounded down for each."""
    node = fleet.get(name)
    asked = dict(pod.demand.requests)
    total = 0
    for resource in (CPU, MEMORY):
        size = 0 if node is None else node.allocatable.get(resource, 0)
        if size:
            total += max(0, fleet.free(name, resource) - asked.get(resource, 0)) * _SCORE // size
    return total // 2


# The simulated cluster: the pods that exist, in the world of decisions and in the index of reclaim.
#
# It does what the API server, kubelets and controllers do to a pod, at once and without failures. It decides nothing.


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


# Room under limits in the simulated cluster: the plans of the evictor for queued pods, carried out at once.
#
# Left out is what it does about pods that never use their room: in a simulation each pod starts once it may.


class SimulatedLimitReclaim:
    """The holds of room under limits. `wake` is called with the times at which something is due."""

    def __init__(self, cluster: SimulatedCluster, *, wake: Callable[[int], None]) -> None:
        self._cluster = cluster
        self._evictions = cluster.index.evictions
        self._wake = wake

    def look(self, snapshot: Callable[[], ReclaimSnapshot]) -> bool:
        """Plan for the queued pods; return whether a plan for another one was made."""
        cluster, world, found = self._cluster, self._cluster.world, NOTHING
        if world.policy.is_enforced and len(world.waiting):
            with cluster.as_bound():
                holds = self._evictions.limit_holds.values()
                before = {each.beneficiaries[0].uid: {target.uid for target in each.targets} for each in holds}
                found = plan_line(world, cluster.index, snapshot, held=self._evictions.holds, before=before)
        return self._accept(found.moves)

    def _accept(self, moves: Iterable[LimitMove]) -> bool:
        """Keep the holds of the pods that still wait, add those of new ones, and end the others."""
        now, is_going = self._cluster.world.now, self._cluster.index.is_going
        at = now + self._cluster.world.policy.reclaim.notice_seconds
        done = self._evictions.keep_limits(
            moves, since=now, at=at, is_going=is_going, may_begin=lambda move: bool(move.levels)
        )
        for hold in done.ended:
            self._mark(hold.beneficiaries[0].uid, is_kept=False)
        for move in done.begun:
            self._mark(move.waiting.uid, is_kept=True)
            self._wake(at)
        for hold in self._evictions.limit_holds.values():
            self._evictions.written(hold)
        return bool(done.begun)

    def _mark(self, uid: Uid, *, is_kept: bool) -> None:
        world = self._cluster.world
        waiting = world.waiting.get(uid)
        if waiting is not None and waiting.keeps_room is not is_kept:
            world.set_waiting(replace(waiting, keeps_room=is_kept))


# Reclaim in the simulated cluster: the planner of the evictor, and what the evictor does with its plans, at once.
#
# Plans, the choice of pods to plan for, the table of evictions and the end of holds are the core's. Left out is what
# slows a real evictor down: refusals by the API server, the time that a victim takes to end, and pauses of teams that
# waste evictions.


HOLD_SECONDS: Final = 60
"""How long a node keeps room after the last progress, as in the evictor."""

_NONE: Final[Set[Uid]] = frozenset()


class SimulatedReclaim:
    """Plans and evictions. `wake` is called with the times at which something is due."""

    def __init__(self, cluster: SimulatedCluster, *, wake: Callable[[int], None]) -> None:
        self._cluster = cluster
        self._evictions = cluster.index.evictions
        self._wake = wake
        self._limits = SimulatedLimitReclaim(cluster, wake=wake)
        self._number = 0

    def look(self) -> bool:
        """Plan for the pods that wait inside their shares; return whether a plan was made."""
        is_planned = self._look_at_nodes()
        return self._limits.look(self._snapshot) or is_planned

    def due(self) -> Iterator[EvictionTarget]:
        """Yield the victims whose eviction is due now; the caller removes them."""
        evictions, index, now = self._evictions, self._cluster.index, self._cluster.world.now
        for hold in [*evictions.limit_holds.values(), *evictions.holds.values()]:
            for target in evictions.due(hold, now=now):
                if evictions.send(target.uid, hold.node):
                    index.accept(target.uid, now=now)
                    yield target
                all_holds = evictions.limit_holds if is_limit_place(hold.node) else evictions.holds
                self._keep(hold.node, all_holds[hold.node].without(target.uid))

    def hold_of(self, uid: Uid) -> NodeHold | None:
        """Return the hold that keeps room for a pod."""
        every = self._evictions.holds.values()
        return next((held for held in every for each in held.beneficiaries if each.uid == uid), None)

    def _look_at_nodes(self) -> bool:
        cluster, now = self._cluster, self._cluster.world.now
        index, world = cluster.index, cluster.world
        if not world.policy.is_enforced or not any(True for _ in index.waiting()):
            self._tidy()
            return False
        with cluster.as_bound():
            self._tidy()
            selected = select_pods(pods_within_share(index, world), index, now=now)
            if selected.is_growing:
                self._wake(now + 1)
            if not selected.waiting:
                return False
            found = plan(selected.waiting, self._snapshot(refused=self._evictions.listed_for_limits()))
        for move in found.moves:
            self._accept(move)
        return bool(found.moves)

    def _snapshot(self, *, refused: Set[Uid] = _NONE) -> ReclaimSnapshot:
        world = self._cluster.world
        return take_snapshot(self._cluster.index, world, now=world.now, refused=refused)

    def _accept(self, move: Move) -> None:
        world = self._cluster.world
        now, rules = world.now, world.policy.reclaim
        at = now + rules.notice_seconds
        self._number += 1
        before = self._evictions.holds.get(move.node) or NodeHold(str(self._number), move.node, 0, (), since=now)
        self._keep(move.node, before.joined(move, at=at, until=at + HOLD_SECONDS))
        self._wake(at)
        self._wake(at + HOLD_SECONDS + 1)

    def _tidy(self) -> None:
        """End the holds that are over or will not have their room."""
        cluster, now = self._cluster, self._cluster.world.now
        for node, before in list(self._evictions.holds.items()):
            kept, has_room = current(before, cluster.index, cluster.world.fleet, leaving=())
            if kept is not None and kept.beneficiaries and (kept.until < now or not has_room):
                kept = kept.given_up()
            if kept is not None and not kept.beneficiaries and not kept.targets:
                kept = None
            if kept != before:
                self._keep(node, kept)
        self._evictions.end_finished(lambda uid: uid in cluster.pods, now=now)

    def _keep(self, node: NodeName, held: NodeHold | None) -> None:
        before = self._evictions.holds.get(node)
        self._evictions.keep(node, held, is_going=self._cluster.index.is_going)
        if held is not None:
            self._evictions.written(held)
        had = before is not None and bool(before.beneficiaries)
        if not is_limit_place(node) and had != (held is not None and bool(held.beneficiaries)):
            self._cluster.hold(node, held)
