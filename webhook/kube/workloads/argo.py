"""Argo: Workflows at their peak of devices, and Rollouts.

A workflow runs many pods over time. The pods at its peak are counted: of steps the group with the most devices, of a
DAG the independent tasks with the most devices, limited by `parallelism`. Conditions (`when`) count as true. Pods of
other templates run at other times and are checked one by one; pods without devices are ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from webhook.kube.workloads.antichain import heaviest
from webhook.kube.workloads.argo_pods import devices_of, has_pod, pod_of
from webhook.kube.workloads.argo_tasks import Task, before, instances, tasks_of
from webhook.kube.workloads.batch import overlapping, suspended
from webhook.kube.workloads.kind_row import PodsFound, ReadContext
from webhook.kube.workloads.model import Json, listed, mapping, text
from webhook.kube.workloads.paths import MAX_PODS, Count, Pods, count_at, dig, unknown_pods

_MAX_TASKS: Final = 64
"""Maximum tasks with devices in a workflow: the search for the peak takes cubic time."""
_MAX_CALLS: Final = 5000
_MAX_DEPTH: Final = 32
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
    found = context.related.find(kind, name, namespace=context.namespace)
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

    spec: Json
    context: ReadContext
    parameters: Mapping[str, str]
    limit: Count
    pods: dict[str, Json] = field(default_factory=dict)
    devices: dict[str, int] = field(default_factory=dict)
    _peaks: dict[str, _Peak | None] = field(default_factory=dict)
    _calls: int = 0
    _tasks: int = 0

    @classmethod
    def of(cls, spec: Json, context: ReadContext) -> "_Run":
        """Return the initial state for a workflow's spec, merged over the WorkflowTemplate that it names."""
        ref = mapping(spec.get("workflowTemplateRef"))
        if ref:
            spec = {**_stored(ref, context), **{key: value for key, value in spec.items() if value}}
        given = [mapping(each) for each in listed(dig(spec, "arguments.parameters"))]
        values = {text(each.get("name")): each.get("value") for each in given}
        parameters = {name: str(value) for name, value in values.items() if isinstance(value, str | int)}
        limit = count_at(spec, "parallelism", default=MAX_PODS, named="spec.parallelism")
        return cls(spec, context, parameters, limit)

    def peak(self) -> _Counts:
        """Return the pods at the peak of the entrypoint or of the exit handler."""
        library = _Library("", _by_name(self.spec))
        peaks = [
            self._template(text(self.spec.get(entry)), library, depth=0).counts
            for entry in ("entrypoint", "onExit")
            if self.spec.get(entry) or entry == "entrypoint"
        ]
        return self._capped(max(peaks, key=self._weight))

    def _template(self, name: str, library: _Library, *, depth: int) -> _Peak:
        key = f"{library.prefix}{name}"
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
        template = {**mapping(self.spec.get("templateDefaults")), **template}
        if has_pod(template):
            return self._pod(key, template)
        limit = count_at(template, "parallelism", default=MAX_PODS, named=f"parallelism of template {key}")
        tasks = [
            [(task, self._called(task, key, library, depth=depth)) for task in group] for group in tasks_of(template)
        ]
        return self._graph(tasks, limit) if isinstance(template.get("dag"), Mapping) else self._steps(tasks, limit)

    def _pod(self, key: str, template: Json) -> _Peak:
        pod = pod_of(template, self.spec, self.parameters)
        if isinstance(pod, str):
            raise _UnknownError(f"template {key}: {pod}")
        self.pods[key], self.devices[key] = pod, devices_of(pod)
        one = {key: Count(1)}
        return _Peak(one, one if template.get("daemon") is True else _NOTHING)

    def _called(self, task: Task, key: str, library: _Library, *, depth: int) -> _Peak:
        """Return the peak of one instance of what a step or task calls."""
        self._calls += 1
        if self._calls > _MAX_CALLS:
            raise _UnknownError(f"it has more than {_MAX_CALLS:,} steps: its pods are checked one by one")
        if task.inline:
            return self._read(f"{key}/{task.name}", task.inline, library, depth=depth + 1)
        if task.ref:
            name = text(task.ref.get("name"))
            library = _Library(f"{name}/", _by_name(_stored(task.ref, self.context)))
            return self._template(text(task.ref.get("template")), library, depth=depth + 1)
        return self._template(task.template, library, depth=depth + 1)

    def _steps(self, groups: list[list[tuple[Task, _Peak]]], limit: Count) -> _Peak:
        """Return the group with the most devices, plus the daemons of earlier groups, which end with the template."""
        best, daemons = _NOTHING, _NOTHING
        for group in groups:
            now = _sum([daemons, *self._together(group, limit)])
            best = max(best, now, key=self._weight)
            daemons = _sum([daemons, *(_times(peak.daemons, self._number(task)) for task, peak in group)])
        return _Peak(best)

    def _graph(self, groups: list[list[tuple[Task, _Peak]]], limit: Count) -> _Peak:
        """Return the independent tasks with the most devices; a daemon's successors start once it is ready."""
        calls = [call for group in groups for call in group]
        order = before([task for task, _ in calls])
        daemons = sum(1 << index for index, (_, peak) in enumerate(calls) if peak.daemons)
        heavy = [index for index, (_, peak) in enumerate(calls) if self._weight(peak.counts)]
        self._tasks += len(heavy)
        if self._tasks > _MAX_TASKS:
            raise _UnknownError(f"more than {_MAX_TASKS} of its tasks request devices: its pods are checked one by one")
        weights = [self._weight(_times(calls[index][1].counts, self._number(calls[index][0]))) for index in heavy]
        waits = [
            sum(1 << at for at, other in enumerate(heavy) if (order[index] & ~daemons) >> other & 1) for index in heavy
        ]
        return _Peak(_sum(self._together([calls[heavy[at]] for at in sorted(heaviest(weights, waits))], limit)))

    def _together(self, group: list[tuple[Task, _Peak]], limit: Count) -> list[_Counts]:
        """Return the pods that run at once in a group: at most `limit` calls, those with the most devices first."""
        found, left = [], limit
        for task, peak in sorted(group, key=lambda call: -self._weight(call[1].counts)):
            number = self._number(task)
            if left.number != MAX_PODS:
                number = left if number.number is None else number.at_most(left)
                left = left.without(number.number or 0)
            found.append(_times(peak.counts, number))
        return found

    def _number(self, task: Task) -> Count:
        return instances(task, self.parameters)

    def _weight(self, counts: _Counts) -> int:
        """Return the number of devices of these pods, limited by the workflow's parallelism."""
        capped = self._capped(counts)
        return sum(
            self.devices[name] * (_ASSUMED_PODS if count.number is None else count.number)
            for name, count in capped.items()
        )

    def _capped(self, counts: _Counts) -> _Counts:
        """Return at most as many pods as the workflow's parallelism allows, those with the most devices first."""
        if self.limit.number == MAX_PODS:
            return counts
        left, found = self.limit, {}
        for name, count in sorted(counts.items(), key=lambda item: -self.devices[item[0]]):
            taken = found[name] = left if count.number is None else count.at_most(left)
            left = left.without(taken.number or 0)
        return found


def _by_name(spec: Json) -> dict[str, Json]:
    return {text(mapping(each).get("name")): mapping(each) for each in listed(spec.get("templates"))}


def _stored(ref: Json, context: ReadContext) -> Json:
    """Return the spec of the WorkflowTemplate that a reference names."""
    name = text(ref.get("name"))
    is_cluster_scoped = ref.get("clusterScope") is True
    kind = "ClusterWorkflowTemplate" if is_cluster_scoped else "WorkflowTemplate"
    found = context.related.find(kind, name, namespace=None if is_cluster_scoped else context.namespace)
    if found is None:
        raise _UnknownError(f"its {kind} {name} was not provided: add it to the input")
    return mapping(found.get("spec"))


def _sum(several: list[_Counts]) -> _Counts:
    found: dict[str, Count] = {}
    for counts in several:
        for name, count in counts.items():
            found[name] = found[name].plus(count) if name in found else count
    return found


def _times(counts: _Counts, number: Count) -> _Counts:
    return counts if number.number == 1 else {name: count.times(number) for name, count in counts.items()}
