"""Kubeconfigs for the users of the test control plane: pure, JSON (which is YAML) as text."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence


def kubeconfig(
    *, server: str, ca_pem: bytes, token: str, namespace: str = "default", user: str = "", groups: Sequence[str] = ()
) -> str:
    """A kubeconfig for a bearer token; with `user` (and `groups`) it acts as that user by impersonation."""
    identity: dict[str, object] = {"token": token}
    if user:
        identity |= {"as": user, "as-groups": list(groups)}
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(ca_pem).decode()}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": identity}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
            "current-context": "test",
        },
        indent=1,
    )
