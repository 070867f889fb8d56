"""What kubelets did; oversize; lost pods.

What a kubelet did with a pod that it got: rejected it at its admission, or admitted it.

Only kubelet writes these fields: tenants may not write `pods/status`, and the API server drops a status at creation.
"""

from collections.abc import Iterable, Mapping
from sys import intern
from typing import Any, Final, NamedTuple

import msgspec

from webhook.core.admission.refused_owners import RefusedOwner
from webhook.core.model.amounts import Namespace, NodeName, Uid
from webhook.core.model.demand import Demand, Weights
from webhook.core.placement.rejecting_nodes import ANY_SHAPE, Rejection, Shape, Start
from webhook.core.reclaim.reclaim_pods import Controller
from webhook.kube.kinds.job_failures import DISRUPTION
from webhook.kube.kinds.table import is_retried
from webhook.kube.objects import bounds, keys, objects
from webhook.kube.objects.events import EventReason, ObjectRef
from webhook.kube.objects.objects import READ_LABELS
from webhook.kube.pod.demands import read_demand
from webhook.kube.pod.pods import uid_of, unix_seconds

_NODE_FAULTS: Final = frozenset({"UnexpectedAdmissionError", "TopologyAffinityError", "InvalidNodeInfo"})
"""Reasons of kubelet with which the same node rejects such pods again and again, though it seems to have room for them.

UnexpectedAdmissionError: a device plugin that cannot allocate, or no healthy device. TopologyAffinityError: no aligned
devices and CPUs, which kube-scheduler does not see. InvalidNodeInfo: kubelet cannot read its own node.

Not counted are races with what kube-scheduler has not seen yet (OutOfcpu, OutOfmemory, OutOfpods,
OutOfephemeral-storage, and all that is sent to a full node by `nodeName`), what the pod itself is at fault for
(NodeAffinity, NodePorts, SysctlForbidden, AppArmor, SMTAlignmentError, EmptyPodSharedPoolError, Pod…NotSupported), and
states that a taint or condition of the node shows (Evicted, NodeShutdown).
Source: kubernetes 1.37, pkg/kubelet: lifecycle/predicate.go, lifecycle/handlers.go, cm/admission, cm/topologymanager.
"""

_ALIGNMENT: Final = "TopologyAffinityError"
"""It depends on all that a pod asks for …"""

_NODE_ITSELF: Final = "InvalidNodeInfo"
"""… and this on nothing; the other faults are those of devices."""

_OUT_OF: Final = "OutOf"
"""Before the name of a resource that the node has too little of."""

_STARTED: Final = frozenset({"Running", "Succeeded"})


def to_rejection(pod: objects.Pod, weights: Weights) -> Rejection | None:
    """Return the rejection of a pod with GPUs that its node caused; None for every other pod."""
    status, metadata = pod.status, pod.metadata
    if status is None or status.phase != "Failed" or not pod.spec.node_name or not _is_fault(status.reason or ""):
        return None
    demand = read_demand(pod.spec, weights).demand
    if demand is None or not demand.gpus:
        return None
    namespace = Namespace(intern(metadata.namespace or "default"))
    return Rejection(
        node=NodeName(intern(pod.spec.node_name)),
        namespace=namespace,
        uid=uid_of(metadata, namespace),
        at=unix_seconds(status.start_time or metadata.creation_timestamp or ""),
        reason=status.reason or "",
        shape=_shape(demand, status.reason or ""),
    )


def _shape(demand: Demand, reason: str) -> Shape:
    if reason == _NODE_ITSELF:
        return ANY_SHAPE
    return demand.requests if reason == _ALIGNMENT else demand.held


def to_start(pod: objects.Pod, weights: Weights) -> Start | None:
    """Return the start of a pod that asks for devices; None where its kubelet has not admitted it, or it needs none."""
    status, spec = pod.status, pod.spec
    if status is None or status.phase not in _STARTED or not spec.node_name or not status.start_time:
        return None
    if not any(b"/" in bytes(each.resources) for each in spec.containers):
        return None
    namespace = Namespace(intern(pod.metadata.namespace or "default"))
    demand = read_demand(spec, weights).demand
    requests = () if demand is None else demand.requests
    return Start(
        NodeName(intern(spec.node_name)), namespace, unix_seconds(status.start_time), status.start_time, requests
    )


def is_acknowledged(status: objects.PodStatus | None) -> bool:
    """Whether a kubelet has reported anything of a pod: its first report, before any container starts, has the time.

    Source: kubernetes 1.37, pkg/kubelet: kubelet.go (SyncPod), status/status_manager.go (updateStatusInternal).
    """
    return status is not None and bool(status.start_time or status.container_statuses or status.init_container_statuses)


def is_fault_of_node(phase: str, reason: str) -> bool:
    """Whether a pod ended because its node rejected it, for a reason that is the node's."""
    return phase == "Failed" and _is_fault(reason)


def _is_fault(reason: str) -> bool:
    return reason in _NODE_FAULTS or (reason.startswith(_OUT_OF) and "/" in reason)


# Retries of controllers whose pods were refused: the Event that is read and the annotation that is written. Pure.


class RefusalEvent(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of an Event about a refused pod that name its controller."""

    metadata: objects.ObjectMeta = objects.ObjectMeta()
    reason: str | None = None
    involved_object: ObjectRef = ObjectRef()
    related: ObjectRef | None = None


def refused_owner(event: RefusalEvent) -> RefusedOwner | None:
    """Return the controller of the refused pod; None if its kind is not retried.

    Users who may create Events may name any object in them, so the namespace is always that of the Event.
    """
    found = event.related or event.involved_object
    if event.reason != EventReason.REFUSED or not is_retried(found.api_version, found.kind):
        return None
    if not (event.metadata.namespace and found.name and found.uid):
        return None
    controller = Controller(found.api_version, found.kind, found.name, found.uid)
    return RefusedOwner(event.metadata.namespace, controller)


def retry_patch(uid: str, *, at: str) -> bytes:
    """Return a merge patch of one annotation, which succeeds only on the object with this UID."""
    return msgspec.json.encode({"metadata": {"uid": uid, "annotations": {keys.RETRY_AT: at}}})


# Pods that never end, on nodes that are lost: which are marked as failed, so that their Jobs replace them.
#
# A Job with podReplacementPolicy Failed replaces a pod once it has ended. On a lost node no kubelet reports that, and
# kube-controller-manager does so only where the node object is deleted, or has the taint
# node.kubernetes.io/out-of-service. A Job whose policy was TerminatingOrFailed before Fairgate changed it would have
# had its replacement as soon as the pod was deleted.


AT_ONCE: Final = "TerminatingOrFailed"
"""The default podReplacementPolicy of a Job without a podFailurePolicy: pods are replaced as soon as they terminate."""


class _JobSpec(msgspec.Struct, frozen=True, rename="camel"):
    pod_replacement_policy: str | None = None


class _Job(msgspec.Struct, frozen=True):
    metadata: objects.ObjectMeta = objects.ObjectMeta()
    spec: _JobSpec = _JobSpec()


_job_decoder: Final = msgspec.json.Decoder(_Job)


def replaces_at_once(body: bytes, uid: str) -> bool:
    """Whether a Job would replace its pods as soon as they are deleted, had Fairgate not added a rule to it.

    `body` is the Job as it is now; False where it is another one than that with this UID, or no Job.
    """
    try:
        job = _job_decoder.decode(body)
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


# Pods that are too large to be updated: what their eviction can do without.
#
# etcd refuses an object of more than about 1.5 MiB (`--max-request-bytes`). A deletion updates the object before it
# removes it, with a grace period of 0 too (tried on kube-apiserver 1.37), so a pod at that limit answers every eviction
# and deletion with 500, until an update makes it smaller.


LARGE_BYTES: Final = bounds.POD_BYTES
"""A pod that is smaller, as JSON, keeps everything: its size is not why its eviction fails."""

KEPT_BYTES: Final = 16 * 1024
"""How large the labels, the finalizers and the controller's reference of a pod may be, each, to be kept."""

_KUBERNETES: Final = "kubernetes.io"
_STATUSES: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


class Reduction(NamedTuple):
    """A JSON patch that makes a pod smaller, and the subresource that it is for, "" for the pod itself."""

    subresource: str
    patch: bytes


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    owner_references: list[dict[str, Any]] | None = None
    finalizers: list[str] | None = None
    managed_fields: list[Any] | None = None


class _ResizedPod(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    status: dict[str, msgspec.Raw] = {}


_resized_pod_decoder: Final = msgspec.json.Decoder(_ResizedPod)


def reduction_of(body: bytes, uid: Uid) -> Reduction | None:
    """Return how a large pod becomes smaller; None where it is not large, or has nothing to lose. `body` is the pod.

    Metadata goes first. Of it stay what Fairgate reads, the controller, finalizers, and the labels, by which budgets
    select; of the last three no more than KEPT_BYTES each. Without such metadata the statuses of its containers go: no
    tenant can make those smaller before. The only precondition is the UID: else its owner could prevent the patch by
    updates.
    """
    if len(body) < LARGE_BYTES:
        return None
    try:
        pod = _resized_pod_decoder.decode(body)
    except msgspec.MsgspecError:
        return None
    changes = _of_metadata(pod.metadata)
    subresource = "" if changes else "status"
    changes = changes or [{"op": "remove", "path": f"/status/{part}"} for part in _STATUSES if part in pod.status]
    if not changes:
        return None
    return Reduction(
        subresource, msgspec.json.encode([{"op": "test", "path": "/metadata/uid", "value": uid}, *changes])
    )


def _of_metadata(metadata: _Metadata) -> list[dict[str, Any]]:
    annotations, labels = metadata.annotations or {}, metadata.labels or {}
    owners, finalizers = metadata.owner_references or [], metadata.finalizers or []
    kept = {
        "annotations": (annotations, _only(annotations, keys.STORED_ANNOTATIONS)),
        "labels": (labels, labels if _size(labels) <= KEPT_BYTES else _only(labels, READ_LABELS)),
        "ownerReferences": (owners, [each for each in owners if _is_kept(each)]),
        "finalizers": (finalizers, _kept_finalizers(finalizers)),
        "managedFields": (metadata.managed_fields or [{}], [{}]),  # one empty entry: the API server then stores none
    }
    return [
        {"op": "replace", "path": f"/metadata/{part}", "value": after}
        for part, (before, after) in kept.items()
        if before != after
    ]


def _only(there: Mapping[str, str], listed: Iterable[str]) -> dict[str, str]:
    return {key: there[key] for key in listed if key in there}


def _is_kept(owner: Mapping[str, Any]) -> bool:
    return owner.get("controller") is True and _size(owner) <= KEPT_BYTES


def _kept_finalizers(finalizers: list[str]) -> list[str]:
    """Return those that stay; of too many only Kubernetes' own, such as the one by which a Job counts the pod."""
    if _size(finalizers) <= KEPT_BYTES:
        return finalizers
    own = [each for each in finalizers if each.partition("/")[0].endswith(_KUBERNETES)]
    return own if _size(own) <= KEPT_BYTES else []


def _size(value: object) -> int:
    return len(msgspec.json.encode(value))


# What a pod has done: since when the present containers run, and since when it counts as running.
#
# Kubelet's `startTime` is when it took the pod, before it pulled any image. Nothing of that time is work, and a
# container that is started again begins again.


_DEVICE: Final = b"/"
_CLAIMS: Final = b'"claims"'


class Work(NamedTuple):
    """Times are seconds of Unix time. `since` is when the last of its running containers started, 0 while none runs.

    `runtime_from` is when its containers ran first, and where their statuses do not say it, when kubelet took the pod:
    a container that is started again earns no further minimum runtime. `is_working`: one of them runs.
    """

    since: int = 0
    runtime_from: int = 0
    is_working: bool = False


def work_of(pod: objects.Pod) -> Work:
    """Return what a pod's own containers have done; where it has any with devices, only those count.

    Without statuses of containers, as in older files, a pod that is not Pending runs since kubelet took it.
    """
    status = pod.status
    if status is None:
        return Work()
    taken = unix_seconds(status.start_time or "")
    if not status.container_statuses:
        return Work(taken, taken, status.phase != "Pending")
    with_devices = {each.name for each in pod.spec.containers if _has_devices(each)}
    counted = [each for each in status.container_statuses if not with_devices or each.name in with_devices]
    runs = [each.state.running for each in counted if each.state is not None and each.state.running is not None]
    since = max((unix_seconds(run.started_at or "") for run in runs), default=0)
    return Work(since, _first_start(counted) or taken, bool(runs))


def _has_devices(container: objects.Container) -> bool:
    resources = bytes(container.resources)
    return _DEVICE in resources or _CLAIMS in resources


def _first_start(containers: Iterable[objects.ContainerStatus]) -> int:
    """Return when the first of containers started that were never started again; 0 where one was, or none started."""
    found = list(containers)
    if any(each.restart_count for each in found):
        return 0
    runs = (each.state.running or each.state.terminated for each in found if each.state is not None)
    return min((unix_seconds(each.started_at or "") for each in runs if each is not None), default=0)
