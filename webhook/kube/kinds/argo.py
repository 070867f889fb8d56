"""Argo: Workflows at their peak of devices, and Rollouts.

A workflow runs many pods over time. The pods at its peak are counted: of steps the group with the most devices, of a
DAG the independent tasks with the most devices, limited by `parallelism`. Conditions (`when`) count as true. Pods of
other templates run at other times and are checked one by one; pods without devices are ignored.
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
    before,
    bits,
    devices_of,
    has_pod,
    heaviest,
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
_NOTHING: Final[_Counts] = {}


class _Peak(NamedTuple):
    """The pods at a template's peak, by template name; `daemons` continue to run after it has ended."""

    counts: _Counts = _NOTHING
    daemons: _Counts = _NOTHING


class _Library(NamedTuple):
    """Templates that may call each other: of the workflow, or of a WorkflowTemplate (`prefix`: name and slash)."""

    prefix: str
    templates: Mapping[str, Json]


class _Call(NamedTuple):
    """A step or task, the peak of one instance of what it calls, and how many of them run at once."""

    task: Task
    peak: _Peak
    number: Count

    @property
    def counts(self) -> _Counts:
        """The pods of one instance at its peak."""
        return self.peak.counts


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
        peak = run.peak()
    except _UnknownError as unknown:
        return PodsFound((unknown_pods(str(unknown)),), warnings)
    with_devices = {name: pod for name, pod in run.pods.items() if run.devices[name]}
    with_devices = with_devices or dict(list(run.pods.items())[:1])
    if not with_devices:
        return PodsFound((), (*warnings, "it runs no pods of its own"))
    now = {name: count for name, count in peak.items() if name in with_devices and count.number != 0}
    later = tuple(Pods(name, Count(1), pod) for name, pod in with_devices.items() if name not in now)
    if later and now:
        others = ", ".join(pods.role for pods in later)
        warnings += (f"the pods with the most devices at one time are counted; pods of {others} run at other times",)
    at_once = tuple(Pods(name, count, with_devices[name]) for name, count in now.items())
    return PodsFound(at_once or later, warnings, later if at_once else ())


@dataclass(slots=True)
class _Run:
    """The state of reading one workflow: its settings for all pods, and the pods found so far."""

    settings: Settings
    context: ReadContext
    limit: Count
    pods: dict[str, Json] = field(default_factory=dict)
    devices: dict[str, int] = field(default_factory=dict)
    _peaks: dict[str, _Peak | None] = field(default_factory=dict)
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

    def peak(self) -> _Counts:
        """Return the pods at the peak of the entrypoint or of the exit handler."""
        spec = self.settings.spec
        library = _Library("", _by_name(spec))
        peaks = [
            self._template(text(spec.get(entry)), library, depth=0).counts
            for entry in ("entrypoint", "onExit")
            if spec.get(entry) or entry == "entrypoint"
        ]
        return self._capped(max(peaks, key=self._weight))

    def _template(self, name: str, library: _Library, *, depth: int) -> _Peak:
        key = f"{library.prefix}{name}"
        self._budget.write(len(key))
        if name not in library.templates:
            raise _UnknownError(f"its template {key or 'without a name'} was not provided: add it to the input")
        if key not in self._peaks:
            self._peaks[key] = None  # until it is read: a call in the meantime is a recursion
            self._peaks[key] = self._read(key, library.templates[name], library, depth=depth)
        known = self._peaks[key]
        if known is None:
            raise _UnknownError(f"its template {key} calls itself an unknown number of times")
        return known

    def _read(self, key: str, template: Json, library: _Library, *, depth: int) -> _Peak:
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
        calls = [[self._called(task, key, library, depth=depth) for task in group] for group in tasks_of(template)]
        return self._graph(calls, limit) if isinstance(template.get("dag"), Mapping) else self._steps(calls, limit)

    def _pod(self, key: str, template: Json) -> _Peak:
        pod = pod_of(template, self.settings, self._budget)
        if isinstance(pod, str):
            raise _UnknownError(f"template {key}: {pod}")
        self.pods[key], self.devices[key] = pod, devices_of(pod)
        one = {key: Count(1)}
        return _Peak(one, one if template.get("daemon") is True else _NOTHING)

    def _called(self, task: Task, key: str, library: _Library, *, depth: int) -> _Call:
        """Return a step or task with the peak of one instance of what it calls."""
        self._budget.step(_CALL_STEPS)
        number = instances(task, self.settings.parameters, self._budget)
        if task.inline:
            inline = f"{key}/{task.name}"
            self._budget.write(len(inline))
            peak = self._read(inline, task.inline, library, depth=depth + 1)
        elif task.ref:
            peak = self._template(text(task.ref.get("template")), self._library(task.ref), depth=depth + 1)
        else:
            peak = self._template(task.template, library, depth=depth + 1)
        return _Call(task, peak, number)

    def _library(self, ref: Json) -> _Library:
        """Return the templates of the WorkflowTemplate that a reference names."""
        key = name, _ = text(ref.get("name")), ref.get("clusterScope") is True
        if key not in self._libraries:
            self._libraries[key] = _Library(f"{name}/", _by_name(_stored(ref, self.context)))
        return self._libraries[key]

    def _steps(self, groups: list[list[_Call]], limit: Count) -> _Peak:
        """Return the group with the most devices, plus the daemons of earlier groups, which end with the template."""
        best, daemons = _NOTHING, _NOTHING
        for group in groups:
            now = self._sum([daemons, *self._together(group, limit)])
            best = max(best, now, key=self._weight)
            daemons = self._sum([daemons, *(self._times(call.peak.daemons, call.number) for call in group)])
        return _Peak(best)

    def _graph(self, groups: list[list[_Call]], limit: Count) -> _Peak:
        """Return the independent tasks with the most devices; a daemon's successors start once it is ready."""
        calls = [call for group in groups for call in group]
        order = before([call.task for call in calls], self._budget)
        heavy = [index for index, call in enumerate(calls) if self._weight(call.counts)]
        heavy.sort(key=lambda index: -order[index].bit_count())  # the last tasks first
        places = {index: at for at, index in enumerate(heavy)}
        counted = sum(1 << index for index in heavy if not calls[index].peak.daemons)
        weights = [self._weight(self._times(calls[index].counts, calls[index].number)) for index in heavy]
        waits = [sum(1 << places[other] for other in bits(order[index] & counted, self._budget)) for index in heavy]
        most = heaviest(weights, waits, self._budget)
        return _Peak(self._sum(self._together([calls[index] for index in sorted(heavy[at] for at in most)], limit)))

    def _together(self, group: list[_Call], limit: Count) -> list[_Counts]:
        """Return the pods that run at once in a group: at most `limit` calls, those with the most devices first."""
        found, left = [], limit
        self._budget.step(_CALL_STEPS * len(group) if limit.number != MAX_PODS else len(group))
        for call in sorted(group, key=lambda call: -self._weight(call.counts)):
            number = call.number
            if left.number != MAX_PODS:
                number = left if number.number is None else number.at_most(left)
                left = left.without(number.number or 0)
            found.append(self._times(call.counts, number))
        return found

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
        "[the moment with the most devices](#argo-workflows); a WorkflowTemplate that it names must be given too",
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
