"""A task of the leader: updates existing webhook configurations and guards to match the policy."""

import asyncio
from collections.abc import Callable
from typing import Final

from webhook.cluster.api.errors import ClusterError
from webhook.cluster.writes.registration_sync import SyncResult, sync_registration, why_unreachable
from webhook.kube.registration.registration_sync import objects_from_policy
from webhook.server.leader.leader_context import LeaderContext

SYNC_SECONDS: Final = 5.0
"""Between two syncs: an edit of the policy is rare, and its mount takes longer to change than this."""
SYNC_OPEN_SECONDS: Final = 1.0
"""Between two syncs while a webhook fails open that should not: its CA is published at about the same time."""


class RegistrationLoop:
    """Updates webhook configurations and guards while `run` runs. `problem` is why they do not match the policy.

    `why_not_serving` returns why this server cannot answer reviews now. No webhook is set to fail closed before the
    server can, and the API server has reached it once through the Service.
    """

    def __init__(self, context: LeaderContext, *, why_not_serving: Callable[[], str | None]) -> None:
        self.problem: str | None = None
        self._is_open = False
        self._is_reached = False
        self._connection = context.connection
        self._world = context.world
        self._logs = context.logs
        self._why_not_serving = why_not_serving

    async def run(self) -> None:
        """Sync until cancelled."""
        while True:
            await self.sync()
            await asyncio.sleep(SYNC_OPEN_SECONDS if self._is_open else SYNC_SECONDS)

    async def sync(self) -> None:
        """Sync once; a problem is logged once."""
        problem = None
        try:
            done, cause = await self._sync()
        except ClusterError as error:
            problem = str(error)
        else:
            self._is_open = bool(done.open)
            if done.changed:
                policy = self._world.policy.hash
                self._logs.event.info("registration changed", objects=list(done.changed), policy=policy)
            if done.open:
                problem = f"{', '.join(done.open)}: failurePolicy stays Ignore, {cause}"
        if problem is not None and problem != self.problem:
            self._logs.event.warning("registration not kept in step", why=problem)
        self.problem = problem

    async def _sync(self) -> tuple[SyncResult, str]:
        """Sync what is possible now; return the result, and why a webhook still fails open, if any does."""
        wanted = objects_from_policy(self._world.policy)
        why_not = self._why_not_serving()
        if why_not is not None:
            cause = f"this server is not ready: {why_not}"
            return await sync_registration(self._connection, wanted, is_served=False), cause
        done = await sync_registration(self._connection, wanted, is_served=self._is_reached)
        if done.open and not self._is_reached:
            why_not = await why_unreachable(self._connection, done.probes)
            if why_not is not None:
                return done, why_not
            self._is_reached = True
            closed = await sync_registration(self._connection, wanted, is_served=True)
            done = closed._replace(changed=tuple(dict.fromkeys((*done.changed, *closed.changed))))
        return done, "there is no caBundle yet"
