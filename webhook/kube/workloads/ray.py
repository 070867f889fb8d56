"""Ray's kinds: clusters of a head and worker groups, and the kinds that create such clusters."""

from typing import Final

from webhook.kube.workloads.batch import suspended
from webhook.kube.workloads.budget import Budget
from webhook.kube.workloads.kind_row import JOB, PodsFound, ReadContext
from webhook.kube.workloads.model import Json, mapping, text
from webhook.kube.workloads.paths import ONE, Count, Pods, count_at, dig, entries

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
