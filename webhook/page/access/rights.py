"""Rights by the API server itself: TokenReview says who, SubjectAccessReview what they may list."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.reads.caller_rights import CallerIdentity, identity_of, may_list
from webhook.page.views.viewer import Viewer

MOST_NAMESPACES: Final = 300
"""Namespaces that are asked about for one viewer."""

_AT_ONCE: Final = 10


class ApiRights:
    """Asks the API server."""

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection

    async def identity(self, token: str) -> CallerIdentity | None:
        """Return the user of a token; None where it is not valid. Raises ClusterError."""
        return await identity_of(self._connection, token)

    async def viewer(self, identity: CallerIdentity, namespaces: Iterable[str]) -> Viewer:
        """Return what a user may list: pods and Events, in all namespaces or in which of these, and nodes."""
        all_pods, nodes = await asyncio.gather(self._may(identity, "pods"), self._may(identity, "nodes"))
        asked = sorted(set(namespaces))
        first = asked if all_pods else asked[:MOST_NAMESPACES]
        pods = None if all_pods else await self._among(identity, "pods", first)
        events = None
        if not await self._may(identity, "events"):
            events = await self._among(identity, "events", first[:MOST_NAMESPACES] if pods is None else sorted(pods))
        notes = []
        if pods is not None:
            notes.append("not shown: pods of namespaces in which you may not list pods")
        if len(asked) > len(first):
            notes.append(f"only the first {len(first)} of {len(asked)} namespaces with GPU pods were looked at")
        if not nodes:
            notes.append("of nodes only the names are shown that your pods have, because you may not list nodes")
        if events is not None and (pods is None or not pods <= events):
            notes.append("decisions that only Events report are shown where you may list Events")
        return Viewer(identity.name, pods, tuple(notes), nodes=nodes, events=events)

    async def _among(self, identity: CallerIdentity, resource: str, namespaces: Sequence[str]) -> frozenset[str]:
        """Return the namespaces in which a user may list a kind."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def ask(namespace: str) -> bool:
            async with gate:
                return await self._may(identity, resource, namespace)

        answers = await asyncio.gather(*map(ask, namespaces))
        return frozenset(name for name, is_allowed in zip(namespaces, answers, strict=True) if is_allowed)

    async def _may(self, identity: CallerIdentity, resource: str, namespace: str = "") -> bool:
        return await may_list(self._connection, identity, resource, namespace)
