"""A pod: new, existing, waiting; its life.

A pod as one of several that replace each other, such as those of a Deployment.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from webhook.core.model.amounts import (
    GangId,
    GpuModel,
    Labels,
    Namespace,
    NodeName,
    ResourceName,
    Uid,
    Units,
    User,
    WorkloadName,
)
from webhook.core.model.constraints import NO_CONSTRAINTS, TIERS, Constraints, Gang, Tier, unpack
from webhook.core.model.demand import ClaimRef, Demand
from webhook.core.model.topology import AffinityRule, TopologyRule, anti_affinity


class Replica(NamedTuple):
    """What a pod is a replica of, "" where it is of none, and how many replicas must stay by its own annotation.

    `problem` says why its annotation is ignored, "" if it is not.
    """

    workload: WorkloadName = WorkloadName("")
    minimum: int | None = None
    problem: str = ""


NO_REPLICA: Final = Replica()


# How long a pod runs, as its user says. It is shown; no decision reads it.


MAX_SECONDS: Final = 365 * 86_400
"""The longest run that is stated."""


class RunTime(NamedTuple):
    """What is said of a pod's run, in seconds; 0 where nothing is.

    `stated` is its annotation. `problem` says why that is ignored, "" if it is not.
    """

    stated: int = 0
    problem: str = ""


NO_RUN_TIME: Final = RunTime()


# A pod, as far as a decision depends on it.


NO_UID = Uid("")
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
NO_KEYS: Final[Mapping[str, str]] = MappingProxyType({})
NO_LABELS: Final = Labels("")
DEFAULT_GRACE_SECONDS: Final = 30
"""The default of Kubernetes for terminationGracePeriodSeconds."""


class Handling(StrEnum):
    """Who places the pod: Fairgate, or another component whose pods are charged but never patched."""

    MANAGED = "managed"
    DAEMON_SET = "DaemonSet"
    MIRROR = "mirror"
    NODE_NAME = "nodeName"
    FOREIGN_SCHEDULER = "foreignScheduler"


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller that created a pod."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class PriorityTriple:
    """priorityClassName, priority and preemptionPolicy belong together: kube-apiserver rejects a mixed set."""

    name: str
    value: int
    preemption_policy: str = "PreemptLowerPriority"


class Pod(NamedTuple):
    """The fields of a pod that a decision reads; a named tuple for speed, like the decisions.

    `name` and `uid` are empty while mutating. `has_open_constraints`: it has conditions that Fairgate does not evaluate
    (bound volumes, host ports, claims), so its nodes can only be a preference. `topology` are its spread constraints
    and inter-pod affinity. `is_spread_by_default`: kube-scheduler would rather place it away from its siblings than
    follow a preference. `decision_annotation`, `team_label` and `tier_label` are what the pod has.
    `shares_by` is the scheduler that shares of devices are requested from, "" where none are. `slices` are the MIG
    resources of the only nodes that it may be on, where `nvidia.com/gpu` are slices on all of them. `is_queued`: it has
    Fairgate's scheduling gate. `foreign_gates` are the gates of other controllers. `gang` is what it starts with.
    `domain_problem` says why its annotation about domains is ignored, "" if it is not, and `gang_problem` the same of
    its mark of a gang and of the gang's size. `run_time` is how long it runs, as its user says: no decision reads it.
    `replica` is what it is one of, and how many of them must stay.
    """

    namespace: Namespace
    demand: Demand
    name: str = ""
    uid: Uid = NO_UID
    labels: Mapping[str, str] = NO_KEYS
    annotations: Mapping[str, str] = NO_KEYS
    owner: Owner | None = None
    constraints: Constraints = NO_CONSTRAINTS
    has_open_constraints: bool = False
    topology: tuple[TopologyRule, ...] = ()
    is_spread_by_default: bool = False
    handling: Handling = Handling.MANAGED
    node_name: NodeName | None = None
    requires: frozenset[str] = frozenset()
    pool: str | None = None
    team_label: str | None = None
    tier_label: str | None = None
    decision_annotation: str | None = None
    priority_class: str = ""
    claims: tuple[ClaimRef, ...] = ()
    shares_by: str = ""
    slices: tuple[ResourceName, ...] = ()
    grace_seconds: int = DEFAULT_GRACE_SECONDS
    is_queued: bool = False
    foreign_gates: tuple[str, ...] = ()
    gang: Gang | None = None
    domain_problem: str = ""
    gang_problem: str = ""
    run_time: RunTime = NO_RUN_TIME
    replica: Replica = NO_REPLICA

    @property
    def needs_resolution(self) -> bool:
        """Whether its demand depends on more than its containers."""
        return bool(self.claims or self.demand.strange or self.shares_by or self.slices or self.node_name)

    @property
    def has_required_topology(self) -> bool:
        """Whether it waits rather than break one of its topology rules."""
        return any(rule.is_hard for rule in self.topology)

    @property
    def anti_affinity_rules(self) -> tuple[AffinityRule, ...]:
        """Return its required anti-affinity rules."""
        return anti_affinity(self.topology)

    @property
    def requested_tier(self) -> Tier | None:
        """Return the tier the user requested; None where the label is absent or unknown."""
        return TIERS.get(self.tier_label or "")


class Requester(NamedTuple):
    """The user of an API request: a person or a service account (a controller acts through one)."""

    username: str

    @property
    def is_service_account(self) -> bool:
        """Whether the request came from a controller or a workload, not from a person."""
        return self.username.startswith(_SERVICE_ACCOUNT)

    @property
    def home(self) -> Namespace | None:
        """Return the namespace of a service account; None for other users."""
        return Namespace(self.username.split(":")[2]) if self.username.startswith(_SERVICE_ACCOUNT) else None

    @property
    def is_kubelet(self) -> bool:
        """Whether a node sent the request: only nodes report mirror pods."""
        return self.username.startswith("system:node:")


CONTROLLER: Final = Requester("system:serviceaccount:kube-system:controller")
"""The requester of pods that a controller creates."""


class Admitted(NamedTuple):
    """What a pod with claims was admitted with: its charge in GPU units, the policy, and the claims it named."""

    gpus: Units
    policy: str
    claims: tuple[Uid, ...] = ()


class Obstacle(StrEnum):
    """What keeps a pod off every node, by the scheduler's report.

    ROOM: some node lacks what it requests. NODES: no node is there that it may use: an autoscaler, a repair or an end
    of maintenance brings one. GATE: a scheduling gate. PEERS: required anti-affinity of pods on them. OTHER: anything
    else, such as a volume that does not exist.
    """

    ROOM = "room"
    NODES = "nodes"
    GATE = "gate"
    PEERS = "peers"
    OTHER = "other"


class Unbound(NamedTuple):
    """Why a pod has no node; `why` are the scheduler's words, for obstacles other than room."""

    obstacle: Obstacle
    why: str = ""


@dataclass(frozen=True, slots=True)
class NamespaceFacts:
    """The fields of a namespace that a decision reads."""

    name: Namespace
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


class Resident(NamedTuple):
    """A GPU pod that exists in the cluster, as kept in the world (many thousands: keep it small).

    A named tuple, since one is made for every event of a pod: a frozen dataclass of so many fields takes 20 times as
    long. Residents that differ in `version` alone are equal.

    `node` is None while it waits for the scheduler; `team_label` and `tier_label` are the webhook's labels, None on
    pods that bypassed it. `promised` is the first node of its decision, or of its own affinity: it takes its room there
    while it waits. `model` is the GPU model that it is bound to until then, None where it is not bound to one.
    `version` is the resourceVersion at which it was read. `requested_tier` is the user's own label. `created` is in
    seconds of Unix time, by the API server's clock; 0 where unknown. `devices` are the indices of its GPUs, where the
    cluster reports them. `handling` is who places it: every pod on a node looks like `nodeName`. `packed` are its
    labels as one string. `anti_affinity_rules` are its required anti-affinity rules. `shares_by` is the scheduler that
    shares of devices are requested from, "" where none are. `slices` are as in a Pod. `admitted` is set for pods with
    claims that Fairgate admitted. `grace_seconds` is how long its node may run it after its deletion. `is_backfill`: it
    started ahead of pods that wait for room. `gang` is the gang that it is a member of. `deadline` is when its node had
    time enough to end it, in seconds of Unix time, 0 while it is not deleted. `unbound` is why it has no node, None
    before its scheduler reports that. `replica` is as in a Pod. `is_ready`: it runs, and no condition says that it is
    not ready. `idle_since` is since when its GPUs are not used, 0 where they are or nothing is known. `notice_at` is
    the announced time of its eviction, 0 where none is. `is_acknowledged`: the kubelet of its node has reported
    something of it, or may have. `has_decision`: the webhook decided on it when it came. `nominated` is the node whose
    room kube-scheduler keeps for it while its victims end, from pods of lower or equal priority.
    """

    uid: Uid
    namespace: Namespace
    name: str
    demand: Demand
    node: NodeName | None
    owner: Owner | None
    team_label: str | None
    tier_label: str | None
    user: User | None = None
    is_terminating: bool = False
    promised: NodeName | None = None
    requested_tier: Tier | None = None
    created: int = 0
    devices: tuple[int, ...] = ()
    claims: tuple[ClaimRef, ...] = ()
    handling: Handling = Handling.MANAGED
    packed: Labels = NO_LABELS
    anti_affinity_rules: tuple[AffinityRule, ...] = ()
    shares_by: str = ""
    slices: tuple[ResourceName, ...] = ()
    model: GpuModel | None = None
    admitted: Admitted | None = None
    grace_seconds: int = DEFAULT_GRACE_SECONDS
    is_backfill: bool = False
    gang: GangId | None = None
    deadline: int = 0
    unbound: Unbound | None = None
    replica: Replica = NO_REPLICA
    is_ready: bool = False
    idle_since: int = 0
    is_acknowledged: bool = True
    notice_at: int = 0
    nominated: NodeName | None = None
    has_decision: bool = True
    version: int = 0  # also changes with fields that are not read; it stays last, comparisons leave it out

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Resident) and self[:-1] == other[:-1]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:-1])

    @property
    def is_managed(self) -> bool:
        """Whether Fairgate places it, as far as that can still be known."""
        return self.handling in (Handling.MANAGED, Handling.NODE_NAME)

    @property
    def may_be_labeled(self) -> bool:
        """Whether a team and a tier may be written on it.

        Pods of another scheduler or of a DaemonSet get labels only once they are on a node: no room is made for those
        that wait. Static pods never do: a kubelet runs them independent of the API.
        """
        return self.is_managed or (self.node is not None and self.handling is not Handling.MIRROR)

    @property
    def for_reclaim(self) -> "Resident":
        """The pod as reclaim counts it: no room is promised to it; a nomination counts for pods that get no plan."""
        return self._replace(promised=None, nominated=None if self.team_label is not None else self.nominated)

    @property
    def labels(self) -> Mapping[str, str]:
        """Return its labels."""
        return unpack(self.packed)

    @property
    def tier(self) -> Tier | None:
        """Return the tier written by the webhook; None where it wrote none."""
        return TIERS.get(self.tier_label or "") if self.team_label is not None else None


# A pod's life: its stages, and what each of them means for charges, room, evictions and guaranteed shares.
#
# The table is the only place that says so. Usage, placement, the queue, reclaim, explanations and status read it.
# Whether a pod is at a stage follows from the pod, its node and the time; nothing else remembers it.


class Stage(StrEnum):
    """Where a pod is in its life.

    IN_LINE: it has Fairgate's scheduling gate, and waits (`webhook.core.line`). RESERVED: the same, and charged:
    it starts (`webhook.core.starting`), or its room is being made. ADMITTED: no scheduler has said anything about
    it yet. WAITS: no node has room for it, or no node is there that it may use. STALLED: something else than room
    keeps it off every node, such as a volume that does not exist, or another controller's gate. BOUND: it starts or
    runs on a node. ENDING: it is deleted, and its node has time to end it. OVERDUE: its node had time to end it and
    has not reported that. LOST: the same on a node that is lost. LINGERING: it was deleted by force, and its node may
    still run it: a charge is left of it, for a time. ENDED: no container of it can still run.
    """

    IN_LINE = "queued"
    RESERVED = "charged, queued"
    ADMITTED = "admitted"
    WAITS = "waits for room"
    STALLED = "stalled"
    BOUND = "bound"
    ENDING = "ending"
    OVERDUE = "overdue"
    LOST = "lost"
    LINGERING = "lingering"
    ENDED = "ended"


class RoomUse(StrEnum):
    """The room that a pod takes: none; on the node that was chosen for it, for a time; on its node."""

    NONE = "none"
    RESERVED = "reserved"
    TAKEN = "taken"


class RemovalWay(StrEnum):
    """How a borrowing pod is made to leave.

    EVICT: by the Eviction API, with its grace period up to the bound of policy. DELETE: the same request, which the API
    server carries out at once for a pod without a node: no budget covers it, and no work is lost. SHORTEN: it leaves,
    and its grace period is cut to that bound.
    """

    NEVER = "never"
    EVICT = "evict"
    DELETE = "delete"
    SHORTEN = "shorten"


@dataclass(frozen=True, slots=True)
class Terms:
    """What a stage means.

    `is_charged`: its GPUs count for limits and shares. `removal`: how it leaves, if it borrows. `is_entitled`: reclaim
    makes room for it, if it is inside its team's guaranteed share.
    """

    is_charged: bool
    room: RoomUse
    removal: RemovalWay
    is_entitled: bool = False


TERMS: Final[Mapping[Stage, Terms]] = {
    Stage.IN_LINE: Terms(is_charged=False, room=RoomUse.NONE, removal=RemovalWay.NEVER, is_entitled=True),
    Stage.RESERVED: Terms(is_charged=True, room=RoomUse.RESERVED, removal=RemovalWay.NEVER, is_entitled=True),
    Stage.ADMITTED: Terms(is_charged=True, room=RoomUse.RESERVED, removal=RemovalWay.DELETE),
    Stage.WAITS: Terms(is_charged=True, room=RoomUse.RESERVED, removal=RemovalWay.DELETE, is_entitled=True),
    Stage.STALLED: Terms(is_charged=True, room=RoomUse.RESERVED, removal=RemovalWay.DELETE),
    Stage.BOUND: Terms(is_charged=True, room=RoomUse.TAKEN, removal=RemovalWay.EVICT),
    Stage.ENDING: Terms(is_charged=True, room=RoomUse.TAKEN, removal=RemovalWay.SHORTEN),
    Stage.OVERDUE: Terms(is_charged=True, room=RoomUse.TAKEN, removal=RemovalWay.SHORTEN),
    Stage.LOST: Terms(is_charged=False, room=RoomUse.TAKEN, removal=RemovalWay.NEVER),
    Stage.LINGERING: Terms(is_charged=True, room=RoomUse.TAKEN, removal=RemovalWay.NEVER),
    Stage.ENDED: Terms(is_charged=False, room=RoomUse.NONE, removal=RemovalWay.NEVER),
}

_BY_OBSTACLE: Final[Mapping[Obstacle, Stage]] = {
    Obstacle.ROOM: Stage.WAITS,
    Obstacle.NODES: Stage.WAITS,
    Obstacle.GATE: Stage.STALLED,
    Obstacle.PEERS: Stage.STALLED,
    Obstacle.OTHER: Stage.STALLED,
}


def stage_of(pod: Resident, *, now: int, is_node_lost: bool) -> Stage:
    """Return the stage of a pod that is not queued and has not reported its end. `now` is in seconds of Unix time.

    `is_node_lost`: its node is gone, not ready, or out of service by its taint. A pod without a node that is deleted
    never runs: kube-scheduler skips it, and the API server refuses to bind it. Where the time is not known (0), as in a
    world file, a deadline has passed. ResourceQuota stops counting a pod at the same deadline, whatever its node is
    (kubernetes/pkg/quota/v1/evaluator/core/pods.go, QuotaV1Pod); here it counts until its node reports its end, unless
    that node is lost: a live kubelet may still run it.
    """
    if pod.node is None:
        if pod.is_terminating:
            return Stage.ENDED
        return Stage.ADMITTED if pod.unbound is None else _BY_OBSTACLE[pod.unbound.obstacle]
    if not pod.is_terminating:
        return Stage.BOUND
    if not pod.deadline or 0 < now <= pod.deadline:
        return Stage.ENDING
    return Stage.LOST if is_node_lost else Stage.OVERDUE


def removal_of(pod: Resident) -> RemovalWay:
    """Return how a pod is made to leave, if it borrows: that depends on neither the time nor its node's state.

    A static pod never does: kubelet runs it from a file of its node, and creates its object again.
    """
    if pod.handling is Handling.MIRROR:
        return RemovalWay.NEVER
    return TERMS[stage_of(pod, now=0, is_node_lost=False)].removal
