"""The schema of a policy file, and as JSON Schema.

The policy file format, field by field: what editors complete, and what is checked without other files.

Class docstrings and descriptions end up in policies/schema.json, which editors show, and in the tables of
policies/README.md. Checks that need another part or another file are in validate.py.
"""

from fractions import Fraction
from typing import Annotated, Any, Final, Literal, Self

from pydantic import ConfigDict, Field, RootModel, Strict, field_validator, model_validator

from webhook.core.model.amounts import ONE_GPU, gpus_text
from webhook.core.model.constraints import MAX_LEVELS
from webhook.core.model.policy import OPERATOR_NAMESPACES, Enforcement, Mode, ReclaimCost
from webhook.policy.addons import Idle, Notify
from webhook.policy.sections import Expression, Protected, Selector, Toleration, Workloads
from webhook.policy.teams import Defaults, Department, Team
from webhook.policy.values import (
    Bytes,
    ClassName,
    Cores,
    DailyWindow,
    GangTimeout,
    Gpus,
    Key,
    LabelValue,
    MovesPerHour,
    Name,
    NamespaceGlob,
    QueueDepth,
    ResourceKey,
    Seconds,
    SecondsLimit,
    Spec,
    TeamRef,
    TimeZone,
)

API_VERSION: Final = "fairgate.dev/v1alpha1"
KIND: Final = "Policy"


class Match(Spec):
    """The pods that may run only in this pool."""

    pod_selector: Selector = Field(description="Pods by their labels.")


class Pool(Spec):
    """A set of nodes with its own rules."""

    name: Name = Field(description="Unique name; users select it with the annotation fairgate.dev/pool.")
    node_selector: dict[Key, LabelValue] = Field(default={}, description="Labels of the pool's nodes.")
    affinity: list[Expression] = Field(default=[], description="Further conditions on node labels; all must hold.")
    tolerations: list[Toleration] = Field(default=[], description="Added to pods that are placed in the pool.")
    capabilities: list[Name] = Field(
        default=[],
        description="What the pool provides for pods that require it by the annotation fairgate.dev/requires.",
    )
    teams: Annotated[list[TeamRef], Field(min_length=1)] | None = Field(
        default=None, description="Teams that may use the pool. Default: every team."
    )
    match: Match | None = Field(default=None, description="Pods that may run only in this pool; no other pods may.")
    autoscaled: Annotated[bool, Strict()] | None = Field(
        default=None,
        description="Whether an autoscaler adds nodes: pods wait for a new node instead of being refused. Default: as "
        "found in the cluster.",
    )


class KeepWhole(Spec):
    """Whole nodes kept free of small pods."""

    nodes: Annotated[int, Strict(), Field(ge=0, le=100_000)] = Field(
        description="Number of completely free nodes to keep while other nodes have room."
    )


class ExpectedPod(Spec):
    """A size of pod that is expected, used until Fairgate has seen enough pods."""

    gpus: Gpus = Field(description="GPUs of one pod: whole GPUs, or a share of one, such as 0.5.")
    cpu: Cores = Field(default=0, description="cpu request, such as 8 or 500m.")
    memory: Bytes = Field(default=0, description="Memory request, such as 64Gi.")
    weight: Annotated[int, Strict(), Field(ge=1, le=1_000_000)] = Field(
        default=1, description="Relative frequency of this size."
    )

    @field_validator("gpus")
    @classmethod
    def _is_a_number_of_devices(cls, gpus: int) -> int:
        if not gpus or (gpus > ONE_GPU and gpus % ONE_GPU):
            raise ValueError(f"expected whole GPUs or a share of one, got {gpus_text(gpus)}")
        return gpus


class Placement(Spec):
    """How nodes are chosen for pods."""

    mode: Mode = Field(
        default=Mode.AUTO,
        description="auto: the best few nodes by name; require: the best one; prefer: a preference; off: none.",
    )
    pod_groups: Mode = Field(
        default=Mode.OFF,
        description="The mode for pods of PodGroups of Kubernetes (spec.schedulingGroup), which kube-scheduler places "
        "together.",
    )
    keep_whole: KeepWhole = Field(default=KeepWhole(nodes=0), description="Whole nodes kept free of small pods.")
    demand_mix: Annotated[list[ExpectedPod], Field(max_length=100)] = Field(
        default=[],
        description="Sizes of pods to keep room for until enough pods were seen. Default: 1, 2, 4 and 8 GPUs.",
    )


UNION_TAGS: Final = frozenset({"a namespace", "a selector"})


class Reclaim(Spec):
    """When and how borrowed GPUs are reclaimed."""

    notice: Seconds = Field(
        default=0, description="Time between warning and eviction, for a checkpoint: 30s, 10m, 1h30m."
    )
    minimum_runtime: Seconds = Field(default=0, description="Borrowing pods run at least this long.")
    budgets: SecondsLimit = Field(
        default="5m",
        validate_default=True,
        description="How long PodDisruptionBudgets of borrowing pods are respected while a pod waits; then the pods "
        "are deleted. Or the word unlimited.",
    )
    start_within: SecondsLimit = Field(
        default="24h",
        validate_default=True,
        description="A charged pod that something else than room keeps off every node for so long, such as a volume "
        "that does not exist, is deleted. Or the word unlimited.",
    )
    protect: list[Protected] = Field(
        default=[], description="Never victims: namespaces (names or globs), or selectors of pods by their labels."
    )
    order: list[ReclaimCost] = Field(
        default=[],
        description="The criteria for choosing victims, most important first; the others follow in default order.",
    )
    max_evictions_per_minute: Annotated[int, Strict(), Field(ge=1, le=100_000)] | None = Field(
        default=None, description="Maximum number of each team's pods evicted in a minute. Default: no maximum."
    )


class Defragment(Spec):
    """When running pods are moved to make room on one node, and how many. Default: none are."""

    on_demand: bool = Field(
        default=False,
        description="Move pods where that lets a waiting pod or gang start for which enough GPUs are free, but not on "
        "one node or in one domain.",
    )
    window: DailyWindow | None = Field(
        default=None,
        description="Time of day in which pods are moved so that the largest possible pod grows: 02:00-05:00.",
    )
    time_zone: TimeZone = Field(default="UTC", description="Time zone of the window: Europe/Berlin.")
    moves_per_hour: MovesPerHour = Field(default=10, description="Maximum number of moves in an hour.")
    moves_per_workload: MovesPerHour = Field(
        default=1, description="Maximum number of moves of one controller's pods in an hour."
    )
    lost_per_gpu: SecondsLimit = Field(
        default="1h",
        validate_default=True,
        description="Maximum GPU time of work that is done again, per GPU of the room that is made. Or the word "
        "unlimited.",
    )
    minimum_runtime: Seconds = Field(default=600, description="Pods run at least this long before they are moved.")
    notice: Seconds | None = Field(
        default=None, description="Time between warning and eviction. Default: the notice of reclaim."
    )


class Queue(Spec):
    """How pods wait with `onLimit: queue` or `onNoRoom: queue`, and in which order they start."""

    depth: QueueDepth = Field(default=1000, description="The maximum number of each team's pods in the queue.")
    half_life: Seconds = Field(
        default=0,
        description="Past borrowing counts in the order of teams, and half as much after this time. 0s: it does not.",
    )
    strict_after: SecondsLimit = Field(
        default="10m",
        validate_default=True,
        description="How long smaller pods may pass a pod that waits for a limit. Or the word unlimited.",
    )
    gang_timeout: GangTimeout = Field(
        default="5m",
        validate_default=True,
        description="How long the pods of a gang may take to come, and how long room is reserved for those that come "
        "after the first ones run.",
    )
    hold_back: SecondsLimit = Field(
        default="24h",
        validate_default=True,
        description="How long a pod that finds no room holds back those behind it. Or the word unlimited.",
    )


class Topology(Spec):
    """Domains of nodes, such as racks, in which gangs are placed together."""

    levels: Annotated[list[Key], Field(max_length=MAX_LEVELS)] = Field(
        default=[],
        description="Keys of node labels, the largest domains first, such as topology.kubernetes.io/zone and "
        "example.com/rack. A gang that starts whole is placed in the smallest domain that holds it.",
    )

    @field_validator("levels")
    @classmethod
    def _are_different(cls, levels: list[str]) -> list[str]:
        if twice := next((key for number, key in enumerate(levels) if key in levels[:number]), None):
            raise ValueError(f"{twice} is listed twice; keep one")
        return levels


class Resource(Spec):
    """How many GPUs one piece of a resource counts: exactly one of these."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    gpus: Gpus | None = Field(
        default=None, description='GPUs that one piece counts, such as 1 or "1/7"; 0: known, and not a GPU.'
    )
    per_replica: Literal[True] | None = Field(
        default=None,
        description="Only for nvidia.com/gpu: a piece counts one GPU divided by the replicas that its node offers of "
        "each, by label nvidia.com/gpu.replicas (time slicing or MPS without renameByDefault).",
    )
    per_gpu: Annotated[int, Strict(), Field(ge=1, le=1_000_000_000)] | None = Field(
        default=None, description="Pieces that make one GPU: its memory in the resource's unit, or its replicas."
    )

    @model_validator(mode="after")
    def _says_one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError("expected exactly one of gpus (of one piece), perGpu (pieces of one GPU) and perReplica")
        return self

    def weight(self) -> int | Fraction:
        """Return the GPU units of one piece, of a whole GPU where it counts by replicas."""
        if self.per_replica:
            return ONE_GPU
        if self.per_gpu is None:
            return self.gpus or 0
        exact = Fraction(ONE_GPU, self.per_gpu)
        return exact.numerator if exact.denominator == 1 else exact


class PriorityClasses(Spec):
    """Priority classes to set by tier. Default: priorities are not changed."""

    guaranteed: ClassName | None = Field(default=None, description="PriorityClass of guaranteed pods.")
    preemptible: ClassName | None = Field(default=None, description="PriorityClass of preemptible pods.")


class Exempt(Spec):
    """What Fairgate does not change, but counts."""

    namespaces: list[NamespaceGlob] = Field(default=[], description="Namespaces: names, or globs (* and ?).")
    operators: bool = Field(
        default=True,
        description="Whether the namespaces of known device operators are exempt, unless a team names them: their own "
        f"pods ask for GPUs while a node comes up ({', '.join(OPERATOR_NAMESPACES)}).",
    )


class Enforce(RootModel[Enforcement]):
    """Whether Fairgate enforces the policy, or only warns or records."""


class PolicyFile(Spec):
    """A Fairgate policy file. Any section may be in any file; the folder is merged."""

    api_version: Literal["fairgate.dev/v1alpha1"] = Field(description="The version of this format.")
    kind: Literal["Policy"] = Field(description="Always Policy.")
    enforce: Enforcement = Field(
        default=Enforcement.ENFORCE,
        description="off: nothing; shadow: decide and record; warn: also warn users; enforce: refuse, label and place.",
    )
    teams: list[Team] = Field(default=[], description="The teams and their shares.")
    departments: list[Department] = Field(default=[], description="The tree over teams. Default: none.")
    defaults: Defaults = Field(default=Defaults(), description="Settings for what no team sets.")
    pools: list[Pool] = Field(default=[], description="Sets of nodes. Default: all nodes are one pool.")
    placement: Placement = Field(default=Placement(), description="How nodes are chosen for pods.")
    reclaim: Reclaim = Field(default=Reclaim(), description="When and how borrowed GPUs are reclaimed.")
    defragment: Defragment = Field(
        default=Defragment(), description="When running pods are moved to make room on one node, and how many."
    )
    queue: Queue = Field(default=Queue(), description="How pods wait, and in which order they start.")
    topology: Topology = Field(
        default=Topology(), description="Domains of nodes in which gangs are placed together. Default: none."
    )
    idle: Idle | None = Field(default=None, description="GPUs that pods hold and do not use. Default: not measured.")
    resources: dict[ResourceKey, Resource] = Field(
        default={}, description="How many GPUs a resource counts, in addition to the built-in resources."
    )
    priority_classes: PriorityClasses = Field(default=PriorityClasses(), description="Priority classes by tier.")
    exempt: Exempt = Field(default=Exempt(), description="What Fairgate does not change, but counts.")
    workloads: Workloads = Field(
        default=Workloads(), description="How objects that create pods are checked as a whole."
    )
    notify: Notify = Field(default=Notify(), description="Messages to people by HTTP. Default: none.")


# The JSON Schema of policy files, for editors; published as policies/schema.json.


DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of policy files, draft 2020-12."""
    return {"$schema": DIALECT, **_without_null(PolicyFile.model_json_schema(by_alias=True, mode="validation"))}


def _without_null(node: Any) -> Any:  # noqa: ANN401 - JSON
    """Remove the null that pydantic allows for optional fields: an empty field is an error (see validate.py)."""
    if isinstance(node, list):
        return [_without_null(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: _without_null(value) for key, value in node.items() if value is not None}
    members = kept.get("anyOf")
    if isinstance(members, list) and {"type": "null"} in members:
        rest = [member for member in members if member != {"type": "null"}]
        del kept["anyOf"]
        kept |= rest[0] if len(rest) == 1 else {"anyOf": rest}
    return kept
