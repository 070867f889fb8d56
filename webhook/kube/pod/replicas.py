"""Which workload a pod is a replica of, how many of them must stay by its annotation, and whether it is ready."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from webhook.core.model.names import WorkloadName
from webhook.core.model.replica import NO_REPLICA, Replica
from webhook.kube.objects import keys, objects
from webhook.kube.objects.bounds import shortened

MAX_MINIMUM: Final = 99_999
"""More replicas than any workload has."""
_DIGITS: Final = len(str(MAX_MINIMUM))
_SHOWN: Final = 20
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
_NO_KEYS: Final[Mapping[str, str]] = {}


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
    if text is not None and len(text) > _SHOWN:
        text = shortened(text, _SHOWN)
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
