"""What reclaim reads of a world.

An index of all GPU pods for reclaim, kept by events: possible victims, waiting pods, leaving pods.

Whether a pod may be a victim is decided when it, the policy or a disruption budget changes, not when a pod waits: a
plan must not cost a walk over every pod. A member that may not be evicted does not protect the rest of its gang.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Final, TypeVar

from webhook.core.model.amounts import GangId, Limit, Namespace, NodeName, TeamName, Uid, Unlimited, WorkloadName
from webhook.core.model.constraints import Constraints, Tier
from webhook.core.model.demand import Demand
from webhook.core.model.pod import Obstacle
from webhook.core.model.policy import ReclaimRules
from webhook.core.placement.topology_rules import TopologyRequest, evaluate_topology
from webhook.core.reclaim.evictions import Attempts, Evictions, FailureCount
from webhook.core.reclaim.reclaim_pods import Disruption, ReclaimPod, evictable, victim_of
from webhook.core.reclaim.refused_nodes import RefusedNodes
from webhook.core.reclaim.victims import FailureBudget, GuardId, Remaining, Victim, VictimIndex, WorkloadId
from webhook.core.world.minimums import Minimums
from webhook.core.world.world import World

_Key = TypeVar("_Key", Namespace, GangId)

BUDGETS: Final = 100
"""PodDisruptionBudgets of one namespace that are read, the first by name: a user who may create one may create
thousands. The API server enforces the others when a pod is evicted."""

STUCK_SECONDS: Final = 30
"""A pod that exists so long after its grace period is stuck, as on a node that died: no plan counts on its room."""


class ReclaimIndex:
    """Every GPU pod, by its roles in reclaim, the table of evictions, and what schedulers came to.

    `minimums` are those of the world of its pods.
    """

    def __init__(self, rules: ReclaimRules, minimums: Minimums | None = None) -> None:
        self.victim_index = VictimIndex()
        self.evictions = Evictions()
        self.attempts = Attempts()
        self._rules = rules
        self._pods: dict[Uid, ReclaimPod] = {}
        self._waiting: dict[Uid, ReclaimPod] = {}
        self._unplaced: dict[Uid, ReclaimPod] = {}  # those that borrow
        self._pinned: dict[Uid, ReclaimPod] = {}
        self._stalled: dict[Uid, ReclaimPod] = {}
        self._terminating: dict[Uid, ReclaimPod] = {}
        self._disruptions: dict[Namespace, dict[str, Disruption]] = {}
        self._budget_names: dict[Namespace, list[str]] = {}  # in order
        self._gangs: dict[GangId, set[Uid]] = {}
        self._by_namespace: dict[Namespace, set[Uid]] = {}
        self._borrowing: Mapping[Uid, TeamName] = {}
        self._unlabeled: dict[Uid, ReclaimPod] = {}  # those of them that exist, as they are
        self._failures = FailureCount()
        self._minimums = Minimums() if minimums is None else minimums
        self._minimums.on_scaled = self._sort_replicas

    # -- what plans read

    def get(self, uid: Uid) -> ReclaimPod | None:
        """Return a pod."""
        return self._pods.get(uid)

    def all(self) -> Iterable[ReclaimPod]:
        """Return every pod."""
        return self._pods.values()

    def pinned(self) -> Iterable[ReclaimPod]:
        """Return the pods without a node that are restricted to chosen nodes."""
        return self._pinned.values()

    def stalled(self) -> Iterable[ReclaimPod]:
        """Return the pods decided on that something else than room, nodes or a gate keeps off every node."""
        return self._stalled.values()

    def waiting(self) -> Iterable[ReclaimPod]:
        """Return the guaranteed pods without a node."""
        return self._waiting.values()

    def unplaced(self) -> Iterable[ReclaimPod]:
        """Return the pods without a node that nothing else holds back, whatever their tiers."""
        return chain(self._waiting.values(), self._unplaced.values())

    def on_nodes(self) -> Iterable[ReclaimPod]:
        """Return the pods on nodes that do not leave."""
        return (gpu_pod for uid, gpu_pod in self._pods.items() if gpu_pod.pod.node and not self.is_going(uid))

    def members(self, gang: GangId) -> Iterable[ReclaimPod]:
        """Return the pods of a gang, in whatever roles."""
        return [self._pods[uid] for uid in self._gangs.get(gang, ())]

    def leaving(self, *, now: float) -> dict[NodeName, list[ReclaimPod]]:
        """Return the pods whose room becomes free soon, by node, without those that are stuck."""
        found: dict[NodeName, list[ReclaimPod]] = {}
        evicted = (self._pods[uid] for uid in self.evictions.awaited())
        for gpu_pod in chain(self._terminating.values(), evicted):
            if gpu_pod.pod.node is not None and not _is_stuck(gpu_pod, now):
                found.setdefault(gpu_pod.pod.node, []).append(gpu_pod)
        return found

    def empty_at(self, *, now: float) -> dict[NodeName, int]:
        """Return when the last pod that leaves a node must be gone, for the nodes that pods leave."""
        found: dict[NodeName, int] = {}
        for gpu_pod in self._terminating.values():
            node = gpu_pod.pod.node
            if node is not None and not _is_stuck(gpu_pod, now):
                found[node] = max(found.get(node, 0), gpu_pod.leaves_at or 0)
        return found

    def stuck(self, *, now: float) -> list[ReclaimPod]:
        """Return the pods that still exist although their grace period is long over."""
        return [gpu_pod for gpu_pod in self._terminating.values() if _is_stuck(gpu_pod, now)]

    def is_going(self, uid: Uid) -> bool:
        """Whether a pod terminates, is evicted, or no longer exists."""
        return uid not in self._pods or uid in self._terminating or uid in self.evictions.awaited()

    def is_placed(self, uid: Uid) -> bool:
        """Whether a pod exists and has a node."""
        return uid in self._pods and self._pods[uid].pod.node is not None

    def staying(self, uid: Uid) -> ReclaimPod | None:
        """Return a pod that exists and does not leave."""
        return None if self.is_going(uid) else self._pods[uid]

    def losses(self, *, now: float) -> dict[TeamName, int]:
        """Return how many pods each team lost within the last minute, or is about to lose."""
        return self.evictions.losses(lambda uid: self._pods[uid].team if uid in self._pods else None, now=now)

    def allowances(self, chosen: Iterable[Uid] = ()) -> dict[GuardId, int]:
        """Return how many victims each disruption budget allows once `chosen` and all accepted evictions are gone."""
        found = {each.guard: each.allowed for namespace in self._disruptions for each in self._budgets(namespace)}
        for uid in {*self.evictions.awaited(), *(uid for uid in chosen if not self.is_going(uid))}:
            for guard in self._guards(self._pods[uid]):
                found[guard] -= 1
        return found

    def may_be_refused(self, victim: Victim) -> bool:
        """Whether a disruption budget could keep the API server from evicting a pod: one covers it, or is not read."""
        return bool(victim.guards) or len(self._budget_names.get(victim.namespace, ())) > BUDGETS

    def evictable(self, gpu_pod: ReclaimPod) -> Victim | None:
        """Return what the eviction of a pod would be, whatever its tier; None where it must never be evicted."""
        has_budget = self._failures.has_budget(gpu_pod)
        return evictable(gpu_pod, rules=self._rules, guards=self._guards(gpu_pod), has_budget=has_budget)

    def failures(self, chosen: Iterable[Uid] = ()) -> dict[WorkloadId, Remaining]:
        """Return what the victims' workloads have left of their failure budgets once `chosen` are gone."""
        expected = [gpu_pod for uid in chosen if (gpu_pod := self.staying(uid)) is not None]
        return self._failures.remaining(self.victim_index.workloads(), expected)

    # -- events

    def set(self, gpu_pod: ReclaimPod) -> None:
        """Add a pod, or what changed of it."""
        uid = gpu_pod.uid
        unlabeled = self._unlabeled.pop(uid, None)
        if unlabeled is not None and gpu_pod is self._pods.get(uid):
            gpu_pod = unlabeled
        if uid in self._borrowing and gpu_pod.pod.team_label is None:
            self._unlabeled[uid] = gpu_pod
            labeled = gpu_pod.pod._replace(team_label=self._borrowing[uid], tier_label=Tier.PREEMPTIBLE.value)
            gpu_pod = replace(gpu_pod, pod=labeled)
        self._leave(uid)
        self._enter(gpu_pod)
        if gpu_pod.is_leaving(self._rules):
            self._terminating[uid] = gpu_pod
            self.evictions.gone(uid)
        is_going = self.is_going(uid)
        self._failures.set_pod(gpu_pod, is_going=is_going)
        if gpu_pod.is_unplaced and not is_going:
            (self._waiting if gpu_pod.is_waiting else self._unplaced)[uid] = gpu_pod
        if gpu_pod.chosen and not is_going:
            self._pinned[uid] = gpu_pod
        unbound = gpu_pod.pod.unbound
        if unbound is not None and unbound.obstacle is Obstacle.OTHER and gpu_pod.pod.tier is not None and not is_going:
            self._stalled[uid] = gpu_pod
        self._sort(gpu_pod)

    def remove(self, uid: Uid) -> None:
        """Remove a pod that ended."""
        self._leave(uid)
        self.evictions.gone(uid)
        self._unlabeled.pop(uid, None)
        gpu_pod = self._pods.pop(uid, None)
        if gpu_pod is not None:
            self._failures.remove_pod(gpu_pod)
            _unlist(self._by_namespace, gpu_pod.namespace, uid)
            _unlist(self._gangs, gpu_pod.gang, uid)

    def set_borrowing(self, borrowing: Mapping[Uid, TeamName]) -> None:
        """Replace which pods without labels borrow, and their teams (adoption.unlabeled_borrowers)."""
        before, self._borrowing = self._borrowing, borrowing
        changed = {uid for uid, _ in before.items() ^ borrowing.items()} if before or borrowing else ()
        for uid in changed:
            if (gpu_pod := self._unlabeled.get(uid) or self._pods.get(uid)) is not None:
                self.set(gpu_pod)

    def set_rules(self, rules: ReclaimRules) -> None:
        """Replace the rules."""
        if rules != self._rules:
            self._rules = rules
            self._sort_again(self._pods.values())

    def set_disruption(self, budget: Disruption) -> None:
        """Add or replace a disruption budget; its pods are sorted again only if it covers others than before."""
        several = self._disruptions.setdefault(budget.namespace, {})
        before = several.get(budget.name)
        several[budget.name] = budget
        names = self._budget_names.setdefault(budget.namespace, [])
        if before is None:
            insort(names, budget.name)
        is_new = before is None or before != replace(budget, allowed=before.allowed)
        if is_new and bisect_left(names, budget.name) < BUDGETS:
            self._sort_again(map(self._pods.__getitem__, self._by_namespace.get(budget.namespace, ())))

    def remove_disruption(self, namespace: Namespace, name: str) -> None:
        """Remove a disruption budget."""
        if self._disruptions.get(namespace, {}).pop(name, None) is not None:
            names = self._budget_names[namespace]
            del names[place := bisect_left(names, name)]
            if place >= BUDGETS:
                return
            self._sort_again(map(self._pods.__getitem__, self._by_namespace.get(namespace, ())))

    def set_failure_budget(self, workload: WorkloadId, budget: FailureBudget | None) -> None:
        """Set how many failures a workload survives; None: any number, or it is gone."""
        if self._failures.set_budget(workload, budget):
            self._sort_again(map(self._pods.__getitem__, self._failures.pods(workload)))

    def accept(self, uid: Uid, *, now: float, was_there: bool = True) -> None:
        """Expect a pod to leave: the API server accepted its eviction, and the watch will show that.

        `was_there` is False where the API server no longer had such a pod.
        """
        gpu_pod = self._pods.get(uid)
        lost_by = lost_for = None
        if gpu_pod is not None and was_there and (eviction := self.evictions.get(uid)) is not None:
            waiting = self._pods.get(eviction.target.beneficiary)
            lost_by, lost_for = gpu_pod.team, None if waiting is None else waiting.team
        self.evictions.accept(uid, now=now, lost_by=lost_by, lost_for=lost_for)
        if gpu_pod is None:
            self.evictions.gone(uid)
        elif uid not in self._terminating:
            self._failures.evicted(gpu_pod)
            self.set(gpu_pod)

    def expire(self, *, before: float) -> None:
        """Expect pods to leave no longer whose evictions were accepted until then and that the watch does not show."""
        for uid in self.evictions.expire(before=before):
            self.set(self._pods[uid])

    # -- sorting

    def _enter(self, gpu_pod: ReclaimPod) -> None:
        uid, before = gpu_pod.uid, self._pods.get(gpu_pod.uid)
        if before is not None and before.gang != gpu_pod.gang:  # labels may change
            _unlist(self._gangs, before.gang, uid)
        if before is not None and before.workload != gpu_pod.workload:
            self._failures.remove_pod(before)
        if before is not None:
            self._note_attempt(before, gpu_pod)
        self._pods[uid] = gpu_pod
        self._by_namespace.setdefault(gpu_pod.namespace, set()).add(uid)
        if gpu_pod.gang is not None:
            self._gangs.setdefault(gpu_pod.gang, set()).add(uid)

    def _note_attempt(self, before: ReclaimPod, after: ReclaimPod) -> None:
        """Count a pod that its scheduler placed since, or found no room for, for the first time."""
        if before.pod.node is not None or (after.pod.node is None and (before.report or not after.report)):
            return
        came = max(after.pod.created, before.report.since if before.report is not None else 0)
        self.attempts.add(scheduler=after.scheduler, priority=after.priority, came=came)

    def _leave(self, uid: Uid) -> None:
        self._waiting.pop(uid, None)
        self._unplaced.pop(uid, None)
        self._pinned.pop(uid, None)
        self._stalled.pop(uid, None)
        self._terminating.pop(uid, None)
        self.victim_index.remove(uid)

    def _sort(self, gpu_pod: ReclaimPod) -> None:
        if gpu_pod.uid not in self.evictions.awaited():
            has_budget, replica = self._failures.has_budget(gpu_pod), gpu_pod.pod.replica
            victim = victim_of(
                gpu_pod,
                rules=self._rules,
                guards=self._guards(gpu_pod),
                has_budget=has_budget,
                has_minimum=replica.minimum is not None or self._minimums.is_scaled(replica.workload),
            )
            if victim is not None:
                self.victim_index.add(victim)

    def _sort_again(self, gpu_pods: Iterable[ReclaimPod]) -> None:
        for gpu_pod in list(gpu_pods):
            self.set(gpu_pod)

    def _sort_replicas(self, workload: WorkloadName) -> None:
        """Sort the pods of a workload again, which something begins or ceases to scale by a minimum of its own."""
        self._sort_again(gpu_pod for uid in self._minimums.pods(workload) if (gpu_pod := self.get(uid)) is not None)

    def _guards(self, gpu_pod: ReclaimPod) -> tuple[GuardId, ...]:
        """Return the budgets that count for a pod: none for a pending one (eviction.go of Kubernetes, canIgnorePDB)."""
        if gpu_pod.is_starting:
            return ()
        known = self._budgets(gpu_pod.namespace)
        found = tuple(islice((budget for budget in known if budget.covers(gpu_pod)), 2))
        if len(found) == 1 and found[0].spares_healthy_only and not gpu_pod.pod.is_ready:
            return ()
        return tuple([budget.guard for budget in found])

    def _budgets(self, namespace: Namespace) -> Iterator[Disruption]:
        several = self._disruptions.get(namespace, {})
        return (several[name] for name in islice(self._budget_names.get(namespace, ()), BUDGETS))


def _unlist(places: dict[_Key, set[Uid]], key: _Key | None, uid: Uid) -> None:
    members = places.get(key) if key is not None else None
    if members is not None and key is not None:
        members.discard(uid)
        if not members:
            del places[key]


def _is_stuck(gpu_pod: ReclaimPod, now: float) -> bool:
    return gpu_pod.leaves_at is not None and now > gpu_pod.leaves_at + STUCK_SECONDS


# Charged pods that something else than room keeps off every node, and which of them have been so for too long.
#
# They keep a charge for nothing: that of their team, and of the departments above it. A charge cannot end before its
# pod, which may be bound at any moment.


class StalledPods:
    """When each stalled pod was first seen so, in seconds of Unix time: its conditions keep an earlier time."""

    def __init__(self) -> None:
        self._since: dict[Uid, float] = {}

    def overdue(self, stalled: Iterable[ReclaimPod], *, now: float, bound_seconds: Limit) -> list[ReclaimPod]:
        """Return those of the pods that are stalled now that have been for longer than the bound, the first ones first.

        A pod that is no longer stalled begins again from the start.
        """
        there = {gpu_pod.uid: gpu_pod for gpu_pod in stalled}
        self._since = {uid: self._since.get(uid, now) for uid in there}
        if isinstance(bound_seconds, Unlimited):
            return []
        late = [(since, uid) for uid, since in self._since.items() if since + bound_seconds <= now]
        return [there[uid] for _, uid in sorted(late)]


# Stranded pods: they wait for nodes that cannot take them, while other nodes could.
#
# The webhook restricts a pod to the best few nodes by name. If all of them go, are cordoned, fill up, get pods that
# exclude it, or are refused by kube-scheduler for a cause that is not seen, it waits forever beside free GPUs: only a
# new pod gets a new choice. So does a pod inside its guaranteed share beside GPUs that others borrow on other nodes.


STRANDED_SECONDS: Final = 60
"""How long a pod waits before it counts as stranded, by default: a node that restarts is back by then, or has room."""


def _never(_demand: Demand, _slots: int) -> bool:
    return False


def is_stranded(
    gpu_pod: ReclaimPod,
    world: World,
    *,
    now: int,
    held: int = 0,
    could_hold: Callable[[Demand, int], bool] = _never,
    after_seconds: int = STRANDED_SECONDS,
) -> bool:
    """Whether a pod has waited long enough for nodes that cannot take it, while another node could.

    `held` are nodes whose room is held for other pods. `could_hold` says whether one of some slots would have room for
    a demand if borrowing pods on it were evicted.
    """
    if gpu_pod.is_gated or gpu_pod.pod.node is not None or now < gpu_pod.pod.created + after_seconds:
        return False
    own = gpu_pod.constraints
    loose = own.without_choice(gpu_pod.chosen)
    taking = _taking(gpu_pod, own, world)
    refused = RefusedNodes(now=now, changes=world.rejecting_nodes.changes).among(taking, gpu_pod, world.fleet)
    if loose == own or taking & ~refused:
        return False
    if _taking(gpu_pod, loose, world) & ~(held | refused):
        return True
    if gpu_pod.pod.tier is not Tier.GUARANTEED or gpu_pod.topology:
        return False
    fleet, demand = world.fleet, gpu_pod.pod.demand
    chosen, all_ = (fleet.matching(each) & fleet.open_bits & ~refused for each in (own, loose))
    return not could_hold(demand, chosen) and could_hold(demand, all_ & ~held)


def _taking(gpu_pod: ReclaimPod, constraints: Constraints, world: World) -> int:
    """Return the slots that could take a pod with these constraints now."""
    fleet, pod = world.fleet, gpu_pod.pod
    closed = world.rejecting_nodes.avoided(gpu_pod.team, pod, fleet).closed
    slots = fleet.with_room(pod.demand, fleet.matching(constraints) & fleet.open_bits & ~closed)
    if slots and (gpu_pod.topology or world.pod_counts.against(pod.namespace, gpu_pod.labels)):
        request = TopologyRequest(pod.namespace, gpu_pod.labels, gpu_pod.topology, constraints)
        if world.pod_counts.are_costly(pod.namespace, gpu_pod.topology):
            return 0
        slots &= evaluate_topology(request, fleet, world.pod_counts).allowed
    return slots
