"""What a kubelet did with a pod that it got: rejected it at its admission, or admitted it.

Only kubelet writes these fields: tenants may not write `pods/status`, and the API server drops a status at creation.
"""

from sys import intern
from typing import Final

from webhook.core.model.demand import Demand, Weights
from webhook.core.model.names import Namespace, NodeName
from webhook.core.placement.rejecting_nodes import ANY_SHAPE, Rejection, Shape, Start
from webhook.kube.objects import objects
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
