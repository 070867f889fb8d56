"""Kubeflow's training kinds of v1 and its MPIJob of v2beta1, and notebooks."""

from dataclasses import replace
from typing import Final

from webhook.kube.workloads.batch import suspended
from webhook.kube.workloads.kind_row import JOB, PodsFound, ReadContext, Reader
from webhook.kube.workloads.model import Json, mapping
from webhook.kube.workloads.paths import ONE, Count, Pods, count_at, dig, entries, replicated

_STOPPED: Final = "kubeflow-resource-stopped"


def replica_specs(field: str) -> Reader:
    """Return a reader for a kind that has its roles under one field of its spec."""

    def read(document: Json, context: ReadContext) -> PodsFound:
        pods = tuple(replicated(*entry) for entry in entries(document, f"spec.{field}", context.budget))
        return PodsFound(pods, suspended(document, "spec.runPolicy.suspend"))

    return read


def pytorch_job(document: Json, context: ReadContext) -> PodsFound:
    """Read a PyTorchJob; one with scaling metrics counts with its elastic maximum."""
    found = replica_specs("pytorchReplicaSpecs")(document, context)
    elastic = mapping(dig(document, "spec.elasticPolicy"))
    if not elastic.get("metrics") or elastic.get("maxReplicas") is None:
        return found
    maximum = count_at(document, "spec.elasticPolicy.maxReplicas", default=None)
    pods = tuple(
        replace(each, count=each.count.at_least(maximum)) if each.role.lower() == "worker" else each
        for each in found.pods
    )
    return found._replace(pods=pods)


def mpi_job(document: Json, context: ReadContext) -> PodsFound:
    """Read an MPIJob of either version: workers default to 0, and v2beta1 runs the launcher in a Job."""
    is_v2 = document.get("apiVersion") == "kubeflow.org/v2beta1"
    pods = tuple(
        replace(
            replicated(name, where, entry, default=0 if name == "Worker" else 1),
            controller=JOB if is_v2 and name == "Launcher" else None,
        )
        for name, where, entry in entries(document, "spec.mpiReplicaSpecs", context.budget)
    )
    return PodsFound(pods, suspended(document, "spec.runPolicy.suspend"))


def notebook(document: Json, _context: ReadContext) -> PodsFound:
    """Read a Notebook: one pod, or none while it is stopped."""
    is_stopped = _STOPPED in mapping(dig(document, "metadata.annotations"))
    count, warnings = (Count(0), ("stopped: its pod is created when it is started",)) if is_stopped else (ONE, ())
    return PodsFound((Pods("", count, mapping(dig(document, "spec.template"))),), warnings)
