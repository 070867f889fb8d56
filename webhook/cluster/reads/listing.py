"""Lists that a command reads whole, also with rights to a part, and the server's version.

Lists objects once, for commands that read a cluster and exit. The list-watch is in watch.py.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from webhook.cluster.api.client import ApiConnection, ApiError, ClusterError, ListMeta, ListPage, any_object
from webhook.cluster.api.requests import list_page
from webhook.cluster.watch.event_stream import ObjectStore
from webhook.kube.objects.bounds import LARGE_BYTES
from webhook.kube.objects.keys import CORE_API, ServerVersion, parse_version, served_paths, why_too_old
from webhook.kube.watched.kinds import WatchedKind
from webhook.kube.watched.world_kinds import WorldKind

_PAGE_SIZE: Final = "500"
_READ_SECONDS: Final = 30.0
_MAX_RETRIES: Final = 3
_MAX_RETRY_SECONDS: Final = 5.0
"""A busy server answers 429 with Retry-After: so many retries, each after so many seconds at most."""


async def list_objects(
    connection: ApiConnection, path: str, *, kind: str, api: str = CORE_API, selector: str = ""
) -> list[dict[str, Any]]:
    """Return all objects of a kind, each with its apiVersion and kind; a server without this API has none.

    `api` is the version that counts where the server does not say it, `selector` one of fields. Raises ClusterError.
    """
    params = {"fieldSelector": selector} if selector else {}
    found: list[dict[str, Any]] = []
    async for page in pages(connection, path, params):
        head = {"apiVersion": page.api_version or api, "kind": kind}
        found += [head | msgspec.json.decode(item) for item in page.items or ()]
    return found


async def list_kind(connection: ApiConnection, row: WorldKind[Any], *, path: str = "") -> list[dict[str, Any]]:
    """Return all objects of a kind as `list_objects` does; `path` replaces that of the kind: one namespace."""
    return await list_objects(connection, path or row.path, kind=row.kind, api=row.api, selector=row.selector)


async def names_of_large(connection: ApiConnection, path: str, *, over: int, label: str) -> list[str]:
    """Return the objects with a label that have more bytes as JSON, by namespace and name. Raises ClusterError."""
    found: list[str] = []
    async for page in pages(connection, path, {"labelSelector": label}):
        found += [any_object(raw).key for raw in map(bytes, page.items or ()) if len(raw) > over]
    return found


async def load(connection: ApiConnection, kind: WatchedKind[Any], *, path: str = "") -> None:
    """Apply all objects of a kind as a watch would; a server without this API has none.

    `path` replaces that of the kind: one namespace. Raises ClusterError.
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


# Reads as much of a kind as RBAC allows: all of it, or a few namespaces, or nothing.


_NAMESPACED: Final = frozenset(
    {
        *("pods", "resourceclaims", "resourceclaimtemplates", "podgroups", "horizontalpodautoscalers"),
        *("poddisruptionbudgets", "limitranges"),
        *("namespaces", "events"),
    }
)
"""Kinds that can be read by namespace, and namespaces themselves."""


class ReadScope(NamedTuple):
    """How much of a kind was read: all of it, or these namespaces."""

    resource: str
    is_all: bool
    namespaces: tuple[str, ...] = ()


async def read_permitted(path: str, read: Callable[[str], Awaitable[None]], *, namespaces: Sequence[str]) -> ReadScope:
    """Read a kind from its path; if RBAC forbids that, from the same path in each namespace.

    Raises ClusterError for every error but a missing right. Does not retry.
    """
    resource = path.rpartition("/")[2]
    try:
        await read(path)
    except ApiError as error:
        if not error.is_forbidden:
            raise
    else:
        return ReadScope(resource, is_all=True)
    found = []
    for namespace in namespaces if resource in _NAMESPACED else ():
        try:
            await read(in_namespace(path, namespace))
        except ApiError as refusal:
            if not (refusal.is_forbidden or refusal.is_missing):
                raise
        else:
            found.append(namespace)
    return ReadScope(resource, is_all=False, namespaces=tuple(found))


def in_namespace(path: str, namespace: str) -> str:
    """Return the path of a kind in one namespace; for namespaces, that of the object."""
    head, _, resource = path.rpartition("/")
    return f"{path}/{namespace}" if resource == "namespaces" else f"{head}/namespaces/{namespace}/{resource}"


# Reads the version of the API server, and ends a process that cannot work with it.


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
