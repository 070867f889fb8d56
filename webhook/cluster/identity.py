"""Who we are to the API server, and which namespace is ours."""

import asyncio
from pathlib import Path
from typing import Final

import msgspec
import yaml

from webhook.cluster.client import SERVICE_ACCOUNT, ApiConnection
from webhook.cluster.errors import ClusterError

_PATH: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_QUESTION: Final = b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}'


class _UserInfo(msgspec.Struct):
    username: str


class _Status(msgspec.Struct, rename="camel"):
    user_info: _UserInfo


class _SelfSubjectReview(msgspec.Struct):
    status: _Status


async def own_username(connection: ApiConnection) -> str:
    """Ask the API server as whom it knows us: so will its admission reviews name us. Raises ClusterError."""
    action = "create selfsubjectreviews"
    body = await connection.send("POST", _PATH, _QUESTION, action=action)
    try:
        return msgspec.json.decode(body, type=_SelfSubjectReview).status.user_info.username
    except msgspec.MsgspecError as cause:
        raise ClusterError(f"cannot {action}: the answer names no user: {cause}") from cause


async def own_namespace(kubeconfig: Path | None, *, service_account: Path = SERVICE_ACCOUNT) -> str:
    """Find where our own objects belong: the pod's namespace, or that of the kubeconfig's context, or `default`."""
    return await asyncio.to_thread(_namespace_of, kubeconfig, service_account)


def _namespace_of(kubeconfig: Path | None, service_account: Path) -> str:
    if kubeconfig is None:
        file = service_account / "namespace"
        return (file.read_text().strip() if file.exists() else "") or "default"
    document = yaml.safe_load(kubeconfig.read_text())
    contexts = {entry["name"]: entry.get("context") or {} for entry in document.get("contexts") or []}
    return contexts.get(document.get("current-context"), {}).get("namespace") or "default"
