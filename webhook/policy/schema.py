"""The policy file format, field by field: what editors complete, what is checked on its own, without other files.

Class docstrings and descriptions end up in policies/schema.json, which editors show; keep them in step with
policies/README.md. Checks that need another part or another file are in validate.py.
"""

from fractions import Fraction
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    RootModel,
    Strict,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from webhook.core.model.amount import ONE_GPU, UNLIMITED, exceeds, format_gpus, format_limit, gpus_text
from webhook.core.model.policy import (
    DeviceAccess,
    Enforcement,
    MigWeight,
    Mode,
    OnLimit,
    ReclaimCost,
    UnknownGpu,
    UnknownTeam,
    UnknownUser,
    UserSource,
)
from webhook.core.model.selector import Effect, Operator
from webhook.policy.field_types import (
    Bytes,
    ClassName,
    Cores,
    GpuLimit,
    Gpus,
    GracePeriod,
    HostPath,
    Key,
    LabelValue,
    Name,
    NamespaceGlob,
    ResourceKey,
    Seconds,
    SecondsLimit,
    TeamRef,
    Text,
)
from webhook.policy.problems import described
from webhook.policy.spec import Spec as _Spec
from webhook.policy.values import any_label_value, is_integer, not_queue
from webhook.policy.workloads import Workloads

API_VERSION: Final = "fairgate.dev/v1alpha1"
KIND: Final = "Policy"


class Share(_Spec):
    """A share of GPUs: whole GPUs, decimals or fractions."""

    guaranteed: Gpus = Field(default=0, description="GPUs the team always gets back from borrowers.")
    limit: GpuLimit = Field(default=UNLIMITED, description="Hard cap, borrowing included; or the word unlimited.")

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        if exceeds(self.guaranteed, self.limit):
            told = f"guaranteed {format_gpus(self.guaranteed)} is more than limit {format_limit(self.limit)}"
            raise ValueError(f"{told}; raise the limit or lower the guaranteed share")
        return self


class Cap(_Spec):
    """A hard cap."""

    limit: GpuLimit = Field(description="At most so many GPUs; or the word unlimited.")


class Expression(_Spec):
    """One condition on a label."""

    allowed: ClassVar[tuple[Operator, ...]] = tuple(Operator)

    key: Key = Field(description="The label's key.")
    operator: Operator = Field(description="How the label's value is compared.")
    values: list[Text] = Field(
        default=[],
        description="In, NotIn: at least one value. Gt, Lt: one integer, quoted. Exists, DoesNotExist: none.",
    )

    @model_validator(mode="after")
    def _has_fitting_values(self) -> Self:
        if self.operator not in self.allowed:
            known = ", ".join(self.allowed)
            raise ValueError(f"operator {self.operator} is for node affinity only; a label selector knows {known}")
        match self.operator:
            case Operator.IN | Operator.NOT_IN:
                if not self.values:
                    raise ValueError(f"operator {self.operator} needs at least one value")
                for value in self.values:
                    any_label_value(value)
            case Operator.EXISTS | Operator.DOES_NOT_EXIST:
                if self.values:
                    raise ValueError(f"operator {self.operator} takes no values; use In to compare values")
            case Operator.GT | Operator.LT:
                if len(self.values) != 1 or not is_integer(self.values[0]):
                    raise ValueError(f'operator {self.operator} needs exactly one integer value, such as ["75000"]')
        return self


class SelectorExpression(Expression):
    """One condition on a label of a label selector, which knows no Gt and Lt."""

    allowed: ClassVar[tuple[Operator, ...]] = (
        Operator.IN,
        Operator.NOT_IN,
        Operator.EXISTS,
        Operator.DOES_NOT_EXIST,
    )


class Selector(_Spec):
    """A Kubernetes label selector: everything named must hold."""

    match_labels: dict[Key, LabelValue] = Field(default={}, description="Labels with exactly these values.")
    match_expressions: list[SelectorExpression] = Field(default=[], description="Further conditions on labels.")

    @model_validator(mode="after")
    def _selects_something(self) -> Self:
        if not self.match_labels and not self.match_expressions:
            raise ValueError("an empty selector would select everything; name at least one label")
        return self


class Team(_Spec):
    """A team: whose namespaces it owns and what share of the GPUs it has."""

    name: TeamRef = Field(description="Unique name; becomes the label fairgate.dev/team of the team's pods.")
    namespace_selector: Selector | None = Field(
        default=None, description="Namespaces of the team by their labels, besides those named."
    )
    namespaces: list[NamespaceGlob] = Field(
        default=[], validate_default=True, description="Namespaces of the team: names, or globs (* and ?)."
    )
    gpus: Share = Field(default=Share(), description="The team's share of all GPUs.")
    models: dict[Name, Share] = Field(
        default={}, description="Shares per GPU model, by the value of the node label that names it."
    )
    per_pod: Cap | None = Field(default=None, description="The most that one pod may ask for.")
    per_user: Cap | None = Field(default=None, description="The most that one user may hold in this team.")
    on_limit: Annotated[OnLimit, BeforeValidator(not_queue)] = Field(
        default=OnLimit.REJECT, description="What happens to a pod over a limit. Only reject in this version."
    )

    # Checks of fields, not of the model: pydantic skips the latter when any field is bad, and hides a problem until
    # the next run. `info.data` holds the fields above that are good.
    @field_validator("namespaces")
    @classmethod
    def _owns_namespaces(cls, namespaces: list[str], info: ValidationInfo) -> list[str]:
        if not namespaces and info.data.get("namespace_selector", "bad") is None:
            raise ValueError("a team needs namespaces or a namespaceSelector, or no pod can ever be its own")
        return namespaces

    @field_validator("models")
    @classmethod
    def _promises_what_fits(cls, models: dict[str, Share], info: ValidationInfo) -> dict[str, Share]:
        whole: Share | None = info.data.get("gpus")
        promised = sum(share.guaranteed for share in models.values())
        if whole is not None and exceeds(promised, whole.limit):
            told = f"models guarantee {format_gpus(promised)} together, but the team's limit is"
            raise ValueError(f"{told} {format_limit(whole.limit)}; such a promise cannot be kept")
        return models


class UserKey(_Spec):
    """One place where the user behind a controller's pod is read: exactly one of these."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    namespace_annotation: Key | None = Field(default=None, description="An annotation of the pod's namespace.")
    namespace_label: Key | None = Field(default=None, description="A label of the pod's namespace.")
    pod_annotation: Key | None = Field(default=None, description="An annotation of the pod.")
    pod_label: Key | None = Field(default=None, description="A label of the pod.")

    @model_validator(mode="after")
    def _names_one_place(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError(f"expected exactly one of {', '.join(UserSource)}; make each its own list item")
        return self

    def place(self) -> tuple[UserSource, str]:
        """Return the one place that is named."""
        (name,) = self.model_fields_set
        return UserSource(to_camel(name)), str(getattr(self, name))


class Defaults(_Spec):
    """What holds where a team says nothing."""

    unknown_team: UnknownTeam = Field(
        default=UnknownTeam.REJECT,
        description="Namespaces that no team claims: reject, or preemptible (may borrow, guaranteed nothing).",
    )
    unknown_gpu: UnknownGpu = Field(
        default=UnknownGpu.REJECT,
        description="Pods that ask for a resource that looks like a GPU and is not in resources: reject, or ignore it.",
    )
    device_access: DeviceAccess = Field(
        default=DeviceAccess.WARN,
        description="Pods that may reach GPUs which they do not ask for: reject, warn, or ignore them.",
    )
    host_paths: list[HostPath] = Field(
        default=[],
        description="Paths of nodes that pods may mount all the same, where deviceAccess warns or rejects.",
    )
    mig: MigWeight = Field(
        default=MigWeight.COMPUTE,
        description="What MIG profiles count: their compute slices, or the larger of compute and memory slices.",
    )
    share_schedulers: list[ClassName] | None = Field(
        default=None,
        description="Schedulers that place shares of GPUs as HAMi does: their pods count the share, others whole GPUs. "
        "Default: hami-scheduler where resources weighs one of HAMi's names, else none.",
    )
    user_from: list[UserKey] = Field(
        default=[UserKey(namespaceAnnotation="owner")],
        description="Where the user behind a controller's pod is read; the first that is there counts.",
    )
    unknown_user: UnknownUser = Field(default=UnknownUser.IGNORE, description="Controllers' pods of no known user.")
    maximum_grace_period: GracePeriod = Field(default=600, description="The longest of GPU pods: 30s to 24h.")
    retry_refused: bool = Field(
        default=True,
        description="Have controllers whose pods were refused try again once there is room, by an annotation.",
    )


class Toleration(_Spec):
    """A Kubernetes toleration."""

    key: Key | None = Field(default=None, description="The taint's key; left out (with Exists): every taint.")
    operator: Literal["Equal", "Exists"] = Field(default="Equal", description="Compare the value, or take any.")
    value: LabelValue = Field(default="", description="The taint's value, for Equal.")
    effect: Effect | None = Field(default=None, description="The taint's effect; left out: every effect.")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.operator == "Exists" and self.value:
            raise ValueError(f"operator Exists takes no value; drop value {described(self.value)} or use Equal")
        if self.operator == "Equal" and self.key is None:
            raise ValueError("operator Equal needs a key; use Exists to tolerate every taint")
        return self


class Match(_Spec):
    """Which pods belong in a pool and nowhere else."""

    pod_selector: Selector = Field(description="Pods by their labels.")


class Pool(_Spec):
    """A set of nodes that belong together."""

    name: Name = Field(description="Unique name; users pin to it with the annotation fairgate.dev/pool.")
    node_selector: dict[Key, LabelValue] = Field(default={}, description="Labels that the pool's nodes carry.")
    affinity: list[Expression] = Field(default=[], description="Further conditions on node labels; all must hold.")
    tolerations: list[Toleration] = Field(default=[], description="Added to pods that are sent to the pool.")
    capabilities: list[Name] = Field(
        default=[], description="What the pool offers to pods that ask with the annotation fairgate.dev/requires."
    )
    teams: Annotated[list[TeamRef], Field(min_length=1)] | None = Field(
        default=None, description="Teams that may enter; left out: every team."
    )
    match: Match | None = Field(default=None, description="Pods that go here and nowhere else; others stay out.")
    autoscaled: Annotated[bool, Strict()] = Field(
        default=False, description="An autoscaler adds nodes: pods wait there for a node instead of being refused."
    )


class KeepWhole(_Spec):
    """Whole nodes kept free of small pods."""

    nodes: Annotated[int, Strict(), Field(ge=0, le=100_000)] = Field(
        description="Wholly free nodes to keep while there is a choice."
    )


class ExpectedPod(_Spec):
    """A size of pod that is expected, before Fairgate has seen what comes."""

    gpus: Gpus = Field(description="GPUs of one pod: whole ones, or a share of one, such as 0.5.")
    cpu: Cores = Field(default=0, description="cpu that it asks for, such as 8 or 500m.")
    memory: Bytes = Field(default=0, description="Memory that it asks for, such as 64Gi.")
    weight: Annotated[int, Strict(), Field(ge=1, le=1_000_000)] = Field(
        default=1, description="How often it comes, in proportion to the others."
    )

    @field_validator("gpus")
    @classmethod
    def _is_a_number_of_devices(cls, gpus: int) -> int:
        if not gpus or (gpus > ONE_GPU and gpus % ONE_GPU):
            raise ValueError(f"expected whole GPUs or a share of one, got {gpus_text(gpus)}")
        return gpus


class Placement(_Spec):
    """How pods are sent to nodes."""

    mode: Mode = Field(
        default=Mode.AUTO,
        description="auto: the best few nodes by name; require: the best one; prefer: soft; off: no choice.",
    )
    keep_whole: KeepWhole = Field(default=KeepWhole(nodes=0), description="Whole nodes kept free of small pods.")
    demand_mix: Annotated[list[ExpectedPod], Field(max_length=100)] = Field(
        default=[], description="Sizes of pods to keep room for until enough have come; left out: 1, 2, 4 and 8 GPUs."
    )


Protected = Annotated[
    Annotated[NamespaceGlob, Tag("a namespace")] | Annotated[Selector, Tag("a selector")],
    Discriminator(lambda value: "a selector" if isinstance(value, dict | Selector) else "a namespace"),
]
UNION_TAGS: Final = frozenset({"a namespace", "a selector"})


class Reclaim(_Spec):
    """When and how borrowed GPUs are taken back."""

    notice: Seconds = Field(default=0, description="Warning before an eviction, for a checkpoint: 30s, 10m, 1h30m.")
    minimum_runtime: Seconds = Field(default=0, description="Borrowing pods run at least this long.")
    budgets: SecondsLimit = Field(
        default="5m",
        validate_default=True,
        description="How long a waiting pod respects the PodDisruptionBudgets of borrowing pods, which are deleted "
        "then; or the word unlimited.",
    )
    protect: list[Protected] = Field(
        default=[], description="Never victims: namespaces (names or globs), or selectors of pods by their labels."
    )
    order: list[ReclaimCost] = Field(
        default=[],
        description="What victims are chosen by, the first counts most; what is not named follows in the usual order.",
    )
    max_evictions_per_minute: Annotated[int, Strict(), Field(ge=1, le=100_000)] | None = Field(
        default=None, description="Pods that each team may lose in a minute. Left out: as many as it takes."
    )


class Resource(_Spec):
    """What one piece of a resource counts: exactly one of these."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    gpus: Gpus | None = Field(
        default=None, description='GPUs that one piece counts, such as 1 or "1/7"; 0: it is known and counts nothing.'
    )
    per_gpu: Annotated[int, Strict(), Field(ge=1, le=1_000_000_000)] | None = Field(
        default=None, description="Pieces that make one GPU: its memory in the resource's unit, or its replicas."
    )

    @model_validator(mode="after")
    def _says_one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError("expected exactly one of gpus (of one piece) and perGpu (pieces of one GPU)")
        return self

    def weight(self) -> int | Fraction:
        """Return the GPU units of one piece."""
        if self.per_gpu is None:
            return self.gpus or 0
        exact = Fraction(ONE_GPU, self.per_gpu)
        return exact.numerator if exact.denominator == 1 else exact


class PriorityClasses(_Spec):
    """Priority classes to set by tier. Left out: priorities are not touched."""

    guaranteed: ClassName | None = Field(default=None, description="PriorityClass of guaranteed pods.")
    preemptible: ClassName | None = Field(default=None, description="PriorityClass of preemptible pods.")


class Exempt(_Spec):
    """What Fairgate leaves alone, but counts."""

    namespaces: list[NamespaceGlob] = Field(default=[], description="Namespaces: names, or globs (* and ?).")


class Enforce(RootModel[Enforcement]):
    """How far Fairgate goes."""


class PolicyFile(_Spec):
    """A Fairgate policy file. Any section may be in any file; the folder is merged."""

    api_version: Literal["fairgate.dev/v1alpha1"] = Field(description="The version of this format.")
    kind: Literal["Policy"] = Field(description="Always Policy.")
    enforce: Enforcement = Field(
        default=Enforcement.ENFORCE,
        description="off: nothing; shadow: judge and record; warn: warn users, too; enforce: refuse, label and place.",
    )
    teams: list[Team] = Field(default=[], description="The teams and their shares.")
    defaults: Defaults = Field(default=Defaults(), description="What holds where a team says nothing.")
    pools: list[Pool] = Field(default=[], description="Sets of nodes; none: all nodes are one pool.")
    placement: Placement = Field(default=Placement(), description="How pods are sent to nodes.")
    reclaim: Reclaim = Field(default=Reclaim(), description="When and how borrowed GPUs are taken back.")
    resources: dict[ResourceKey, Resource] = Field(
        default={}, description="What counts as how much GPU, besides the built-in resources."
    )
    priority_classes: PriorityClasses = Field(default=PriorityClasses(), description="Priority classes by tier.")
    exempt: Exempt = Field(default=Exempt(), description="What Fairgate leaves alone, but counts.")
    workloads: Workloads = Field(default=Workloads(), description="How objects that make pods are judged as a whole.")
