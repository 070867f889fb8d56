"""Pods that may be moved: those that their controllers make again, and that nothing binds to their nodes.

A pod is moved by its eviction; its replacement is created elsewhere. So what protects pods from reclaim protects them
here as well, and a guaranteed pod moves only if its owner says so.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

from webhook.core.admission.assessment import assess
from webhook.core.defragment.usable_nodes import usable_nodes
from webhook.core.model.amount import Units
from webhook.core.model.names import NodeName, Uid
from webhook.core.model.pod import CONTROLLER, Pod, Resident
from webhook.core.model.tier import Tier
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.reclaim.victim import GuardId, Victim
from webhook.core.world.world import World


class Stays(StrEnum):
    """Why a pod on a node is not moved."""

    UNDECIDED = "Undecided"
    PLACED_ELSEWHERE = "PlacedElsewhere"
    GUARANTEED = "Guaranteed"
    NO_CONTROLLER = "NoController"
    GANG = "Gang"
    PROTECTED = "Protected"
    ASKS_TO_STAY = "AsksToStay"
    MINIMUM_RUNTIME = "MinimumRuntime"
    MINIMUM_REPLICAS = "MinimumReplicas"
    DISRUPTION_BUDGET = "DisruptionBudget"
    WORKLOAD_FAILS = "WorkloadFails"
    VOLUMES = "Volumes"
    CLAIMS = "Claims"
    TOPOLOGY_RULES = "TopologyRules"
    NO_OTHER_NODE = "NoOtherNode"


WHY_IT_STAYS: Final = {
    Stays.UNDECIDED: "Fairgate did not decide on it",
    Stays.PLACED_ELSEWHERE: "a DaemonSet, a kubelet or another scheduler places it",
    Stays.GUARANTEED: 'it is guaranteed, without annotation fairgate.dev/movable: "true"',
    Stays.NO_CONTROLLER: "no controller would create it again",
    Stays.GANG: "it is a member of a gang, which an eviction would break",
    Stays.PROTECTED: "policy protects it from eviction",
    Stays.ASKS_TO_STAY: "an annotation asks other programs not to evict it",
    Stays.MINIMUM_RUNTIME: "its minimum runtime is not over",
    Stays.MINIMUM_REPLICAS: "its workload has no more pods ready than its minimum",
    Stays.DISRUPTION_BUDGET: "its PodDisruptionBudgets allow no eviction now",
    Stays.WORKLOAD_FAILS: "its eviction would count as a failure of its workload",
    Stays.VOLUMES: 'its volumes, claims or host ports may bind it to its node; annotation fairgate.dev/movable: "true" '
    "says that they do not",
    Stays.CLAIMS: "its devices are counted otherwise than it requests them",
    Stays.TOPOLOGY_RULES: "it requires other pods near it, or away from it",
    Stays.NO_OTHER_NODE: "no other open node of its GPU model may take it",
}
"""The same for people, of one pod."""


class MovablePod(NamedTuple):
    """A pod that may be moved: what its eviction costs, and the slots of the nodes where its replacement may go.

    `workload` is its controller, `minimum` the bound of what that is to keep, where it is ready and one counts.
    """

    victim: Victim
    where: int
    workload: str
    tier: Tier = Tier.PREEMPTIBLE
    minimum: tuple[GuardId, ...] = ()

    @property
    def uid(self) -> Uid:
        """Its UID."""
        return self.victim.uid

    @property
    def node(self) -> NodeName:
        """The node that it is on."""
        return self.victim.node

    @property
    def guards(self) -> tuple[GuardId, ...]:
        """The bounds that its eviction counts against: disruption budgets, and what its workload is to keep."""
        return self.victim.guards + self.minimum

    def lost_work(self, now: int) -> Units:
        """Return what is done again after its eviction, in GPU units times seconds."""
        return self.victim.demand.gpus * max(0, now - self.victim.saved_at)


class MovablePods(NamedTuple):
    """The pods that may move, how many on nodes stay for each reason, and how many evictions each bound allows."""

    pods: list[MovablePod]
    stays: Counter[Stays]
    left: Mapping[GuardId, int]

    @classmethod
    def of(cls, judged: Iterable[MovablePod | Stays], left: Mapping[GuardId, int]) -> "MovablePods":
        """Return pods that were judged; `left` may be filled while they are."""
        pods: list[MovablePod] = []
        stays: Counter[Stays] = Counter()
        for each in judged:
            if isinstance(each, Stays):
                stays[each] += 1
            else:
                pods.append(each)
        return cls(pods, stays, left)


class Allowances:
    """How many evictions each bound allows, counted once: `left` has disruption budgets, and minimums once read.

    A workload may lose as many ready pods at a time as it has beyond its minimum: those that leave already count.
    """

    def __init__(self, reclaim_index: ReclaimIndex, world: World) -> None:
        evictions = reclaim_index.evictions
        self.left = reclaim_index.allowances(evictions.listed())
        self._world = world
        leaving = {*evictions.listed(), *evictions.listed_for_limits(), *evictions.awaited()}
        there = (pod for uid in leaving if (pod := world.pod(uid)) is not None)
        self._going = Counter(pod.replica.workload for pod in there if _stays_ready(pod))

    def bounded(self, gpu_pod: ReclaimPod, found: MovablePod | Stays) -> MovablePod | Stays:
        """Return a pod with its minimum, or why it stays: one with a bound that allows no eviction now does, too."""
        if isinstance(found, Stays):
            return found
        workload = gpu_pod.pod.replica.workload
        if (spare := _spare(gpu_pod.pod, self._world)) is not None:
            found = found._replace(minimum=(GuardId(f"minimum {workload}"),))
            self.left[found.minimum[0]] = spare - self._going[workload]
        used_up = tuple(guard for guard in found.guards if self.left.get(guard, 0) <= 0)
        if used_up:
            return Stays.MINIMUM_REPLICAS if used_up == found.minimum else Stays.DISRUPTION_BUDGET
        return found


def movable_pods(
    gpu_pods: Iterable[ReclaimPod],
    template: Callable[[ReclaimPod], Pod | None],
    reclaim_index: ReclaimIndex,
    world: World,
    *,
    now: int,
    held: int,
) -> MovablePods:
    """Return which of these pods on nodes may move, and how many of them may go."""
    allowances = Allowances(reclaim_index, world)
    judged = (
        (each, movable_pod(each, reclaim_index.evictable(each), partial(template, each), world, now=now, held=held))
        for each in gpu_pods
    )
    return MovablePods.of((allowances.bounded(*each) for each in judged), allowances.left)


def movable_pod(
    gpu_pod: ReclaimPod,
    victim: Victim | None,
    template: Callable[[], Pod | None],
    world: World,
    *,
    now: int,
    held: int = 0,
) -> MovablePod | Stays:
    """Return a pod on a node as one that may be moved, or why it stays.

    `victim` is what its eviction would be, None where it must never be evicted. `template` gives the pod as its
    controller would create it now, None where it cannot be read; it is called where nothing else keeps the pod. `held`
    are the slots of nodes that are kept for others.
    """
    early = stays_early(gpu_pod, victim, world, now=now)
    if early is not None or victim is None:
        return early or Stays.PROTECTED
    made = template()
    if made is None:
        return Stays.UNDECIDED
    if made.has_open_constraints and not gpu_pod.is_movable:
        return Stays.VOLUMES
    if made.has_required_topology:
        return Stays.TOPOLOGY_RULES
    return _placed_elsewhere(gpu_pod, victim, made, world, held)


def _placed_elsewhere(
    gpu_pod: ReclaimPod, victim: Victim, template: Pod, world: World, held: int
) -> MovablePod | Stays:
    assessed = assess(template, CONTROLLER, world)
    if assessed.pod.demand != gpu_pod.demand or gpu_pod.demand.own is not None:
        return Stays.CLAIMS
    here = world.fleet.get(victim.node)
    if here is None:
        return Stays.NO_OTHER_NODE
    alike = world.fleet.by_model().get((here.model, here.model_label), 0)
    where = usable_nodes(assessed, world, held=held) & alike & ~world.fleet.bit(victim.node)
    if not where:
        return Stays.NO_OTHER_NODE
    controller, tier = gpu_pod.controller, gpu_pod.pod.tier
    return MovablePod(victim, where, "" if controller is None else controller.uid, tier or Tier.PREEMPTIBLE)


def stays_early(gpu_pod: ReclaimPod, victim: Victim | None, world: World, *, now: int) -> Stays | None:
    """Return the first reason why a pod stays that needs no look at its template and at nodes."""
    pod, rules = gpu_pod.pod, world.policy.defragment
    least_seconds = rules.minimum_runtime_seconds if rules.is_on else 0
    reasons = (
        (Stays.UNDECIDED, pod.tier is None),
        (Stays.PLACED_ELSEWHERE, not pod.is_managed),
        (Stays.GUARANTEED, pod.tier is Tier.GUARANTEED and not gpu_pod.is_movable),
        (Stays.NO_CONTROLLER, gpu_pod.controller is None),
        (Stays.GANG, gpu_pod.gang is not None),
        (Stays.PROTECTED, victim is None),
        (Stays.ASKS_TO_STAY, gpu_pod.asks_to_stay and not gpu_pod.is_movable),
        (
            Stays.MINIMUM_RUNTIME,
            victim is not None and max(victim.until, victim.started_at + least_seconds) > now,
        ),
        (Stays.MINIMUM_REPLICAS, _spare(pod, world) == 0),
        (Stays.WORKLOAD_FAILS, victim is not None and victim.is_counted),
    )
    return next((why for why, holds in reasons if holds), None)


def _stays_ready(pod: Resident) -> bool:
    return pod.is_ready and not pod.is_terminating


def _spare(pod: Resident, world: World) -> int | None:
    """Return how many ready pods its workload may lose; None where it is not one of them, or no minimum counts."""
    replicas = world.minimums.of(pod.replica.workload) if _stays_ready(pod) else None
    return replicas.spare if replicas is not None and replicas.has_surplus else None
