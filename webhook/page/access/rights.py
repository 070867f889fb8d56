"""Rights by the API server itself: TokenReview says who, SubjectAccessReview says which pods they may list."""

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.reads.caller_rights import Identity, identity_of, may_list_pods
from webhook.page.views.viewer import Viewer

MOST_NAMESPACES: Final = 300
"""Namespaces that are asked about for one viewer."""

_AT_ONCE: Final = 10


class Rights(Protocol):
    """Answers who a token belongs to, and what that user may see."""

    async def identity(self, token: str) -> Identity | None:
        """Return the user of a token; None where it is not valid. Raises ClusterError."""

    async def viewer(self, identity: Identity, namespaces: Iterable[str]) -> Viewer:
        """Return what a user may see of these namespaces. Raises ClusterError."""


class ApiRights:
    """Asks the API server."""

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection

    async def identity(self, token: str) -> Identity | None:
        """Return the user of a token; None where it is not valid. Raises ClusterError."""
        return await identity_of(self._connection, token)

    async def viewer(self, identity: Identity, namespaces: Iterable[str]) -> Viewer:
        """Return what a user may see: all, if they may list the pods of all namespaces. Raises ClusterError."""
        if await may_list_pods(self._connection, identity):
            return Viewer(identity.name)
        asked = sorted(set(namespaces))
        gate = asyncio.Semaphore(_AT_ONCE)

        async def ask(namespace: str) -> bool:
            async with gate:
                return await may_list_pods(self._connection, identity, namespace)

        first = asked[:MOST_NAMESPACES]
        answers = await asyncio.gather(*map(ask, first))
        allowed = frozenset(name for name, is_allowed in zip(first, answers, strict=True) if is_allowed)
        notes = ["not shown: pods of namespaces in which you may not list pods"]
        if len(asked) > len(first):
            notes.append(f"only the first {len(first)} of {len(asked)} namespaces with GPU pods were looked at")
        return Viewer(identity.name, allowed, tuple(notes))
