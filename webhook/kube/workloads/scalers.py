"""HorizontalPodAutoscalers, also those of KEDA and KServe: which workload each scales, and its least replicas."""

from typing import Final, NamedTuple

import msgspec

from webhook.core.model.names import WorkloadName
from webhook.kube.objects import objects
from webhook.kube.pod.replicas import MAX_MINIMUM, MAX_NAME, name_of

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
    """A workload and the least replicas to which it is scaled."""

    workload: WorkloadName
    minimum: int


def scaling_of(found: Autoscaler) -> Scaling | None:
    """Return what an autoscaler says; None for names that no workload has. The API server's default minimum is 1."""
    target, least = found.spec.scale_target_ref, found.spec.min_replicas
    if max(len(target.kind), len(target.name)) > MAX_NAME:
        return None
    minimum = min(max(0, 1 if least is None else least), MAX_MINIMUM)
    return Scaling(name_of(found.metadata.namespace, target.kind, target.name), minimum)
