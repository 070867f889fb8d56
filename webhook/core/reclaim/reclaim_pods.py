"""A pod as victim, waiting pod, leaving pod.

A GPU pod in reclaim, and its roles: a possible victim, a waiting pod, a leaving pod.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, Protocol

from webhook.core.devices.claim_users import ClaimKey
from webhook.core.devices.claims import Instead
from webhook.core.model.amounts import GangId, Namespace, NodeName, TeamName, Uid
from webhook.core.model.constraints import NO_CONSTRAINTS, Constraints, DomainRequest, Tier
from webhook.core.model.demand import Demand
from webhook.core.model.pod import NO_KEYS, RemovalWay, Resident, removal_of
from webhook.core.model.policy import LabelSelector, Policy, ReclaimRules
from webhook.core.model.topology import AffinityRule, TopologyRule, anti_affinity
from webhook.core.reclaim.victims import NEVER, NOWHERE, GuardId, Loss, Victim, WorkloadId
from webhook.core.world.alternatives import by_room
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World

STAY_SECONDS: Final = 3600
"""A victim that asks to stay counts as one that would lose so much more work, and no more: a user writes that."""

TWO_BUDGETS: Final = GuardId("more than one budget")
"""Guards the pods that several PodDisruptionBudgets cover: the API server refuses to evict those."""


class SchedulerReport(NamedTuple):
    """Why kube-scheduler cannot place a pod, and since when, in seconds of Unix time.

    `is_for_room`: some node lacks what the pod requests; `is_for_taints`: some node has a taint that it does not
    tolerate; `is_for_peers`: pods on some node exclude it. An eviction solves no other reason, such as a missing
    volume. `is_for_zone`: some node is outside the zone of its volumes. `why` are the scheduler's words, bounded and
    printable.
    """

    since: int
    is_for_room: bool = False
    is_for_taints: bool = False
    is_for_zone: bool = False
    is_for_peers: bool = False
    why: str = ""


class Controller(NamedTuple):
    """The controller of a pod, with its full identity."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ReclaimPod:
    """A pod that exists. Times are seconds of Unix time.

    `saved_at` is its last checkpoint by its own annotation, 0 without one. `asks_to_stay`: another one asks not to
    evict it. `leaves_at` is when its grace period is over, None while it is not deleted, and `leave_seconds` how long
    that is. `is_gated`: a scheduling gate holds it back.
    `started_at` is when kubelet took it, 0 before that; `runtime_from` is since when it has its minimum runtime,
    and `works_since` since when its present containers run, 0 for the same. `is_working`: one of them runs, as far as
    is known. `chosen` are the nodes that the webhook chose for it. Where it may run
    (`constraints`, `topology`, `chosen`) and why it does not (`report`) is known only while it waits. `gang_size` is
    the declared size of its gang, 0 without one. `goes_with` is the gang with which it is evicted: one that an object
    declares, not its own markers alone; `is_grouped`: a PodGroup of Kubernetes says whether it goes with that.
    `controller` is its owner reference; `workload` is the same object as a key, and `loss` the effect of its eviction
    on it. `domain` is the domain that it asks for its gang, None without a request. Its `scheduler` takes pods of a
    higher `priority` first. `in_line`: it is charged, and keeps Fairgate's own gate until its room is made.
    `is_movable`: its owner says that it may be moved to another node. `is_starting`: it is on a node, and none of its
    containers has run yet.
    """

    pod: Resident
    labels: Mapping[str, str] = field(default_factory=lambda: NO_KEYS)
    constraints: Constraints = NO_CONSTRAINTS
    topology: tuple[TopologyRule, ...] = ()
    gang: GangId | None = None
    gang_size: int = 0
    goes_with: GangId | None = None
    is_grouped: bool = False
    started_at: int = 0
    runtime_from: int = 0
    works_since: int = 0
    is_working: bool = True
    saved_at: int = 0
    asks_to_stay: bool = False
    leaves_at: int | None = None
    leave_seconds: int = 0
    grace_seconds: int = 30
    is_gated: bool = False
    chosen: tuple[NodeName, ...] = ()
    report: SchedulerReport | None = None
    controller: Controller | None = None
    workload: WorkloadId | None = None
    loss: Loss = Loss.COUNTED
    domain: DomainRequest | None = None
    scheduler: str = ""
    priority: int = 0
    in_line: WaitingPod | None = None
    is_movable: bool = False
    is_starting: bool = False

    @property
    def holds(self) -> Iterable[str]:
        """The values of the taint of held nodes that it tolerates."""
        return self.constraints.holds if self.in_line is None else self.in_line.holds

    @property
    def has_tolerations(self) -> bool:
        """Whether the object has any tolerations; those of its pool are written when it starts."""
        tolerations = self.constraints.tolerations if self.in_line is None else self.in_line.pod.constraints.tolerations
        return bool(tolerations or self.holds)

    @property
    def is_waiting(self) -> bool:
        """Whether it is guaranteed and waits for a node, and nothing else holds it back."""
        return self.pod.tier is Tier.GUARANTEED and self.is_unplaced

    @property
    def is_unplaced(self) -> bool:
        """Whether it waits for a node, whatever its tier, and nothing else holds it back."""
        return self.pod.node is None and not self.pod.is_terminating and not self.is_gated

    @property
    def runs_since(self) -> int:
        """Since when it counts as running, however often its containers were started again."""
        return self.runtime_from or self.started_at or self.pod.created

    @property
    def saved_since(self) -> int:
        """When its work began that an eviction would lose: with its present containers, or its last checkpoint."""
        return max(self.works_since or self.started_at or self.pod.created, self.saved_at)

    def lost_seconds(self, now: int) -> int:
        """Return how long it has worked since its last save: none while no container of it runs."""
        return max(0, now - self.saved_since) if self.is_working else 0

    def is_leaving(self, rules: ReclaimRules) -> bool:
        """Whether it terminates and will be gone in time: a user who deletes a pod chooses its grace period."""
        return self.pod.is_terminating and self.leave_seconds <= rules.longest_grace_seconds

    @property
    def team(self) -> TeamName:
        """The team that the webhook wrote on it."""
        return TeamName(self.pod.team_label or "")

    @property
    def uid(self) -> Uid:
        """Its UID."""
        return self.pod.uid

    @property
    def namespace(self) -> Namespace:
        """Its namespace."""
        return self.pod.namespace

    @property
    def name(self) -> str:
        """Its name."""
        return self.pod.name

    @property
    def demand(self) -> Demand:
        """Its demand on a node."""
        return self.pod.demand

    @property
    def anti_affinity_rules(self) -> tuple[AffinityRule, ...]:
        """Its rules against other pods near it."""
        return anti_affinity(self.topology)


@dataclass(frozen=True, slots=True)
class Disruption:
    """A PodDisruptionBudget: which pods it guards, and how many of them may be evicted now.

    `spares_healthy_only`: the API server evicts pods that are not ready without asking it.
    """

    namespace: Namespace
    name: str
    selector: LabelSelector
    allowed: int
    spares_healthy_only: bool = False

    @property
    def guard(self) -> GuardId:
        """Its identity as a guard of victims."""
        return GuardId(f"pdb {self.namespace}/{self.name}")

    def covers(self, gpu_pod: ReclaimPod) -> bool:
        """Whether it guards a pod."""
        return gpu_pod.namespace == self.namespace and self.selector.matches(gpu_pod.labels)


def victim_of(
    gpu_pod: ReclaimPod,
    *,
    rules: ReclaimRules,
    guards: tuple[GuardId, ...],
    has_budget: bool = False,
    has_minimum: bool = False,
) -> Victim | None:
    """Return a borrowing pod as a possible victim; None where it must never be evicted.

    Arguments as of `evictable`.
    """
    if gpu_pod.pod.tier is not Tier.PREEMPTIBLE:
        return None
    return evictable(gpu_pod, rules=rules, guards=guards, has_budget=has_budget, has_minimum=has_minimum)


def evictable(
    gpu_pod: ReclaimPod,
    *,
    rules: ReclaimRules,
    guards: tuple[GuardId, ...],
    has_budget: bool = False,
    has_minimum: bool = False,
) -> Victim | None:
    """Return what the eviction of a pod of any tier would be; None where it must never be evicted.

    `guards` are the budgets that count for it; of a terminating pod none does, and its long grace period is cut.
    `has_budget`: its workload fails after some failures, `has_minimum`: its workload is to keep some replicas. A static
    pod is none: kubelet runs it from a file of its node, and creates its object again.
    """
    pod, removal = gpu_pod.pod, removal_of(gpu_pod.pod)
    gang = gpu_pod.goes_with if has_minimum or not gpu_pod.is_grouped else None
    if removal is RemovalWay.NEVER or gpu_pod.is_leaving(rules):
        return None
    if is_protected(gpu_pod, rules):
        return None
    if removal is RemovalWay.DELETE:
        return _without_node(gpu_pod, gang, has_budget=has_budget)
    own_grace = gpu_pod.leave_seconds if pod.is_terminating else gpu_pod.grace_seconds
    grace = min(own_grace, rules.longest_grace_seconds)
    return Victim(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        team=gpu_pod.team,
        node=pod.node or NOWHERE,
        demand=pod.demand,
        started_at=gpu_pod.started_at or pod.created,
        saved_at=gpu_pod.saved_since - grace - (STAY_SECONDS if gpu_pod.asks_to_stay else 0)
        if gpu_pod.is_working
        else NEVER,
        until=gpu_pod.runs_since + rules.minimum_runtime_seconds if rules.minimum_runtime_seconds else 0,
        gang=gang,
        guards=() if pod.is_terminating else guards if len(guards) <= 1 else (*guards, TWO_BUDGETS),
        grace_seconds=grace if grace < own_grace else None,
        workload=gpu_pod.workload if has_budget else None,
        is_counted=has_budget and gpu_pod.loss is not Loss.HARMLESS,
        is_idle=bool(pod.idle_since),
        replica_of=pod.replica.workload if has_minimum and (pod.is_ready or gang is not None) else None,
    )


def _without_node(gpu_pod: ReclaimPod, gang: GangId | None, *, has_budget: bool) -> Victim:
    """Return a pod without a node as a victim: it frees limits, loses no work, and no budget covers it.

    The API server carries out the eviction of a pending pod whatever its budgets say
    (kubernetes/pkg/registry/core/pod/storage/eviction.go, canIgnorePDB).
    """
    pod = gpu_pod.pod
    return Victim(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        team=gpu_pod.team,
        node=NOWHERE,
        demand=pod.demand,
        started_at=NEVER,
        saved_at=NEVER,
        gang=gang,
        workload=gpu_pod.workload if has_budget else None,
        is_counted=has_budget and gpu_pod.loss is not Loss.HARMLESS,
    )


def is_protected(gpu_pod: ReclaimPod, rules: ReclaimRules) -> bool:
    """Whether policy protects a pod from eviction forever."""
    return is_protected_by(rules, gpu_pod.namespace, gpu_pod.labels)


def is_protected_by(rules: ReclaimRules, namespace: Namespace, labels: Mapping[str, str]) -> bool:
    """Whether policy protects the pods of a namespace, or pods with these labels, from eviction forever."""
    return any(fnmatchcase(namespace, glob) for glob in rules.protected_namespaces) or any(
        selector.matches(labels) for selector in rules.protected_selectors
    )


# Devices that several pods share by a claim: they become free only when all of their users go.
#
# So users go together, like a gang. A user that stays keeps the devices, a guaranteed one as well as one that policy
# protects; then the others free what they hold beside those. The same rule says what a set of victims frees, whether
# they are chosen, expected to leave or evicted by an earlier plan.


@dataclass(frozen=True, slots=True)
class Sharing:
    """Which claims the pods of a world share, and what they hold without them."""

    world: World

    def others(self, uid: Uid) -> Mapping[ClaimKey, Sequence[Uid]]:
        """Return the claims of GPUs of a pod that other pods on its node use as well, with these.

        Devices are on one node: a kubelet elsewhere, or a pod that only waits for its node, uses none of them.
        """
        pod, claims = self.world.pod(uid), self.world.claims
        if pod is None or not pod.claims or pod.node is None:
            return {}
        shared = claims.shared_by(pod.uid, pod.namespace, pod.claims)
        keys = [key for key in shared if claims.has_gpus(key, self.world.policy)]
        found = {key: [other for other in claims.users.on_node(key, pod.node) if other != uid] for key in keys}
        return {key: others for key, others in found.items() if others}

    def has_room(self, key: ClaimKey, uid: Uid) -> bool:
        """Whether a pod is the one that takes the room of a claim on its node."""
        return self.world.claims.users.takes_room(key, uid)

    def is_charged(self, key: ClaimKey, uid: Uid) -> bool:
        """Whether a pod is the one that is charged for a claim."""
        return self.world.claims.users.charged_pod(key) == uid

    def holding(self, uid: Uid, instead: Instead) -> Demand:
        """Return what a pod would hold in other roles."""
        pod = self.world.pod(uid)
        assert pod is not None  # noqa: S101 - it shares a claim, so it is known
        return self.world.with_claims(pod, instead=instead).demand

    def with_alternative(self, waiting: ReclaimPod) -> ReclaimPod:
        """Return a waiting pod with the demand of the alternative of its claims that room can be made for."""
        if not waiting.pod.claims:
            return waiting
        demand = by_room(waiting.pod, waiting.constraints, self.world)
        return replace(waiting, pod=waiting.pod._replace(demand=demand))

    def nodes(self, uid: Uid) -> Iterable[NodeName]:
        """Return the nodes that the claims of a pod bind it to."""
        pod, claims = self.world.pod(uid), self.world.claims
        keys = () if pod is None else claims.shared_by(pod.uid, pod.namespace, pod.claims)
        return [node for key in keys if (node := claims.node_of(key, uid)) is not None]


NO_SHARING: Final = Sharing(World(Policy()))
"""No pod shares a claim."""


class Among(Protocol):
    """The possible victims, by UID and by gang."""

    def get(self, uid: Uid) -> Victim | None:
        """Return a victim."""
        ...

    def members(self, gang: GangId) -> Iterable[Victim]:
        """Return the victims of a gang."""
        ...


class Going:
    """Pods that go `together` after those that are `gone`, and what each frees.

    The last users of a claim free its devices. If the user that takes their room, or is charged for them, went before
    without freeing them, the first of the others does it in its place.
    """

    def __init__(self, sharing: Sharing, *, together: Iterable[Uid], gone: Set[Uid] = frozenset()) -> None:
        self._sharing = sharing
        self._gone = gone
        self._going = gone | set(together)
        self._passed_on: set[ClaimKey] = set()

    def freed(self, uid: Uid, demand: Demand) -> Demand:
        """Return what one of those that go frees; to be asked once for each of them."""
        if demand.own is None:
            return demand
        sharing, gone = self._sharing, self._gone
        without: list[ClaimKey] = []
        taking: list[ClaimKey] = []
        charged: list[ClaimKey] = []
        for key, others in sharing.others(uid).items():
            if not all(other in self._going for other in others):
                without.append(key)
            elif key not in self._passed_on and any(other in gone for other in others):
                self._passed_on.add(key)
                taking += [key] * any(other in gone and sharing.has_room(key, other) for other in others)
                charged += [key] * any(other in gone and sharing.is_charged(key, other) for other in others)
        if not (without or taking or charged):
            return demand
        return sharing.holding(uid, Instead(without, taking, charged))


def freeing(victims: Iterable[Victim], sharing: Sharing, *, gone: Set[Uid] = frozenset()) -> tuple[Victim, ...]:
    """Return victims that go together, each with what it frees; `gone` are pods that went before."""
    listed = tuple(victims)
    if all(victim.demand.own is None for victim in listed):
        return listed
    going = Going(sharing, together=[victim.uid for victim in listed], gone=gone)
    return tuple([victim._replace(demand=going.freed(victim.uid, victim.demand)) for victim in listed])


def companions(
    victims: Sequence[Victim],
    among: Among,
    sharing: Sharing,
    *,
    gone: Set[Uid],
    may_go: Callable[[Victim], bool],
) -> tuple[Victim, ...]:
    """Return victims with all that go with them: other users of their devices, and the gangs of those.

    Users of a claim are added only if every one of them may go: else the claim's devices stay, and evicting some of its
    users frees none.
    """
    found = {victim.uid: victim for victim in victims}
    left = [victim for victim in victims if victim.demand.own is not None]
    while left:
        for others in sharing.others(left.pop().uid).values():
            users = [among.get(uid) for uid in others if uid not in found and uid not in gone]
            able = [victim for victim in users if victim is not None and may_go(victim)]
            if len(able) < len(users):
                continue
            for user in able:
                gang = () if user.gang is None else filter(may_go, among.members(user.gang))
                new = [each for each in (user, *gang) if each.uid not in found]
                found.update((each.uid, each) for each in new)
                left += new
    return freeing(found.values(), sharing, gone=gone)
