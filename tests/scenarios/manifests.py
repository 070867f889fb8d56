"""Workloads of several operators, with pods of so many GPUs; small enough for two nodes by default."""

from __future__ import annotations

from typing import Any

from tests.control_plane.objects import pod_spec

SIZE = {"cpu": "2", "memory": "8Gi"}


def template(name: str = "main", **spec: Any) -> dict[str, Any]:
    """A pod template whose container has the name that its operator looks for."""
    made = pod_spec(**SIZE, **spec)
    made["containers"][0]["name"] = name
    return {"spec": made}


def pytorch_job(name: str, *, workers: int = 3, gpus: int = 1) -> dict[str, Any]:
    def role(count: int) -> dict[str, Any]:
        return {"replicas": count, "restartPolicy": "OnFailure", "template": template("pytorch", gpus=gpus)}

    specs = {"pytorchReplicaSpecs": {"Master": role(1), "Worker": role(workers)}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}, "spec": specs}


def tf_job(name: str, *, workers: int, gpus: int) -> dict[str, Any]:
    """A parameter server without GPUs, and workers."""
    roles = {
        "PS": {"replicas": 1, "template": template("tensorflow")},
        "Worker": {"replicas": workers, "template": template("tensorflow", gpus=gpus)},
    }
    specs = {"tfReplicaSpecs": roles}
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": name}, "spec": specs}


def xgboost_job(name: str, *, workers: int, gpus: int) -> dict[str, Any]:
    """A master and workers."""
    roles = {
        "Master": {"replicas": 1, "template": template("xgboost", gpus=gpus)},
        "Worker": {"replicas": workers, "template": template("xgboost", gpus=gpus)},
    }
    specs = {"xgbReplicaSpecs": roles}
    return {"apiVersion": "kubeflow.org/v1", "kind": "XGBoostJob", "metadata": {"name": name}, "spec": specs}


def paddle_job(name: str, *, workers: int, gpus: int) -> dict[str, Any]:
    specs = {"paddleReplicaSpecs": {"Worker": {"replicas": workers, "template": template("paddle", gpus=gpus)}}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PaddleJob", "metadata": {"name": name}, "spec": specs}


def job_set(name: str, *, replicas: int = 2, pods: int = 2, gpus: int = 1) -> dict[str, Any]:
    job = {"parallelism": pods, "completions": pods, "template": template(gpus=gpus, restartPolicy="Never")}
    jobs = [{"name": "trial", "replicas": replicas, "template": {"spec": job}}]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": jobs},
    }


def ray_cluster(name: str, *, workers: int, gpus: int) -> dict[str, Any]:
    """A head without GPUs, and one group of workers."""
    group = {
        "groupName": "gpu",
        "replicas": workers,
        "minReplicas": 0,
        "maxReplicas": workers,
        "rayStartParams": {},
        "template": template("worker", gpus=gpus),
    }
    head = {"rayStartParams": {}, "template": template("head")}
    spec = {"rayVersion": "2.46.0", "headGroupSpec": head, "workerGroupSpecs": [group]}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name}, "spec": spec}


def mpi_job(name: str, *, workers: int, gpus: int) -> dict[str, Any]:
    """A launcher without GPUs, and workers."""
    roles = {
        "Launcher": {"replicas": 1, "template": template("launcher")},
        "Worker": {"replicas": workers, "template": template("worker", gpus=gpus)},
    }
    spec = {"slotsPerWorker": gpus, "mpiReplicaSpecs": roles}
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": name}, "spec": spec}


def train_job(name: str, *, nodes: int, gpus: int) -> dict[str, Any]:
    resources = template(gpus=gpus)["spec"]["containers"][0]["resources"]
    spec = {
        "runtimeRef": {"name": "torch-distributed"},
        "trainer": {"numNodes": nodes, "resourcesPerNode": resources},
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": spec,
    }


def leader_worker_set(name: str, *, replicas: int, size: int, gpus: int) -> dict[str, Any]:
    spec = {"replicas": replicas, "leaderWorkerTemplate": {"size": size, "workerTemplate": template(gpus=gpus)}}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name},
        "spec": spec,
    }
