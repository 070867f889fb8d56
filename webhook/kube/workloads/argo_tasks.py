"""Steps and tasks of Argo templates: what they call, how often, and which of them wait for which."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from webhook.kube.workloads.argo_pods import filled
from webhook.kube.workloads.model import Json, listed, mapping, text
from webhook.kube.workloads.paths import ONE, Count, count_at

_DIGITS: Final = 9
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
        """Read one."""
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


def instances(task: Task, parameters: Mapping[str, str]) -> Count:
    """Count how often a task runs at once: once, or once for each item."""
    given = task.given
    if isinstance(items := given.get("withItems"), list):
        return Count(len(items))
    sequence = given.get("withSequence")
    if isinstance(sequence, Mapping):
        return _sequence(task.name, filled(sequence, parameters))
    if given.get("withParam"):
        return Count(None, f"step {task.name} runs once for each item of {given['withParam']}, known only when it runs")
    return ONE


def before(tasks: Sequence[Task]) -> list[int]:
    """Tell for each task of a DAG, by a bit for each, which others must end before it starts, at any distance."""
    numbers = {task.name: number for number, task in enumerate(tasks)}
    direct = [_direct(task, numbers) for task in tasks]
    found: list[int | None] = [None] * len(tasks)
    on_the_way: set[int] = set()  # of tasks that wait for each other, as Argo refuses them, the last counts as first
    for start in range(len(tasks)):
        waiting = [start]
        while waiting:
            task = waiting[-1]
            on_the_way.add(task)
            first = next((other for other in direct[task] if found[other] is None and other not in on_the_way), None)
            if first is not None:
                waiting.append(first)
                continue
            total = 0
            for other in direct[task]:
                total |= (found[other] or 0) | 1 << other
            found[task] = total
            on_the_way.discard(waiting.pop())
    return [each or 0 for each in found]


def _direct(task: Task, numbers: Mapping[str, int]) -> list[int]:
    """List the tasks that one names itself: in a list, or in an expression such as `a && (b.Succeeded || c)`."""
    named = [text(each) for each in listed(task.given.get("dependencies"))]
    named += _NAME.findall(text(task.given.get("depends")))
    return list(dict.fromkeys(numbers[name] for name in named if name in numbers))


def _sequence(name: str, sequence: Json) -> Count:
    """Count the numbers of a sequence: so many, or from `start` to `end`."""
    bounds = {key: _number(sequence.get(key)) for key in ("count", "start", "end")}
    start, end = bounds["start"] or 0, bounds["end"]
    if isinstance(start, int) and isinstance(end, int) and "count" not in sequence:
        return Count(abs(end - start) + 1)
    return count_at(bounds, "count", default=None, named=f"withSequence of step {name}")


def _number(value: object) -> object:
    written = str(value)
    return int(written) if written.isascii() and written.isdecimal() and len(written) <= _DIGITS else value
