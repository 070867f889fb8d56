"""Files in a Secret. All other fields of the object, such as labels, stay unchanged."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from webhook.kube.objects import keys

_Json = dict[str, Any]


def new_secret(name: str, files: Mapping[str, bytes]) -> _Json:
    """Return a Secret of type kubernetes.io/tls, which may have other files besides certificate and key."""
    metadata = {"name": name, "labels": dict(keys.OWN_LABELS)}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls", **_data(files)}


def files_of(secret: _Json) -> dict[str, bytes]:
    """Return the files. Raises ValueError for data that is not base64."""
    return {name: b64decode(content, validate=True) for name, content in (secret.get("data") or {}).items()}


def with_files(secret: _Json, files: Mapping[str, bytes]) -> _Json:
    """Return the same Secret with exactly these files; its resourceVersion guards against concurrent writes."""
    return {**secret, **_data(files)}


def _data(files: Mapping[str, bytes]) -> _Json:
    return {"data": {name: b64encode(content).decode() for name, content in files.items()}}
