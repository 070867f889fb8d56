"""Sections of teams and departments.

The sections `teams` and `defaults` of a policy file. Part of the schema, see schema.py.
"""

from typing import Annotated, Self

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic.alias_generators import to_camel

from webhook.core.model.amounts import UNLIMITED, Limit, exceeds, format_gpus, format_limit
from webhook.core.model.policy import (
    DeviceAccess,
    MigWeight,
    OnLimit,
    OnNoRoom,
    UnknownGpu,
    UnknownTeam,
    UnknownUser,
    UserSource,
)
from webhook.policy.addons import IdleOfTeam
from webhook.policy.sections import Selector
from webhook.policy.values import (
    ClassName,
    GpuLimit,
    Gpus,
    GracePeriod,
    HostPath,
    Key,
    Name,
    NamespaceGlob,
    QueueDepth,
    Spec,
    TeamRef,
    Weight,
    one_department,
)


def check_order(guaranteed: int, limit: Limit) -> None:
    """Refuse a limit below the guaranteed share."""
    if exceeds(guaranteed, limit):
        shares = f"guaranteed {format_gpus(guaranteed)} is more than limit {format_limit(limit)}"
        raise ValueError(f"{shares}; raise the limit or lower the guaranteed share")


class Share(Spec):
    """A share of GPUs: whole GPUs, decimals or fractions."""

    guaranteed: Gpus = Field(default=0, description="GPUs that the team always gets back from borrowers.")
    limit: GpuLimit = Field(default=UNLIMITED, description="Hard cap, borrowing included; or the word unlimited.")

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        check_order(self.guaranteed, self.limit)
        return self


class Cap(Spec):
    """A hard cap."""

    limit: GpuLimit = Field(description="The maximum number of GPUs; or the word unlimited.")


class Team(Spec):
    """A team: its namespaces and its share of the GPUs."""

    name: TeamRef = Field(description="Unique name; the value of the label fairgate.dev/team on the team's pods.")
    namespace_selector: Selector | None = Field(
        default=None, description="Namespaces of the team by their labels, in addition to those listed."
    )
    namespaces: list[NamespaceGlob] = Field(
        default=[], validate_default=True, description="Namespaces of the team: names, or globs (* and ?)."
    )
    gpus: Share = Field(default=Share(), description="The team's share of all GPUs.")
    models: dict[Name, Share] = Field(
        default={}, description="Shares per GPU model, by the value of the node label for the model."
    )
    per_pod: Cap | None = Field(default=None, description="The maximum that one pod may request.")
    per_user: Cap | None = Field(default=None, description="The maximum that one user may hold in this team.")
    weight: Weight = Field(
        default=1, description="The team's part of the GPUs that are borrowed, relative to the weights of other teams."
    )
    on_limit: OnLimit | None = Field(
        default=None,
        description="A pod over a limit: reject, or queue (it waits until pods end). Default: defaults.onLimit.",
    )
    on_no_room: OnNoRoom | None = Field(
        default=None,
        description="A pod without room: wait (charged, in kube-scheduler), or queue. Default: defaults.onNoRoom.",
    )
    queue_depth: QueueDepth | None = Field(
        default=None, description="The maximum number of the team's pods in the queue. Default: queue.depth."
    )
    idle: IdleOfTeam | None = Field(default=None, description="The team's own terms of idle GPUs. Default: idle.")

    department: Annotated[Name, BeforeValidator(one_department)] | None = Field(
        default=None, description="The department that the team belongs to. Default: none."
    )

    # Validators of fields, not of the model: pydantic skips the latter if any field is invalid, which would hide a
    # problem until the next run. `info.data` has the valid fields above.
    @field_validator("namespaces")
    @classmethod
    def _owns_namespaces(cls, namespaces: list[str], info: ValidationInfo) -> list[str]:
        if not namespaces and info.data.get("namespace_selector", "bad") is None:
            raise ValueError("a team needs namespaces or a namespaceSelector; without them no pod can belong to it")
        return namespaces

    @field_validator("models")
    @classmethod
    def _guarantees_fit_limit(cls, models: dict[str, Share], info: ValidationInfo) -> dict[str, Share]:
        total: Share | None = info.data.get("gpus")
        guaranteed = sum(share.guaranteed for share in models.values())
        if total is not None and exceeds(guaranteed, total.limit):
            limit = f"but the team's limit is {format_limit(total.limit)}"
            raise ValueError(f"models guarantee {format_gpus(guaranteed)} together, {limit}; raise it or lower them")
        return models


class UserKey(Spec):
    """One source of the user of a controller's pod: exactly one of these."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    namespace_annotation: Key | None = Field(default=None, description="An annotation of the pod's namespace.")
    namespace_label: Key | None = Field(default=None, description="A label of the pod's namespace.")
    pod_annotation: Key | None = Field(default=None, description="An annotation of the pod.")
    pod_label: Key | None = Field(default=None, description="A label of the pod.")

    @model_validator(mode="after")
    def _names_one_place(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError(f"expected exactly one of {', '.join(UserSource)}; write each as its own list item")
        return self

    def place(self) -> tuple[UserSource, str]:
        """Return the one source that is set."""
        (name,) = self.model_fields_set
        return UserSource(to_camel(name)), str(getattr(self, name))


class Defaults(Spec):
    """Settings for what no team sets."""

    on_limit: OnLimit = Field(
        default=OnLimit.REJECT,
        description="A pod over a limit that other pods use up: reject, or queue (it waits until pods end).",
    )
    on_no_room: OnNoRoom = Field(
        default=OnNoRoom.WAIT,
        description="A pod inside its limits without room: wait (charged, in kube-scheduler), or queue (not charged).",
    )
    unknown_team: UnknownTeam = Field(
        default=UnknownTeam.REJECT,
        description="Pods of namespaces without a team: reject, or preemptible (may borrow, guaranteed nothing).",
    )
    unknown_gpu: UnknownGpu = Field(
        default=UnknownGpu.REJECT,
        description="Pods that request a resource that looks like a GPU and is not in resources: reject, or ignore it.",
    )
    device_access: DeviceAccess = Field(
        default=DeviceAccess.WARN,
        description="Pods that can access GPUs which they do not request: reject, warn, or ignore them.",
    )
    host_paths: list[HostPath] = Field(
        default=[],
        description="Host paths that pods may mount even if deviceAccess warns or rejects.",
    )
    mig: MigWeight = Field(
        default=MigWeight.COMPUTE,
        description="What MIG profiles count: their compute slices, or the larger of compute and memory slices.",
    )
    share_schedulers: list[ClassName] | None = Field(
        default=None,
        description="Schedulers that place shares of GPUs as HAMi does: their pods count the share, others whole GPUs. "
        "Default: hami-scheduler if resources has one of HAMi's resource names, otherwise none.",
    )
    user_from: list[UserKey] = Field(
        default=[UserKey(namespaceAnnotation="owner")],
        description="Sources of the user of a controller's pod; the first that exists counts.",
    )
    unknown_user: UnknownUser = Field(
        default=UnknownUser.IGNORE, description="Controllers' pods whose user is not known."
    )
    maximum_grace_period: GracePeriod = Field(
        default=600, description="The maximum termination grace period of GPU pods: 30s to 24h."
    )
    retry_refused: bool = Field(
        default=True,
        description="Annotate controllers whose pods were refused, so that they retry once there is room.",
    )


# The section `departments` of a policy file: a tree over teams. Part of the schema, see schema.py.


class DepartmentShare(Spec):
    """A department's share of GPUs: whole GPUs, decimals or fractions."""

    guaranteed: Gpus | None = Field(
        default=None,
        description="GPUs that the department always gets back from borrowers outside of it. "
        "Default: what its teams and departments are guaranteed together.",
    )
    limit: GpuLimit = Field(
        default=UNLIMITED,
        description="Hard cap of all teams below it together, borrowing included; or the word unlimited.",
    )

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        if self.guaranteed is not None:
            check_order(self.guaranteed, self.limit)
        return self


class Department(Spec):
    """A department: a node of the tree over teams, with a share of the GPUs."""

    name: Name = Field(description="Unique name; teams refer to it by department, departments by parent.")
    parent: Name | None = Field(default=None, description="The department above it. Default: none.")
    gpus: DepartmentShare = Field(
        default=DepartmentShare(), description="The share of all GPUs of the teams below it together."
    )
    models: dict[Name, DepartmentShare] = Field(
        default={}, description="Shares per GPU model, by the value of the node label for the model."
    )
    weight: Weight = Field(
        default=1, description="Its part of the surplus, relative to other departments of its parent: a number above 0."
    )
