"""One row for each kind: all that is known of it, and the results of readers for kinds that paths cannot describe."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from webhook.core.model.workload_rules import PodPath, WorkloadKind
from webhook.core.reclaim.failures import FailureBudget, Loss
from webhook.kube.kinds.budget import Budget
from webhook.kube.kinds.gang_rules import NO_GANG, GangRules
from webhook.kube.kinds.model import Json, Surge, text
from webhook.kube.kinds.paths import ControllerKind, Pods, dig
from webhook.kube.kinds.related import Related

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


class Manager(NamedTuple):
    """The field that names the controller of an object, and what stands there for the controllers of its kind.

    Any other value, such as MultiKueue's, is for an object whose pods are made elsewhere.
    """

    path: str
    own: tuple[str, ...]

    def other(self, document: Json) -> str:
        """Return the other controller that an object names, "" for none."""
        named = text(dig(document, self.path))
        return "" if named in self.own else named


class Failures(NamedTuple):
    """The fields of an object that concern failures, and from these how many evictions it survives (None: any)."""

    item: type[Any]
    budget: Callable[[Any], FailureBudget | None]


def counted(_labels: Mapping[str, str]) -> Loss:
    """Return the effect of an evicted pod on a controller that counts failures, or replaces its pods."""
    return Loss.COUNTED


def fatal(_labels: Mapping[str, str]) -> Loss:
    """Return the effect of an evicted pod on a controller that fails with it."""
    return Loss.FATAL


@dataclass(frozen=True, slots=True)
class Row:
    """One kind: all that Fairgate knows of it.

    How its pods are read: its paths, or `read`. In `labels`, {name}, {role} and {type} (the role in lower case) are
    replaced. `description` is how pods are counted, for the documentation. `makes_objects`: it contains other objects
    that create pods. `is_judged`: it makes pods of its own when a user creates it, so the webhook judges it. `manager`
    is where it says that another cluster runs it.

    What the leader and the evictor read of it: `gang`, and how it is `deadline` (the path of one that runs on while its
    pods wait in line; [] stands for the elements of a list). `jobs` yields the Jobs in it, with the restartPolicy that
    they have by default, `failures` is read of objects in the cluster, `fails` says why one eviction ends it, and
    `loss` what an eviction is to a pod's controller of this kind.

    `surge` returns what a rolling update of so many pods adds. `is_intermediate`: other controllers create it, so its
    owner is looked up. `is_retried`: its controller tries again after any change of the object.
    """

    kind: WorkloadKind
    versions: tuple[str, ...]
    description: str = ""
    read: Reader | None = None
    controller: ControllerKind = OWN_CONTROLLER
    labels: Mapping[str, str] = field(default_factory=dict)
    makes_objects: bool = False
    is_judged: bool = True
    manager: Manager | None = None
    gang: GangRules = NO_GANG
    deadline: str = ""
    jobs: Callable[[Json, Budget], Iterator[tuple[Json, str]]] | None = None
    failures: Failures | None = None
    fails: str = ""
    loss: Callable[[Mapping[str, str]], Loss] = counted
    surge: Callable[[Json, int], Surge | None] | None = None
    is_intermediate: bool = False
    is_retried: bool = False

    @property
    def makes_pods(self) -> bool:
        """Whether objects of this kind say which pods there will be."""
        return self.read is not None or bool(self.kind.pods)


KindTable = Mapping[tuple[str, str], Row]
"""Rows by API group and kind; all versions of a kind have their pods in the same fields."""

REPLICAS: Final = (PodPath("spec.template", ("spec.replicas",), default=1),)


def gang_kind(group: str, kind: str, resource: str, pods: tuple[PodPath, ...] = ()) -> WorkloadKind:
    """Return a kind whose pods are of no use without each other."""
    return WorkloadKind(group, kind, resource, pods, is_gang=True)


def leader_worker_paths(
    where: str, *, each: str = "", times: tuple[str, ...] = (), inner: str = "leaderWorkerTemplate"
) -> tuple[PodPath, ...]:
    """Return the paths of a LeaderWorkerSet's spec: leaders, like the workers where they have no template."""
    template, replicas = f"{where}.{inner}", (f"{where}.replicas", *times)
    worker, name = f"{template}.workerTemplate", "{name}-" if each else ""
    rest = PodPath(worker, (f"{template}.size-1", *replicas), f"{name}worker", each, default=1, is_optional=True)
    leader = PodPath(f"{template}.leaderTemplate", replicas, f"{name}leader", each, default=1, fallback=worker)
    return (leader, rest)
