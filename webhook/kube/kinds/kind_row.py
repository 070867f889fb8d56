"""A kind of workload as a row: its pods, gang rules, deadlines, related objects.

Deadlines of workloads that run on while their pods wait in the queue, by the manifest.

A pod's own activeDeadlineSeconds is none of them: kubelet counts it from the pod's start.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeGuard

from webhook.core.model.amounts import parse_seconds
from webhook.core.model.policy import PodPath, WorkloadKind
from webhook.core.reclaim.victims import FailureBudget, Loss
from webhook.kube.kinds.model import (
    Budget,
    ControllerKind,
    Count,
    Json,
    Pods,
    Surge,
    count_at,
    dig,
    listed,
    mapping,
    text,
)

PROGRESS: Final = "spec.progressDeadlineSeconds"
KNATIVE: Final = "spec.template.metadata.annotations#serving.knative.dev/progress-deadline"
REVISION: Final = KNATIVE.removeprefix("spec.template.")
TASK: Final = "spec.timeout"
PIPELINE: Final = "spec.timeouts.pipeline"
_DEFAULTS: Final = {PROGRESS: 600, KNATIVE: 600, REVISION: 600, TASK: 3600, PIPELINE: 3600}
"""What holds where a manifest says nothing; Knative and Tekton read it from their settings."""
_NONE: Final = 2**31 - 1
"""The progressDeadlineSeconds that means no deadline."""
_NAME: Final = re.compile(r"(timeouts\.)?[^.#/]+$")


def running_deadline(document: Json, path: str, timeouts: Iterable[object] = ()) -> str:
    """Return the name of the deadline at a row's path with its seconds, of several the shortest; "" without one.

    In a path [] stands for the elements of a list, and # goes before the key of an annotation. `timeouts` are those of
    single pods, which begin with the pod.
    """
    named = _NAME.search(path)
    found = [(_seconds(each), named[0]) for each in _values(document, path)] if named else []
    found += [(_seconds(each), "timeout") for each in timeouts]
    shortest, name = min((each for each in found if each[0]), default=(0, ""))
    return f"{name} ({shortest})" if shortest else ""


def _values(document: Json, path: str) -> Iterator[object]:
    head, of_list, rest = path.partition("[].")
    fields, of_key, key = head.partition("#")
    found = mapping(dig(document, fields)).get(key) if of_key else dig(document, head)
    if of_list:
        for entry in found if isinstance(found, list) else ():
            yield dig(entry, rest)
    else:
        yield _DEFAULTS.get(path) if found is None else found


def _seconds(value: object) -> int:
    """Return a deadline in seconds, 0 where it is none."""
    if isinstance(value, str):
        try:
            return parse_seconds(value)
        except ValueError:
            return 0
    is_deadline = isinstance(value, int) and not isinstance(value, bool) and 0 < value < _NONE
    return value if is_deadline and isinstance(value, int) else 0


# What an object says of the gang of its pods: where it is read, how few start together, which come later.


class Stage(NamedTuple):
    """When a role's pods are made: in a later `era` once others have completed, in a later `step` once others run."""

    era: int = 0
    step: int = 0


AT_ONCE: Final = Stage()


@dataclass(frozen=True, slots=True)
class Stages:
    """The stage of each role of which one is known. `is_one_by_one`: also the pods of one role follow one another.

    `led` are the roles whose pods come in groups of so many, of which all but one follow that one.
    """

    by_role: Mapping[str, Stage] = field(default_factory=dict)
    is_one_by_one: bool = False
    led: Mapping[str, int] = field(default_factory=dict)

    def of(self, role: str) -> Stage:
        """Return the stage of a role."""
        return self.by_role.get(role, AT_ONCE)

    def followers(self, role: str, number: int) -> int:
        """Return how many of so many pods of a role follow others of it."""
        return number - -(-number // self.led[role]) if self.led.get(role) else 0


Minimum = Callable[[Json, Json], Mapping[str, Any]]
"""From the spec and the status of an object to its spec with the fewest workers, and without completed pods."""


@dataclass(frozen=True, slots=True)
class GangRules:
    """How the leader finds the object of a pod's gang, and what it reads there.

    `marker` is the key of pods that names the object, or in `name_label` if the value of that is the name. Of several
    kinds with a marker, the one that makes the pod's controller (`makers`) is read. `of_controller`: pods without
    a marker may be a gang by annotation, and their controller is the object. `described_by`: another kind, which these
    objects make, says it. `least` is how many pods the object wants together, None where it wants all.
    `counts_all`: all pods count, also those without GPUs.
    """

    marker: str = ""
    name_label: str = ""
    makers: frozenset[str] = frozenset()
    of_controller: bool = False
    described_by: str = ""
    minimum: Minimum | None = None
    stages: Callable[[Json], Stages] | None = None
    least: Callable[[Json], int | None] | None = None
    counts_all: bool = False

    def at_minimum(self, document: Json) -> Json:
        """Return an object as it is at its smallest."""
        if self.minimum is None:
            return document
        return {**document, "spec": self.minimum(mapping(document.get("spec")), mapping(document.get("status")))}

    def stages_of(self, document: Json) -> Stages:
        """Return the order in which an object's pods are made."""
        return Stages() if self.stages is None else self.stages(document)

    def least_of(self, document: Json) -> int | None:
        """Return how many pods an object wants together; None where it wants all. Raises ValueError if it says none."""
        return None if self.least is None else self.least(document)


NO_GANG: Final = GangRules()


def less(entry: Json, done: object) -> Json:
    """Return an entry with so many replicas fewer: those that have completed."""
    replicas = entry.get("replicas", 1)
    if not (is_number(done) and done and is_number(replicas)):
        return entry
    return {**entry, "replicas": max(0, replicas - done)}


def is_number(value: object) -> TypeGuard[int]:
    """Whether a value is a whole number of at least 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


# Other objects that a workload refers to, or that refer to it.


_Named = Mapping[tuple[str, str], Json]
_SCALERS: Final = ("HorizontalPodAutoscaler", "ScaledObject")
_KEDA_DEFAULT: Final = 100
"""KEDA's default maximum of a ScaledObject."""


@dataclass(frozen=True, slots=True)
class Related:
    """Objects by kind, namespace and name, and by kind and name alone; autoscalers by their target.

    `_defaults` are the devices that a namespace's LimitRanges give to containers that request none of them.
    """

    _kinds: Mapping[str, _Named] = field(default_factory=dict)
    _anywhere: _Named = field(default_factory=dict)
    _scalers: Mapping[tuple[str, str, str], Json] = field(default_factory=dict)
    _defaults: Mapping[str, Json] = field(default_factory=dict)

    @classmethod
    def of(cls, documents: Iterable[Json], *, namespace: str = "default") -> "Related":
        """Return the objects of a stream; `namespace` is the default for objects without one."""
        kinds: dict[str, dict[tuple[str, str], Json]] = {}
        for document in documents:
            metadata = mapping(document.get("metadata"))
            key = (text(metadata.get("namespace")) or namespace, text(metadata.get("name")))
            kinds.setdefault(text(document.get("kind")), {})[key] = document
        anywhere: dict[tuple[str, str], Json] = {}
        for kind, known in kinds.items():
            for (_, name), document in known.items():
                anywhere.setdefault((kind, name), document)
        return cls(kinds, anywhere, _by_target(kinds), _defaults(kinds.get("LimitRange", {})))

    def find(self, kind: str, name: str, *, namespace: str | None = None) -> Json | None:
        """Return an object, or None; without `namespace`, of a cluster-scoped kind."""
        if namespace is None:
            return self._anywhere.get((kind, name))
        return self._kinds.get(kind, {}).get((namespace, name))

    def with_defaults(self, spec: Json, namespace: str, budget: Budget) -> Json:
        """Return a pod's spec with the devices that the namespace's LimitRanges add to its containers."""
        given = self._defaults.get(namespace)
        if not given:
            return spec
        made = dict(spec)
        for field_name in ("containers", "initContainers"):
            if isinstance(containers := spec.get(field_name), list):
                budget.step(len(containers) * len(given))
                made[field_name] = [_with_defaults(mapping(each), given) for each in containers]
        return made

    def scaled_to(self, kind: str, name: str, *, namespace: str) -> Count | None:
        """Return an autoscaler's maximum for an object; None if no autoscaler targets it."""
        found = self._scalers.get((kind, namespace, name))
        if found is None:
            return None
        if found.get("kind") == "ScaledObject":
            return count_at(
                found, "spec.maxReplicaCount", default=_KEDA_DEFAULT, named="maxReplicaCount of its ScaledObject"
            )
        return count_at(found, "spec.maxReplicas", default=None, named="maxReplicas of its HorizontalPodAutoscaler")


def _with_defaults(container: Json, given: Json) -> Json:
    resources = mapping(container.get("resources"))
    limits, requests = mapping(resources.get("limits")), mapping(resources.get("requests"))
    added = {name: amount for name, amount in given.items() if name not in limits and name not in requests}
    if not added:
        return container
    return {**container, "resources": {**resources, "limits": {**added, **limits}, "requests": {**added, **requests}}}


def _defaults(ranges: _Named) -> dict[str, Json]:
    """Return the default devices of containers by namespace; of several LimitRanges the first counts."""
    found: dict[str, dict[str, object]] = {}
    for (namespace, _), document in ranges.items():
        for limit in map(mapping, listed(dig(document, "spec.limits"))):
            if limit.get("type") != "Container":
                continue
            for name, amount in {**mapping(limit.get("defaultRequest")), **mapping(limit.get("default"))}.items():
                if "/" in str(name):
                    found.setdefault(namespace, {}).setdefault(str(name), amount)
    return dict(found)


def _by_target(kinds: Mapping[str, _Named]) -> dict[tuple[str, str, str], Json]:
    """Return the autoscalers by their targets; of several with one target the first counts."""
    found: dict[tuple[str, str, str], Json] = {}
    for scaler in _SCALERS:
        for (namespace, _), document in kinds.get(scaler, {}).items():
            target = mapping(dig(document, "spec.scaleTargetRef"))
            key = (text(target.get("kind")) or "Deployment", namespace, text(target.get("name")))
            found.setdefault(key, document)
    return found


NO_RELATED: Final = Related()


# One row for each kind: all that is known of it, and the results of readers for kinds that paths cannot describe.


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

    `is_at_most`: they may run at different times, and no more of them at once. `parts` are objects that it creates,
    which are read by their own kind. `timeouts` are those that begin with a pod, and run on while it waits.
    """

    pods: tuple[Pods, ...]
    warnings: tuple[str, ...] = ()
    is_at_most: bool = False
    parts: tuple[Json, ...] = ()
    timeouts: tuple[object, ...] = ()


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
    pods are queued; [] stands for the elements of a list). `jobs` yields the Jobs in it, with the restartPolicy that
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
