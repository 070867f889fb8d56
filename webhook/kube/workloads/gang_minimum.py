"""The fewest pods with which an object works from now on: elastic kinds state a minimum, and pods complete."""

from collections.abc import Callable
from typing import Any, Final, TypeGuard

from webhook.kube.workloads.model import Json, listed, mapping, text
from webhook.kube.workloads.paths import dig

_REPLICA_SPECS: Final = "ReplicaSpecs"
_RAY_CLUSTERS: Final = ("rayClusterSpec", "rayClusterConfig")


def at_minimum(document: Json) -> Json:
    """Return an object as it is at its smallest: with the fewest workers, and without pods that have completed."""
    change = _CHANGES.get(text(document.get("kind")))
    if change is None or (document.get("kind") == "Job" and document.get("apiVersion") != "batch/v1"):
        return document
    return {**document, "spec": change(mapping(document.get("spec")), mapping(document.get("status")))}


def least_together(document: Json) -> int | None:
    """Return how many pods of a Kubeflow job its schedulingPolicy wants together; None where it wants all."""
    least = dig(document, "spec.runPolicy.schedulingPolicy.minAvailable")
    return least if _is_number(least) and least else None


def _job(spec: Json, status: Json) -> dict[str, Any]:
    completions, succeeded = spec.get("completions"), status.get("succeeded")
    if not (_is_number(completions) and _is_number(succeeded)):
        return dict(spec)
    return {**spec, "completions": max(1, completions - succeeded)}


def _job_set(spec: Json, status: Json) -> dict[str, Any]:
    states = map(mapping, listed(status.get("replicatedJobsStatus")))
    done = {text(each.get("name")): each.get("succeeded") for each in states}
    jobs = [_less(mapping(job), done.get(text(mapping(job).get("name")))) for job in listed(spec.get("replicatedJobs"))]
    return {**spec, "replicatedJobs": jobs}


def _kubeflow(spec: Json, status: Json) -> dict[str, Any]:
    """Return the spec without completed pods, and with as many workers as its elastic policy needs."""
    least = dig(spec, "elasticPolicy.minReplicas")
    changed: dict[str, Any] = {**spec, "elasticPolicy": None}
    for key in [key for key in spec if text(key).endswith(_REPLICA_SPECS)]:
        roles = {name: mapping(role) for name, role in mapping(spec[key]).items()}
        if least is not None and "Worker" in roles:
            roles["Worker"] = {**roles["Worker"], "replicas": least}
        changed[key] = {
            name: _less(role, dig(status, f"replicaStatuses.{name}.succeeded")) for name, role in roles.items()
        }
    return changed


def _ray_cluster(spec: Json, _status: Json) -> dict[str, Any]:
    """Return the spec with the workers that its autoscaler always keeps."""
    if spec.get("enableInTreeAutoscaling") is not True:
        return dict(spec)
    groups = [{**mapping(group), "replicas": mapping(group).get("minReplicas") or 0} for group in _groups(spec)]
    return {**spec, "enableInTreeAutoscaling": False, "workerGroupSpecs": groups}


def _ray_owner(spec: Json, _status: Json) -> dict[str, Any]:
    """Return the spec of an object that makes a RayCluster, with that one at its smallest."""
    found = {key: _ray_cluster(mapping(spec[key]), {}) for key in _RAY_CLUSTERS if key in spec}
    return {**spec, **found}


def _leader_worker_set(spec: Json, _status: Json) -> dict[str, Any]:
    return {**spec, "replicas": 1}  # each of its groups is a gang


_CHANGES: Final[dict[str, Callable[[Json, Json], dict[str, Any]]]] = {
    "Job": _job,
    "JobSet": _job_set,
    "LeaderWorkerSet": _leader_worker_set,
    "RayCluster": _ray_cluster,
    "RayJob": _ray_owner,
    "RayService": _ray_owner,
    **dict.fromkeys(("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob"), _kubeflow),
}


def _groups(spec: Json) -> list[Any]:
    return listed(spec.get("workerGroupSpecs"))


def _less(entry: Json, done: object) -> Json:
    """Return an entry with so many replicas fewer."""
    replicas = entry.get("replicas", 1)
    if not (_is_number(done) and done and _is_number(replicas)):
        return entry
    return {**entry, "replicas": max(0, replicas - done)}


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
