"""An API client that behaves like client-go: one pool of connections, retries after Retry-After."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import aiohttp

from tests.control_plane.cluster import ControlPlane

TRIES = 10  # client-go's


def session(cluster: ControlPlane, *, connections: int = 100) -> aiohttp.ClientSession:
    """Open a session as admin; paths are relative to the API server."""
    context = ssl.create_default_context(cadata=cluster.authority.pem.decode())
    return aiohttp.ClientSession(
        cluster.server,
        headers={"Authorization": f"Bearer {cluster.token}"},
        connector=aiohttp.TCPConnector(ssl=context, limit=connections),
        read_bufsize=2**24,  # a line of a watch is an object, and attackers make large ones
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=90),
    )


async def ask(
    api: aiohttp.ClientSession, method: str, path: str, body: object = None, **params: str
) -> tuple[int, dict[str, Any]]:
    """Send a request, retry after 429 and 5xx with Retry-After as client-go does; return the last status and body."""
    for attempt in range(TRIES + 1):
        async with api.request(method, path, json=body, params=params) as answer:
            retry_after = answer.headers.get("Retry-After")
            if retry_after is None or attempt == TRIES or not _is_retried(answer.status):
                return answer.status, await answer.json()
        await asyncio.sleep(float(retry_after))
    raise AssertionError("unreachable")


def _is_retried(status: int) -> bool:
    return status == 429 or status >= 500
