"""Kubeflow's TrainJob: a runtime's JobSet with the TrainJob's number and resources of nodes."""

from typing import Final

from webhook.kube.kinds.batch import job_peak, suspended
from webhook.kube.kinds.budget import Budget
from webhook.kube.kinds.gang_rules import GangRules
from webhook.kube.kinds.kind_row import JOB, Manager, PodsFound, ReadContext, Row, gang_kind
from webhook.kube.kinds.model import Json, listed, mapping, text
from webhook.kube.kinds.paths import ONE, Count, Pods, count_at, dig, entries, unknown_pods
from webhook.kube.kinds.template_merge import merge_spec

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


ROWS: Final = (
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
