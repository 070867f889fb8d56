"""Pods that never end, on nodes that are lost: which are marked as failed, so that their Jobs replace them.

A Job with podReplacementPolicy Failed replaces a pod once it has ended. On a lost node no kubelet reports that, and
kube-controller-manager does so only where the node object is deleted, or has the taint
node.kubernetes.io/out-of-service. A Job whose policy was TerminatingOrFailed before Fairgate changed it would have had
its replacement as soon as the pod was deleted.
"""

from typing import Final

import msgspec

from webhook.core.model.names import Uid
from webhook.kube.kinds.job_failures import DISRUPTION
from webhook.kube.objects import keys, objects

AT_ONCE: Final = "TerminatingOrFailed"
"""The default podReplacementPolicy of a Job without a podFailurePolicy: pods are replaced as soon as they terminate."""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    pod_replacement_policy: str | None = None


class _Job(msgspec.Struct, frozen=True):
    metadata: objects.ObjectMeta = objects.ObjectMeta()
    spec: _Spec = _Spec()


_decoder: Final = msgspec.json.Decoder(_Job)


def replaces_at_once(body: bytes, uid: str) -> bool:
    """Whether a Job would replace its pods as soon as they are deleted, had Fairgate not added a rule to it.

    `body` is the Job as it is now; False where it is another one than that with this UID, or no Job.
    """
    try:
        job = _decoder.decode(body)
    except msgspec.MsgspecError:
        return False
    was = (job.metadata.annotations or {}).get(keys.POD_REPLACEMENT)
    return job.metadata.uid == uid and was == AT_ONCE and job.spec.pod_replacement_policy == "Failed"


def failed_patch(uid: Uid, *, node: str, at: str) -> bytes:
    """Return a strategic merge patch of a pod's status by which it has failed, for its node and not for itself."""
    message = f"Fairgate: node {node} is lost, and the pod was to end before"
    condition = {
        "type": DISRUPTION,
        "status": "True",
        "reason": "NodeLost",
        "message": message,
        "lastTransitionTime": at,
    }
    status = {"phase": "Failed", "reason": "NodeLost", "message": message, "conditions": [condition]}
    return msgspec.json.encode({"metadata": {"uid": uid}, "status": status})
