"""Files in a Secret. Whatever else somebody wrote on the object, such as labels, stays as it is."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from webhook.kube.objects import keys

_Json = dict[str, Any]


def new_secret(name: str, files: Mapping[str, bytes]) -> _Json:
    """Make a Secret of the type that Kubernetes has for serving pairs; it allows for more files beside the pair."""
    metadata = {"name": name, "labels": dict(keys.OWN_LABELS)}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls", **_data(files)}


def files_of(secret: _Json) -> dict[str, bytes]:
    """Read the files. Raises ValueError for data that is not base64."""
    return {name: b64decode(content, validate=True) for name, content in (secret.get("data") or {}).items()}


def with_files(secret: _Json, files: Mapping[str, bytes]) -> _Json:
    """Make the same Secret with exactly these files; its resourceVersion says which state it replaces."""
    return {**secret, **_data(files)}


def _data(files: Mapping[str, bytes]) -> _Json:
    return {"data": {name: b64encode(content).decode() for name, content in files.items()}}
