"""The pods of an Argo workflow: the pod of one template, and the steps and tasks that call templates.

Of a pod there are its containers, the workflow's settings for all pods, and parameter values.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from webhook.kube.kinds.model import ONE, Budget, Count, Json, count_at, digits, listed, mapping, scalar, shown, text
from webhook.kube.objects.bounds import shortened

_POD_FIELDS: Final = ("nodeSelector", "affinity", "tolerations", "schedulerName", "priorityClassName")
_MAIN: Final = "main"
_PARAMETER: Final = re.compile(r"\{\{\s*workflow\.parameters\.([A-Za-z0-9_-]+)\s*\}\}")
_PARAMETER_START: Final = "{{"
_RESOURCE: Final = "resource"  # what both `resources` and `resourceClaims` begin with
_MAX_COUNT: Final = 1_000_000
_COUNT_DIGITS: Final = 7
_POD_STEPS: Final = 20
"""The cost of reading a template without containers."""
_DEVICES_STEPS: Final = 100
"""The further cost of one that asks for devices."""
_CONTAINER_STEPS: Final = 10
_COPY_STEPS: Final = 2


class Settings(NamedTuple):
    """What holds for all pods of a workflow: the fields of its spec, its defaults for templates, its parameters.

    `harmless` are the names of those that are known, and do not speak of resources. `problem` is why a podSpecPatch of
    all pods makes them unknown, "" if it does not.
    """

    spec: Json
    parameters: Mapping[str, str]
    harmless: frozenset[str] = frozenset()
    problem: str = ""

    @classmethod
    def of(cls, spec: Json) -> "Settings":
        """Read a workflow's spec."""
        given = [mapping(each) for each in listed(mapping(spec.get("arguments")).get("parameters"))]
        values = {text(each.get("name")): scalar(each.get("value")) for each in given}
        parameters = {name: value for name, value in values.items() if value is not None}
        spoken = (_RESOURCE, _PARAMETER_START)
        harmless = frozenset([name for name, value in parameters.items() if not any(word in value for word in spoken)])
        return cls(spec, parameters, harmless, _why_unknown(spec, harmless))


def _why_unknown(of: Json, harmless: Collection[str]) -> str:
    """Return why the podSpecPatch of a workflow or of a template makes its pods unknown, "" if it does not."""
    patch = text(of.get("podSpecPatch"))
    if _RESOURCE in patch:
        return "podSpecPatch changes what its pods request"
    known = sum(1 for found in _PARAMETER.finditer(patch) if found[1] in harmless)
    if patch.count(_PARAMETER_START) > known:
        return "podSpecPatch may change what its pods request: it is known only when they run"
    return ""


def has_pod(template: Json) -> bool:
    """Whether a template runs a pod with containers that its user wrote."""
    return any(isinstance(template.get(key), Mapping) for key in ("container", "script", "containerSet"))


def pod_of(template: Json, settings: Settings, budget: Budget) -> Json | str:
    """Return the pod template of an Argo template, or a message why it is unknown."""
    budget.step(_POD_STEPS)
    if why := settings.problem or _why_unknown(template, settings.harmless):
        return why
    made: dict[str, Any] = {"containers": list(_containers(template, budget))}
    if init := listed(template.get("initContainers")):
        made["initContainers"] = [_reduced(mapping(each), budget) for each in init]
    if not _asks_for_devices(made):
        return {"spec": {"containers": [{"name": _MAIN}]}}
    budget.step(_DEVICES_STEPS)
    spec, parameters = settings.spec, settings.parameters
    for key in _POD_FIELDS:
        if value := template.get(key) or spec.get(key):
            made[key] = value
    if not made.get("priorityClassName") and (name := text(spec.get("podPriorityClassName"))):
        made["priorityClassName"] = name
    made = {key: with_parameters(value, parameters, budget) for key, value in made.items()}
    if (parameter := _first_unset(made)) is not None:
        return f"{shortened(parameter)} is known only when it runs"
    common, own = mapping(spec.get("podMetadata")), mapping(template.get("metadata"))
    metadata = {}
    for key in ("labels", "annotations"):
        merged = {**_taken(common.get(key), budget), **_taken(own.get(key), budget)}
        metadata[key] = with_parameters(merged, parameters, budget)
    return {"metadata": metadata, "spec": made}


def _taken(value: object, budget: Budget) -> Json:
    """Return a mapping that is about to be copied."""
    found = mapping(value)
    budget.step(len(found))
    return found


def devices_of(pod: Json) -> int:
    """Return the approximate number of devices of any kind in a pod template, to compare templates of one workflow."""
    spec = mapping(pod.get("spec"))
    found = 0
    for container in (*listed(spec.get("containers")), *listed(spec.get("initContainers"))):
        found += sum(_whole(amount) for name, amount in _requested(container).items() if "/" in str(name))
    return min(found, _MAX_COUNT)


def _requested(container: object) -> Json:
    resources = mapping(mapping(container).get("resources"))
    return {**mapping(resources.get("requests")), **mapping(resources.get("limits"))}


def _asks_for_devices(spec: Json) -> bool:
    """Whether a pod requests an extended resource or a claim, or a resource whose name is a parameter."""
    containers = (*listed(spec.get("containers")), *listed(spec.get("initContainers")))
    names = (str(name) for container in containers for name in _requested(container))
    claims = any(mapping(mapping(container).get("resources")).get("claims") for container in containers)
    return claims or any("/" in name or _PARAMETER_START in name for name in names)


def _whole(amount: object) -> int:
    number = digits(amount, most=_COUNT_DIGITS)
    return 1 if number is None else number


def _containers(template: Json, budget: Budget) -> Iterator[Json]:
    """Yield the containers of a pod: the main one, or all of a container set, and the sidecars."""
    several = listed(mapping(template.get("containerSet")).get("containers"))
    main = mapping(template.get("container")) or mapping(template.get("script"))
    for each in several or [{**_taken(main, budget), "name": text(main.get("name")) or _MAIN}]:
        yield _reduced(mapping(each), budget)
    for each in listed(template.get("sidecars")):
        yield _reduced(mapping(each), budget)


def _reduced(container: Json, budget: Budget) -> Json:
    """Return only a container's name, resources and restart policy: commands and scripts may contain parameters."""
    resources = mapping(container.get("resources"))
    budget.step(_CONTAINER_STEPS + sum(len(mapping(resources.get(side))) for side in ("requests", "limits")))
    return {key: container[key] for key in ("name", "resources", "restartPolicy") if key in container}


def with_parameters(value: Any, parameters: Mapping[str, str], budget: Budget) -> Any:  # noqa: ANN401 - JSON in, the same JSON out
    """Return a value with the workflow's parameters replaced, if they have values."""
    if isinstance(value, str):
        return _substituted(value, parameters, budget) if _PARAMETER_START in value else value
    if isinstance(value, dict):
        budget.step(_COPY_STEPS * (1 + len(value)))
        return {key: with_parameters(item, parameters, budget) for key, item in value.items()}
    if isinstance(value, list):
        budget.step(_COPY_STEPS * (1 + len(value)))
        return [with_parameters(item, parameters, budget) for item in value]
    return value


def _substituted(value: str, parameters: Mapping[str, str], budget: Budget) -> str:
    def found(match: re.Match[str]) -> str:
        inserted = parameters.get(match[1], match[0])
        budget.step()
        budget.write(len(inserted))
        return inserted

    budget.write(len(value))
    return _PARAMETER.sub(found, value)


def _first_unset(value: object) -> str | None:
    """Return the first text with a parameter that has no value."""
    if isinstance(value, str):
        return value if _PARAMETER_START in value else None
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for item in items if (found := _first_unset(item)) is not None), None)


# Steps and tasks of Argo templates: what they call, and how often.


_SEQUENCE_DIGITS: Final = 9


class Task(NamedTuple):
    """A step, or a task of a DAG: it calls a template by name, one of a WorkflowTemplate, or one of its own."""

    name: str
    template: str
    ref: Json
    inline: Json
    given: Json

    @classmethod
    def of(cls, found: object) -> "Task":
        """Parse a step or task."""
        given = mapping(found)
        names = text(given.get("name")), text(given.get("template"))
        return cls(*names, mapping(given.get("templateRef")), mapping(given.get("inline")), given)


def tasks_of(template: Json) -> Iterator[Task]:
    """Yield all steps of a template, or all tasks of its DAG, whenever they run."""
    for group in (mapping(template.get("dag")).get("tasks"), *listed(template.get("steps"))):
        yield from map(Task.of, group if isinstance(group, list) else listed(mapping(group).get("steps")))


def instances(task: Task, parameters: Mapping[str, str], budget: Budget) -> Count:
    """Return how many instances of a task run at once: one, or one per item."""
    given = task.given
    if isinstance(items := given.get("withItems"), list):
        return Count(len(items))
    sequence = given.get("withSequence")
    if isinstance(sequence, Mapping):
        return _sequence(task.name, with_parameters(sequence, parameters, budget))
    if items := given.get("withParam"):
        named = shortened(items) if isinstance(items, str) else shown(items)
        return Count(None, f"step {task.name} runs once for each item of {named}, known only when it runs")
    return ONE


def _sequence(name: str, sequence: Json) -> Count:
    """Return the length of a sequence: its `count`, or from `start` to `end`."""
    bounds = {key: _number(sequence.get(key)) for key in ("count", "start", "end")}
    start, end = bounds["start"] or 0, bounds["end"]
    if isinstance(start, int) and isinstance(end, int) and "count" not in sequence:
        return Count(abs(end - start) + 1)
    return count_at(bounds, "count", default=None, named=f"withSequence of step {name}")


def _number(value: object) -> object:
    number = digits(value, most=_SEQUENCE_DIGITS)
    return value if number is None else number
