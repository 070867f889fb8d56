"""Reads the version of the API server, and ends a process that cannot work with it."""

import asyncio
from typing import Final

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.kube.objects.server_version import ServerVersion, parse_version, why_too_old

_PATH: Final = "/version"
_RETRY_SECONDS: Final = 5.0


async def read_version(connection: ApiConnection) -> ServerVersion | None:
    """Return the version; None where it may not be read, or is none of Kubernetes. Raises ClusterError."""
    try:
        return parse_version(await connection.send("GET", _PATH, action="get version"))
    except ApiError as error:
        if error.is_forbidden or error.is_missing:
            return None
        raise


async def refuse_too_old(connection: ApiConnection) -> None:
    """Return once the version was read; raises ClusterError if it is too old. An unknown version passes."""
    while True:
        try:
            version = await read_version(connection)
            break
        except ClusterError:  # the watches report it
            await asyncio.sleep(_RETRY_SECONDS)
    if version is not None and (why := why_too_old(version)) is not None:
        raise ClusterError(why)
