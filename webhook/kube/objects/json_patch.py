"""JSON Patch operations and their JSON Pointers."""

from typing import Final

from webhook.kube.objects import keys

Operation = dict[str, object]
"""One operation of a JSON Patch (RFC 6902): op, path, and a value unless it removes."""


def escape(key: str) -> str:
    """Return a key escaped as one token of a JSON Pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def keys_of(pointer: str) -> list[str]:
    """Return the keys of a JSON Pointer."""
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


TEAM_PATH: Final = f"/metadata/labels/{escape(keys.TEAM)}"
TIER_PATH: Final = f"/metadata/labels/{escape(keys.TIER)}"
DECISION_PATH: Final = f"/metadata/annotations/{escape(keys.DECISION)}"


def test(path: str, value: object) -> Operation:
    """Return an operation that fails, and the patch with it, unless a member has this value.

    Of a member that is not there it is `None`: so evanphx/json-patch reads it, by which kube-apiserver patches. Its
    parent must be there.
    """
    return {"op": "test", "path": path, "value": value}


def add(path: str, value: object) -> Operation:
    """Return an operation that adds a member, or an element at the end of a list (`…/-`)."""
    return {"op": "add", "path": path, "value": value}


def remove(path: str) -> Operation:
    """Return an operation that removes a member or an element of a list."""
    return {"op": "remove", "path": path}


def put(path: str, value: object, *, exists: bool) -> Operation:
    """Return an operation that sets a member; `exists` says whether the member is present."""
    return {"op": "replace" if exists else "add", "path": path, "value": value}
