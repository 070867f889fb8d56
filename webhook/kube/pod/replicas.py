"""Which workload a pod is a replica of, how many of them must stay by its annotation, and whether it is ready."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

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

_HASHES: Final = {"pod-template-hash": "Deployment", "rollouts-pod-template-hash": "Rollout"}
"""The labels whose value ends the name of a ReplicaSet, and the kinds that make it; the second is of Argo Rollouts."""
_ROLES: Final = ("ray.io/group", "training.kubeflow.org/replica-type")
"""Labels that tell the pods of one controller apart: a minimum is one of each group or role."""
_WHOLE: Final = (keys.LWS_GROUP, keys.JOBSET_NAME)
"""Labels of pods that are of no use without others of their group, however many groups there are."""
_NO_KEYS: Final[Mapping[str, str]] = {}


class _Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


_conditions: Final = msgspec.json.Decoder(list[_Condition] | None)


def replica_of(metadata: objects.ObjectMeta, controller: objects.OwnerReference | None, namespace: str) -> Replica:
    """Return what a pod is a replica of; nothing for a pod without a controller, or whose group goes whole."""
    labels, annotations = metadata.labels or _NO_KEYS, metadata.annotations or _NO_KEYS
    text = annotations.get(keys.MINIMUM)
    if controller is None or any(key in labels for key in _WHOLE):
        return NO_REPLICA if text is None else _useless(shortened(text, _SHOWN), controller is None)
    kind, name = controller.kind, controller.name
    if kind == "ReplicaSet":
        for key, made_by in _HASHES.items():
            if (ending := labels.get(key)) and name.endswith(f"-{ending}"):
                kind, name = made_by, name.removesuffix(f"-{ending}")
                break
    role = next((labels[key] for key in _ROLES if key in labels), "")
    if max(map(len, (kind, name, role))) > MAX_NAME:
        return NO_REPLICA
    return _shared(namespace, kind, name, role, None if text is None else shortened(text, _SHOWN))


def name_of(namespace: str, kind: str, name: str) -> WorkloadName:
    """Return the name of a workload whose pods have one role."""
    return WorkloadName(f"{namespace}/{kind}/{name}")


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


@lru_cache(maxsize=8192)
def _shared(namespace: str, kind: str, name: str, role: str, text: str | None) -> Replica:
    """Return what the pods of one workload share."""
    workload = name_of(namespace, kind, f"{name}/{role}" if role else name)
    if text is None:
        return Replica(workload)
    if text.isascii() and text.isdecimal() and len(text) <= _DIGITS:
        return Replica(workload, int(text))
    expected = f"write a number of replicas, of at most {MAX_MINIMUM}"
    return Replica(workload, None, f"annotation {keys.MINIMUM} {text!r} is ignored: {expected}")


def _useless(text: str, is_alone: bool) -> Replica:
    why = "the pod has no controller" if is_alone else "the pods of its group go together"
    return Replica(problem=f"annotation {keys.MINIMUM} {text!r} is ignored: {why}")
