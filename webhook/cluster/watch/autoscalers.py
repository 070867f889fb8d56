"""Finds the autoscalers of a cluster, and looks again now and then: they may be installed and removed at any time."""

import asyncio
import time
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.cluster.api.one_object import decoded, find
from webhook.core.model.autoscaler import Autoscaler
from webhook.core.world.world import World
from webhook.kube.nodes.autoscalers import KARPENTER_PATHS, STATUS_PATH, is_running, serves_karpenter

LOOK_SECONDS: Final = 60.0
"""Time between two looks: two small requests."""

_DISCOVER: Final = "discover karpenter.sh"
_GET: Final = "get configmaps"


class FoundAutoscalers(NamedTuple):
    """The autoscalers of a cluster; `why_unsure` says which of them could not be looked for, "" if all were."""

    autoscalers: frozenset[Autoscaler]
    why_unsure: str = ""


async def find_autoscalers(connection: ApiConnection) -> FoundAutoscalers:
    """Look for autoscalers. Raises ClusterError, but not for a missing right."""
    found: set[Autoscaler] = set()
    for path in KARPENTER_PATHS:
        body = await find(connection, path, action=_DISCOVER)
        if body is not None and decoded(body, serves_karpenter, action=_DISCOVER):
            found.add(Autoscaler.KARPENTER)
            break
    try:
        body = await find(connection, STATUS_PATH, action=_GET)
    except ApiError as error:
        if not error.is_forbidden:
            raise
        return FoundAutoscalers(frozenset(found), str(error))
    now = connection.server_time or time.time()
    if body is not None and decoded(body, lambda body: is_running(body, now=now), action=_GET):
        found.add(Autoscaler.CLUSTER_AUTOSCALER)
    return FoundAutoscalers(frozenset(found))


class AutoscalerWatch:
    """Keeps the autoscalers of a world up to date; what cannot be read stays as it was.

    `looked` is set after the first look, whatever came of it. `why_unsure` is as in FoundAutoscalers.
    """

    def __init__(
        self, connection: ApiConnection, world: World, *, note: Callable[[FoundAutoscalers], None] = lambda _: None
    ) -> None:
        self.looked = asyncio.Event()
        self.why_unsure = ""
        self._connection = connection
        self._world = world
        self._note = note

    async def run(self) -> NoReturn:
        """Look for autoscalers until cancelled; `note` is called with what changed."""
        while True:
            await self.look()
            self.looked.set()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Look for autoscalers once."""
        before = FoundAutoscalers(self._world.autoscalers, self.why_unsure)
        try:
            found = await find_autoscalers(self._connection)
        except ClusterError as error:
            found = FoundAutoscalers(before.autoscalers, str(error))
        self._world.autoscalers, self.why_unsure = found
        if found != before:
            self._note(found)
