"""Rows of the table of kinds, and the results of readers for kinds that paths cannot describe."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from webhook.core.model.policy import WorkloadKind
from webhook.kube.workloads.budget import Budget
from webhook.kube.workloads.model import Json
from webhook.kube.workloads.paths import ControllerKind, Pods
from webhook.kube.workloads.related import Related

OWN_CONTROLLER: Final = ControllerKind("", "")
"""The object itself is its pods' controller."""
NO_CONTROLLER: Final = ControllerKind("", "-")
"""The object is a pod."""
JOB: Final = ControllerKind("batch/v1", "Job")
REPLICA_SET: Final = ControllerKind("apps/v1", "ReplicaSet")
STATEFUL_SET: Final = ControllerKind("apps/v1", "StatefulSet")


class ReadContext(NamedTuple):
    """What a reader needs besides the object itself."""

    api_version: str
    namespace: str
    name: str
    related: Related
    budget: Budget

    def find(self, kind: str, name: str, *, is_namespaced: bool = True) -> Json | None:
        """Return another object of the same namespace, or of a cluster-scoped kind; its values are taken off."""
        found = self.related.find(kind, name, namespace=self.namespace if is_namespaced else None)
        if found is not None:
            self.budget.read(found)
        return found


class PodsFound(NamedTuple):
    """The pods of an object, and warnings about their count.

    `later` are pods that run at other times. `parts` are objects that it creates, which are read by their own kind.
    """

    pods: tuple[Pods, ...]
    warnings: tuple[str, ...] = ()
    later: tuple[Pods, ...] = ()
    parts: tuple[Json, ...] = ()


Reader = Callable[[Json, ReadContext], PodsFound]


@dataclass(frozen=True, slots=True)
class Row:
    """One kind: its paths or its reader, its versions, and the controller and labels of its pods.

    In `labels`, {name}, {role} and {type} (the role in lower case) are replaced. `description` is how pods are
    counted, for the documentation. `makes_objects`: it contains other objects that create pods.
    """

    kind: WorkloadKind
    versions: tuple[str, ...]
    description: str = ""
    read: Reader | None = None
    controller: ControllerKind = OWN_CONTROLLER
    labels: Mapping[str, str] = field(default_factory=dict)
    makes_objects: bool = False

    @property
    def is_workload(self) -> bool:
        """Whether it creates pods: not a Pod itself, nor a Model, which existing pods load."""
        return self.kind.kind not in {"Pod", "Model"}


KindTable = Mapping[tuple[str, str], Row]
"""Rows by API group and kind; all versions of a kind have their pods in the same fields."""
