"""Lists objects once, for commands that read a cluster and exit. The list-watch is in watch.py."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import msgspec

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError
from webhook.cluster.api.list_page import list_page
from webhook.cluster.api.wire import ListMeta, ListPage, any_object
from webhook.cluster.watch.store import ObjectStore
from webhook.cluster.watch.watched_kind import WatchedKind
from webhook.kube.objects.bounds import LARGE_BYTES
from webhook.kube.objects.served_paths import served_paths
from webhook.kube.world_file.world_objects import WorldKind

_PAGE_SIZE: Final = "500"
_READ_SECONDS: Final = 30.0
_MAX_RETRIES: Final = 3
_MAX_RETRY_SECONDS: Final = 5.0
"""A busy server answers 429 with Retry-After: so many retries, each after so many seconds at most."""


async def list_objects(connection: ApiConnection, listed: WorldKind, *, path: str = "") -> list[dict[str, Any]]:
    """Return all objects of a kind, each with its apiVersion and kind; a server without this API has none.

    `path` replaces that of the kind: one namespace. Raises ClusterError.
    """
    params = {"fieldSelector": listed.selector} if listed.selector else {}
    found: list[dict[str, Any]] = []
    async for page in pages(connection, path or listed.path, params):
        head = {"apiVersion": page.api_version or listed.api_version, "kind": listed.kind}
        found += [head | msgspec.json.decode(item) for item in page.items or ()]
    return found


async def names_of_large(connection: ApiConnection, path: str, *, over: int, label: str) -> list[str]:
    """Return the objects with a label that have more bytes as JSON, by namespace and name. Raises ClusterError."""
    found: list[str] = []
    async for page in pages(connection, path, {"labelSelector": label}):
        found += [any_object(raw).key for raw in map(bytes, page.items or ()) if len(raw) > over]
    return found


async def load(connection: ApiConnection, kind: WatchedKind[Any], *, path: str = "") -> None:
    """Apply all objects of a kind as a watch would; a server without this API has none.

    `path` is as in `list_objects`. Raises ClusterError.
    """
    store, decoder = ObjectStore(kind), msgspec.json.Decoder(kind.item)
    async for page in pages(connection, path or kind.path, kind.params):
        for item in page.items or ():
            raw = bytes(item)
            try:
                store.apply(decoder.decode(kind.trim(raw) if kind.trim and len(raw) > LARGE_BYTES else raw))
            except msgspec.DecodeError as error:
                store.reject(any_object(raw).key, error, raw)


def is_object(path: str) -> bool:
    """Return whether a path names one object: only namespaces are read by name."""
    return path.startswith("/api/v1/namespaces/") and path.count("/") == len(("", "api", "v1", "namespaces"))


async def pages(connection: ApiConnection, path: str, selectors: Mapping[str, str]) -> AsyncIterator[ListPage]:
    """Yield a list page by page, in the newest version that the server has; for the path of one object, that object."""
    if is_object(path):
        yield ListPage(ListMeta(), [msgspec.Raw(await connection.send("GET", path, action="get namespaces"))])
        return
    params = {**selectors, "limit": _PAGE_SIZE}
    action = f"list {path.rpartition('/')[2]}"
    retries = 0
    path, *older = served_paths(path)
    while True:
        try:
            page = await list_page(connection, path, params, action=action, read_seconds=_READ_SECONDS)
        except ApiError as error:
            if error.is_missing and not older:
                return
            if error.is_missing:
                path = older.pop(0)
                continue
            retries += 1
            if not error.retry_after_seconds or retries > _MAX_RETRIES:
                raise
            await asyncio.sleep(min(error.retry_after_seconds, _MAX_RETRY_SECONDS))
            continue
        yield page
        if not page.metadata.continue_:
            return
        params["continue"] = page.metadata.continue_
