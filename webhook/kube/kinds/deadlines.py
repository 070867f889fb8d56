"""Deadlines of workloads that run on while their pods wait in line, by the manifest.

A pod's own activeDeadlineSeconds is none of them: kubelet counts it from the pod's start.
"""

from collections.abc import Iterator
from typing import Final

from webhook.kube.kinds.model import Json
from webhook.kube.kinds.paths import dig

PROGRESS: Final = "spec.progressDeadlineSeconds"
_DEFAULTS: Final = {PROGRESS: 600}
"""What holds where a manifest says nothing."""
_NONE: Final = 2**31 - 1
"""The progressDeadlineSeconds that means no deadline."""


def running_deadline(document: Json, path: str) -> str:
    """Return the name of the deadline at a row's path with its seconds, of several the shortest; "" without one."""
    if not path:
        return ""
    shortest = min(filter(None, map(_seconds, _values(document, path))), default=0)
    return f"{path.rpartition('.')[2]} ({shortest})" if shortest else ""


def _values(document: Json, path: str) -> Iterator[object]:
    head, of_list, rest = path.partition("[].")
    found = dig(document, head)
    if of_list:
        for entry in found if isinstance(found, list) else ():
            yield dig(entry, rest)
    else:
        yield _DEFAULTS.get(path) if found is None else found


def _seconds(value: object) -> int:
    """Return a deadline in seconds, 0 where it is none."""
    is_deadline = isinstance(value, int) and not isinstance(value, bool) and 0 < value < _NONE
    return value if is_deadline and isinstance(value, int) else 0
