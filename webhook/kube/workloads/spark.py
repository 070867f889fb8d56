"""SparkApplication: a driver and executors, described by Spark's own fields instead of pod templates."""

import re
from typing import Any, Final

from webhook.kube.workloads.kind_row import Found, Scene
from webhook.kube.workloads.model import Json, listed, mapping, text
from webhook.kube.workloads.paths import ONE, Count, Maker, Pods, count_at, dig
from webhook.kube.workloads.template_merge import container_over, laid_over

_JVM_SIZE: Final = re.compile(r"(\d+)\s*([kmgt]?)b?", re.IGNORECASE)
_MEBIBYTES: Final = {"k": 1 / 1024, "": 1, "m": 1, "g": 1024, "t": 1024 * 1024}
_DEFAULT_MEMORY: Final = "1g"
_LEAST_OVERHEAD_MEBIBYTES: Final = 384
_OVERHEAD: Final = 0.1
_COPIED: Final = ("affinity", "tolerations", "nodeSelector", "schedulerName", "initContainers", "priorityClassName")


def spark_application(document: Json, _scene: Scene) -> Found:
    """Read a SparkApplication; its executors are made by its driver."""
    driver, executor = mapping(dig(document, "spec.driver")), mapping(dig(document, "spec.executor"))
    pods = (
        Pods("driver", ONE, _template(document, driver, "spark-kubernetes-driver")),
        Pods("executor", _executors(document), _template(document, executor, "executor"), Maker("v1", "Pod")),
    )
    return Found(pods)


def scheduled_spark_application(document: Json, scene: Scene) -> Found:
    """Read a ScheduledSparkApplication: one run of it."""
    return spark_application({"spec": dig(document, "spec.template")}, scene)


def _executors(document: Json) -> Count:
    if dig(document, "spec.dynamicAllocation.enabled") is True:
        if dig(document, "spec.dynamicAllocation.maxExecutors") is None:
            return Count(None, "spec.dynamicAllocation.maxExecutors is not set: Spark may make any number of executors")
        return count_at(document, "spec.dynamicAllocation.maxExecutors", default=None)
    return count_at(document, "spec.executor.instances", default=1)


def _template(document: Json, role: Json, name: str) -> Json:
    base = mapping(role.get("template"))
    spec = mapping(base.get("spec"))
    known = [mapping(each) for each in listed(spec.get("containers"))]
    main = container_over(known[0] if known else {}, {"name": name, "resources": _resources(role)})
    made: dict[str, Any] = {**spec, "containers": [main, *known[1:], *listed(role.get("sidecars"))]}
    if selector := dig(document, "spec.nodeSelector"):
        made["nodeSelector"] = selector
    if volumes := dig(document, "spec.volumes"):
        made["volumes"] = volumes
    made = dict(laid_over(made, {key: role[key] for key in _COPIED if key in role}))
    metadata = laid_over(
        mapping(base.get("metadata")), {key: role[key] for key in ("labels", "annotations") if key in role}
    )
    return {"metadata": metadata, "spec": made}


def _resources(role: Json) -> Json:
    """Turn Spark's cores, memory and GPUs into requests and limits."""
    memory = f"{_mebibytes(role)}Mi"
    requests: dict[str, Any] = {"cpu": str(role.get("coreRequest") or role.get("cores") or 1), "memory": memory}
    limits: dict[str, Any] = {"memory": memory}
    if role.get("coreLimit"):
        limits["cpu"] = str(role["coreLimit"])
    gpu = mapping(role.get("gpu"))
    if text(gpu.get("name")):
        limits[text(gpu.get("name"))] = gpu.get("quantity")
    return {"requests": requests, "limits": limits}


def _mebibytes(role: Json) -> int:
    """Add to the heap what Spark adds to it: a tenth, and never less than 384 MiB."""
    heap = _size(text(role.get("memory")) or _DEFAULT_MEMORY)
    given = text(role.get("memoryOverhead"))
    return int(heap + (_size(given) if given else max(heap * _OVERHEAD, _LEAST_OVERHEAD_MEBIBYTES)))


def _size(given: str) -> float:
    """Read a size as the JVM writes it, in MiB; one that it would refuse counts nothing."""
    found = _JVM_SIZE.fullmatch(given.strip())
    return int(found[1]) * _MEBIBYTES[found[2].lower()] if found else 0
