"""Gang marks and objects.

Annotations of a workload about its gang, run time and minimum, copied to its pod templates: its pods get them there.

The deadline of a Job and the minimum of an elastic kind are copied, too: pods are read without their workloads.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from webhook.core.model.amounts import GangId
from webhook.core.model.pod import Pod
from webhook.kube.kinds.kind_row import Row
from webhook.kube.kinds.model import Budget, Json, mapping
from webhook.kube.kinds.table import BUILT_IN
from webhook.kube.objects import bounds, keys
from webhook.kube.objects.keys import Operation, add, escape
from webhook.kube.objects.objects import is_plain
from webhook.kube.pod.gangs import marker_of
from webhook.kube.workloads.unknown_kinds import elastic_minimum, may_be_elastic

_MARK: Final = "true"
_MAX_VALUE: Final = 400
"""Characters of a domain or run time that are copied: a longer one is ignored on pods too."""
_DEEPEST: Final = 12
"""Levels of an object at which templates are searched for: AppWrappers of JobSets have them at the tenth."""
_SEARCH_STEPS: Final = 3
"""The cost of searching one mapping or list, besides its values."""


class _Path(NamedTuple):
    """The place of a value: a key in the mapping or list that is at another place."""

    above: "_Path | None"
    key: str | int


class _Mark(NamedTuple):
    """A value that is added to an object, at a path whose parents exist."""

    path: tuple[str | int, ...]
    value: object


def gang_marks(document: Json, budget: Budget) -> tuple[Operation, ...]:
    """Return the operations that copy the annotations to the pod templates that do not have them.

    None for an object without such annotations, or with more templates than are read. Raises BudgetSpentError.
    """
    return tuple(_operation(mark, budget) for mark in _marks_in(document, budget))


def marked(document: Json, budget: Budget) -> Json:
    """Return a workload as its webhook stores it: with these annotations on its pod templates.

    What does not change are the document's own parts. Raises BudgetSpentError.
    """
    for path, value in _marks_in(document, budget):
        document = mapping(_added(document, path, value, budget))
    return document


def _operation(mark: _Mark, budget: Budget) -> Operation:
    budget.write(sum(len(key) if isinstance(key, str) else 1 for key in mark.path))
    return add("".join(f"/{escape(str(key))}" for key in mark.path), mark.value)


def _marks_in(document: Json, budget: Budget) -> list[_Mark]:
    marks = marks_of(document)
    if not (marks or may_be_elastic(document)):
        return []
    found = list(islice(_templates(document.get("spec"), _Path(None, "spec"), 0, budget), bounds.POD_SETS + 1))
    if len(found) > bounds.POD_SETS:
        return []
    places = [(_keys(path), template) for path, template in found]
    return [mark for path, template in places for mark in _marks(path, template, _with_minimum(marks, document, path))]


def _with_minimum(marks: Mapping[str, str], document: Json, path: tuple[str | int, ...]) -> Mapping[str, str]:
    """Return the marks of one template: an annotation goes before what an elastic kind states."""
    least = None if keys.MINIMUM in marks else elastic_minimum(document, path)
    return marks if least is None else {**marks, keys.MINIMUM: str(least)}


def _keys(path: _Path | None) -> tuple[str | int, ...]:
    found = []
    while path is not None:
        found.append(path.key)
        path = path.above
    return tuple(reversed(found))


def _added(value: object, path: Sequence[str | int], added: object, budget: Budget) -> object:
    """Return a value with a part added at a path, whose parents exist."""
    if not path:
        return added
    key, rest = path[0], path[1:]
    if isinstance(value, list) and isinstance(key, int):
        budget.step(len(value))
        return [*value[:key], _added(value[key], rest, added, budget), *value[key + 1 :]]
    known, name = mapping(value), str(key)
    budget.step(len(known))
    return {**known, name: _added(known.get(name), rest, added, budget)}


def marks_of(document: Json) -> Mapping[str, str]:
    """Return the annotations that all pods of a workload are to have: a gang, its domain, run time, minimum."""
    written = mapping(mapping(document.get("metadata")).get("annotations"))
    found = {keys.GANG: _MARK} if written.get(keys.GANG) == _MARK else {}
    for key in (keys.TOPOLOGY, keys.RUN_TIME, keys.MINIMUM):
        value = written.get(key)
        if isinstance(value, str) and len(value) <= _MAX_VALUE:
            found[key] = value
    return found


def _templates(value: object, path: _Path, depth: int, budget: Budget) -> Iterator[tuple[_Path, Json]]:
    """Yield the pod templates in a part of an object, with their paths."""
    if depth > _DEEPEST:
        return
    budget.step(_SEARCH_STEPS + (len(value) if isinstance(value, dict | list) else 0))
    if isinstance(value, dict):
        if isinstance(mapping(value.get("spec")).get("containers"), list):
            yield path, value
            return
        for key, item in value.items():
            if isinstance(item, dict | list):
                yield from _templates(item, _Path(path, str(key)), depth + 1, budget)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict | list):
                yield from _templates(item, _Path(path, index), depth + 1, budget)


def _marks(path: tuple[str | int, ...], template: Json, marks: Mapping[str, str]) -> Iterator[_Mark]:
    """Yield what marks one template; one that says something else stays as it is."""
    metadata = template.get("metadata")
    if not marks:
        return
    if not isinstance(metadata, dict):
        yield _Mark((*path, "metadata"), {"annotations": dict(marks)})
    elif not isinstance(metadata.get("annotations"), dict):
        yield _Mark((*path, "metadata", "annotations"), dict(marks))
    else:
        for key, value in marks.items():
            if key not in metadata["annotations"]:
                yield _Mark((*path, "metadata", "annotations", key), value)


# Where the object is that says how many pods a gang has: the one that makes them, or their PodGroup.


class GangObject(NamedTuple):
    """An object to read: the row of its kind, its name, and the paths where it may be, by API version.

    `uid` is set where the gang is that of one object, not of all that had its name.
    """

    row: Row
    name: str
    paths: tuple[str, ...]
    uid: str = ""

    @property
    def kind(self) -> str:
        """Its kind, for messages."""
        return self.row.kind.kind


_BY_MARKER: Final[dict[str, list[Row]]] = {
    marker: [row for row in BUILT_IN if row.gang.marker == marker]
    for marker in {row.gang.marker for row in BUILT_IN} - {""}
}
_BY_CONTROLLER: Final = {row.kind.kind: row for row in BUILT_IN if row.gang.of_controller}


def gang_object(pod: Pod, gang: GangId) -> GangObject | None:
    """Return the object that describes the gang of a pod; None where there is none, or none that Fairgate reads.

    It is in the pod's own namespace, whatever the pod claims.
    """
    key, name = marker_of(gang, pod.namespace)
    owner, uid = pod.owner, ""
    made_by = "" if owner is None else owner.kind
    if key in _BY_MARKER:
        rows = (row for row in _BY_MARKER[key] if not row.gang.makers or made_by in row.gang.makers)
        row = next(rows, None)
        if row is not None and row.gang.name_label:
            name = pod.labels.get(row.gang.name_label, "")
    elif owner is not None and made_by == key:
        row, name, uid = _BY_CONTROLLER.get(key), owner.name, name
    else:
        row = None
    if row is None or not is_plain(name):
        return None
    return GangObject(row, name, tuple(paths_of(row, pod.namespace, name)), uid)


def paths_of(row: Row, namespace: str, name: str) -> Iterator[str]:
    """Yield the path of an object in each version of its kind, the newest first."""
    base = f"/apis/{row.kind.group}" if row.kind.group else "/api"
    for version in reversed(row.versions):
        yield f"{base}/{version}/namespaces/{namespace}/{row.kind.resource}/{name}"
