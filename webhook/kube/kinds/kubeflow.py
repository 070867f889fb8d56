"""Kubeflow's training kinds of v1 and its MPIJob of v2beta1, and notebooks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from webhook.core.model.workload_rules import WorkloadKind
from webhook.kube.kinds.batch import suspended
from webhook.kube.kinds.gang_rules import GangRules, Stage, Stages, is_number, less
from webhook.kube.kinds.job_failures import TrainingJob, training_budget
from webhook.kube.kinds.kind_row import (
    JOB,
    STATEFUL_SET,
    Failures,
    Manager,
    PodsFound,
    ReadContext,
    Reader,
    Row,
    fatal,
    gang_kind,
)
from webhook.kube.kinds.model import Json, mapping, text
from webhook.kube.kinds.paths import ONE, Count, Pods, count_at, dig, entries, replicated
from webhook.kube.objects import keys

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


def _at_minimum(spec: Json, status: Json) -> Mapping[str, Any]:
    """Return the spec without completed pods, and with as many workers as its elastic policy needs."""
    least = dig(spec, "elasticPolicy.minReplicas")
    changed: dict[str, Any] = {**spec, "elasticPolicy": None}
    for key in [key for key in spec if text(key).endswith("ReplicaSpecs")]:
        roles = {name: mapping(role) for name, role in mapping(spec[key]).items()}
        if least is not None and "Worker" in roles:
            roles["Worker"] = {**roles["Worker"], "replicas": least}
        changed[key] = {
            name: less(role, dig(status, f"replicaStatuses.{name}.succeeded")) for name, role in roles.items()
        }
    return changed


def _least_together(document: Json) -> int | None:
    """Return how many pods the schedulingPolicy wants together; None where it wants all."""
    least = dig(document, "spec.runPolicy.schedulingPolicy.minAvailable")
    return least if is_number(least) and least else None


def _stages_of_mpi_job(document: Json) -> Stages:
    waits = dig(document, "spec.launcherCreationPolicy") == "WaitForWorkersReady"
    return Stages({"Launcher": Stage(step=1)} if waits else {})


def _gang(*makers: str) -> GangRules:
    return GangRules(marker=keys.KUBEFLOW_JOB, makers=frozenset(makers), minimum=_at_minimum, least=_least_together)


def _training(kind: str, field: str, read: Reader | None = None, description: str = "") -> Row:
    return Row(
        gang_kind("kubeflow.org", kind, f"{kind.lower()}s"),
        ("v1",),
        description or f"`spec.{field}.<role>`: `replicas` (1)",
        read or replica_specs(field),
        labels={"training.kubeflow.org/job-name": "{name}", "training.kubeflow.org/replica-type": "{type}"},
        manager=_MANAGER,
        gang=_gang(kind),
        deadline=_DEADLINE,
        failures=Failures(TrainingJob, training_budget),
    )


_DEADLINE: Final = "spec.runPolicy.activeDeadlineSeconds"
_MANAGER: Final = Manager("spec.runPolicy.managedBy", ("kubeflow.org/training-operator", "kubeflow.org/mpi-operator"))

ROWS: Final = (
    _training(
        "PyTorchJob",
        "pytorchReplicaSpecs",
        pytorch_job,
        "`spec.pytorchReplicaSpecs.<role>`: `replicas` (1); workers with `elasticPolicy.metrics`: its `maxReplicas`",
    ),
    _training("TFJob", "tfReplicaSpecs"),
    _training("XGBoostJob", "xgbReplicaSpecs"),
    _training("PaddleJob", "paddleReplicaSpecs"),
    _training("JAXJob", "jaxReplicaSpecs"),
    _training("MXJob", "mxReplicaSpecs"),
    Row(
        gang_kind("kubeflow.org", "MPIJob", "mpijobs"),
        ("v1", "v2beta1"),
        "`spec.mpiReplicaSpecs`: `Launcher.replicas` (1) and `Worker.replicas` (0)",
        mpi_job,
        manager=_MANAGER,
        labels={"training.kubeflow.org/job-name": "{name}"},  # those of the role differ between v1 and v2beta1
        gang=replace(_gang("MPIJob", "Job"), stages=_stages_of_mpi_job),  # the launcher is the pod of a Job
        deadline=_DEADLINE,
        fails="its launcher fails with each worker that is evicted",
        loss=fatal,
    ),
    Row(
        WorkloadKind("kubeflow.org", "Notebook", "notebooks"),
        ("v1", "v1beta1", "v1alpha1"),
        "1, or 0 while it is stopped",
        notebook,
        STATEFUL_SET,
        {"notebook-name": "{name}"},
    ),
)
