"""Annotations of a workload about its gang, copied to its pod templates: only there do its pods get them."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from webhook.kube.objects import bounds, keys
from webhook.kube.objects.json_patch import Operation, add, escape, keys_of
from webhook.kube.workloads.model import Json, mapping

_MARK: Final = "true"
_MAX_VALUE: Final = 400
"""Characters of a domain that are copied: a longer one is ignored on pods too."""
_DEEPEST: Final = 12
"""Levels of an object at which templates are searched for: AppWrappers of JobSets have them at the tenth."""


def gang_marks(document: Json) -> tuple[Operation, ...]:
    """Return the operations that copy the annotations to the pod templates that do not have them.

    None for an object without such annotations, or with more templates than are read.
    """
    marks = marks_of(document)
    if not marks:
        return ()
    found = list(islice(_templates(document.get("spec"), "/spec", 0), bounds.POD_SETS + 1))
    if len(found) > bounds.POD_SETS:
        return ()
    return tuple(operation for path, template in found for operation in _marks(path, template, marks))


def marked(document: Json) -> Json:
    """Return a workload as its webhook stores it: with these annotations on its pod templates.

    What does not change are the document's own parts.
    """
    for operation in gang_marks(document):
        document = mapping(_added(document, keys_of(str(operation["path"])), operation["value"]))
    return document


def _added(value: object, path: Sequence[str], added: object) -> object:
    """Return a value with a part added at a path, whose parents exist."""
    if not path:
        return added
    key, rest = path[0], path[1:]
    if isinstance(value, list):
        return [_added(item, rest, added) if str(index) == key else item for index, item in enumerate(value)]
    return {**mapping(value), key: _added(mapping(value).get(key), rest, added)}


def marks_of(document: Json) -> Mapping[str, str]:
    """Return the annotations of a workload that its pods are to have: that it is a gang, and its domain."""
    written = mapping(mapping(document.get("metadata")).get("annotations"))
    found = {keys.GANG: _MARK} if written.get(keys.GANG) == _MARK else {}
    domain = written.get(keys.TOPOLOGY)
    return {**found, keys.TOPOLOGY: domain} if isinstance(domain, str) and len(domain) <= _MAX_VALUE else found


def _templates(value: object, path: str, depth: int) -> Iterator[tuple[str, Json]]:
    """Yield the pod templates in a part of an object, with their paths."""
    if depth > _DEEPEST:
        return
    if isinstance(value, dict):
        if isinstance(mapping(value.get("spec")).get("containers"), list):
            yield path, value
            return
        for key, item in value.items():
            yield from _templates(item, f"{path}/{escape(str(key))}", depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _templates(item, f"{path}/{index}", depth + 1)


def _marks(path: str, template: Json, marks: Mapping[str, str]) -> Iterator[Operation]:
    """Yield the operations that mark one template; one that says something else stays as it is."""
    metadata = template.get("metadata")
    if not isinstance(metadata, dict):
        yield add(f"{path}/metadata", {"annotations": dict(marks)})
    elif not isinstance(metadata.get("annotations"), dict):
        yield add(f"{path}/metadata/annotations", dict(marks))
    else:
        for key, value in marks.items():
            if key not in metadata["annotations"]:
                yield add(f"{path}/metadata/annotations/{escape(key)}", value)
