"""The section `workloads` of a policy file: objects that create pods. Part of the schema, see schema.py."""

from typing import Annotated

from pydantic import Field, Strict, field_validator, model_validator

from webhook.core.model.workload_rules import JobEvictions, OnWorkloadLimit
from webhook.policy.field_types import ApiGroup, FieldPath, KindName, NumberPath, ResourceKey, ResourcePlural, Text
from webhook.policy.spec import Spec


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
