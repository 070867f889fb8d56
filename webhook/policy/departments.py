"""The section `departments` of a policy file: a tree over teams. Part of the schema, see schema.py."""

from typing import Self

from pydantic import Field, model_validator

from webhook.core.model.amount import UNLIMITED
from webhook.policy.field_types import GpuLimit, Gpus, Name, Weight
from webhook.policy.spec import Spec
from webhook.policy.teams import check_order


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
