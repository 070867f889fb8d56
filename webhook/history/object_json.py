"""Decoded Kubernetes objects as JSON again: only the fields that were read, and none that are absent."""

from typing import Any

import msgspec

from webhook.history.trace_row import MAX_OBJECT_BYTES


def object_json(found: msgspec.Struct, *, api_version: str, kind: str) -> str:
    """Return an object as JSON; "" if it is too large to be kept."""
    body = msgspec.json.encode({"apiVersion": api_version, "kind": kind, **_plain(found)})
    return body.decode() if len(body) <= MAX_OBJECT_BYTES else ""


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON values have no common type
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        pairs = ((field.encode_name, getattr(value, field.name)) for field in fields)
        return {name: _plain(each) for name, each in pairs if not _is_absent(each)}
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _is_absent(value: object) -> bool:
    if isinstance(value, msgspec.Raw):
        return not bytes(value)
    return value is None or value == ""
