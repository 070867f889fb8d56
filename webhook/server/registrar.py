"""A duty of the leader: the API server asks about what the policy is about, also after the policy was edited."""

import asyncio
from typing import Final

from webhook.cluster.client import ApiConnection
from webhook.cluster.errors import ClusterError
from webhook.cluster.registered import keep_in_step
from webhook.core.world import World
from webhook.kube.in_step import wanted_by
from webhook.observe.logs import Logs

LOOK_SECONDS: Final = 5.0
"""Rest between two looks: an edit of the policy is rare, and its mount takes longer to change than this."""


class Registrar:
    """Looks after webhook configurations and guards while `run` runs. `problem` is why the last look failed."""

    def __init__(self, connection: ApiConnection, world: World, logs: Logs) -> None:
        self.problem: str | None = None
        self._connection = connection
        self._world = world
        self._logs = logs

    async def run(self) -> None:
        """Keep them in step with the policy, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Bring them in line once; a failure is told once."""
        policy = self._world.policy
        try:
            changed = await keep_in_step(self._connection, wanted_by(policy))
        except ClusterError as error:
            if self.problem != str(error):
                self.problem = str(error)
                self._logs.event.warning("registration not kept in step", why=self.problem)
            return
        self.problem = None
        if changed:
            self._logs.event.info("registration changed", objects=list(changed), policy=policy.hash)
