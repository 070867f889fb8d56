"""Pods that may move; the plan.

What is free on single nodes: how many nodes have how many devices free, which says what the largest pod may be.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

from webhook.core.admission.assessment import Assessment, assess
from webhook.core.admission.node_choice import placement_options
from webhook.core.model.amounts import UNLIMITED, NodeName, ResourceName, TeamName, Uid, Units
from webhook.core.model.constraints import NO_CONSTRAINTS, DomainRequest, Tier
from webhook.core.model.demand import Demand
from webhook.core.model.pod import CONTROLLER, Pod, Resident
from webhook.core.model.policy_addons import DefragmentRules
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.topology_rules import TopologyRequest, evaluate_topology
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.core.reclaim.victims import GuardId, Victim
from webhook.core.world.world import World


class FreeRoom(NamedTuple):
    """For each resource, how many nodes have each number of pieces free; nodes without any are left out."""

    nodes: Mapping[ResourceName, Mapping[int, int]]

    def largest(self, resource: ResourceName) -> int:
        """Return the most pieces that are free on one node."""
        return max(self.nodes.get(resource, ()), default=0)


def free_room(fleet: Fleet, resources: Iterable[ResourceName], *, among: int) -> FreeRoom:
    """Return what is free on these slots."""
    found = {name: Counter(free for _, free in fleet.free_on(among, name) if free > 0) for name in resources}
    return FreeRoom({name: counts for name, counts in sorted(found.items()) if fleet.offers(name)})


# The nodes that a pod may use, full or not: by its pools, its constraints, the rules of other pods, and kubelets.


def usable_nodes(assessed: Assessment, world: World, *, held: int = 0) -> int:
    """Return the slots that a pod may use where it counts as it does now; 0 where no placement follows.

    Left out are closed nodes, those that are `held` for other pods, and those that reject its team's pods.
    """
    if assessed.early_decision is not None:
        return 0
    pod, found, fleet = assessed.pod, 0, world.fleet
    for option in placement_options(pod, assessed.pools.allowed, assessed, world):
        if option.demand == pod.demand:
            found |= option.slots
    found &= fleet.open_bits & ~(held | fleet.held_bits)
    found &= ~world.rejecting_nodes.avoided(assessed.team.name, pod, fleet).closed
    if not (pod.topology or world.pod_counts.against(pod.namespace, pod.labels)):
        return found
    if world.pod_counts.are_costly(pod.namespace, pod.topology):
        return 0
    request = TopologyRequest(pod.namespace, pod.labels, pod.topology, NO_CONSTRAINTS)
    return found & evaluate_topology(request, fleet, world.pod_counts).allowed


# Pods that may be moved: those that their controllers make again, and that nothing binds to their nodes.
#
# A pod is moved by its eviction; its replacement is created elsewhere. So what protects pods from reclaim protects them
# here as well, and a guaranteed pod moves only if its owner says so.


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


# The result of a search for moves: which pods go where, what that costs, and for which pods it makes room.


class NoMoves(StrEnum):
    """Why no moves are planned for a pod."""

    FITS = "Fits"
    NO_NODE = "NoNode"
    TOO_FEW_FREE = "TooFewFree"
    NOT_ENOUGH_MOVABLE = "NotEnoughMovable"
    TOO_MUCH_WORK = "TooMuchWork"
    NO_DOMAIN = "NoDomain"


WHY_NO_MOVES: Final = {
    NoMoves.FITS: "a node has room for it now",
    NoMoves.NO_NODE: "no open node that it may use could hold it, even without other pods",
    NoMoves.TOO_FEW_FREE: "fewer GPUs are free on all nodes together than it asks for",
    NoMoves.NOT_ENOUGH_MOVABLE: "the pods that may be moved, and the free GPUs elsewhere, do not make enough room on "
    "any one node",
    NoMoves.TOO_MUCH_WORK: "the search was ended before it found moves that make enough room on one node",
    NoMoves.NO_DOMAIN: "no moves make room for the whole gang in one domain, as it requires",
}
"""The same for people."""


class Target(NamedTuple):
    """A pod that room is sought for: `slots` are the nodes that it may use, full or not.

    `since` is when it began to wait, in seconds of Unix time; 0 for a pod that does not exist. `domain` is what its
    gang asks for.
    """

    name: str
    team: TeamName
    demand: Demand
    slots: int
    since: int = 0
    gang: str = ""
    domain: DomainRequest | None = None

    @property
    def uid(self) -> Uid:
        """What stands for its UID where its room is taken."""
        return Uid(f"room for {self.name}")


class Move(NamedTuple):
    """A pod that leaves its node, and a node that has room for its replacement. `lost_work` is in GPU units·seconds."""

    pod: MovablePod
    to: NodeName
    lost_work: Units


class Moves(NamedTuple):
    """The moves that make room for a pod on a node; none where it fits there already.

    `is_cheapest`: no other moves cost less. Otherwise the search was ended after its bound of work.
    """

    target: Target
    node: NodeName
    moves: tuple[Move, ...] = ()
    is_cheapest: bool = True

    @property
    def lost_work(self) -> Units:
        """What is done again, in GPU units times seconds."""
        return sum(move.lost_work for move in self.moves)


class Room(NamedTuple):
    """Room for a pod, or for the pods of a gang, in their order."""

    places: tuple[Moves, ...]

    @property
    def moves(self) -> tuple[Move, ...]:
        """All moves, in the order in which they are possible."""
        return tuple([move for place in self.places for move in place.moves])

    @property
    def lost_work(self) -> Units:
        """What is done again, in GPU units times seconds."""
        return sum(place.lost_work for place in self.places)

    def waited(self, now: int) -> Units:
        """Return for how long these GPUs were waited for, in GPU units times seconds."""
        return sum(
            place.target.demand.gpus * max(0, now - place.target.since) for place in self.places if place.target.since
        )


class NotPlanned(NamedTuple):
    """Pods that wait together and for which no moves are planned."""

    targets: tuple[Target, ...]
    cause: NoMoves


# The policy's bounds on a plan of moves, and the moves of the last hour, which count against them.


HOUR_SECONDS: Final = 3600


class Bound(StrEnum):
    """What keeps a plan from being carried out now."""

    MOVES_PER_HOUR = "MovesPerHour"
    LOST_PER_GPU = "LostPerGpu"
    NOT_WORTH_IT = "NotWorthIt"


WHY_NOT_NOW: Final = {
    Bound.MOVES_PER_HOUR: "it takes more moves than policy still allows in this hour",
    Bound.LOST_PER_GPU: "more work would be done again than policy allows for so many GPUs",
    Bound.NOT_WORTH_IT: "more work would be done again than was waited for so far",
}
"""The same for people."""


class PastMove(NamedTuple):
    """A move that was made: `at` is in seconds of Unix time, `workload` the UID of the pod's controller."""

    at: int
    workload: str


def recent(moves: Iterable[PastMove], *, now: int) -> list[PastMove]:
    """Return the moves of the last hour; those that other clocks date in the future count."""
    return [each for each in moves if each.at > now - HOUR_SECONDS]


def moved_pods(moves: Iterable[PastMove], *, now: int) -> Counter[str]:
    """Return how many pods of each workload were moved within the last hour."""
    return Counter(each.workload for each in recent(moves, now=now))


def moves_left(moves: Iterable[PastMove], rules: DefragmentRules, *, now: int) -> int:
    """Return how many moves policy still allows now."""
    return max(0, rules.moves_per_hour - len(recent(moves, now=now)))


def bound_on(room: Room, rules: DefragmentRules, *, now: int, left: int) -> Bound | None:
    """Return what keeps a plan from being carried out now; None where nothing does.

    `left` is how many moves are allowed now. Room that no pod waits for need not have been waited for.
    """
    gained = sum(place.target.demand.gpus for place in room.places)
    limit = rules.lost_seconds_per_gpu
    if len(room.moves) > left:
        return Bound.MOVES_PER_HOUR
    if limit is not UNLIMITED and room.lost_work > limit * gained:
        return Bound.LOST_PER_GPU
    has_waited = any(place.target.since for place in room.places)
    return Bound.NOT_WORTH_IT if has_waited and room.lost_work > room.waited(now) else None
