"""Gangs, domains, replicas, victims of gangs.

The domain that a gang asks for, by the annotations of its pods: Fairgate's own, or those of Kueue.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from sys import intern
from typing import Final, NamedTuple

import msgspec

from webhook.core.model.amounts import GangId, WorkloadName
from webhook.core.model.constraints import ANYWHERE, DomainRequest, Gang
from webhook.core.model.pod import NO_REPLICA, Replica
from webhook.kube.kinds.table import BUILT_IN, BY_KIND
from webhook.kube.objects import keys, objects
from webhook.kube.objects.bounds import shortened
from webhook.kube.objects.events import ObjectRef
from webhook.kube.objects.objects import controller_of

_MAX_VALUE: Final = 400
"""Characters of a value: a label key has 317 at most."""

_NAME: Final = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_PREFIX: Final = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
_LABEL_KEY: Final = re.compile(f"({_PREFIX}/)?{_NAME}")
_TOPOLOGIES: Final = frozenset(keys.TOPOLOGIES)
_WORDS: Final = frozenset({"required", "preferred"})
_SHOWN_KEY: Final = 30


def domain_request(annotations: Mapping[str, str]) -> DomainRequest | None:
    """Return the domain that a pod asks for; None without a valid annotation."""
    if (value := annotations.get(keys.TOPOLOGY)) is not None:
        return parse_request(value) if len(value) <= _MAX_VALUE else None
    for name, is_required in ((keys.KUEUE_REQUIRED_TOPOLOGY, True), (keys.KUEUE_PREFERRED_TOPOLOGY, False)):
        if (value := annotations.get(name)) is not None:
            return DomainRequest(value, is_required) if _is_key(value) else None
    return ANYWHERE if annotations.get(keys.KUEUE_ANY_TOPOLOGY) == "true" else None


def required_by_key(key: str) -> DomainRequest | None:
    """Return the request for one domain of a key that is no annotation; None where it cannot be a label's key."""
    return DomainRequest(key, is_required=True) if _is_key(key) else None


def domain_problem(annotations: Mapping[str, str], *, is_in_gang: bool) -> str:
    """Return why the annotation that counts is ignored; "" if it is not."""
    if _TOPOLOGIES.isdisjoint(annotations):
        return ""
    name = next(name for name in keys.TOPOLOGIES if name in annotations)
    if name == keys.KUEUE_ANY_TOPOLOGY:
        return ""
    if (request := domain_request(annotations)) is not None:
        if is_in_gang or not request.key:
            return ""
        return f"annotation {name} is ignored: the pod has no controller and no mark of a gang"
    expected = "KEY, required=KEY, preferred=KEY or none" if name == keys.TOPOLOGY else "the key of a node label"
    return f"annotation {name} {shortened(annotations[name], _SHOWN_KEY)!r} is ignored: write {expected}"


@lru_cache(maxsize=1024)
def parse_request(value: str) -> DomainRequest | None:
    """Return what a value of annotation fairgate.dev/topology asks for; None where it is malformed."""
    if value == "none":
        return ANYWHERE
    word, is_split, key = value.partition("=")
    if not is_split:
        return None if word in _WORDS or not _is_key(word) else DomainRequest(word, is_required=True)
    return DomainRequest(key, word == "required") if word in _WORDS and _is_key(key) else None


def _is_key(text: str) -> bool:
    return len(text) <= _MAX_VALUE and _LABEL_KEY.fullmatch(text) is not None


# The gang of a pod, by the markers of schedulers and operators, or by Fairgate's own annotation.


_LONGEST_SIZE: Final = 6
_SHOWN_NAME: Final = 12
"""Characters of an annotation that is ignored: a warning has 120 in all."""
_MAX_NAME: Final = 253
_NO_KEYS: Final[Mapping[str, str]] = {}
_ANNOTATIONS: Final = frozenset((keys.GANG, *keys.GANG_ANNOTATIONS, *keys.TOPOLOGIES))
_LABELS: Final = frozenset(keys.GANG_LABELS)
_SIZES: Final = frozenset(keys.GANG_SIZES)
_DESCRIBED: Final = frozenset(row.gang.marker for row in BUILT_IN if row.gang.marker)
"""The markers whose gangs have an object that says how many pods they have."""
_CONTROLLERS: Final = frozenset(row.kind.kind for row in BUILT_IN if row.gang.of_controller)


_Marker = tuple[str, str]
"""What names a gang: a key of the pod, and its value."""


def gang_of(metadata: objects.ObjectMeta, spec: objects.PodSpec, *, namespace: str) -> Gang | None:
    """Return the gang of a pod, by the first marker that is there; None for a pod of its own.

    A pod that asks for one domain is in a gang with the other pods of its controller: only together can they be placed.
    """
    labels, annotations = metadata.labels or _NO_KEYS, metadata.annotations or _NO_KEYS
    is_annotated = not _ANNOTATIONS.isdisjoint(annotations)
    if spec.scheduling_group is None and not is_annotated and _LABELS.isdisjoint(labels):
        return None
    domain, asks = None, False
    if is_annotated:
        domain = domain_request(annotations)
        asks = is_requested(annotations, domain)
    marker = _marker(labels, annotations if is_annotated else _NO_KEYS, spec)
    if marker is not None:
        key, value = marker
        return Gang(
            _id(namespace, marker),
            value[:_MAX_NAME],
            declared_size(annotations),
            asks,
            key == keys.LWS_GROUP,
            key in _DESCRIBED,
            domain,
            key == keys.SCHEDULING_GROUP,
        )
    controller = controller_of(metadata, namespace=namespace) if asks else None
    if controller is None:
        return None
    found = gang_of_controller(namespace, controller.kind, controller.uid)
    return Gang(
        found,
        f"{controller.kind} {controller.name}",
        declared_size(annotations),
        asks,
        is_described=controller.kind in _CONTROLLERS,
        domain=domain,
    )


def is_requested(annotations: Mapping[str, str], domain: DomainRequest | None) -> bool:
    """Whether a pod's annotations make a gang of it and the other pods of its controller; `domain` is what it asks."""
    return annotations.get(keys.GANG) == "true" or bool(domain is not None and domain.key)


def gang_id(metadata: objects.ObjectMeta, spec: objects.PodSpec, *, namespace: str) -> GangId | None:
    """Return the identity of a pod's gang."""
    found = gang_of(metadata, spec, namespace=namespace)
    return None if found is None else found.id


def gang_of_controller(namespace: str, kind: str, uid: str) -> GangId:
    """Return the identity of the gang that annotation fairgate.dev/gang makes of a controller's pods."""
    return _id(namespace, (kind, uid))


def gang_of_marker(namespace: str, key: str, value: str) -> GangId:
    """Return the identity of the gang that a key and its value name."""
    return _id(namespace, (key, value))


def gang_of_pod_group(namespace: str, name: str) -> GangId:
    """Return the identity of the gang of a PodGroup of Kubernetes."""
    return _id(namespace, (keys.SCHEDULING_GROUP, name))


def marker_of(gang: GangId, namespace: str) -> tuple[str, str]:
    """Return the key and the value that name a gang; for one by annotation, its controller's kind and UID."""
    key, _, value = gang.removeprefix(f"{namespace}/").partition("=")
    return key, value


def declared_size(annotations: Mapping[str, str]) -> int:
    """Return the size of a gang by a pod's annotations; 0 without one that is a number."""
    if _SIZES.isdisjoint(annotations):
        return 0
    size = next(annotations[name] for name in keys.GANG_SIZES if name in annotations)
    return int(size) if size.isdecimal() and len(size) <= _LONGEST_SIZE else 0


def ignored_of_gang(annotations: Mapping[str, str], gang: Gang | None, *, has_controller: bool) -> str:
    """Return what is ignored of what a pod says about its gang, and what is assumed instead; "" for nothing."""
    if gang is None:
        if has_controller or annotations.get(keys.GANG) != "true":
            return ""
        return f"annotation {keys.GANG} is ignored: the pod has no controller and no mark of a gang"
    if gang.size or _SIZES.isdisjoint(annotations):
        return ""
    name = next(name for name in keys.GANG_SIZES if name in annotations)
    found = "its object says how many pods it has" if gang.is_described else "pods that come together are the gang"
    return f"annotation {name} {shortened(annotations[name], _SHOWN_NAME)!r} is no number: {found}"


def gang_problem(metadata: objects.ObjectMeta) -> str | None:
    """Return what is wrong with annotation fairgate.dev/gang of a pod; None if nothing is."""
    value = (metadata.annotations or _NO_KEYS).get(keys.GANG)
    if value in (None, "true", "false"):
        return None
    return shortened(f"annotation {keys.GANG}: expected true or false, got {value!r}")


def _marker(labels: Mapping[str, str], annotations: Mapping[str, str], spec: objects.PodSpec) -> _Marker | None:
    """Return the key that names a gang, and its value."""
    if spec.scheduling_group is not None and spec.scheduling_group.pod_group_name:
        return keys.SCHEDULING_GROUP, spec.scheduling_group.pod_group_name
    for name in keys.GANG_ANNOTATIONS if annotations else ():
        if value := annotations.get(name):
            return name, value
    for name in keys.GANG_LABELS:
        if value := labels.get(name):
            return name, value
    return None


def _id(namespace: str, marker: _Marker) -> GangId:
    key, value = marker
    return GangId(intern(f"{namespace}/{key}={value[:_MAX_NAME]}"))


# Which workload a pod is a replica of, how many of them must stay by its annotation, and whether it is ready.


MAX_MINIMUM: Final = 99_999
"""More replicas than any workload has."""
_DIGITS: Final = len(str(MAX_MINIMUM))
_SHOWN_REPLICAS: Final = 20
"""Characters of a value that is ignored: a warning has 120 in all."""
MAX_NAME: Final = 253

_HASH, _ROLLOUT_HASH = "pod-template-hash", "rollouts-pod-template-hash"
_REVISIONS: Final = {_HASH: "Deployment", _ROLLOUT_HASH: "Rollout"}
"""Labels whose value ends the name of a ReplicaSet, and what makes such a ReplicaSet; the second is of Argo."""
_RAY_GROUP, _ROLE = "ray.io/group", "training.kubeflow.org/replica-type"
"""Labels that tell the pods of one controller apart: a minimum is one of each group or role."""
_LWS, _SET = keys.LWS_GROUP, keys.JOBSET_NAME
"""Labels of pods that are of no use without others of their group, however many groups there are."""
_POD_GROUP: Final = "PodGroup"


class _Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


_conditions: Final = msgspec.json.Decoder(list[_Condition] | None)


def replica_of(
    metadata: objects.ObjectMeta,
    controller: objects.OwnerReference | None,
    namespace: str,
    group: objects.SchedulingGroup | None = None,
) -> Replica:
    """Return what a pod is a replica of; nothing for a pod without a controller, or whose group goes whole.

    A PodGroup of Kubernetes says how many of its own pods must stay, whatever made them.
    """
    annotations = metadata.annotations
    text = annotations.get(keys.MINIMUM) if annotations else None
    if text is not None and len(text) > _SHOWN_REPLICAS:
        text = shortened(text, _SHOWN_REPLICAS)
    if group is not None and group.pod_group_name:
        return _shared(namespace, _POD_GROUP, group.pod_group_name[:MAX_NAME], text)
    if controller is None:
        return NO_REPLICA if text is None else _useless(text, "the pod has no controller")
    if text is None and annotations and keys.KOORDINATOR_MINIMUM in annotations:
        stated = annotations[keys.KOORDINATOR_MINIMUM]
        text = stated if _is_number(stated) else None
    kind, name, get = controller.kind, controller.name, (metadata.labels or _NO_KEYS).get
    if len(kind) + len(name) > MAX_NAME:
        return NO_REPLICA
    return _shared(
        namespace, kind, name, text, get(_HASH), get(_ROLLOUT_HASH), get(_RAY_GROUP), get(_ROLE), get(_LWS), get(_SET)
    )


def group_of(namespace: str, name: str) -> WorkloadName:
    """Return the name of the pods of a PodGroup of Kubernetes as one workload."""
    return name_of(namespace, _POD_GROUP, name[:MAX_NAME])


def name_of(namespace: str, kind: str, name: str) -> WorkloadName:
    """Return the name of a workload whose pods have one role."""
    return WorkloadName(f"{namespace}/{kind}/{name}")


class Revision(NamedTuple):
    """The kind and name of what made a ReplicaSet, and the label whose value ends the name of that."""

    kind: str
    name: str
    label: str


def revision_of(kind: str, name: str, labels: Mapping[str, str | None]) -> Revision | None:
    """Return what made the controller of a pod with these labels; None where that is no ReplicaSet of a revision."""
    for label, made_by in _REVISIONS.items() if kind == "ReplicaSet" else ():
        if (ending := labels.get(label)) and name.endswith(f"-{ending}"):
            return Revision(made_by, name.removesuffix(f"-{ending}"), label)
    return None


def is_ready(status: objects.PodStatus | None) -> bool:
    """Whether a pod runs, and its kubelet does not say that it is not ready."""
    if status is None or status.phase != "Running":
        return False
    raw = bytes(status.conditions)
    if b'"Ready"' not in raw:
        return True
    try:
        listed = _conditions.decode(raw) or ()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return True
    return not any(each.type == "Ready" and each.status == "False" for each in listed)


@lru_cache(maxsize=8192)  # the pods of one workload share it, and it is read of each pod that is created
def _shared(namespace: str, kind: str, name: str, text: str | None, *labels: str | None) -> Replica:
    """Return what the pods of one workload share, by its controller and the labels that say more."""
    template, rollout, group, role, *goes_whole = labels or (None, None, None, None)
    if any(goes_whole):
        return NO_REPLICA if text is None else _useless(text, "the pods of its group go together")
    revision = revision_of(kind, name, {_HASH: template, _ROLLOUT_HASH: rollout})
    if revision is not None:
        kind, name, _ = revision
    part = group or role
    workload = name_of(namespace, kind, f"{name}/{part}" if part else name)
    if text is None:
        return Replica(workload)
    if _is_number(text):
        return Replica(workload, int(text))
    expected = f"write a number of replicas, of at most {MAX_MINIMUM}"
    return Replica(workload, None, f"annotation {keys.MINIMUM} {text!r} is ignored: {expected}")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS


def _useless(text: str, why: str) -> Replica:
    return Replica(problem=f"annotation {keys.MINIMUM} {text!r} is ignored: {why}")


# Which pods are evicted together: those of a gang that the object that makes them declares.
#
# Users can write the markers of gangs (webhook/kube/pod/gangs.py) on each of their pods, and which pods are evicted
# last must not follow from that alone. So a marker counts here only where it agrees with the pod's controller, and
# where it could have any value, the gang is the marked pods of one controller, however the markers divide them.
# Kubernetes deletes pods whose controller does not exist (its garbage collector).


_BATCH_JOB: Final = ("batch", "Job")
_STATEFUL_SET: Final = ("apps", "StatefulSet")
_BUILT_IN: Final = frozenset({("", "Pod"), *(kind for kind, row in BY_KIND.items() if row.gang.of_controller)})
"""The kinds of Kubernetes whose pods may be a gang; a driver of Spark is the controller of its executors."""

_USER_LABELS: Final = (
    keys.SCHEDULER_PLUGINS_GROUP,
    "kueue.x-k8s.io/pod-group-name",
    "gang.scheduling.koordinator.sh/name",
)
"""Labels that authors of workloads write, with a value of their own."""

_GANG_GROUPS: Final = frozenset(group for (group, _), row in BY_KIND.items() if row.kind.is_gang)
"""API groups whose kinds make gangs. Volcano and KAI-Scheduler write their annotations on every pod that they place."""


def victim_gang(metadata: objects.ObjectMeta, spec: objects.PodSpec, *, namespace: str) -> GangId | None:
    """Return the gang with which a pod is evicted; None for a pod that goes alone.

    A PodGroup of Kubernetes counts by itself: kube-scheduler starts no pod of one that does not exist.
    """
    if spec.scheduling_group is not None and spec.scheduling_group.pod_group_name:
        return gang_of_pod_group(namespace, spec.scheduling_group.pod_group_name)
    controller = controller_of(metadata, namespace=namespace)
    if controller is None:
        return None
    labels = metadata.labels or _NO_KEYS
    named = _named_by_operator(labels, controller, metadata.name, namespace=namespace)
    if named is not None:
        return named
    if not _may_make_gangs(controller) or not _is_marked(labels, metadata.annotations or _NO_KEYS, controller):
        return None
    return gang_of_controller(namespace, controller.kind, controller.uid)


def _named_by_operator(labels: Mapping[str, str], controller: ObjectRef, pod: str, *, namespace: str) -> GangId | None:
    """Return the gang of an operator's label, where the controller is the one that the operator gives such a pod."""
    group, name = _group(controller), controller.name
    kind = (group, controller.kind)
    cluster, job, job_set = (labels.get(key) for key in (keys.RAY_CLUSTER, keys.KUBEFLOW_JOB, keys.JOBSET_NAME))
    if cluster and kind == ("ray.io", "RayCluster") and name == cluster:
        return gang_of_marker(namespace, keys.RAY_CLUSTER, cluster)
    if job and ((group == "kubeflow.org" and name == job) or (kind == _BATCH_JOB and name == f"{job}-launcher")):
        return gang_of_marker(namespace, keys.KUBEFLOW_JOB, job)
    if job_set and kind == _BATCH_JOB and name.startswith(f"{job_set}-"):
        return gang_of_marker(namespace, keys.JOBSET_NAME, job_set)
    leaders = labels.get(keys.LWS_NAME)
    if leaders and keys.LWS_GROUP in labels and kind == _STATEFUL_SET:
        if name == leaders:  # the leader, whose workers have a StatefulSet of its name
            return gang_of_marker(namespace, keys.LWS_NAME, pod)
        if name.startswith(f"{leaders}-"):
            return gang_of_marker(namespace, keys.LWS_NAME, name)
    return None


def _is_marked(labels: Mapping[str, str], annotations: Mapping[str, str], controller: ObjectRef) -> bool:
    if is_requested(annotations, domain_request(annotations)) or any(labels.get(key) for key in _USER_LABELS):
        return True
    makes_gangs = _group(controller) in _GANG_GROUPS or (_group(controller), controller.kind) == _BATCH_JOB
    return makes_gangs and any(annotations.get(key) for key in keys.GANG_ANNOTATIONS)


def _may_make_gangs(controller: ObjectRef) -> bool:
    """Whether objects of a kind make pods, as far as is known: of the built-in kinds, a few do."""
    group = _group(controller)
    is_built_in = "." not in group or group.endswith(".k8s.io")
    return not is_built_in or (group, controller.kind) in _BUILT_IN


def _group(controller: ObjectRef) -> str:
    return controller.api_version.rpartition("/")[0]
