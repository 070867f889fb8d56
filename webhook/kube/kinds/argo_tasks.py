"""Steps and tasks of Argo templates: what they call, how often, and their dependencies."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from webhook.kube.kinds.argo_pods import with_parameters
from webhook.kube.kinds.budget import Budget
from webhook.kube.kinds.model import Json, digits, listed, mapping, shown, text
from webhook.kube.kinds.paths import ONE, Count, count_at
from webhook.kube.objects.bounds import shortened

_MAX_DIGITS: Final = 9
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


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


def tasks_of(template: Json) -> Iterator[list[Task]]:
    """Yield the groups of a template's steps, one after another; all tasks of a DAG are one group."""
    dag = template.get("dag")
    if isinstance(dag, Mapping):
        yield [Task.of(each) for each in listed(dag.get("tasks"))]
        return
    for group in listed(template.get("steps")):
        yield [Task.of(each) for each in (group if isinstance(group, list) else listed(mapping(group).get("steps")))]


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


def before(tasks: Sequence[Task], budget: Budget) -> list[int]:
    """Return for each task of a DAG a bit set of the tasks that must end before it starts, transitively."""
    numbers = {task.name: number for number, task in enumerate(tasks)}
    direct = [_direct(task, numbers, budget) for task in tasks]
    found: list[int | None] = [None] * len(tasks)
    visiting: set[int] = set()  # in a cycle, which Argo refuses, the last task counts as the first
    cost = 1 + (len(tasks) >> 11)  # of an operation on a bit set
    for start in range(len(tasks)):
        stack = [(start, iter(direct[start]))] if found[start] is None else []
        while stack:
            task, others = stack[-1]
            visiting.add(task)
            first = next((other for other in others if found[other] is None and other not in visiting), None)
            if first is not None:
                stack.append((first, iter(direct[first])))
                continue
            budget.step(cost * (1 + len(direct[task])))
            total = 0
            for other in direct[task]:
                total |= (found[other] or 0) | 1 << other
            budget.write(total.bit_length() >> 3)
            found[task] = total
            visiting.discard(task)
            stack.pop()
    return [each or 0 for each in found]


def _direct(task: Task, numbers: Mapping[str, int], budget: Budget) -> list[int]:
    """Return the direct dependencies of a task: a list, or an expression such as `a && (b.Succeeded || c)`."""
    found: dict[int, None] = {}
    for each in listed(task.given.get("dependencies")):
        if (name := text(each)) in numbers:
            found[numbers[name]] = None
    for match in _NAME.finditer(text(task.given.get("depends"))):
        budget.step(2)
        if match[0] in numbers:
            found[numbers[match[0]]] = None
    return list(found)


def _sequence(name: str, sequence: Json) -> Count:
    """Return the length of a sequence: its `count`, or from `start` to `end`."""
    bounds = {key: _number(sequence.get(key)) for key in ("count", "start", "end")}
    start, end = bounds["start"] or 0, bounds["end"]
    if isinstance(start, int) and isinstance(end, int) and "count" not in sequence:
        return Count(abs(end - start) + 1)
    return count_at(bounds, "count", default=None, named=f"withSequence of step {name}")


def _number(value: object) -> object:
    number = digits(value, most=_MAX_DIGITS)
    return value if number is None else number
