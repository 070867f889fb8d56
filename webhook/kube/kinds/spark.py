"""SparkApplication: a driver and executors, described by Spark's own fields instead of pod templates."""

import re
from typing import Any, Final

from webhook.core.model.policy import WorkloadKind
from webhook.kube.kinds.budget import Budget
from webhook.kube.kinds.kind_row import PodsFound, ReadContext, Row
from webhook.kube.kinds.model import Json, listed, mapping, scalar, text
from webhook.kube.kinds.paths import ONE, ControllerKind, Count, Pods, count_at, dig
from webhook.kube.kinds.template_merge import merge_container, merge_spec

_JVM_SIZE: Final = re.compile(r"([0-9]{1,18})\s*([kmgt]?)b?", re.IGNORECASE)
_MEBIBYTES: Final = {"k": 1 / 1024, "": 1, "m": 1, "g": 1024, "t": 1024 * 1024}
_DEFAULT_MEMORY: Final = "1g"
_MIN_OVERHEAD_MEBIBYTES: Final = 384
_OVERHEAD: Final = 0.1
_COPIED: Final = ("affinity", "tolerations", "nodeSelector", "schedulerName", "initContainers", "priorityClassName")


def spark_application(document: Json, context: ReadContext) -> PodsFound:
    """Read a SparkApplication; its driver creates the executors."""
    driver, executor = mapping(dig(document, "spec.driver")), mapping(dig(document, "spec.executor"))
    of_driver = _template(document, driver, "spark-kubernetes-driver", context.budget)
    of_executor = _template(document, executor, "executor", context.budget)
    pods = (
        Pods("driver", ONE, of_driver),
        Pods("executor", _executors(document), of_executor, ControllerKind("v1", "Pod")),
    )
    return PodsFound(pods)


def scheduled_spark_application(document: Json, context: ReadContext) -> PodsFound:
    """Read a ScheduledSparkApplication: one run."""
    return spark_application({"spec": dig(document, "spec.template")}, context)


def _executors(document: Json) -> Count:
    if dig(document, "spec.dynamicAllocation.enabled") is True:
        if dig(document, "spec.dynamicAllocation.maxExecutors") is None:
            return Count(
                None, "spec.dynamicAllocation.maxExecutors is not set: Spark may create any number of executors"
            )
        return count_at(document, "spec.dynamicAllocation.maxExecutors", default=None)
    return count_at(document, "spec.executor.instances", default=1)


def _template(document: Json, role: Json, name: str, budget: Budget) -> Json:
    base = mapping(role.get("template"))
    spec = mapping(base.get("spec"))
    known = [mapping(each) for each in listed(spec.get("containers"))]
    main = merge_container(known[0] if known else {}, {"name": name, "resources": _resources(role)}, budget)
    made: dict[str, Any] = {**spec, "containers": [main, *known[1:], *listed(role.get("sidecars"))]}
    if selector := dig(document, "spec.nodeSelector"):
        made["nodeSelector"] = selector
    if volumes := dig(document, "spec.volumes"):
        made["volumes"] = volumes
    made = dict(merge_spec(made, {key: role[key] for key in _COPIED if key in role}, budget))
    given = {key: role[key] for key in ("labels", "annotations") if key in role}
    metadata = merge_spec(mapping(base.get("metadata")), given, budget)
    return {"metadata": metadata, "spec": made}


def _resources(role: Json) -> Json:
    """Return Spark's cores, memory and GPUs as requests and limits."""
    memory = f"{_mebibytes(role)}Mi"
    requests: dict[str, Any] = {"cpu": _cpu(role.get("coreRequest") or role.get("cores") or 1), "memory": memory}
    limits: dict[str, Any] = {"memory": memory}
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


ROWS: Final = (
    Row(
        WorkloadKind("sparkoperator.k8s.io", "SparkApplication", "sparkapplications"),
        ("v1beta2",),
        "a driver, and `executor.instances` (1); with dynamic allocation `maxExecutors`",
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
