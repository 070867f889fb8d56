"""What admins decided, validated: every reference resolves, every amount is in exact GPU units.

Only webhook/policy makes these from YAML; the core trusts them. Field by field they mirror the policy file
(see policies/README.md), in which the reasons and defaults are explained to admins.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from webhook.core.amount import ONE_GPU, UNLIMITED, Limit
from webhook.core.names import GpuModel, PoolName, ResourceName, TeamName
from webhook.core.selector import Requirement, Toleration
from webhook.core.tier import Tier


class OnLimit(StrEnum):
    """What happens to a pod over its team's limit."""

    REJECT = "reject"


class UnknownTeam(StrEnum):
    """What happens to GPU pods of a namespace that no team claims."""

    REJECT = "reject"
    PREEMPTIBLE = "preemptible"


class Mode(StrEnum):
    """How firmly a pod is sent to the chosen nodes."""

    AUTO = "auto"
    REQUIRE = "require"
    PREFER = "prefer"
    OFF = "off"


class UserSource(StrEnum):
    """Where the user behind a controller's pod is read."""

    NAMESPACE_ANNOTATION = "namespaceAnnotation"
    NAMESPACE_LABEL = "namespaceLabel"
    POD_ANNOTATION = "podAnnotation"
    POD_LABEL = "podLabel"


@dataclass(frozen=True, slots=True)
class Share:
    """A team's share, in GPU units: `guaranteed` it always gets back, `limit` caps it, borrowing included."""

    guaranteed: int = 0
    limit: Limit = UNLIMITED


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A Kubernetes label selector: all of its requirements hold."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether these labels are selected."""
        return all(requirement.matches(labels) for requirement in self.requirements)


@dataclass(frozen=True, slots=True)
class Team:
    """A team: whose namespaces it owns and what share it has."""

    name: TeamName
    namespaces: tuple[str, ...] = ()  # names or globs
    namespace_selector: LabelSelector | None = None
    gpus: Share = Share()
    models: Mapping[GpuModel, Share] = field(default_factory=dict)
    per_pod: Limit = UNLIMITED
    per_user: Limit = UNLIMITED
    on_limit: OnLimit = OnLimit.REJECT


@dataclass(frozen=True, slots=True)
class UserKey:
    """One place to read the user of a controller's pod: the first that is there counts."""

    source: UserSource
    key: str


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds where a team says nothing. `user_from` defaults to the annotation that Kubeflow profiles carry."""

    unknown_team: UnknownTeam = UnknownTeam.REJECT
    user_from: tuple[UserKey, ...] = (UserKey(UserSource.NAMESPACE_ANNOTATION, "owner"),)


@dataclass(frozen=True, slots=True)
class Pool:
    """A set of nodes that belong together.

    `teams` is None where every team may enter. A pod that `match` selects goes to this pool and nowhere else; a pool
    with `match` takes no other pods.
    """

    name: PoolName
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[Requirement, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    capabilities: frozenset[str] = frozenset()
    teams: frozenset[TeamName] | None = None
    match: LabelSelector | None = None

    def admits(self, team: TeamName) -> bool:
        """Tell whether a team may enter."""
        return self.teams is None or team in self.teams


@dataclass(frozen=True, slots=True)
class PlacementRules:
    """How pods are sent to nodes; `keep_whole` wholly free nodes are kept from small pods while there is a choice."""

    mode: Mode = Mode.AUTO
    keep_whole: int = 0


class ReclaimCost(StrEnum):
    """What victims are chosen by: the fewest gangs broken, GPUs freed beyond need, work lost, and so on."""

    GANGS = "gangs"
    SURPLUS = "surplus"
    LOST_WORK = "lostWork"
    OVER_SHARE = "overShare"
    AGE = "age"


@dataclass(frozen=True, slots=True)
class ReclaimRules:
    """When and how borrowed GPUs are taken back; read by the evictor. `order` names what counts first.

    `evictions_per_minute` bounds how many pods each team may lose.
    """

    order: tuple[ReclaimCost, ...] = tuple(ReclaimCost)
    evictions_per_minute: Limit = UNLIMITED
    notice_seconds: int = 0
    minimum_runtime_seconds: int = 0
    protected_namespaces: tuple[str, ...] = ()
    protected_selectors: tuple[LabelSelector, ...] = ()


BUILT_IN_RESOURCES: Mapping[ResourceName, int] = {
    ResourceName(name): ONE_GPU for name in ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "google.com/tpu")
}


@dataclass(frozen=True, slots=True)
class Policy:
    """The merged policy folder. `hash` names its content: equal hashes, equal policies."""

    teams: tuple[Team, ...] = ()
    defaults: Defaults = Defaults()
    pools: tuple[Pool, ...] = ()
    placement: PlacementRules = PlacementRules()
    reclaim: ReclaimRules = ReclaimRules()
    resources: Mapping[ResourceName, int] = field(default_factory=lambda: BUILT_IN_RESOURCES)
    priority_classes: Mapping[Tier, str] = field(default_factory=dict)
    exempt_namespaces: tuple[str, ...] = ()
    hash: str = ""

    def team(self, name: TeamName) -> Team | None:
        """Find a team by name."""
        return next((team for team in self.teams if team.name == name), None)
