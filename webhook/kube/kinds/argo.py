"""Argo: Workflows by the sum of their steps, and Rollouts.

A workflow runs many pods over time. All steps and tasks count, as if none waited for another, as far as `parallelism`
lets them run at once: so many pods run at most. Conditions (`when`) count as true; pods without devices are ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from webhook.core.model.policy import WorkloadKind
from webhook.kube.kinds.gpu_requests import amounts_in
from webhook.kube.kinds.kind_row import PROGRESS, REPLICA_SET, PodsFound, ReadContext, Row, fatal
from webhook.kube.kinds.kubernetes import overlapping, rolling_surge, suspended
from webhook.kube.kinds.model import (
    MAX_PODS,
    ONE,
    Budget,
    ControllerKind,
    Count,
    Json,
    Pods,
    Surge,
    count_at,
    dig,
    listed,
    mapping,
    text,
    unknown_pods,
)
from webhook.kube.kinds.workflow_pods import (
    Settings,
    Task,
    devices_of,
    has_pod,
    instances,
    pod_of,
    tasks_of,
)

_MAX_DEPTH: Final = 32
_CALL_STEPS: Final = 12
"""The cost of one step or task, besides that of what it calls."""
_COUNT_STEPS: Final = 5
"""The cost of computing with one number of pods."""

_ASSUMED_PODS: Final = 1000
"""The number of pods assumed for a task of unknown count when tasks are compared."""

_Counts = Mapping[str, Count]


class _Library(NamedTuple):
    """Templates that may call each other: of the workflow, or of a WorkflowTemplate (`prefix`: name and slash)."""

    prefix: str
    templates: Mapping[str, Json]


class _Call(NamedTuple):
    """A step or task: the most pods of one instance of what it calls, and how many instances there are."""

    counts: _Counts
    number: Count


class _UnknownError(Exception):
    """The number of pods cannot be determined; the text says why."""


def workflow(document: Json, context: ReadContext) -> PodsFound:
    """Read a Workflow."""
    return _workflow(mapping(document.get("spec")), context, suspended(document, "spec.suspend"))


def cron_workflow(document: Json, context: ReadContext) -> PodsFound:
    """Read a CronWorkflow: one run of it."""
    warnings = suspended(document, "spec.suspend") + overlapping(document)
    return _workflow(mapping(dig(document, "spec.workflowSpec")), context, warnings)


def rollout(document: Json, context: ReadContext) -> PodsFound:
    """Read a Rollout, whose template may be that of another object."""
    count = count_at(document, "spec.replicas", default=1)
    ref = mapping(dig(document, "spec.workloadRef"))
    if not ref:
        return PodsFound((Pods("", count, mapping(dig(document, "spec.template"))),))
    kind, name = text(ref.get("kind")), text(ref.get("name"))
    found = context.find(kind, name)
    if found is None:
        return PodsFound((unknown_pods(f"its workloadRef, {kind} {name}, was not provided: add it to the input"),))
    return PodsFound((Pods("", count, mapping(dig(found, "spec.template"))),))


def _workflow(spec: Json, context: ReadContext, warnings: tuple[str, ...]) -> PodsFound:
    try:
        run = _Run.of(spec, context)
        most = run.most()
    except _UnknownError as unknown:
        return PodsFound((unknown_pods(str(unknown)),), warnings)
    if not run.pods:
        return PodsFound((), (*warnings, "it runs no pods of its own"))
    names = [name for name in most if run.devices[name] and most[name].number != 0] or [next(iter(run.pods))]
    counts = {name: most.get(name, ONE) if run.devices[name] else ONE for name in names}
    pods = tuple(Pods(name, count, run.pods[name]) for name, count in counts.items())
    timeouts = tuple(run.timeouts[name] for name in names if run.devices[name])
    is_at_most = [count.number for count in counts.values()] != [1]
    return PodsFound(pods, warnings, is_at_most=is_at_most, timeouts=timeouts)


@dataclass(slots=True)
class _Run:
    """The state of reading one workflow: its settings for all pods, and the pods found so far.

    A template's `timeout` begins when Argo creates the pod. Its `activeDeadlineSeconds`, which is the pod's, does not.
    """

    settings: Settings
    context: ReadContext
    limit: Count
    pods: dict[str, Json] = field(default_factory=dict)
    devices: dict[str, int] = field(default_factory=dict)
    timeouts: dict[str, object] = field(default_factory=dict)
    _most: dict[str, _Counts | None] = field(default_factory=dict)
    _libraries: dict[tuple[str, bool], _Library] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: Json, context: ReadContext) -> "_Run":
        """Return the initial state for a workflow's spec, merged over the WorkflowTemplate that it names."""
        ref = mapping(spec.get("workflowTemplateRef"))
        if ref:
            spec = {**_stored(ref, context), **{key: value for key, value in spec.items() if value}}
        limit = count_at(spec, "parallelism", default=MAX_PODS, named="spec.parallelism")
        return cls(Settings.of(spec), context, limit)

    @property
    def _budget(self) -> Budget:
        return self.context.budget

    def most(self) -> _Counts:
        """Return the most pods of the entrypoint and of the exit handler, which runs after it."""
        spec = self.settings.spec
        library = _Library("", _by_name(spec))
        found = [
            self._template(text(spec.get(entry)), library, depth=0)
            for entry in ("entrypoint", "onExit")
            if spec.get(entry) or entry == "entrypoint"
        ]
        return self._capped(self._sum(found))

    def _template(self, name: str, library: _Library, *, depth: int) -> _Counts:
        key = f"{library.prefix}{name}"
        self._budget.write(len(key))
        if name not in library.templates:
            raise _UnknownError(f"its template {key or 'without a name'} was not provided: add it to the input")
        if key not in self._most:
            self._most[key] = None  # until it is read: a call in the meantime is a recursion
            self._most[key] = self._read(key, library.templates[name], library, depth=depth)
        known = self._most[key]
        if known is None:
            raise _UnknownError(f"its template {key} calls itself an unknown number of times")
        return known

    def _read(self, key: str, template: Json, library: _Library, *, depth: int) -> _Counts:
        if depth > _MAX_DEPTH:
            raise _UnknownError(f"its templates call each other more than {_MAX_DEPTH} deep")
        defaults = mapping(self.settings.spec.get("templateDefaults"))
        self._budget.step(len(defaults) + len(template))
        template = {**defaults, **template}
        if has_pod(template):
            return self._pod(key, template)
        if amounts_in(text(mapping(template.get("resource")).get("manifest")), self._budget):
            raise _UnknownError(f"template {key} creates an object that asks for GPUs: it is judged when it is created")
        limit = count_at(template, "parallelism", default=MAX_PODS, named=f"parallelism of template {key}")
        return self._together([self._called(task, key, library, depth=depth) for task in tasks_of(template)], limit)

    def _pod(self, key: str, template: Json) -> _Counts:
        pod = pod_of(template, self.settings, self._budget)
        if isinstance(pod, str):
            raise _UnknownError(f"template {key}: {pod}")
        self.pods[key], self.devices[key], self.timeouts[key] = pod, devices_of(pod), template.get("timeout")
        return {key: ONE}

    def _called(self, task: Task, key: str, library: _Library, *, depth: int) -> _Call:
        """Return a step or task with the most pods of one instance of what it calls."""
        self._budget.step(_CALL_STEPS)
        number = instances(task, self.settings.parameters, self._budget)
        if task.inline:
            inline = f"{key}/{task.name}"
            self._budget.write(len(inline))
            counts = self._read(inline, task.inline, library, depth=depth + 1)
        elif task.ref:
            counts = self._template(text(task.ref.get("template")), self._library(task.ref), depth=depth + 1)
        else:
            counts = self._template(task.template, library, depth=depth + 1)
        return _Call(counts, number)

    def _library(self, ref: Json) -> _Library:
        """Return the templates of the WorkflowTemplate that a reference names."""
        key = name, _ = text(ref.get("name")), ref.get("clusterScope") is True
        if key not in self._libraries:
            self._libraries[key] = _Library(f"{name}/", _by_name(_stored(ref, self.context)))
        return self._libraries[key]

    def _together(self, calls: list[_Call], limit: Count) -> _Counts:
        """Return the pods of at most `limit` calls at once, those with the most devices first."""
        found, left = [], limit
        is_limited = limit.number != MAX_PODS
        self._budget.step(_CALL_STEPS * len(calls) if is_limited else len(calls))
        for call in sorted(calls, key=lambda call: -self._weight(call.counts)) if is_limited else calls:
            number = call.number
            if is_limited:
                number = left if number.number is None else number.at_most(left)
                left = left.without(number.number or 0)
            found.append(self._times(call.counts, number))
        return self._sum(found)

    def _weight(self, counts: _Counts) -> int:
        """Return the number of devices of these pods, limited by the workflow's parallelism."""
        capped = self._capped(counts)
        return sum(
            self.devices[name] * (_ASSUMED_PODS if count.number is None else count.number)
            for name, count in capped.items()
        )

    def _capped(self, counts: _Counts) -> _Counts:
        """Return at most as many pods as the workflow's parallelism allows, those with the most devices first."""
        self._budget.step(1 + 2 * len(counts))
        if self.limit.number == MAX_PODS:
            return counts
        self._budget.step(_COUNT_STEPS * len(counts))
        left, found = self.limit, {}
        for name, count in sorted(counts.items(), key=lambda item: -self.devices[item[0]]):
            taken = found[name] = left if count.number is None else count.at_most(left)
            left = left.without(taken.number or 0)
        return found

    def _sum(self, several: list[_Counts]) -> _Counts:
        found: dict[str, Count] = {}
        for counts in several:
            self._budget.step(_COUNT_STEPS * len(counts))
            for name, count in counts.items():
                found[name] = found[name].plus(count) if name in found else count
        return found

    def _times(self, counts: _Counts, number: Count) -> _Counts:
        if number.number == 1:
            return counts
        self._budget.step(_COUNT_STEPS * len(counts))
        return {name: count.times(number) for name, count in counts.items()}


def _by_name(spec: Json) -> dict[str, Json]:
    return {text(mapping(each).get("name")): mapping(each) for each in listed(spec.get("templates"))}


def _stored(ref: Json, context: ReadContext) -> Json:
    """Return the spec of the WorkflowTemplate that a reference names."""
    name = text(ref.get("name"))
    is_cluster_scoped = ref.get("clusterScope") is True
    kind = "ClusterWorkflowTemplate" if is_cluster_scoped else "WorkflowTemplate"
    found = context.find(kind, name, is_namespaced=not is_cluster_scoped)
    if found is None:
        raise _UnknownError(f"its {kind} {name} was not provided: add it to the input")
    return mapping(found.get("spec"))


def _rollout_surge(document: Json, replicas: int) -> Surge | None:
    """Return what an update of a Rollout adds: by blueGreen as many pods again, by canary as a Deployment."""
    strategy = mapping(dig(document, "spec.strategy"))
    if isinstance(strategy.get("blueGreen"), dict):
        return Surge(replicas, is_first=True) if replicas else None
    return rolling_surge(strategy.get("canary"), replicas)


_ALPHA: Final = ("v1alpha1",)

ROWS: Final = (
    Row(
        WorkloadKind("argoproj.io", "Workflow", "workflows"),
        _ALPHA,
        "[at most all of its steps](#workflows), as `parallelism` allows; a WorkflowTemplate that it names must be "
        "given too",
        workflow,
        labels={"workflows.argoproj.io/workflow": "{name}"},
        deadline="spec.activeDeadlineSeconds",
        loss=fatal,
    ),
    Row(
        WorkloadKind("argoproj.io", "CronWorkflow", "cronworkflows"),
        _ALPHA,
        "one run, as a Workflow",
        cron_workflow,
        ControllerKind("argoproj.io/v1alpha1", "Workflow"),
        deadline="spec.workflowSpec.activeDeadlineSeconds",
    ),
    Row(
        WorkloadKind("argoproj.io", "Rollout", "rollouts"),
        _ALPHA,
        "`spec.replicas` (1), or the maximum of its autoscaler; an update by blueGreen runs as many again for a while; "
        "what its `workloadRef` names must be given too",
        rollout,
        REPLICA_SET,
        deadline=PROGRESS,
        surge=_rollout_surge,
    ),
)
