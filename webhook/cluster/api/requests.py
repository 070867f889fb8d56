"""Single objects, lists, versions, namespace.

Reads one page of a list; its objects stay undecoded until their turn.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import yaml

from webhook.cluster.api.client import SEND_SECONDS, SERVICE_ACCOUNT, ApiConnection, ApiError, ClusterError, ListPage
from webhook.core.model.pod import Resident
from webhook.files import context_of
from webhook.kube.pod.existing import PodState, decode_pod_state

_PAGE: Final = msgspec.json.Decoder(ListPage)


async def list_page(
    connection: ApiConnection, path: str, params: Mapping[str, str], *, action: str, read_seconds: float
) -> ListPage:
    """Return the page that the parameters ask for; `action` and `read_seconds` as in `get`. Raises ClusterError."""
    async with connection.get(path, params, action=action, read_seconds=read_seconds) as response:
        body = await response.read()
    try:
        return _PAGE.decode(body)
    except msgspec.DecodeError as cause:
        raise ClusterError(f"cannot {action}: the response is not a list: {cause}") from cause


# The default namespace of an installation's shared objects.


DEFAULT_NAMESPACE: Final = "default"
"""Also kubectl's default if a kubeconfig has none."""


async def own_namespace(kubeconfig: Path | None, *, service_account: Path = SERVICE_ACCOUNT) -> str:
    """Return the namespace of a kubeconfig's context, or without a kubeconfig that of this process's pod.

    Raises ClusterError for files that cannot be read.
    """
    return await asyncio.to_thread(_read, kubeconfig, service_account)


def _read(kubeconfig: Path | None, service_account: Path) -> str:
    try:
        if kubeconfig is None:
            return (service_account / "namespace").read_text().strip() or DEFAULT_NAMESPACE
        document = yaml.safe_load(kubeconfig.read_text())
        named = {entry["name"]: entry["context"] for entry in document["contexts"]}
        context = context_of(kubeconfig) or document["current-context"]
        return str(named[context].get("namespace") or DEFAULT_NAMESPACE)
    except (OSError, yaml.YAMLError, LookupError, TypeError, AttributeError) as exc:
        source = f"kubeconfig {kubeconfig}" if kubeconfig else f"service account in {service_account}"
        raise ClusterError(f"cannot read a namespace from {source}, set --namespace: {exc}") from exc


# Reads one object by its path.


T = TypeVar("T")


def pod_path(namespace: str, name: str) -> str:
    """Return the path of a pod."""
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


async def find(
    connection: ApiConnection,
    path: str,
    *,
    action: str,
    params: Mapping[str, str] | None = None,
    seconds: float = SEND_SECONDS,
) -> bytes | None:
    """Return an object or a list as it is in the API; None if there is none. Raises ClusterError."""
    try:
        return await connection.send("GET", path, action=action, params=params, seconds=seconds)
    except ApiError as error:
        if error.is_missing:
            return None
        raise


async def read(connection: ApiConnection, path: str, decode: Callable[[bytes], T], *, action: str) -> T | None:
    """Return what `decode` makes of an object; None if there is none. Raises ClusterError, also if it makes nothing."""
    body = await find(connection, path, action=action)
    return None if body is None else decoded(body, decode, action=action)


def decoded(body: bytes, decode: Callable[[bytes], T], *, action: str) -> T:
    """Return what `decode` makes of a response. Raises ClusterError where it raises ValueError."""
    try:
        return decode(body)
    except ValueError as cause:
        raise ClusterError(f"cannot {action}: the response is not an object that can be read: {cause}") from cause


# Reads the current state of a pod from the API server, for decisions that the watched state cannot answer.


async def read_live_pod(connection: ApiConnection, pod: Resident) -> PodState | None:
    """Return the pod that has this one's name now, possibly another pod; None if there is none.

    Raises ClusterError if the API server does not answer.
    """
    return await read(connection, pod_path(pod.namespace, pod.name), decode_pod_state, action="get pods")
