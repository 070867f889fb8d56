"""Ray's kinds: clusters of a head and worker groups, and the kinds that create such clusters."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from webhook.core.model.workload_rules import WorkloadKind
from webhook.core.reclaim.failures import Loss
from webhook.kube.kinds.batch import suspended
from webhook.kube.kinds.budget import Budget
from webhook.kube.kinds.deadlines import PROGRESS
from webhook.kube.kinds.gang_rules import GangRules
from webhook.kube.kinds.kind_row import JOB, Manager, PodsFound, ReadContext, Row, gang_kind
from webhook.kube.kinds.model import Json, listed, mapping, text
from webhook.kube.kinds.paths import ONE, ControllerKind, Count, Pods, count_at, dig, entries
from webhook.kube.objects import keys

_SUBMITTER: Final[Json] = {
    "spec": {
        "containers": [
            {
                "name": "ray-job-submitter",
                "resources": {
                    "limits": {"cpu": "1", "memory": "1Gi"},
                    "requests": {"cpu": "500m", "memory": "200Mi"},
                },
            }
        ]
    }
}
"""The pod that submits a RayJob, if the object has no template for it."""


def ray_cluster(document: Json, context: ReadContext) -> PodsFound:
    """Read a RayCluster."""
    return PodsFound(_cluster(document, "spec", context.budget), suspended(document, "spec.suspend"))


def ray_job(document: Json, context: ReadContext) -> PodsFound:
    """Read a RayJob: its own cluster, and the pod that submits the job."""
    return _job(document, "spec", context.budget)


def ray_cron_job(document: Json, context: ReadContext) -> PodsFound:
    """Read a RayCronJob: one run."""
    found = _job(document, "spec.jobTemplate", context.budget)
    return found._replace(warnings=found.warnings + suspended(document, "spec.suspend"))


def ray_service(document: Json, context: ReadContext) -> PodsFound:
    """Read a RayService."""
    warning = "an upgrade runs a second cluster, which needs the same amount again"
    return PodsFound(_cluster(document, "spec.rayClusterConfig", context.budget), (warning,))


def ray_cluster_fleet(document: Json, context: ReadContext) -> PodsFound:
    """Read a RayClusterFleet of AIBrix: that many RayClusters."""
    times = count_at(document, "spec.replicas", default=1)
    cluster = _cluster(document, "spec.template.spec", context.budget)
    return PodsFound(tuple(replace(pods, count=pods.count.times(times)) for pods in cluster))


def _job(document: Json, path: str, budget: Budget) -> PodsFound:
    pods: tuple[Pods, ...] = ()
    warnings = suspended(document, f"{path}.suspend")
    if dig(document, f"{path}.clusterSelector"):
        warnings += ("it runs in an existing RayCluster, which is not counted here",)
    else:
        pods = _cluster(document, f"{path}.rayClusterSpec", budget)
    if text(dig(document, f"{path}.submissionMode")) in {"", "K8sJobMode"}:
        template = mapping(dig(document, f"{path}.submitterPodTemplate")) or _SUBMITTER
        pods += (Pods("submitter", ONE, template, JOB),)
    return PodsFound(pods, warnings)


def _cluster(document: Json, path: str, budget: Budget) -> tuple[Pods, ...]:
    head = Pods("head", ONE, mapping(dig(document, f"{path}.headGroupSpec.template")))
    is_scaled = dig(document, f"{path}.enableInTreeAutoscaling") is True
    groups = tuple(
        Pods(name, _group_count(mapping(group), where, is_scaled=is_scaled), mapping(mapping(group).get("template")))
        for name, where, group in entries(document, f"{path}.workerGroupSpecs", budget)
    )
    return (head, *groups)


def _group_count(group: Json, where: str, *, is_scaled: bool) -> Count:
    """Return the number of a group's pods as KubeRay does: replicas within their bounds, times hosts."""
    if group.get("suspend") is True:
        return Count(0)
    hosts = count_at(group, "numOfHosts", default=1, named=f"{where}numOfHosts")
    maximum = group.get("maxReplicas")
    if is_scaled:
        if maximum is None:
            return Count(None, f"{where}maxReplicas is not set: the autoscaler may create any number")
        return count_at(group, "maxReplicas", default=None, named=f"{where}maxReplicas").times(hosts)
    least = count_at(group, "minReplicas", default=0, named=f"{where}minReplicas")
    wanted = count_at(group, "replicas", default=least.number, named=f"{where}replicas")
    if maximum is not None:
        wanted = wanted.at_most(count_at(group, "maxReplicas", default=None, named=f"{where}maxReplicas"))
    return wanted.at_least(least).times(hosts)


def _smallest_cluster(spec: Json, _status: Json) -> Mapping[str, Any]:
    """Return the spec with the workers that its autoscaler always keeps."""
    if spec.get("enableInTreeAutoscaling") is not True:
        return spec
    groups = [
        {**mapping(group), "replicas": mapping(group).get("minReplicas") or 0}
        for group in listed(spec.get("workerGroupSpecs"))
    ]
    return {**spec, "enableInTreeAutoscaling": False, "workerGroupSpecs": groups}


def _with_smallest_cluster(spec: Json, _status: Json) -> Mapping[str, Any]:
    """Return the spec of an object that makes a RayCluster, with that one at its smallest."""
    places = ("rayClusterSpec", "rayClusterConfig")
    return {**spec, **{key: _smallest_cluster(mapping(spec[key]), {}) for key in places if key in spec}}


def _loss(labels: Mapping[str, str]) -> Loss:
    return Loss.FATAL if labels.get("ray.io/node-type") == "head" else Loss.HARMLESS


_RAY: Final = {"ray.io/is-ray-node": "yes"}
_RAY_CLUSTER: Final = ControllerKind("ray.io/v1", "RayCluster")
_MANAGER: Final = Manager("spec.managedBy", ("ray.io/kuberay-operator",))
_BY_CLUSTER: Final = GangRules(described_by="RayCluster", minimum=_with_smallest_cluster)

ROWS: Final = (
    Row(
        gang_kind("ray.io", "RayCluster", "rayclusters"),
        ("v1",),
        "a head, and for each group `replicas` between `minReplicas` and `maxReplicas`, times `numOfHosts` (1); "
        "with autoscaling `maxReplicas`",
        ray_cluster,
        labels={**_RAY, "ray.io/cluster": "{name}"},
        manager=_MANAGER,
        gang=GangRules(marker=keys.RAY_CLUSTER, minimum=_smallest_cluster),
        loss=_loss,
        is_intermediate=True,
    ),
    Row(
        gang_kind("ray.io", "RayJob", "rayjobs"),
        ("v1",),
        "its RayCluster, and a submitter in mode K8sJobMode",
        ray_job,
        _RAY_CLUSTER,
        manager=_MANAGER,
        gang=_BY_CLUSTER,
        deadline="spec.activeDeadlineSeconds",
    ),
    Row(
        gang_kind("ray.io", "RayCronJob", "raycronjobs"),
        ("v1",),
        "one run, as a RayJob",
        ray_cron_job,
        _RAY_CLUSTER,
        manager=_MANAGER._replace(path="spec.jobTemplate.managedBy"),
        gang=GangRules(described_by="RayCluster"),
        deadline="spec.jobTemplate.activeDeadlineSeconds",
    ),
    Row(
        gang_kind("ray.io", "RayService", "rayservices"),
        ("v1",),
        "its RayCluster; an upgrade runs a second one",
        ray_service,
        _RAY_CLUSTER,
        _RAY,
        manager=_MANAGER,
        gang=_BY_CLUSTER,
    ),
    *(
        Row(
            WorkloadKind("orchestration.aibrix.ai", kind, f"{kind.lower()}s"),
            ("v1alpha1",),
            "`spec.replicas` (1) RayClusters, each with the pods of one",
            ray_cluster_fleet,
            _RAY_CLUSTER,
            _RAY,
            deadline=PROGRESS if kind == "RayClusterFleet" else "",
            is_judged=kind == "RayClusterFleet",
        )
        for kind in ("RayClusterFleet", "RayClusterReplicaSet")
    ),
)
