"""Kinds that are only paths to their replicas and to their pods, or to what these request: model servers and Dask."""

from typing import Final

from webhook.core.model.policy import PodPath, WorkloadKind
from webhook.kube.kinds.kind_row import REPLICA_SET, STATEFUL_SET, GangRules, Row, gang_kind, leader_worker_paths

_AIBRIX: Final = "orchestration.aibrix.ai"
_KTHENA: Final = "workload.serving.volcano.sh"
_DASK: Final = "kubernetes.dask.org"


def _storm_roles(each: str, *times: str) -> tuple[PodPath, ...]:
    return (PodPath("template", ("replicas", "podGroupSize", *times), each=each, default=1),)


def _serving_pods(template: str, role: str, *replicas: str) -> PodPath:
    scheduler = (("schedulerName", "$.spec.schedulerName"),)
    counts = (*replicas, "replicas", "$.spec.replicas")
    return PodPath(template, counts, role, "spec.template.roles", default=1, fields=scheduler, is_optional=True)


def _dask_pods(cluster: str) -> tuple[PodPath, ...]:
    workers = PodPath(f"{cluster}.worker", (f"{cluster}.worker.replicas",), "worker", default=3)
    return (workers, PodPath(f"{cluster}.scheduler", role="scheduler", is_optional=True))


_BOOSTER: Final = PodPath(
    replicas=("pods", "replicas", "$.spec.backend.replicas"),
    each="spec.backend.workers",
    default=1,
    resources="resources",
    fields=(
        ("affinity", "affinity"),
        ("tolerations", "tolerations"),
        ("schedulerName", "$.spec.backend.schedulerName"),
    ),
    is_optional=True,
)
_VLLM: Final = PodPath(
    replicas=("spec.deploymentConfig.replicas",),
    default=1,
    resources="spec.deploymentConfig.resources",
    maximum="spec.autoscalingConfig.maxReplicas",
    fields=(("tolerations", "spec.deploymentConfig.toleration"),),
)
_SLICES: Final = leader_worker_paths("spec", each="spec.roles", times=("$.spec.slices",))
_SERVING: Final = (
    _serving_pods("entryTemplate", "{name}"),
    _serving_pods("workerTemplate", "{name}-worker", "workerReplicas"),
)
_DASK_LABELS: Final = {"dask.org/cluster-name": "{name}", "dask.org/component": "{role}"}

ROWS: Final = (
    Row(
        gang_kind("disaggregatedset.x-k8s.io", "DisaggregatedSet", "disaggregatedsets", _SLICES),
        ("v1",),
        "each of `spec.roles`, as a LeaderWorkerSet, times `spec.slices` (1)",
        controller=STATEFUL_SET,
        labels={"disaggregatedset.x-k8s.io/name": "{name}"},
        gang=GangRules(described_by="LeaderWorkerSet"),
    ),
    Row(
        WorkloadKind(
            _AIBRIX, "StormService", "stormservices", _storm_roles("spec.template.spec.roles", "$.spec.replicas")
        ),
        ("v1alpha1",),
        "each of `spec.template.spec.roles`: `replicas` (1) times `podGroupSize` (1), times `spec.replicas` (1)",
        labels={"storm-service-name": "{name}", "role-name": "{role}"},
    ),
    Row(
        WorkloadKind(_AIBRIX, "RoleSet", "rolesets", _storm_roles("spec.roles")),
        ("v1alpha1",),
        "each of `spec.roles`: `replicas` (1) times `podGroupSize` (1)",
        is_judged=False,
    ),
    Row(
        WorkloadKind(_KTHENA, "ModelServing", "modelservings", _SERVING),
        ("v1alpha1",),
        "each of `spec.template.roles`: `replicas` (1) entries, each with `workerReplicas` workers, times "
        "`spec.replicas` (1)",
        labels={"modelserving.volcano.sh/name": "{name}"},
    ),
    Row(
        WorkloadKind(_KTHENA, "ModelBooster", "modelboosters", (_BOOSTER,)),
        ("v1alpha1",),
        "each of `spec.backend.workers`: `replicas` (1) times `pods` (1), times `spec.backend.replicas` (1)",
    ),
    Row(
        WorkloadKind("production-stack.vllm.ai", "VLLMRuntime", "vllmruntimes", (_VLLM,)),
        ("v1alpha1",),
        "`spec.deploymentConfig.replicas` (1), or `spec.autoscalingConfig.maxReplicas`, with `gpu` of `gpuType`",
        controller=REPLICA_SET,
        labels={"app": "{name}"},
    ),
    Row(
        WorkloadKind(_DASK, "DaskCluster", "daskclusters", _dask_pods("spec")),
        ("v1",),
        "`spec.worker.replicas` (3) workers and a scheduler",
        controller=REPLICA_SET,
        labels=_DASK_LABELS,
    ),
    Row(
        WorkloadKind(_DASK, "DaskWorkerGroup", "daskworkergroups", _dask_pods("spec")[:1]),
        ("v1",),
        "`spec.worker.replicas` (3)",
        controller=REPLICA_SET,
        labels={"dask.org/workergroup-name": "{name}"},
    ),
    Row(
        WorkloadKind(
            _DASK, "DaskJob", "daskjobs", (*_dask_pods("spec.cluster.spec"), PodPath("spec.job", role="job-runner"))
        ),
        ("v1",),
        "the pods of its cluster, as a DaskCluster, and the job's",
        controller=REPLICA_SET,
        labels=_DASK_LABELS,
    ),
)
