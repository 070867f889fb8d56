"""A duty of the leader: the webhook configurations and guards that exist follow the policy and what is served."""

import asyncio
from collections.abc import Callable
from typing import Final

from webhook.cluster.client import ApiConnection
from webhook.cluster.errors import ClusterError
from webhook.cluster.registered import keep_in_step
from webhook.core.world import World
from webhook.kube.in_step import wanted_by
from webhook.observe.logs import Logs

LOOK_SECONDS: Final = 5.0
"""Rest between two looks: an edit of the policy is rare, and its mount takes longer to change than this."""
LOOK_AGAIN_SECONDS: Final = 1.0
"""Rest while a webhook fails open that should not: its CA is published at about the same time."""


class Registrar:
    """Looks after webhook configurations and guards while `run` runs. `problem` is why they are not as they should be.

    `why_not_serving` says why this server cannot answer reviews now: no webhook starts to fail closed before it can.
    """

    def __init__(
        self, connection: ApiConnection, world: World, logs: Logs, *, why_not_serving: Callable[[], str | None]
    ) -> None:
        self.problem: str | None = None
        self._is_open = False
        self._connection = connection
        self._world = world
        self._logs = logs
        self._why_not_serving = why_not_serving

    async def run(self) -> None:
        """Keep them in step with the policy, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_AGAIN_SECONDS if self._is_open else LOOK_SECONDS)

    async def look(self) -> None:
        """Bring them in line once; a problem is logged once."""
        policy = self._world.policy
        why_not = self._why_not_serving()
        problem = None
        try:
            done = await keep_in_step(self._connection, wanted_by(policy), is_served=why_not is None)
        except ClusterError as error:
            problem = str(error)
        else:
            if done.changed:
                self._logs.event.info("registration changed", objects=list(done.changed), policy=policy.hash)
            self._is_open = bool(done.open)
            if done.open:
                cause = f"this server is not ready: {why_not}" if why_not else "there is no caBundle yet"
                problem = f"{', '.join(done.open)}: failurePolicy stays Ignore, {cause}"
        if problem is not None and problem != self.problem:
            self._logs.event.warning("registration not kept in step", why=problem)
        self.problem = problem
