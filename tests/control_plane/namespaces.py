"""Ends namespaces at once: the namespace controller handles one five seconds after its deletion, and not before."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

from tests.control_plane.api import MERGE_PATCH, Api, ApiError
from tests.control_plane.cleanup import NAMESPACES
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.workbench import wait_for

AT_ONCE = {"gracePeriodSeconds": 0}
UNFINALIZED = {"metadata": {"finalizers": None}}


def end_namespaces(control_plane: ControlPlane, *names: str) -> None:
    """Delete these namespaces and all that are terminating, with their objects, and wait until they are gone."""
    api = control_plane.api
    for name in names:
        _unless_gone(api, "DELETE", f"{NAMESPACES}/{name}")
    if leaving := _leaving(api):
        kinds = [*_namespaced(api)]
        wait_for(control_plane, lambda: _empty_all(api, leaving, kinds), what=f"{', '.join(leaving)} empty")
        for name in leaving:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {}}
            _unless_gone(api, "PUT", f"{NAMESPACES}/{name}/finalize", namespace)
    wait_for(control_plane, lambda: not _leaving(api), what="the namespaces gone")


def _leaving(api: Api) -> list[str]:
    found = (namespace["metadata"] for namespace in api.list(NAMESPACES))
    return [metadata["name"] for metadata in found if "deletionTimestamp" in metadata]


def _namespaced(api: Api) -> Iterator[tuple[str, str]]:
    """The group and version, and the plural, of every kind of object that is in a namespace and can be deleted."""
    groups = (f"/apis/{group['preferredVersion']['groupVersion']}" for group in api.get("/apis")["groups"])
    for root in ("/api/v1", *groups):
        for kind in _unless_gone(api, "GET", root).get("resources", ()):  # a definition may be terminating as well
            if kind["namespaced"] and "deletecollection" in kind["verbs"]:
                yield root, kind["name"]


def _empty_all(api: Api, names: list[str], kinds: list[tuple[str, str]]) -> bool:
    """Delete the objects in the namespaces, whatever finalizers say; True if there were none."""
    left = False
    for name in names:
        for root, plural in kinds:
            path = f"{root}/namespaces/{name}/{plural}"
            for item in _unless_gone(api, "DELETE", path, AT_ONCE).get("items", ()):
                left = True
                if item["metadata"].get("finalizers"):  # the operator that would take it off may have ended
                    _unless_gone(api, "PATCH", f"{path}/{item['metadata']['name']}", UNFINALIZED, MERGE_PATCH)
    return not left


def _unless_gone(api: Api, method: str, path: str, body: object = None, content_type: str = "application/json") -> dict:
    """Return the response to a request; nothing if its object is deleted or terminating."""
    try:
        return api.request(method, path, body, content_type=content_type)
    except ApiError as error:
        if error.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
            raise
        return {}
