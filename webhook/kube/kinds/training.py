"""Kubeflow, TrainJob, Ray, PodGroups.

Kubeflow's training kinds of v1 and its MPIJob of v2beta1, and notebooks.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from webhook.core.model.policy import WorkloadKind
from webhook.kube.kinds.gpu_requests import merge_spec
from webhook.kube.kinds.job_failures import TrainingJob, training_budget
from webhook.kube.kinds.kind_row import (
    JOB,
    STATEFUL_SET,
    Failures,
    GangRules,
    Manager,
    PodsFound,
    ReadContext,
    Reader,
    Row,
    Stage,
    Stages,
    fatal,
    gang_kind,
    is_number,
    less,
)
from webhook.kube.kinds.kubernetes import job_peak, suspended
from webhook.kube.kinds.model import (
    ONE,
    Budget,
    Count,
    Json,
    Pods,
    count_at,
    dig,
    entries,
    listed,
    mapping,
    replicated,
    shown,
    text,
    unknown_pods,
)
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

KUBEFLOW_ROWS: Final = (
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


# PodGroups: they make no pods, and say how many of a gang start together.


def _least(group: Json) -> int:
    """Return how many pods a group wants together: of Volcano, scheduler-plugins or Kubernetes itself.

    Raises ValueError if it does not say it.
    """
    spec = mapping(group.get("spec"))
    policy = spec.get("schedulingPolicy")
    if policy is not None and dig(policy, "gang") is None:
        return 1  # its pods are scheduled one by one
    least = dig(policy, "gang.minCount") if policy is not None else spec.get("minMember")
    if isinstance(least, bool) or not isinstance(least, int) or least < 1:
        raise ValueError(f"it wants {shown(least)} pods together")
    return least


def _row(api: str, marker: str) -> Row:
    group, _, version = api.partition("/")
    return Row(
        WorkloadKind(group, "PodGroup", "podgroups"),
        (version,),
        "none: it says how many pods of a gang start together",
        is_judged=False,
        gang=GangRules(marker=marker, least=_least, counts_all=True),
    )


POD_GROUP_ROWS: Final = (
    _row(keys.GROUPS_API, keys.SCHEDULING_GROUP),
    _row("scheduling.volcano.sh/v1beta1", keys.VOLCANO_GROUP),
    _row("scheduling.x-k8s.io/v1alpha1", keys.SCHEDULER_PLUGINS_GROUP),
)


# Kubeflow's TrainJob: a runtime's JobSet with the TrainJob's number and resources of nodes.


_ANCESTOR: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
_NODE: Final = "node"


def train_job(document: Json, context: ReadContext) -> PodsFound:
    """Read a TrainJob; its pods are unknown without its runtime among the related objects."""
    kind = text(dig(document, "spec.runtimeRef.kind")) or "ClusterTrainingRuntime"
    name = text(dig(document, "spec.runtimeRef.name"))
    runtime = context.find(kind, name, is_namespaced=kind == "TrainingRuntime")
    if runtime is None:
        problem = f"its runtime, {kind} {name or 'without a name'}, was not provided: add it to the input"
        return PodsFound((unknown_pods(problem),))
    pods = tuple(
        _replicated(document, runtime, (role, where, mapping(entry)), context.budget)
        for role, where, entry in entries(runtime, "spec.template.spec.replicatedJobs", context.budget)
    )
    return PodsFound(pods, suspended(document, "spec.suspend"))


def _replicated(document: Json, runtime: Json, job: tuple[str, str, Json], budget: Budget) -> Pods:
    """Return the pods of a replicated job, given as `entries` yields it."""
    role, where, entry = job
    is_trainer = mapping(dig(entry, "template.metadata.labels")).get(_ANCESTOR) == "trainer"
    is_mpi = dig(runtime, "spec.mlPolicy.mpi") is not None
    has_launcher_node = is_mpi and dig(runtime, "spec.mlPolicy.mpi.runLauncherAsNode") is True
    count = _count(document, runtime, role, where, entry, is_trainer=is_trainer)
    template = _patched(document, role, mapping(dig(entry, "template.spec.template")), budget)
    resources = dig(document, "spec.trainer.resourcesPerNode")
    if isinstance(resources, dict) and (is_trainer or (has_launcher_node and role == _NODE)):
        template = _with_resources(template, resources, budget)
    return Pods(role, count, template)


def _count(document: Json, runtime: Json, role: str, where: str, entry: Json, *, is_trainer: bool) -> Count:
    """Return the pods of a replicated job as the operator does: nodes for the trainer, parallelism for the others."""
    spec = mapping(dig(entry, "template.spec"))
    requested = dig(document, "spec.trainer.numNodes")
    nodes = count_at(document, "spec.trainer.numNodes", default=None)
    is_mpi = dig(runtime, "spec.mlPolicy.mpi") is not None
    if is_mpi and role == _NODE and requested is not None:
        if dig(runtime, "spec.mlPolicy.mpi.runLauncherAsNode") is True and nodes.number is not None:
            return Count(max(nodes.number - 1, 1))  # the launcher is the first of the nodes
        return nodes
    if is_trainer and dig(runtime, "spec.mlPolicy") is not None:
        if requested is not None and not is_mpi:
            return nodes
        return count_at(runtime, "spec.mlPolicy.numNodes", default=1)
    replicas = ONE if is_trainer else count_at(entry, "replicas", default=1, named=f"{where}replicas")
    return replicas.times(job_peak(spec, f"{where}template.spec."))


def _patched(document: Json, role: str, template: Json, budget: Budget) -> Json:
    """Return the runtime's template with the TrainJob's patches for this job's pods."""
    for _, _, patch in entries(document, "spec.runtimePatches", budget):
        for name, _, job in entries(mapping(patch), "trainingRuntimeSpec.template.spec.replicatedJobs", budget):
            given = mapping(dig(job, "template.spec.template"))
            if name != role or not given:
                continue
            metadata = merge_spec(mapping(template.get("metadata")), mapping(given.get("metadata")), budget)
            spec = merge_spec(mapping(template.get("spec")), mapping(given.get("spec")), budget)
            template = {**template, "metadata": metadata, "spec": spec}
    return template


def _with_resources(template: Json, resources: Json, budget: Budget) -> Json:
    spec = mapping(template.get("spec"))
    budget.step(len(listed(spec.get("containers"))))
    containers = [
        {**mapping(each), "resources": resources} if mapping(each).get("name") == _NODE else each
        for each in listed(spec.get("containers"))
    ]
    return {**template, "spec": {**spec, "containers": containers}}


TRAIN_JOB_ROWS: Final = (
    Row(
        gang_kind("trainer.kubeflow.org", "TrainJob", "trainjobs"),
        ("v1alpha1",),
        "the jobs of its runtime, which must be given too; `trainer.numNodes` pods train, with `resourcesPerNode`",
        train_job,
        JOB,
        {"jobset.sigs.k8s.io/jobset-name": "{name}"},
        manager=Manager("spec.managedBy", ("trainer.kubeflow.org/trainjob-controller",)),
        gang=GangRules(described_by="JobSet"),
    ),
)
