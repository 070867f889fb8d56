"""Reads and writes of single objects, as the API server answers them: existing names, versions and UIDs are compared.

`FakeApi` has the state; this part handles POST, PUT, PATCH, DELETE and the GET of one object.
"""

import json
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

import jsonpatch
import jsonpointer

Obj = dict[str, Any]

_PATH = re.compile(
    r"(?P<group>/api/v1|/apis/[^/]+/[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?"
)


class Truth(Protocol):
    """The stored objects: by collection path, then by namespace/name."""

    objects: dict[str, dict[str, Obj]]
    evictions: list[Obj]
    object_bytes: int

    def keep(self, path: str, key: str, obj: Obj) -> Obj: ...

    def drop(self, path: str, key: str) -> Obj: ...


@dataclass(frozen=True)
class Place:
    """Where a request points: its collection (of all namespaces), and the object in it."""

    collection: str
    namespace: str
    name: str
    sub: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def place_of(path: str) -> Place:
    found = _PATH.fullmatch(path)
    assert found is not None, f"not a path of the API: {path}"
    namespace, name, sub = (found[part] or "" for part in ("namespace", "name", "sub"))
    return Place(f"{found['group']}/{found['plural']}", namespace, name, sub)


def carry_out(truth: Truth, method: str, path: str, body: bytes, content_type: str) -> tuple[int, Obj]:
    """Answer one request by status and object (a Status for a refusal)."""
    place = place_of(path)
    kept = truth.objects[place.collection]
    sent: Any = json.loads(body) if body else {}
    if method == "POST" and not place.name:
        return _create(truth, place, sent)
    if place.key not in kept:
        return _no(404, "NotFound", f'"{place.name}" not found')
    now = kept[place.key]
    if place.sub == "eviction":
        return _evict(truth, place, now, sent)
    match method:
        case "GET":
            return 200, now
        case "PUT":
            return _if_current(now, sent) or (200, truth.keep(place.collection, place.key, sent))
        case "PATCH":
            return _patch(truth, place, now, sent, content_type)
        case "DELETE":
            return _delete(truth, place, now, sent)
        case _:
            return _no(405, "MethodNotAllowed", f"{method} {path}")


def _evict(truth: Truth, place: Place, now: Obj, sent: Obj) -> tuple[int, Obj]:
    truth.evictions.append(sent)
    options = sent["deleteOptions"]
    status, answer = _delete(truth, place, now, options)
    return (201, {"kind": "Status", "status": "Success"}) if status == HTTPStatus.OK else (status, answer)


def _delete(truth: Truth, place: Place, now: Obj, options: Obj) -> tuple[int, Obj]:
    """Delete an object, which updates it first: a dry run does not find out that it is too large for that."""
    if refused := _if_current(now, {"metadata": options.get("preconditions", {})}):
        return refused
    if "dryRun" in options:
        return 200, now
    marks = {"deletionTimestamp": "2026-11-25T23:00:00Z", "deletionGracePeriodSeconds": 30}
    marked = now | {"metadata": now["metadata"] | marks}
    return _if_storable(truth, marked) or (200, truth.drop(place.collection, place.key))


def _create(truth: Truth, place: Place, sent: Obj) -> tuple[int, Obj]:
    place = Place(place.collection, place.namespace, sent["metadata"]["name"], "")
    if place.key in truth.objects[place.collection]:
        return _no(409, "AlreadyExists", f'"{place.name}" already exists')
    return 201, truth.keep(place.collection, place.key, sent)


def _patch(truth: Truth, place: Place, now: Obj, sent: Any, content_type: str) -> tuple[int, Obj]:
    """Apply a merge patch (RFC 7386), a JSON patch (RFC 6902), or a strategic one of conditions."""
    if content_type == "application/json-patch+json":
        try:
            patched = jsonpatch.apply_patch(now, without_absent(now, sent))
        except jsonpatch.JsonPatchException as error:
            return _no(422, "Invalid", str(error))
        return _if_current(now, patched) or _stored(truth, place, patched)
    if content_type == "application/strategic-merge-patch+json":
        added = sent["status"].pop("conditions")
        kept = [each for each in now.get("status", {}).get("conditions", ()) if each["type"] != added[0]["type"]]
        sent["status"]["conditions"] = [*kept, *added]
        content_type = "application/merge-patch+json"
    assert content_type == "application/merge-patch+json", f"the fake cannot do {content_type}"
    return _if_current(now, sent) or _stored(truth, place, merged(now, sent))


def without_absent(now: Obj, sent: list[Obj]) -> list[Obj]:
    """Return a patch without its tests for null, which kube-apiserver passes where nothing is there."""
    absent = [each for each in sent if each["op"] == "test" and each["value"] is None]
    for each in absent:
        if jsonpointer.resolve_pointer(now, each["path"], None) is not None:
            raise jsonpatch.JsonPatchTestFailed(f"{each['path']} is there")
    return [each for each in sent if each not in absent]


def _stored(truth: Truth, place: Place, obj: Obj) -> tuple[int, Obj]:
    return _if_storable(truth, obj) or (200, truth.keep(place.collection, place.key, obj))


def _if_storable(truth: Truth, obj: Obj) -> tuple[int, Obj] | None:
    if 0 < truth.object_bytes < len(json.dumps(obj)):
        return 500, {"kind": "Status", "code": 500, "message": "etcdserver: request is too large"}
    return None


def _if_current(now: Obj, sent: Obj) -> tuple[int, Obj] | None:
    meta = sent.get("metadata") or {}
    for field in ("uid", "resourceVersion"):
        if meta.get(field) and meta[field] != now["metadata"][field]:
            return _no(409, "Conflict", f"the object has been modified: {field} is {now['metadata'][field]}")
    return None


def merged(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def _no(status: int, reason: str, message: str) -> tuple[int, Obj]:
    assert HTTPStatus(status)
    return status, {"kind": "Status", "code": status, "reason": reason, "message": message}
