"""JSON Patch operations and the JSON Pointers in them. No knowledge of any object."""

Operation = dict[str, object]
"""One operation of a JSON Patch (RFC 6902): op, path, value."""


def escape(key: str) -> str:
    """Write a key as one step of a JSON Pointer: `~` and `/` have a meaning there."""
    return key.replace("~", "~0").replace("/", "~1")


def add(path: str, value: object) -> Operation:
    """Add a member, or an element at the end of a list (`…/-`)."""
    return {"op": "add", "path": path, "value": value}


def put(path: str, value: object, *, exists: bool) -> Operation:
    """Set a member to this value, whether it `exists` or not."""
    return {"op": "replace" if exists else "add", "path": path, "value": value}
