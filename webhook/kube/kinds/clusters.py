"""Kinds of clusters with a head or driver and workers: Ray and Spark.

SparkApplication: a driver and executors, described by Spark's own fields instead of pod templates.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from webhook.core.model.policy import WorkloadKind
from webhook.core.reclaim.victims import Loss
from webhook.kube.kinds.gpu_requests import merge_container, merge_spec
from webhook.kube.kinds.kind_row import JOB, PROGRESS, GangRules, Manager, PodsFound, ReadContext, Row, gang_kind
from webhook.kube.kinds.kubernetes import suspended
from webhook.kube.kinds.model import (
    ONE,
    Budget,
    ControllerKind,
    Count,
    Json,
    Pods,
    count_at,
    dig,
    digits,
    entries,
    listed,
    mapping,
    scalar,
    text,
    unknown_pods,
)
from webhook.kube.objects import keys
from webhook.kube.objects.bounds import shortened

_JVM_SIZE: Final = re.compile(r"([0-9]{1,18})\s*([kmgt]?)b?", re.IGNORECASE)
_MEBIBYTES: Final = {"k": 1 / 1024, "": 1, "m": 1, "g": 1024, "t": 1024 * 1024}
_DEFAULT_MEMORY: Final = "1g"
_MIN_OVERHEAD_MEBIBYTES: Final = 384
_OVERHEAD: Final = 0.1
_ROLES: Final = ("driver", "executor")
_DYNAMIC: Final = "spark.dynamicAllocation"
_CONF_STEPS: Final = 4
"""The cost of one entry of sparkConf, which is read several times."""
_COPIED: Final = ("affinity", "tolerations", "nodeSelector", "schedulerName", "initContainers", "priorityClassName")


def spark_application(document: Json, context: ReadContext) -> PodsFound:
    """Read a SparkApplication; its driver creates the executors."""
    driver, executor = mapping(dig(document, "spec.driver")), mapping(dig(document, "spec.executor"))
    conf = mapping(dig(document, "spec.sparkConf"))
    context.budget.step(_CONF_STEPS * len(conf))
    unset = next((name for role in _ROLES for name in _without_vendor(conf, role)), None)
    if unset is not None:
        problem = f"spec.sparkConf sets {shortened(unset)}.amount without its vendor, of which Spark makes the resource"
        return PodsFound((unknown_pods(problem),))
    of_driver = _template(document, driver, "spark-kubernetes-driver", _devices(conf, "driver"), context.budget)
    of_executor = _template(document, executor, "executor", _devices(conf, "executor"), context.budget)
    pods = (
        Pods("driver", ONE, of_driver),
        Pods("executor", _executors(document, conf), of_executor, ControllerKind("v1", "Pod")),
    )
    return PodsFound(pods)


def scheduled_spark_application(document: Json, context: ReadContext) -> PodsFound:
    """Read a ScheduledSparkApplication: one run."""
    return spark_application({"spec": dig(document, "spec.template")}, context)


def _executors(document: Json, conf: Json) -> Count:
    """Return the number of executors; fields of the spec take precedence over those of sparkConf."""
    is_dynamic = dig(document, "spec.dynamicAllocation.enabled")
    if is_dynamic is True or (is_dynamic is None and scalar(conf.get(f"{_DYNAMIC}.enabled")) == "true"):
        if dig(document, "spec.dynamicAllocation.maxExecutors") is not None:
            return count_at(document, "spec.dynamicAllocation.maxExecutors", default=None)
        return _of_conf(conf, f"{_DYNAMIC}.maxExecutors", "Spark may create any number of executors")
    if dig(document, "spec.executor.instances") is None and "spark.executor.instances" in conf:
        return _of_conf(conf, "spark.executor.instances", "")
    return count_at(document, "spec.executor.instances", default=1)


def _of_conf(conf: Json, key: str, unset: str) -> Count:
    """Return the number at a key of sparkConf, whose values are texts; `unset` says what holds without it."""
    named = f"{key} of spec.sparkConf"
    if key not in conf:
        return Count(None, f"{named}, or spec.{key.removeprefix('spark.')}, is not set: {unset}")
    number = digits(conf[key])
    return count_at({"given": conf[key] if number is None else number}, "given", default=None, named=named)


def _without_vendor(conf: Json, role: str) -> Iterator[str]:
    """Yield each resource of a role whose vendor is not set, as the prefix of its keys."""
    for name, _ in _amounts(conf, role):
        prefix = f"spark.{role}.resource.{name}"
        if not text(conf.get(f"{prefix}.vendor")):
            yield prefix


def _devices(conf: Json, role: str) -> Json:
    """Return the extended resources that sparkConf requests for a role: VENDOR/NAME."""
    vendors = {name: text(conf[f"spark.{role}.resource.{name}.vendor"]) for name, _ in _amounts(conf, role)}
    return {f"{vendors[name]}/{name}": amount for name, amount in _amounts(conf, role)}


def _amounts(conf: Json, role: str) -> Iterator[tuple[str, object]]:
    prefix = f"spark.{role}.resource."
    for key, amount in conf.items():
        if str(key).startswith(prefix) and key.endswith(".amount"):
            yield key.removeprefix(prefix).removesuffix(".amount"), amount


def _template(document: Json, role: Json, name: str, devices: Json, budget: Budget) -> Json:
    base = mapping(role.get("template"))
    spec = mapping(base.get("spec"))
    known = [mapping(each) for each in listed(spec.get("containers"))]
    main = merge_container(known[0] if known else {}, {"name": name, "resources": _resources(role, devices)}, budget)
    made: dict[str, Any] = {**spec, "containers": [main, *known[1:], *listed(role.get("sidecars"))]}
    if selector := dig(document, "spec.nodeSelector"):
        made["nodeSelector"] = selector
    if volumes := dig(document, "spec.volumes"):
        made["volumes"] = volumes
    made = dict(merge_spec(made, {key: role[key] for key in _COPIED if key in role}, budget))
    given = {key: role[key] for key in ("labels", "annotations") if key in role}
    metadata = merge_spec(mapping(base.get("metadata")), given, budget)
    return {"metadata": metadata, "spec": made}


def _resources(role: Json, devices: Json) -> Json:
    """Return Spark's cores, memory and GPUs as requests and limits."""
    memory = f"{_mebibytes(role)}Mi"
    requests: dict[str, Any] = {"cpu": _cpu(role.get("coreRequest") or role.get("cores") or 1), "memory": memory}
    limits: dict[str, Any] = {"memory": memory, **devices}
    if role.get("coreLimit"):
        limits["cpu"] = _cpu(role["coreLimit"])
    gpu = mapping(role.get("gpu"))
    if text(gpu.get("name")):
        limits[text(gpu.get("name"))] = gpu.get("quantity")
    return {"requests": requests, "limits": limits}


def _cpu(value: object) -> object:
    written = scalar(value)
    return value if written is None else written


def _mebibytes(role: Json) -> int:
    """Return heap and overhead as Spark does: a tenth of the heap, at least 384 MiB."""
    heap = _size(text(role.get("memory")) or _DEFAULT_MEMORY)
    given = text(role.get("memoryOverhead"))
    return int(heap + (_size(given) if given else max(heap * _OVERHEAD, _MIN_OVERHEAD_MEBIBYTES)))


def _size(given: str) -> float:
    """Return a JVM size in MiB; 0 if it is malformed."""
    found = _JVM_SIZE.fullmatch(given.strip())
    return int(found[1]) * _MEBIBYTES[found[2].lower()] if found else 0


SPARK_ROWS: Final = (
    Row(
        WorkloadKind("sparkoperator.k8s.io", "SparkApplication", "sparkapplications"),
        ("v1beta2",),
        "a driver, and `executor.instances` (1), or with dynamic allocation `maxExecutors`; also by "
        "`sparkConf`, devices too",
        spark_application,
        labels={"sparkoperator.k8s.io/app-name": "{name}", "spark-role": "{type}"},
    ),
    Row(
        WorkloadKind("sparkoperator.k8s.io", "ScheduledSparkApplication", "scheduledsparkapplications"),
        ("v1beta2",),
        "one run, as a SparkApplication",
        scheduled_spark_application,
        labels={"spark-role": "{type}"},
    ),
)


# Ray's kinds: clusters of a head and worker groups, and the kinds that create such clusters.


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

RAY_ROWS: Final = (
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
