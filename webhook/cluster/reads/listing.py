"""Lists objects once: for commands that look at a cluster and go. What follows one is watch.py."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Protocol

import msgspec

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.cluster.api.wire import Page, any_object
from webhook.cluster.watch.store import Mirror
from webhook.cluster.watch.watched_kind import WatchedKind
from webhook.kube.objects.bounds import LARGE_BYTES

_PAGE_SIZE: Final = "500"
_READ_SECONDS: Final = 30.0
_MOST_REFUSALS: Final = 3
_LONGEST_REST: Final = 5.0
"""A server that is busy says when to come again (429): it is asked again so often, after so many seconds at most."""
_page: Final = msgspec.json.Decoder(Page)


class Listed(Protocol):
    """What is listed: where, what a list leaves out of its items, and how they are selected."""

    @property
    def path(self) -> str:
        """Where the API lists them."""

    @property
    def api_version(self) -> str:
        """The apiVersion of each."""

    @property
    def kind(self) -> str:
        """The kind of each."""

    @property
    def selector(self) -> str:
        """A fieldSelector, or nothing."""


async def list_objects(connection: ApiConnection, listed: Listed, *, path: str = "") -> list[dict[str, Any]]:
    """List all objects of a kind, each with its apiVersion and kind; a server without this API has none.

    `path` is where, if not where the kind says: one namespace. Raises ClusterError.
    """
    head = {"apiVersion": listed.api_version, "kind": listed.kind}
    params = {"fieldSelector": listed.selector} if listed.selector else {}
    found: list[dict[str, Any]] = []
    async for items in _pages(connection, path or listed.path, params):
        found += [head | msgspec.json.decode(item) for item in items]
    return found


async def load(connection: ApiConnection, kind: WatchedKind[Any], *, path: str = "") -> None:
    """Apply all objects of a kind as a watch would; a server without this API has none.

    `path` is as in `list_objects`. Raises ClusterError.
    """
    mirror, decoder = Mirror(kind), msgspec.json.Decoder(kind.item)
    async for items in _pages(connection, path or kind.path, kind.params):
        for item in items:
            raw = bytes(item)
            try:
                mirror.take(decoder.decode(kind.trim(raw) if kind.trim and len(raw) > LARGE_BYTES else raw))
            except msgspec.DecodeError as error:
                mirror.reject(any_object(raw).key, error, raw)


def is_object(path: str) -> bool:
    """Tell whether a path names one object: a namespace by its name is the only one that is read."""
    return path.startswith("/api/v1/namespaces/") and path.count("/") == len(("", "api", "v1", "namespaces"))


async def _pages(
    connection: ApiConnection, path: str, selectors: Mapping[str, str]
) -> AsyncIterator[list[msgspec.Raw]]:
    """Yield the items of a list page by page; of a path that is one object, that."""
    if is_object(path):
        yield [msgspec.Raw(await connection.send("GET", path, action="get namespaces"))]
        return
    params = {**selectors, "limit": _PAGE_SIZE}
    action = f"list {path.rpartition('/')[2]}"
    refusals = 0
    while True:
        try:
            async with connection.get(path, params, action=action, read_seconds=_READ_SECONDS) as answer:
                page = _page.decode(await answer.read())
        except ApiError as error:
            if error.is_missing:
                return
            refusals += 1
            if not error.retry_after_seconds or refusals > _MOST_REFUSALS:
                raise
            await asyncio.sleep(min(error.retry_after_seconds, _LONGEST_REST))
            continue
        except msgspec.DecodeError as cause:
            raise ClusterError(f"cannot {action}: the answer is not a list: {cause}") from cause
        yield page.items or []
        if not page.metadata.continue_:
            return
        params["continue"] = page.metadata.continue_
