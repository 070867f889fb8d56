"""Sections of workloads and selectors, and built-in values.

GPU resources that a policy need not list: whole GPUs, and NVIDIA's MIG profiles by their compute slices.

Profiles: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html; the resource name writes
`+me` as `.me`. A profile counts its compute slices, or the larger of these and its memory slices, as the policy says.
If several GPUs have a profile of the same name, the last in the list counts: 1g.10gb is one of the eight memory slices
of 80 GB.
"""

from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Discriminator, Field, Strict, Tag, field_validator, model_validator

from webhook.core.model.amounts import DEVICE_CLASS, ONE_GPU, ResourceName
from webhook.core.model.constraints import Effect, Operator
from webhook.core.model.demand import Weights
from webhook.core.model.policy import BUILT_IN_RESOURCES, JobEvictions, MigWeight, OnWorkloadLimit
from webhook.policy.documents import described
from webhook.policy.values import (
    ApiGroup,
    FieldPath,
    Key,
    KindName,
    LabelValue,
    NamespaceGlob,
    NumberPath,
    ResourceKey,
    ResourcePlural,
    Spec,
    Text,
    any_label_value,
    is_integer,
)

# A name does not say which GPU it is of: 1g.24gb is 1/7 of an H100 NVL or GH200 and 1/4 of an RTX PRO 6000, whose
# admins override it in `resources`.
_SEVENTHS: Final = 7
_PROFILES: Final = (
    (7, "1g.5gb 1g.5gb.me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb"),  # A100 40 GB
    (7, "1g.10gb 1g.10gb.me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"),  # A100, H100 80 GB
    (7, "1g.12gb 1g.12gb.me 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb"),  # H100 94 GB
    (7, "3g.48gb 4g.48gb 7g.96gb"),  # GH200, H20
    (7, "1g.18gb 1g.18gb.me 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb"),  # H200
    (7, "1g.23gb 1g.23gb.me 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb"),  # B200
    (7, "1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb"),  # GB200
    (7, "1g.34gb 1g.34gb.me 1g.67gb 2g.67gb 3g.135gb 4g.135gb 7g.269gb"),  # B300
    (4, "1g.6gb 1g.6gb.me 2g.12gb 2g.12gb.me 4g.24gb"),  # A30
    (4, "2g.48gb 4g.96gb"),  # RTX PRO 6000
)


_MEMORY_SLICES: Final = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
"""Memory slices (of 8) by compute slices (of 7); a GPU with four compute slices has four memory slices."""


def _mig(weighing: MigWeight) -> dict[ResourceName, int]:
    return {
        ResourceName(f"nvidia.com/mig-{profile}"): _weight(profile, slices, double, weighing)
        for slices, profiles in _PROFILES
        for double in [_double(profiles.split())]
        for profile in profiles.split()
    }


def _weight(profile: str, slices: int, double: str, weighing: MigWeight) -> int:
    compute = int(profile[0])
    weight = compute * ONE_GPU // slices
    if weighing is MigWeight.COMPUTE or slices != _SEVENTHS:
        return weight
    return max(weight, (2 if profile == double else _MEMORY_SLICES[compute]) * ONE_GPU // 8)


def _double(profiles: list[str]) -> str:
    """Return the profile of one compute slice with twice the memory; "" if a GPU has none."""
    sizes = {int(profile[3:-2]): profile for profile in profiles if profile[0] == "1" and profile.endswith("gb")}
    return sizes[max(sizes)] if len(sizes) > 1 else ""


_CLASSES: Final = ("gpu.nvidia.com", "vfio.gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com", "tpu.google.com")
"""DeviceClasses whose devices are whole GPUs. Those of MIG devices do not name a profile and have no weight."""

BUILT_IN: Final[Weights] = {
    **BUILT_IN_RESOURCES,
    **{ResourceName(DEVICE_CLASS + name): ONE_GPU for name in _CLASSES},
    **_mig(MigWeight.COMPUTE),
    # HAMi: hundredths of a device's memory and cores (see shares.py)
    ResourceName("nvidia.com/gpumem-percentage"): ONE_GPU // 100,
    ResourceName("nvidia.com/gpucores"): ONE_GPU // 100,
    # gpushare: the number of a node's devices; pods request, and are charged for, memory
    ResourceName("aliyun.com/gpu-count"): 0,
}
"""GPU units of one piece of each built-in resource; 0: not a GPU, although its name looks like one."""


def built_in(mig: MigWeight) -> Weights:
    """Return the weights of the built-in resources, with MIG profiles weighed as `mig` says."""
    return {**BUILT_IN, **_mig(mig)}


# Parts of a policy file with Kubernetes' own syntax: label selectors, node affinity, tolerations. See schema.py.


class Expression(Spec):
    """A condition on a label."""

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
            raise ValueError(f"operator {self.operator} is for node affinity only; label selectors support {known}")
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
    """A condition of a label selector, which does not support Gt and Lt."""

    allowed: ClassVar[tuple[Operator, ...]] = (
        Operator.IN,
        Operator.NOT_IN,
        Operator.EXISTS,
        Operator.DOES_NOT_EXIST,
    )


class Selector(Spec):
    """A Kubernetes label selector: all conditions must hold."""

    match_labels: dict[Key, LabelValue] = Field(default={}, description="Labels with exactly these values.")
    match_expressions: list[SelectorExpression] = Field(default=[], description="Further conditions on labels.")

    @model_validator(mode="after")
    def _selects_something(self) -> Self:
        if not self.match_labels and not self.match_expressions:
            raise ValueError("an empty selector would select everything; give at least one label")
        return self


class Toleration(Spec):
    """A Kubernetes toleration."""

    key: Key | None = Field(default=None, description="The taint's key. Default (with Exists): every taint.")
    operator: Literal["Equal", "Exists"] = Field(default="Equal", description="Compare the value, or accept any.")
    value: LabelValue = Field(default="", description="The taint's value, for Equal.")
    effect: Effect | None = Field(default=None, description="The taint's effect. Default: every effect.")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.operator == "Exists" and self.value:
            raise ValueError(f"operator Exists takes no value; remove value {described(self.value)} or use Equal")
        if self.operator == "Equal" and self.key is None:
            raise ValueError("operator Equal needs a key; use Exists to tolerate every taint")
        return self


Protected = Annotated[
    Annotated[NamespaceGlob, Tag("a namespace")] | Annotated[Selector, Tag("a selector")],
    Discriminator(lambda value: "a selector" if isinstance(value, dict | Selector) else "a namespace"),
]


# The section `workloads` of a policy file: objects that create pods. Part of the schema, see schema.py.


class WorkloadPods(Spec):
    """Where objects of a kind have the pods of one role."""

    role: Text = Field(default="", description="The role of these pods. Default: the name of the entry.")
    each: FieldPath | None = Field(
        default=None, description="A list or mapping whose entries each have such pods; the paths below start there."
    )
    template: FieldPath | None = Field(default=None, description="The pod template, or a bare pod spec.")
    resources: FieldPath | None = Field(
        default=None,
        description="Where there is no template, what a pod requests: limits and requests, amounts by resource, or a "
        "number.",
    )
    resource: ResourceKey = Field(
        default="nvidia.com/gpu", description="The resource that a plain number, or the key gpu, counts there."
    )
    replicas: list[NumberPath] = Field(
        default=[],
        description="Numbers whose product is the count. Those with `$.` before them start from the object, not from "
        "`each`; one with `-1` after it counts one less. Default: one pod.",
    )
    maximum: NumberPath | None = Field(
        default=None, description="The maximum of an autoscaler: the first of `replicas` counts no less."
    )
    default: Annotated[int, Strict(), Field(ge=0, le=1_000_000)] | None = Field(
        default=None, description="The value of a number that the object does not set. Default: unknown."
    )

    @model_validator(mode="after")
    def _says_what_a_pod_requests(self) -> "WorkloadPods":
        if (self.template is None) is (self.resources is None):
            raise ValueError("write template where the object has pods, or resources where it has none: one of both")
        return self


class WorkloadKind(Spec):
    """A kind of object that creates pods."""

    group: ApiGroup = Field(description="Its API group: the part of apiVersion before the slash.")
    kind: KindName = Field(description="Its kind.")
    resource: ResourcePlural = Field(description="Its name in the API's URLs, such as pytorchjobs.")
    gang: bool = Field(default=False, description="Whether its pods run only together.")
    pods: Annotated[list[WorkloadPods], Field(min_length=1)] = Field(description="Where it has its pods.")


class Workloads(Spec):
    """How objects that create pods are checked as a whole."""

    on_limit: OnWorkloadLimit = Field(
        default=OnWorkloadLimit.WARN,
        description="What happens to an object whose pods together exceed a limit: warn or reject.",
    )
    job_evictions: JobEvictions = Field(
        default=JobEvictions.IGNORE,
        description="ignore: Jobs with GPUs get a podFailurePolicy rule that ignores evictions; count: they do not.",
    )
    kinds: list[WorkloadKind] = Field(default=[], description="Kinds besides the built-in ones.")

    @field_validator("kinds")
    @classmethod
    def _names_each_once(cls, kinds: list[WorkloadKind]) -> list[WorkloadKind]:
        named = [(kind.group, kind.kind) for kind in kinds]
        twice = next((name for name in named if named.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"kind {twice[1]} of {twice[0]} appears twice; keep one")
        return kinds
