"""What says the least replicas of a workload that others made: HorizontalPodAutoscalers, and Kubernetes' PodGroups.

A HorizontalPodAutoscaler may be one of KEDA or KServe. The pods of a PodGroup are a workload of their own.
"""

from typing import Final, NamedTuple

import msgspec

from webhook.core.model.names import WorkloadName
from webhook.core.world.minimums import WHOLE
from webhook.kube.objects import objects
from webhook.kube.pod.dra import PodGroup
from webhook.kube.pod.replicas import MAX_MINIMUM, MAX_NAME, group_of, name_of

SCALER_API: Final = "autoscaling/v2"
SCALERS: Final = "horizontalpodautoscalers"
KIND: Final = "HorizontalPodAutoscaler"


class _Target(msgspec.Struct, frozen=True, gc=False):
    kind: str
    name: str


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    scale_target_ref: _Target
    min_replicas: int | None = None


class Autoscaler(msgspec.Struct, frozen=True, gc=False):
    """A HorizontalPodAutoscaler."""

    metadata: objects.ObjectMeta
    spec: _Spec


class Scaling(NamedTuple):
    """A workload and the least replicas to which it is scaled. `is_gang`: they are of no use below that."""

    workload: WorkloadName
    minimum: int
    is_gang: bool = False


def scaling_of(found: Autoscaler) -> Scaling | None:
    """Return what an autoscaler says; None for names that no workload has. The API server's default minimum is 1."""
    target, least = found.spec.scale_target_ref, found.spec.min_replicas
    if max(len(target.kind), len(target.name)) > MAX_NAME:
        return None
    minimum = min(max(0, 1 if least is None else least), MAX_MINIMUM)
    return Scaling(name_of(found.metadata.namespace, target.kind, target.name), minimum)


def scaling_of_group(found: PodGroup) -> Scaling | None:
    """Return how many pods of a PodGroup must stay together; None for one whose pods are scheduled one by one.

    With disruption mode `all` that is all of them; the API server's default is `single`.
    """
    policy, mode = found.spec.scheduling_policy, found.spec.disruption_mode
    if policy is None or policy.gang is None:
        return None
    is_whole = mode is not None and mode.all is not None
    minimum = WHOLE if is_whole else min(max(0, policy.gang.min_count), MAX_MINIMUM)
    return Scaling(group_of(found.metadata.namespace or "default", found.metadata.name), minimum, is_gang=True)
