"""Deadlines of workloads that run on while their pods wait in line, by the manifest.

A pod's own activeDeadlineSeconds is none of them: kubelet counts it from the pod's start.
"""

import re
from collections.abc import Iterator
from typing import Final

from webhook.core.model.duration import parse_seconds
from webhook.kube.kinds.model import Json, mapping
from webhook.kube.kinds.paths import dig

PROGRESS: Final = "spec.progressDeadlineSeconds"
KNATIVE: Final = "spec.template.metadata.annotations#serving.knative.dev/progress-deadline"
REVISION: Final = KNATIVE.removeprefix("spec.template.")
TASK: Final = "spec.timeout"
PIPELINE: Final = "spec.timeouts.pipeline"
_DEFAULTS: Final = {PROGRESS: 600, KNATIVE: 600, REVISION: 600, TASK: 3600, PIPELINE: 3600}
"""What holds where a manifest says nothing; Knative and Tekton read it from their settings."""
_NONE: Final = 2**31 - 1
"""The progressDeadlineSeconds that means no deadline."""
_NAME: Final = re.compile(r"(timeouts\.)?[^.#/]+$")


def running_deadline(document: Json, path: str) -> str:
    """Return the name of the deadline at a row's path with its seconds, of several the shortest; "" without one.

    In a path [] stands for the elements of a list, and # goes before the key of an annotation.
    """
    if not path:
        return ""
    shortest = min(filter(None, map(_seconds, _values(document, path))), default=0)
    named = _NAME.search(path)
    return f"{named[0]} ({shortest})" if shortest and named else ""


def _values(document: Json, path: str) -> Iterator[object]:
    head, of_list, rest = path.partition("[].")
    fields, of_key, key = head.partition("#")
    found = mapping(dig(document, fields)).get(key) if of_key else dig(document, head)
    if of_list:
        for entry in found if isinstance(found, list) else ():
            yield dig(entry, rest)
    else:
        yield _DEFAULTS.get(path) if found is None else found


def _seconds(value: object) -> int:
    """Return a deadline in seconds, 0 where it is none."""
    if isinstance(value, str):
        try:
            return parse_seconds(value)
        except ValueError:
            return 0
    is_deadline = isinstance(value, int) and not isinstance(value, bool) and 0 < value < _NONE
    return value if is_deadline and isinstance(value, int) else 0
