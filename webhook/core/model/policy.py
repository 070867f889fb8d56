"""The policy: teams, pools, rules.

What policy says of objects that make pods: how they are judged as a whole, and kinds besides the built-in ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Final

from webhook.core.model.amounts import (
    ONE_GPU,
    UNASSIGNED,
    UNLIMITED,
    DepartmentName,
    GpuModel,
    Limit,
    PoolName,
    ResourceName,
    TeamName,
    Unlimited,
)
from webhook.core.model.constraints import Gang, Requirement, Tier, Toleration
from webhook.core.model.demand import DEFAULT_PRIOR, Shape, Weights
from webhook.core.model.policy_addons import DefragmentRules, IdleAction, IdleOverride, IdleRules, NotifyRules


class OnWorkloadLimit(StrEnum):
    """The effect on a workload whose pods together exceed a limit."""

    WARN = "warn"
    REJECT = "reject"


class JobEvictions(StrEnum):
    """Whether Jobs get a podFailurePolicy rule by which evictions do not count as failures."""

    IGNORE = "ignore"
    COUNT = "count"


@dataclass(frozen=True, slots=True)
class PodPath:
    """Where a kind keeps one role of pods; paths are keys separated by dots.

    The pod is at `template` (or at `fallback` where that has none), a pod template or a bare pod spec. Where a kind has
    none, `resources` is what a pod requests: limits and requests, amounts by name, or a number of `counted`. `fields`
    are fields of the pod's spec that stand elsewhere, each with its path.

    With `each`, a list or mapping, the other paths start from every entry of it, and the entry's name is the role, or
    `{name}` in it; paths that begin with `$.` start from the object. The count is the product of `replicas`, each less
    one where `-1` follows the path, and the first no less than the autoscaler's `maximum`; a missing field counts
    `default`, None where the count is then unknown. `is_optional`: no pods where none are wanted, or where there is
    neither a template nor a number.
    """

    template: str = ""
    replicas: tuple[str, ...] = ()
    role: str = ""
    each: str = ""
    default: int | None = None
    resources: str = ""
    counted: str = "nvidia.com/gpu"
    fallback: str = ""
    maximum: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """A kind of object that creates pods. `resource` is its name in the API's URLs; `is_gang`: all or nothing."""

    group: str
    kind: str
    resource: str
    pods: tuple[PodPath, ...] = ()
    is_gang: bool = False


@dataclass(frozen=True, slots=True)
class WorkloadRules:
    """How workloads are judged as a whole, and kinds besides the built-in ones."""

    on_limit: OnWorkloadLimit = OnWorkloadLimit.WARN
    job_evictions: JobEvictions = JobEvictions.IGNORE
    kinds: tuple[WorkloadKind, ...] = ()


DEFAULT_RULES: Final = WorkloadRules()


# What policy says of the users behind pods: limits per user count them.


class UserSource(StrEnum):
    """Where the user behind a controller's pod is read from."""

    NAMESPACE_ANNOTATION = "namespaceAnnotation"
    NAMESPACE_LABEL = "namespaceLabel"
    POD_ANNOTATION = "podAnnotation"
    POD_LABEL = "podLabel"


@dataclass(frozen=True, slots=True)
class UserKey:
    """One source for the user of a controller's pod: the first one present counts."""

    source: UserSource
    key: str


class UnknownUser(StrEnum):
    """How the limit per user applies where the user of a pod is not known."""

    IGNORE = "ignore"
    NAMESPACE = "namespace"


# The validated policy: every reference resolves, every amount is in exact GPU units.
#
# Only webhook/policy builds it from YAML; the core trusts it. The fields mirror the policy file (see
# policies/README.md), where reasons and defaults are explained to admins.


ADDED: Final = {"is_hashed_by_default": False}
"""Metadata of fields added after the first release: at its default such a field is not part of the policy's hash, so an
upgrade does not change the hash of an unchanged policy, which pods in creation carry."""
HASHED_AS_REJECT: Final = {"hashed_as": {None: "reject"}}
"""Metadata of a field that was always set before: None is hashed as the value that it had then."""
HASHED_AS_FALSE: Final = {"hashed_as": {None: False, False: "never"}}
"""The same of a field that was false unless it was set."""


class Enforcement(StrEnum):
    """How far Fairgate goes: off, judge and record, warn as well, or enforce."""

    OFF = "off"
    SHADOW = "shadow"
    WARN = "warn"
    ENFORCE = "enforce"


class OnLimit(StrEnum):
    """The effect on a pod above a limit that other pods use up: it is refused, or waits in the queue."""

    REJECT = "reject"
    QUEUE = "queue"


class OnNoRoom(StrEnum):
    """The effect on a pod inside its limits that no node has room for: it waits in kube-scheduler or in the queue."""

    WAIT = "wait"
    QUEUE = "queue"


class UnknownTeam(StrEnum):
    """The effect on GPU pods of a namespace without a team."""

    REJECT = "reject"
    PREEMPTIBLE = "preemptible"


class UnknownGpu(StrEnum):
    """The effect on pods that request a resource that looks like a GPU and that policy does not name."""

    REJECT = "reject"
    IGNORE = "ignore"


class MigWeight(StrEnum):
    """The weight of a MIG device: its share of the GPU's compute, or the larger of that and its share of the memory."""

    COMPUTE = "compute"
    LARGER = "larger"


class DeviceAccess(StrEnum):
    """The effect on pods that may access GPUs that they do not request."""

    REJECT = "reject"
    WARN = "warn"
    IGNORE = "ignore"


class Mode(StrEnum):
    """How strictly a pod is bound to the chosen nodes."""

    AUTO = "auto"
    REQUIRE = "require"
    PREFER = "prefer"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Share:
    """A team's share, in GPU units: `guaranteed` can always be reclaimed, `limit` is the cap, borrowing included."""

    guaranteed: int = 0
    limit: Limit = UNLIMITED


@dataclass(frozen=True, slots=True)
class Department:
    """A node of the tree over teams: its share holds for all teams below it. `weight` divides the surplus."""

    name: DepartmentName
    parent: DepartmentName | None = None
    gpus: Share = Share()
    models: Mapping[GpuModel, Share] = field(default_factory=dict)
    weight: int | Fraction = 1

    @property
    def has_limit(self) -> bool:
        """Whether anything bounds the teams below it together."""
        return self.gpus.limit is not UNLIMITED or any(share.limit is not UNLIMITED for share in self.models.values())


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A Kubernetes label selector: all of its requirements hold."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels are selected."""
        return all(requirement.matches(labels) for requirement in self.requirements)


@dataclass(frozen=True, slots=True)
class Team:
    """A team: its namespaces and its share; `weight` is its part of the GPUs that no team is guaranteed or uses.

    `departments` are those above it, the nearest first. Where `on_limit`, `on_no_room`, `queue_depth` and `idle` are
    None, `Policy` has the value that applies.
    """

    name: TeamName
    namespaces: tuple[str, ...] = ()  # names or globs
    namespace_selector: LabelSelector | None = None
    gpus: Share = Share()
    models: Mapping[GpuModel, Share] = field(default_factory=dict)
    per_pod: Limit = UNLIMITED
    per_user: Limit = UNLIMITED
    weight: int | Fraction = field(default=1, metadata=ADDED)
    on_limit: OnLimit | None = field(default=None, metadata=HASHED_AS_REJECT)
    on_no_room: OnNoRoom | None = field(default=None, metadata=ADDED)
    queue_depth: int | None = field(default=None, metadata=ADDED)
    departments: tuple[Department, ...] = field(default=(), metadata=ADDED)
    idle: IdleOverride | None = field(default=None, metadata=ADDED)

    @property
    def highest_limited(self) -> Department | None:
        """The highest department above it that has a limit: charges of all teams below that are committed together."""
        return next((each for each in reversed(self.departments) if each.has_limit), None)

    @property
    def has_model_shares(self) -> bool:
        """Whether a share of the team, or of a department above it, is of one GPU model: pods are charged by model."""
        return bool(self.models or (self.departments and any(each.models for each in self.departments)))


NO_TEAM = Team(UNASSIGNED)
"""The team charged for namespaces without a team: guaranteed nothing."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """Defaults for all teams. `user_from` defaults to the annotation of Kubeflow profiles.

    `share_schedulers` place shares of devices as HAMi does: their pods are charged by the share.
    `maximum_grace_seconds` is the longest grace period of a GPU pod; cluster-autoscaler does not wait longer either.
    `retry_refused`: controllers whose pods were refused are triggered again once there is room.
    """

    on_limit: OnLimit = field(default=OnLimit.REJECT, metadata=ADDED)
    on_no_room: OnNoRoom = field(default=OnNoRoom.WAIT, metadata=ADDED)
    unknown_team: UnknownTeam = UnknownTeam.REJECT
    unknown_gpu: UnknownGpu = UnknownGpu.REJECT
    device_access: DeviceAccess = DeviceAccess.WARN
    host_paths: tuple[str, ...] = ()  # paths of nodes that pods may mount
    user_from: tuple[UserKey, ...] = (UserKey(UserSource.NAMESPACE_ANNOTATION, "owner"),)
    share_schedulers: tuple[str, ...] = ()
    unknown_user: UnknownUser = UnknownUser.IGNORE
    maximum_grace_seconds: int = 600
    retry_refused: bool = True


@dataclass(frozen=True, slots=True)
class Pool:
    """A set of nodes that belong together.

    `teams` is None where every team may use it. A pod selected by `match` goes to this pool and nowhere else; a pool
    with `match` takes no other pods. An autoscaler adds and removes nodes of an `is_autoscaled` pool; None: as
    found in the cluster (`admission.pools.grows`).
    """

    name: PoolName
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[Requirement, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    capabilities: frozenset[str] = frozenset()
    teams: frozenset[TeamName] | None = None
    match: LabelSelector | None = None
    is_autoscaled: bool | None = field(default=None, metadata=HASHED_AS_FALSE)

    def admits(self, team: TeamName) -> bool:
        """Whether a team may use the pool."""
        return self.teams is None or team in self.teams


@dataclass(frozen=True, slots=True)
class PlacementRules:
    """How pods are placed; `keep_whole` wholly free nodes are kept free of small pods while there is a choice.

    `pod_groups` is the mode for pods of PodGroups of Kubernetes. `demand_mix` are the weights of the pod shapes
    expected before any pod came.
    """

    mode: Mode = Mode.AUTO
    pod_groups: Mode = field(default=Mode.OFF, metadata=ADDED)
    keep_whole: int = 0
    demand_mix: tuple[tuple[Shape, int], ...] = DEFAULT_PRIOR

    def mode_of(self, gang: Gang | None) -> Mode:
        """Return the mode for the pods of a gang, or for a pod of its own.

        kube-scheduler places all pods of a PodGroup at once: nodes that were chosen for each of them before could keep
        it from placing them together.
        """
        return self.pod_groups if gang is not None and gang.is_pod_group else self.mode


class ReclaimCost(StrEnum):
    """The criteria by which victims are chosen: fewest gangs broken, GPUs freed beyond need, work lost, and so on.

    FAILURES is the used part of the failures that their workloads tolerate.
    """

    GANGS = "gangs"
    SURPLUS = "surplus"
    LOST_WORK = "lostWork"
    FAILURES = "failures"
    OVER_SHARE = "overShare"
    AGE = "age"


@dataclass(frozen=True, slots=True)
class ReclaimRules:
    """When and how borrowed GPUs are reclaimed; read by the evictor. `order` lists the criteria, the first one first.

    `evictions_per_minute` limits the pods each team may lose. `budget_seconds` is for how long a waiting pod respects
    borrowers' PodDisruptionBudgets. A victim gets at most `longest_grace_seconds` to end. A charged pod that something
    else than room keeps off every node for `start_within_seconds` is deleted.
    """

    order: tuple[ReclaimCost, ...] = tuple(ReclaimCost)
    evictions_per_minute: Limit = UNLIMITED
    budget_seconds: Limit = 300
    longest_grace_seconds: int = 600
    notice_seconds: int = 0
    minimum_runtime_seconds: int = 0
    protected_namespaces: tuple[str, ...] = ()
    protected_selectors: tuple[LabelSelector, ...] = ()
    start_within_seconds: Limit = field(default=86_400, metadata=ADDED)


@dataclass(frozen=True, slots=True)
class QueueRules:
    """How pods wait in the queue: at most `depth` of each team.

    With `half_life_seconds`, past use counts in the order of teams, and half as much after that time; 0: it does not.
    A pod that waited `strict_after_seconds` for a limit is no longer passed by smaller pods of the same limit.
    `gang_timeout_seconds` is how long a gang may take to come, and for how long room is kept for its later pods. A pod
    that finds no room holds back those behind it for at most `hold_back_seconds`.
    """

    depth: int = 1000
    half_life_seconds: int = 0
    strict_after_seconds: Limit = 600
    gang_timeout_seconds: int = field(default=300, metadata=ADDED)
    hold_back_seconds: Limit = field(default=86_400, metadata=ADDED)

    def is_strict_after(self, seconds: int) -> bool:
        """Whether a pod that has waited for so long is no longer passed."""
        return not isinstance(self.strict_after_seconds, Unlimited) and seconds >= self.strict_after_seconds


@dataclass(frozen=True, slots=True)
class TopologyRules:
    """The keys of node labels that divide nodes into domains, from large to small: zones, blocks, racks, hosts."""

    levels: tuple[str, ...] = ()


BUILT_IN_RESOURCES: Weights = {
    ResourceName(name): ONE_GPU for name in ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "google.com/tpu")
}


OPERATOR_NAMESPACES: Final = (
    "gpu-operator",
    "nvidia-gpu-operator",
    "kube-amd-gpu",
    "openshift-amd-gpu",
    "habana-ai-operator",
    "habana-system",
    "kai-resource-reservation",
)
"""The namespaces of NVIDIA's, AMD's and Intel's operators, by their documentation, and of KAI-Scheduler's reservations.

NVIDIA's validator asks for a GPU on each node that comes up: until that pod has run, the node offers none to others
(https://github.com/NVIDIA/gpu-operator, validator/manifests).
"""


@dataclass(frozen=True, slots=True)
class Policy:
    """The merged policy folder. `hash` identifies its content: equal hashes, equal policies.

    `resources` are the weights; `ignored_resources` are listed explicitly as counting nothing. With `counts_replicas` a
    piece of `nvidia.com/gpu` counts by the number of replicas on its node. Teams are found by name
    in constant time: several look-ups are made for each request and each change of a pod.
    """

    enforce: Enforcement = Enforcement.ENFORCE
    teams: tuple[Team, ...] = ()
    departments: tuple[Department, ...] = field(default=(), metadata=ADDED)
    defaults: Defaults = Defaults()
    pools: tuple[Pool, ...] = ()
    placement: PlacementRules = PlacementRules()
    reclaim: ReclaimRules = ReclaimRules()
    defragment: DefragmentRules = field(default=DefragmentRules(), metadata=ADDED)
    queue: QueueRules = field(default=QueueRules(), metadata=ADDED)
    topology: TopologyRules = field(default=TopologyRules(), metadata=ADDED)
    idle: IdleRules | None = field(default=None, metadata=ADDED)
    resources: Weights = field(default_factory=lambda: BUILT_IN_RESOURCES)
    ignored_resources: frozenset[ResourceName] = frozenset()
    counts_replicas: bool = field(default=False, metadata=ADDED)
    priority_classes: Mapping[Tier, str] = field(default_factory=dict)
    exempt_namespaces: tuple[str, ...] = ()
    operator_namespaces: tuple[str, ...] = field(default=OPERATOR_NAMESPACES, metadata=ADDED)
    workloads: WorkloadRules = DEFAULT_RULES
    notify: NotifyRules = field(default=NotifyRules(), metadata=ADDED)
    hash: str = ""
    _by_name: Mapping[TeamName, Team] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {team.name: team for team in self.teams})

    @property
    def exempt(self) -> tuple[str, ...]:
        """Return the names and globs of the namespaces that are only counted."""
        return (*self.exempt_namespaces, *self.operator_namespaces)

    @property
    def is_enforced(self) -> bool:
        """Whether anything is refused or changed by it."""
        return self.enforce is Enforcement.ENFORCE

    def on_limit(self, team: Team) -> OnLimit:
        """Return the effect on pods of this team above a limit."""
        return self.defaults.on_limit if team.on_limit is None else team.on_limit

    def on_no_room(self, team: Team) -> OnNoRoom:
        """Return the effect on pods of this team that no node has room for."""
        return self.defaults.on_no_room if team.on_no_room is None else team.on_no_room

    def queue_depth(self, team: Team) -> int:
        """Return how many pods of this team may wait in the queue."""
        return self.queue.depth if team.queue_depth is None else team.queue_depth

    def on_idle(self, name: TeamName | str | None) -> frozenset[IdleAction]:
        """Return what follows for the pods of a team that do not use their GPUs; nothing without rules."""
        if self.idle is None or name is None:
            return frozenset()
        team = self.team(TeamName(name))
        return self.idle.terms_of(None if team is None else team.idle).actions

    def team(self, name: TeamName) -> Team | None:
        """Return a team by name; None where there is none."""
        return self._by_name.get(name)
