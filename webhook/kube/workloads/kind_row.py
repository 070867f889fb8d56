"""What the table says of one kind, and what a reader gives back for kinds that paths alone cannot tell."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from webhook.core.model.policy import WorkloadKind
from webhook.kube.workloads.model import Json
from webhook.kube.workloads.paths import Maker, Pods
from webhook.kube.workloads.related import Related

ITSELF: Final = Maker("", "")
"""The object is its pods' controller."""
NOBODY: Final = Maker("", "-")
"""The object is the pod."""
JOB: Final = Maker("batch/v1", "Job")
REPLICA_SET: Final = Maker("apps/v1", "ReplicaSet")
STATEFUL_SET: Final = Maker("apps/v1", "StatefulSet")


class Scene(NamedTuple):
    """What a reader may look at besides the object itself."""

    api_version: str
    namespace: str
    name: str
    related: Related


class Found(NamedTuple):
    """The pods of an object, and what people should know of the count.

    `later` are pods that run at other times than these. `parts` are objects that it makes, for their own kind to tell.
    """

    pods: tuple[Pods, ...]
    warnings: tuple[str, ...] = ()
    later: tuple[Pods, ...] = ()
    parts: tuple[Json, ...] = ()


Reader = Callable[[Json, Scene], Found]


@dataclass(frozen=True, slots=True)
class Row:
    """One kind: its paths or its reader, its versions, who makes its pods, what labels them, and how they count.

    In `labels`, {name}, {role} and {type} (the role in small letters) are filled in. `told` is for people.
    `makes_objects`: it holds other objects, of which pods come in their own ways.
    """

    kind: WorkloadKind
    versions: tuple[str, ...]
    told: str = ""
    read: Reader | None = None
    maker: Maker = ITSELF
    labels: Mapping[str, str] = field(default_factory=dict)
    makes_objects: bool = False

    @property
    def is_workload(self) -> bool:
        """Tell whether it makes pods: a pod is judged for itself, and a Model is loaded by pods that others make."""
        return self.kind.kind not in {"Pod", "Model"}


KindTable = Mapping[tuple[str, str], Row]
"""Rows by API group and kind; the versions of a kind keep their pods in the same places."""
