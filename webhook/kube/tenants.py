"""From a pod as Kubernetes writes it to what reclaim reads of it: gang, times, notice, and where it may go."""

from collections.abc import Mapping
from dataclasses import replace
from sys import intern
from typing import Final

from webhook.core.demand import Weights
from webhook.core.pod import NO_KEYS
from webhook.core.tenant import Tenant
from webhook.core.victim import GangId
from webhook.kube import keys, objects
from webhook.kube.constraints import Placement, read_placement
from webhook.kube.pods import chosen_nodes, to_resident, unix_seconds

GRACE_SECONDS: Final = 30
"""What Kubernetes gives a pod that says nothing."""

_PLACED: Final = Placement()

_GANG_ANNOTATIONS: Final = (
    "scheduling.k8s.io/group-name",  # Volcano
    "pod-group-name",  # KAI-Scheduler
)
_GANG_LABELS: Final = (
    "scheduling.x-k8s.io/pod-group",
    "kueue.x-k8s.io/pod-group-name",
    "gang.scheduling.koordinator.sh/name",
    "training.kubeflow.org/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "leaderworkerset.sigs.k8s.io/group-key",
    "ray.io/cluster",
)


class TenantSpec(objects.PodSpec, frozen=True, gc=False, rename="camel"):
    """A pod's spec, with what only reclaim reads."""

    scheduling_gates: list[objects.Present] | None = None
    termination_grace_period_seconds: int | None = None


class TenantStatus(objects.PodStatus, frozen=True, gc=False, rename="camel"):
    """A pod's status, with when it started."""

    start_time: str | None = None


class TenantPod(objects.Pod, frozen=True, gc=False, rename="camel"):
    """A pod, with what only reclaim reads."""

    spec: TenantSpec
    status: TenantStatus | None = None


def to_tenant(pod: TenantPod, weights: Weights) -> Tenant | None:
    """Translate a pod that exists; None where it takes nothing that counts. Raises ValueError as to_resident does.

    The node that the gate promised is left out: only pods that are on a node take room there, to reclaim.
    """
    resident = to_resident(pod, weights)
    if resident is None:
        return None
    metadata, spec = pod.metadata, pod.spec
    annotations = metadata.annotations or NO_KEYS
    grace = spec.termination_grace_period_seconds
    is_ours = resident.team_label is not None
    placement = read_placement(spec) if resident.node is None else _PLACED
    labels = metadata.labels or NO_KEYS
    return Tenant(
        pod=replace(resident, promised=None),
        labels=labels,
        constraints=placement.constraints,
        topology=placement.topology(labels),
        gang=_gang(metadata, spec) if resident.demand.gpus else None,
        started_at=unix_seconds(pod.status.start_time or "") if pod.status is not None else 0,
        saved_at=_time(annotations, keys.CHECKPOINTED) or 0,
        leaves_at=unix_seconds(metadata.deletion_timestamp) if metadata.deletion_timestamp else None,
        notice_at=_time(annotations, keys.EVICT_AT),
        grace_seconds=GRACE_SECONDS if grace is None else grace,
        is_gated=bool(spec.scheduling_gates),
        chosen=chosen_nodes(annotations) if is_ours and resident.node is None else (),
    )


def _gang(metadata: objects.ObjectMeta, spec: TenantSpec) -> GangId | None:
    """Read which pods it belongs together with, by the first marker that is there."""
    if spec.scheduling_group is not None and spec.scheduling_group.pod_group_name:
        return _gang_id(metadata.namespace, "schedulingGroup", spec.scheduling_group.pod_group_name)
    for marked, names in ((metadata.annotations, _GANG_ANNOTATIONS), (metadata.labels, _GANG_LABELS)):
        for name in names if marked else ():
            if value := (marked or NO_KEYS).get(name):
                return _gang_id(metadata.namespace, name, value)
    return None


def _gang_id(namespace: str, marker: str, value: str) -> GangId:
    return GangId(intern(f"{namespace}/{marker}={value}"))


def _time(annotations: Mapping[str, str], key: str) -> int | None:
    return unix_seconds(annotations[key]) if key in annotations else None
