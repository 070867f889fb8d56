"""Reads one object by its path."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from webhook.cluster.api.client import SEND_SECONDS, ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError

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
