"""A pod, as far as a decision depends on it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from webhook.core.model.amount import Units
from webhook.core.model.claim_ref import ClaimRef
from webhook.core.model.demand import Demand
from webhook.core.model.labels import unpack
from webhook.core.model.names import GpuModel, Labels, Namespace, NodeName, ResourceName, Uid, User
from webhook.core.model.selector import NO_CONSTRAINTS, Constraints
from webhook.core.model.tier import TIERS, Tier
from webhook.core.model.topology import AffinityRule, TopologyRule, anti_affinity

NO_UID = Uid("")
NO_KEYS: Final[Mapping[str, str]] = MappingProxyType({})
NO_LABELS: Final = Labels("")
DEFAULT_GRACE_SECONDS: Final = 30
"""What Kubernetes gives a pod that says nothing."""


class Handling(StrEnum):
    """Who places the pod: us, or somebody whose pods we charge but never patch."""

    MANAGED = "managed"
    DAEMON_SET = "DaemonSet"
    MIRROR = "mirror"
    NODE_NAME = "nodeName"
    FOREIGN_SCHEDULER = "foreignScheduler"


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller that made a pod."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class PriorityTriple:
    """priorityClassName, priority and preemptionPolicy belong together: kube-apiserver refuses a mixed set."""

    name: str
    value: int
    preemption_policy: str = "PreemptLowerPriority"


class Pod(NamedTuple):
    """What a decision reads of a pod; a named tuple for speed, as in decision.py.

    `name` and `uid` are empty while mutating. `has_open_constraints` says that it carries conditions we do not
    evaluate (bound volumes, host ports, claims), so its nodes can only be advice; `topology` is what it demands of the
    pods in its topology domains, `is_spread_by_default` that kube-scheduler would rather have it far from its like
    than follow a preference. `mark` is the decision annotation as found, `team_label` and `tier_label` the labels.
    `shares_by` is the scheduler that shares of devices are asked of, "" where none are. `slices` are the MIG resources
    of the only nodes that it may be on, where `nvidia.com/gpu` are slices on all of them (see slices.py).
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
    mark: str | None = None
    priority_class: str = ""
    claims: tuple[ClaimRef, ...] = ()
    shares_by: str = ""
    slices: tuple[ResourceName, ...] = ()
    grace_seconds: int = DEFAULT_GRACE_SECONDS

    @property
    def needs_resolution(self) -> bool:
        """Tell whether what it counts depends on more than its containers (see counting.py)."""
        return bool(self.claims or self.demand.strange or self.shares_by or self.slices or self.node_name)

    @property
    def has_required_topology(self) -> bool:
        """Tell whether it would rather wait than be beside pods that it does not want."""
        return any(rule.is_hard for rule in self.topology)

    @property
    def anti_affinity_rules(self) -> tuple[AffinityRule, ...]:
        """Say which other pods it does not bear near it."""
        return anti_affinity(self.topology)

    @property
    def requested_tier(self) -> Tier | None:
        """Read the tier the user asked for; None where the label is absent or unknown."""
        return TIERS.get(self.tier_label or "")


class Requester(NamedTuple):
    """Who asked the API server: name and whether it is a service account (a controller acts through one)."""

    username: str

    @property
    def is_service_account(self) -> bool:
        """Tell whether a controller or a workload asked, not a person."""
        return self.username.startswith("system:serviceaccount:")

    @property
    def home(self) -> Namespace | None:
        """Tell the namespace of a service account; None for anybody else."""
        return Namespace(self.username.split(":")[2]) if self.is_service_account else None

    @property
    def is_kubelet(self) -> bool:
        """Tell whether a node asked: only nodes report mirror pods."""
        return self.username.startswith("system:node:")


CONTROLLER: Final = Requester("system:serviceaccount:kube-system:controller")
"""Who will ask for the pods that a controller makes."""


class Admitted(NamedTuple):
    """What a pod with claims was let in with: its charge in GPU units, under which policy, and the claims it named."""

    gpus: Units
    policy: str
    claims: tuple[Uid, ...] = ()


@dataclass(frozen=True, slots=True)
class NamespaceFacts:
    """What a decision reads of a namespace."""

    name: Namespace
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resident:
    """A GPU pod that exists in the cluster, as the world holds it (many thousands: keep it small).

    `node` is None while it waits for the scheduler; `team_label` and `tier_label` are what the gate wrote on it, None
    on pods that never passed the gate. `promised` is the node that its decision names first, or its own affinity: where
    it takes its room while it waits. `model` is the GPU model that it is bound to until then, None where it is to none.
    `version` is the resourceVersion that it was read at. `requested_tier` is what its user's own label asked for. `created`
    is in seconds of Unix time, by the API server's clock; 0 where nobody says. `devices` are the indices of the GPUs it
    holds, where the cluster says so. `handling` is who places it: every pod on a node looks like `nodeName`. `packed`
    are its labels, kept small. `anti_affinity_rules` says which other pods it does not bear near it. `shares_by` is the scheduler
    that shares of devices are asked of, "" where none are. `slices` are as a Pod's. `admitted` is there for pods with
    claims that we decided on. `grace_seconds` is how long its node may run it after its deletion.
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
    version: int = field(default=0, compare=False)  # changes with everything that we do not read, too
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

    @property
    def is_managed(self) -> bool:
        """Tell whether it is ours to place, as far as that can still be told."""
        return self.handling in (Handling.MANAGED, Handling.NODE_NAME)

    @property
    def may_be_labeled(self) -> bool:
        """Tell whether a team and a tier may be written on it.

        Pods that another scheduler places, or a DaemonSet, only once they are on a node: no room is made for those
        that wait. Never static pods: a kubelet runs them whatever the API says of them.
        """
        return self.is_managed or (self.node is not None and self.handling is not Handling.MIRROR)

    @property
    def labels(self) -> Mapping[str, str]:
        """Read its labels."""
        return unpack(self.packed)

    @property
    def tier(self) -> Tier | None:
        """Read the tier that the gate wrote; None where it wrote none."""
        return TIERS.get(self.tier_label or "") if self.team_label is not None else None
