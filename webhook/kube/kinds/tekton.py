"""Tekton: a TaskRun is one pod, whose steps are its containers; a PipelineRun runs one for each of its tasks."""

from collections.abc import Iterator
from typing import Final

from webhook.core.model.policy import WorkloadKind
from webhook.kube.kinds.gpu_requests import merge_container
from webhook.kube.kinds.kind_row import PIPELINE, TASK, PodsFound, ReadContext, Row, fatal
from webhook.kube.kinds.model import ONE, ControllerKind, Json, Pods, dig, listed, mapping, text, unknown_pods
from webhook.kube.kinds.workflow_pods import devices_of

_TASK_RUN: Final = ControllerKind("tekton.dev/v1", "TaskRun")
_COPIED: Final = ("nodeSelector", "tolerations", "affinity", "schedulerName", "priorityClassName", "volumes")
_STEPS: Final = 20
"""The cost of reading one task."""


def task_run(document: Json, context: ReadContext) -> PodsFound:
    """Read a TaskRun: one pod with all steps of its task."""
    spec = mapping(document.get("spec"))
    task = _task(spec, context)
    if isinstance(task, str):
        return PodsFound((unknown_pods(task),))
    return PodsFound((Pods("", ONE, _pod(task, spec, mapping(spec.get("podTemplate")), context)),))


def pipeline_run(document: Json, context: ReadContext) -> PodsFound:
    """Read a PipelineRun: at most all of its tasks with devices run at once."""
    spec = mapping(document.get("spec"))
    pipeline = _referred(spec, "pipelineSpec", "pipelineRef", "Pipeline", context)
    if isinstance(pipeline, str):
        return PodsFound((unknown_pods(pipeline),))
    found: list[Pods] = []
    for role, run in _tasks(pipeline, spec):
        context.budget.step(_STEPS)
        task = _task(run, context)
        if isinstance(task, str):
            return PodsFound((unknown_pods(f"task {role}: {task}"),))
        settings = mapping(dig(spec, "taskRunTemplate.podTemplate"))
        found.append(Pods(role, ONE, _pod(task, run, settings, context)))
    with_devices = tuple(pods for pods in found if devices_of(pods.template))
    if with_devices:
        return PodsFound(with_devices, is_at_most=len(with_devices) > 1)
    return PodsFound(tuple(found[:1]), () if found else ("it has no tasks",))


def _tasks(pipeline: Json, spec: Json) -> Iterator[tuple[str, Json]]:
    """Yield the name of each task, and what a TaskRun of it would have."""
    given = {text(mapping(each).get("pipelineTaskName")): mapping(each) for each in listed(spec.get("taskRunSpecs"))}
    for part in ("tasks", "finally"):
        for each in listed(pipeline.get(part)):
            task = mapping(each)
            own = given.get(text(task.get("name")), {})
            yield (
                text(task.get("name")),
                {**task, **{key: own[key] for key in ("stepSpecs", "computeResources") if key in own}},
            )


def _task(spec: Json, context: ReadContext) -> Json | str:
    return _referred(spec, "taskSpec", "taskRef", "Task", context)


def _referred(spec: Json, embedded: str, reference: str, kind: str, context: ReadContext) -> Json | str:
    """Return the spec of a task or pipeline, or a message why it is unknown."""
    if isinstance(spec.get(embedded), dict):
        return mapping(spec[embedded])
    ref = mapping(spec.get(reference))
    if ref.get("resolver") or ref.get("bundle"):
        return f"its {kind} comes from a resolver, which is not read"
    kind, name = text(ref.get("kind")) or kind, text(ref.get("name"))
    found = context.find(kind, name, is_namespaced=kind != "ClusterTask")
    if found is None:
        return f"its {kind} {name or 'without a name'} was not provided: add it to the input"
    return mapping(found.get("spec"))


def _pod(task: Json, run: Json, settings: Json, context: ReadContext) -> Json:
    """Return the pod: steps with their template's and the run's resources, and sidecars."""
    budget = context.budget
    base = _container(mapping(task.get("stepTemplate")))
    given = {text(mapping(each).get("name")): mapping(each) for each in listed(run.get("stepSpecs"))}
    containers: list[Json] = []
    for index, each in enumerate(listed(task.get("steps"))):
        step = _container(mapping(each))
        merged = merge_container(base, step, budget)
        own = given.get(text(step.get("name")))
        merged = merge_container(merged, _container(own), budget) if own else merged
        containers.append({**merged, "name": f"step-{text(step.get('name')) or index}"})
    if containers and isinstance(run.get("computeResources"), dict):
        containers[0] = {**containers[0], "resources": run["computeResources"]}  # for the whole task
    sidecars = [_container(mapping(each)) for each in listed(task.get("sidecars"))]
    budget.step(len(containers) + len(sidecars))
    pod = {key: settings[key] for key in _COPIED if settings.get(key)}
    return {"spec": {**pod, "containers": [*containers, *sidecars]}}


def _container(written: Json) -> Json:
    """Return a step as a container: `computeResources` are its resources (`resources` in v1beta1)."""
    kept = {key: value for key, value in written.items() if key in ("name", "image", "resources", "restartPolicy")}
    given = written.get("computeResources")
    return {**kept, "resources": given} if isinstance(given, dict) else kept


_VERSIONS: Final = ("v1", "v1beta1")
_LABELS: Final = {"app.kubernetes.io/managed-by": "tekton-pipelines"}

ROWS: Final = (
    Row(
        WorkloadKind("tekton.dev", "TaskRun", "taskruns"),
        _VERSIONS,
        "1, with the devices of all steps; its Task must be given too",
        task_run,
        labels={**_LABELS, "tekton.dev/taskRun": "{name}"},
        deadline=TASK,
        fails="it fails with its evicted pod",
        loss=fatal,
    ),
    Row(
        WorkloadKind("tekton.dev", "PipelineRun", "pipelineruns"),
        _VERSIONS,
        "[at most all of its tasks](#workflows) that have devices; its Pipeline and Tasks must be given too",
        pipeline_run,
        _TASK_RUN,
        {**_LABELS, "tekton.dev/pipelineRun": "{name}"},
        deadline=PIPELINE,
        fails="a task fails with its evicted pod, and is tried again only as its retries say",
    ),
)
