"""Argo: Workflows by the moment at which the most devices are in use, and Rollouts.

A workflow runs many pods over time. Counted are those of one moment that can come: of steps the group with the most
devices, of a DAG the tasks with the most of which none waits for another, no more than `parallelism` lets run.
Conditions (`when`) count as met. Pods of other templates run at other times, and are judged one by one; those that ask
for no devices are left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from webhook.kube.workloads.antichain import heaviest
from webhook.kube.workloads.argo_pods import devices_of, has_pod, pod_of
from webhook.kube.workloads.argo_tasks import Task, before, instances, tasks_of
from webhook.kube.workloads.batch import suspended
from webhook.kube.workloads.kind_row import Found, Scene
from webhook.kube.workloads.model import Json, listed, mapping, text
from webhook.kube.workloads.paths import MOST_PODS, Count, Pods, count_at, dig

_MOST_TASKS: Final = 64
"""Tasks of one workflow that are compared: to find the heaviest takes the cube of their number."""
_MOST_CALLS: Final = 5000
_DEEPEST: Final = 32
_MANY: Final = 1000
"""How many pods a task is taken to have, next to others, whose number nobody knows."""

_Counts = Mapping[str, Count]
_NOTHING: Final[_Counts] = {}


class _Peak(NamedTuple):
    """The pods at a template's heaviest moment, by the names of their templates; `staying` run on after it is done."""

    counts: _Counts = _NOTHING
    staying: _Counts = _NOTHING


class _Library(NamedTuple):
    """Templates that may call each other: those of the workflow, or of a WorkflowTemplate (its name, with a slash)."""

    prefix: str
    templates: Mapping[str, Json]


class _UnknownError(Exception):
    """Nobody can tell how many pods there are: the text says why."""


def workflow(document: Json, scene: Scene) -> Found:
    """Read a Workflow."""
    return _workflow(mapping(document.get("spec")), scene, suspended(document, "spec.suspend"))


def cron_workflow(document: Json, scene: Scene) -> Found:
    """Read a CronWorkflow: one run of it."""
    warnings = suspended(document, "spec.suspend")
    if text(dig(document, "spec.concurrencyPolicy")) in {"", "Allow"}:
        warnings += ("one run is counted; concurrencyPolicy Allow lets several overlap",)
    return _workflow(mapping(dig(document, "spec.workflowSpec")), scene, warnings)


def rollout(document: Json, scene: Scene) -> Found:
    """Read a Rollout, whose template may be that of another object."""
    count = count_at(document, "spec.replicas", default=1)
    ref = mapping(dig(document, "spec.workloadRef"))
    if not ref:
        return Found((Pods("", count, mapping(dig(document, "spec.template"))),))
    kind, name = text(ref.get("kind")), text(ref.get("name"))
    found = scene.related.find(kind, name, namespace=scene.namespace)
    if found is None:
        problem = f"its workloadRef, {kind} {name}, is not among what was read: give it, too"
        return Found((Pods("", Count(None, problem), {}),))
    return Found((Pods("", count, mapping(dig(found, "spec.template"))),))


def _workflow(spec: Json, scene: Scene, warnings: tuple[str, ...]) -> Found:
    try:
        run = _Run.of(spec, scene)
        peak = run.peak()
    except _UnknownError as unknown:
        return Found((Pods("", Count(None, str(unknown)), {}),), warnings)
    asking = {name: pod for name, pod in run.pods.items() if run.devices[name]} or dict(list(run.pods.items())[:1])
    if not asking:
        return Found((), (*warnings, "it runs no pods of its own"))
    now = {name: count for name, count in peak.items() if name in asking and count.number != 0}
    later = tuple(Pods(name, Count(1), pod) for name, pod in asking.items() if name not in now)
    if later and now:
        others = ", ".join(pods.role for pods in later)
        warnings += (f"the moment with the most devices is counted; pods of {others} run at other times",)
    at_once = tuple(Pods(name, count, asking[name]) for name, count in now.items())
    return Found(at_once or later, warnings, later if at_once else ())


@dataclass(slots=True)
class _Run:
    """One workflow while it is read: what it says of all pods, and the pods that were met on the way."""

    spec: Json
    scene: Scene
    parameters: Mapping[str, str]
    most: Count
    pods: dict[str, Json] = field(default_factory=dict)
    devices: dict[str, int] = field(default_factory=dict)
    _peaks: dict[str, _Peak | None] = field(default_factory=dict)
    _calls: int = 0
    _tasks: int = 0

    @classmethod
    def of(cls, spec: Json, scene: Scene) -> "_Run":
        """Start with a workflow's spec, laid over that of the WorkflowTemplate that it names."""
        ref = mapping(spec.get("workflowTemplateRef"))
        if ref:
            spec = {**_stored(ref, scene), **{key: value for key, value in spec.items() if value}}
        given = [mapping(each) for each in listed(dig(spec, "arguments.parameters"))]
        values = {text(each.get("name")): each.get("value") for each in given}
        parameters = {name: str(value) for name, value in values.items() if isinstance(value, str | int)}
        most = count_at(spec, "parallelism", default=MOST_PODS, named="spec.parallelism")
        return cls(spec, scene, parameters, most)

    def peak(self) -> _Counts:
        """Find the heaviest moment: what the workflow runs, or what it runs at its end."""
        library = _Library("", _by_name(self.spec))
        moments = [
            self._template(text(self.spec.get(entry)), library, depth=0).counts
            for entry in ("entrypoint", "onExit")
            if self.spec.get(entry) or entry == "entrypoint"
        ]
        return self._capped(max(moments, key=self._weight))

    def _template(self, name: str, library: _Library, *, depth: int) -> _Peak:
        key = f"{library.prefix}{name}"
        if name not in library.templates:
            raise _UnknownError(f"its template {key or 'without a name'} is not among what was read: give it, too")
        if key not in self._peaks:
            self._peaks[key] = None  # until it is read: who comes here then calls itself
            self._peaks[key] = self._read(key, library.templates[name], library, depth=depth)
        known = self._peaks[key]
        if known is None:
            raise _UnknownError(f"its template {key} calls itself: nobody knows how often")
        return known

    def _read(self, key: str, template: Json, library: _Library, *, depth: int) -> _Peak:
        if depth > _DEEPEST:
            raise _UnknownError(f"its templates call each other more than {_DEEPEST} deep")
        template = {**mapping(self.spec.get("templateDefaults")), **template}
        if has_pod(template):
            return self._pod(key, template)
        most = count_at(template, "parallelism", default=MOST_PODS, named=f"parallelism of template {key}")
        tasks = [
            [(task, self._called(task, key, library, depth=depth)) for task in group] for group in tasks_of(template)
        ]
        return self._graph(tasks, most) if isinstance(template.get("dag"), Mapping) else self._steps(tasks, most)

    def _pod(self, key: str, template: Json) -> _Peak:
        pod = pod_of(template, self.spec, self.parameters)
        if isinstance(pod, str):
            raise _UnknownError(f"template {key}: {pod}")
        self.pods[key], self.devices[key] = pod, devices_of(pod)
        one = {key: Count(1)}
        return _Peak(one, one if template.get("daemon") is True else _NOTHING)

    def _called(self, task: Task, key: str, library: _Library, *, depth: int) -> _Peak:
        """Find the peak of what a step or task calls, of one of its instances."""
        self._calls += 1
        if self._calls > _MOST_CALLS:
            raise _UnknownError(f"it has more than {_MOST_CALLS:,} steps: its pods are judged one by one")
        if task.inline:
            return self._read(f"{key}/{task.name}", task.inline, library, depth=depth + 1)
        if task.ref:
            name = text(task.ref.get("name"))
            library = _Library(f"{name}/", _by_name(_stored(task.ref, self.scene)))
            return self._template(text(task.ref.get("template")), library, depth=depth + 1)
        return self._template(task.template, library, depth=depth + 1)

    def _steps(self, groups: list[list[tuple[Task, _Peak]]], most: Count) -> _Peak:
        """Take the heaviest group, with the daemons of those before it; they end with the template."""
        best, staying = _NOTHING, _NOTHING
        for group in groups:
            now = _sum([staying, *self._together(group, most)])
            best = max(best, now, key=self._weight)
            staying = _sum([staying, *(_times(peak.staying, self._number(task)) for task, peak in group)])
        return _Peak(best)

    def _graph(self, groups: list[list[tuple[Task, _Peak]]], most: Count) -> _Peak:
        """Take the heaviest tasks of which none waits for another; a daemon is waited for until it is ready only."""
        calls = [call for group in groups for call in group]
        order = before([task for task, _ in calls])
        daemons = sum(1 << index for index, (_, peak) in enumerate(calls) if peak.staying)
        heavy = [index for index, (_, peak) in enumerate(calls) if self._weight(peak.counts)]
        self._tasks += len(heavy)
        if self._tasks > _MOST_TASKS:
            raise _UnknownError(f"more than {_MOST_TASKS} of its tasks ask for devices: its pods are judged one by one")
        weights = [self._weight(_times(calls[index][1].counts, self._number(calls[index][0]))) for index in heavy]
        waits = [
            sum(1 << at for at, other in enumerate(heavy) if (order[index] & ~daemons) >> other & 1) for index in heavy
        ]
        return _Peak(_sum(self._together([calls[heavy[at]] for at in sorted(heaviest(weights, waits))], most)))

    def _together(self, group: list[tuple[Task, _Peak]], most: Count) -> list[_Counts]:
        """List what runs at once of calls that may: no more of them than `most`, those with the most devices."""
        found, left = [], most
        for task, peak in sorted(group, key=lambda call: -self._weight(call[1].counts)):
            number = self._number(task)
            if left.number != MOST_PODS:
                number = left if number.number is None else number.at_most(left)
                left = Count(max(0, left.number - (number.number or 0))) if left.number is not None else left
            found.append(_times(peak.counts, number))
        return found

    def _number(self, task: Task) -> Count:
        return instances(task, self.parameters)

    def _weight(self, counts: _Counts) -> int:
        """Count the devices of a moment, as far as the workflow's parallelism lets its pods run at once."""
        capped = self._capped(counts)
        return sum(
            self.devices[name] * (_MANY if count.number is None else count.number) for name, count in capped.items()
        )

    def _capped(self, counts: _Counts) -> _Counts:
        """Leave as many pods as the workflow's parallelism lets run, those with the most devices."""
        if self.most.number == MOST_PODS:
            return counts
        left, found = self.most, {}
        for name, count in sorted(counts.items(), key=lambda item: -self.devices[item[0]]):
            taken = found[name] = left if count.number is None else count.at_most(left)
            if left.number is not None:
                left = Count(max(0, left.number - (taken.number or 0)))
        return found


def _by_name(spec: Json) -> dict[str, Json]:
    return {text(mapping(each).get("name")): mapping(each) for each in listed(spec.get("templates"))}


def _stored(ref: Json, scene: Scene) -> Json:
    """Find the spec of the WorkflowTemplate that a reference names."""
    name = text(ref.get("name"))
    is_of_cluster = ref.get("clusterScope") is True
    kind = "ClusterWorkflowTemplate" if is_of_cluster else "WorkflowTemplate"
    found = scene.related.find(kind, name, namespace=None if is_of_cluster else scene.namespace)
    if found is None:
        raise _UnknownError(f"its {kind} {name} is not among what was read: give it, too")
    return mapping(found.get("spec"))


def _sum(several: list[_Counts]) -> _Counts:
    found: dict[str, Count] = {}
    for counts in several:
        for name, count in counts.items():
            found[name] = found[name].plus(count) if name in found else count
    return found


def _times(counts: _Counts, number: Count) -> _Counts:
    return counts if number.number == 1 else {name: count.times(number) for name, count in counts.items()}
