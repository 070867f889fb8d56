"""The lines of a watch: which objects it shows, and what each change of one is to it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Obj = dict[str, Any]


@dataclass(frozen=True)
class Change:
    version: int
    path: str
    before: Obj | None
    after: Obj | None


def shown_by(query: dict[str, str]) -> Callable[[Obj], bool]:
    terms = [term for term in query.get("fieldSelector", "").split(",") if term]
    hidden = [term.split("!=") for term in terms if "!=" in term]
    wanted = [term.partition("=") for term in terms if "!=" not in term]

    def field(obj: Obj, path: str) -> Any:
        path = "source.component" if path == "source" else path  # as the API server selects Events
        for part in path.split("."):
            obj = obj.get(part, {})
        return obj

    return lambda obj: (
        all(field(obj, path) != value for path, value in hidden)
        and all(field(obj, path) == value for path, _, value in wanted)
    )


def event_line(change: Change, shown: Callable[[Obj], bool], since: int) -> bytes | None:
    if change.version <= since:
        return None  # a watch from a version to come is accepted, and silent until then
    was = change.before is not None and shown(change.before)
    now = change.after is not None and shown(change.after)
    obj = change.after or change.before
    assert obj is not None
    obj = obj | {"metadata": obj["metadata"] | {"resourceVersion": str(change.version)}}
    match was, now:
        case True, True:
            return line_of("MODIFIED", obj)
        case False, True:
            return line_of("ADDED", obj)
        case True, False:
            return line_of("DELETED", obj)
    return None


def bookmark_line(version: int) -> bytes:
    # The real one sends a typed object too, with its required fields set to null.
    return line_of("BOOKMARK", {"metadata": {"resourceVersion": str(version)}, "spec": {"gpus": None}})


def line_of(kind: str, obj: Obj) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"
