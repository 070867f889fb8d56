"""Labels pods that run without a decision, whoever placed them: as core.tiers.adoption finds, one patch each."""

import asyncio
from collections.abc import Callable

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ClusterError
from webhook.cluster.writes.relabel import Relabelled, relabel
from webhook.core.model.names import Uid
from webhook.core.model.policy import NO_TEAM
from webhook.core.tiers.adoption import Adoption, adoptions
from webhook.core.world.world import World
from webhook.kube.objects.events import Event, EventReason, EventType, ObjectRef
from webhook.observe.logs import Logs
from webhook.server.leader.tiers import AT_ONCE, REST_SECONDS, EventRecorder


class Adopter:
    """Adopts pods. What was written is left alone until the watch shows it, or for a while where that failed."""

    def __init__(
        self,
        world: World,
        connection: ApiConnection,
        *,
        teller: EventRecorder,
        logs: Logs,
        is_leading: Callable[[], bool],
    ) -> None:
        self._world = world
        self._connection = connection
        self._teller = teller
        self._logs = logs
        self._is_leading = is_leading
        self._resting: dict[Uid, float] = {}

    async def look(self) -> None:
        """Adopt what came since the last look, some pods of each team at a time."""
        now = asyncio.get_running_loop().time()
        self._resting = {uid: until for uid, until in self._resting.items() if until > now}
        policy = self._world.policy
        for team in (*policy.teams, NO_TEAM) if self._finds_any() else ():
            due = [each for each in adoptions(team, self._world) if each.pod.uid not in self._resting]
            for adoption in due[:AT_ONCE]:
                if self._world.policy is not policy:
                    return
                await self._adopt(adoption)

    def _finds_any(self) -> bool:
        pods = map(self._world.pod, self._world.without_decision())
        return any(pod is not None and pod.may_be_labeled for pod in pods)

    async def _adopt(self, adoption: Adoption) -> None:
        pod, charge = adoption
        self._resting[pod.uid] = asyncio.get_running_loop().time() + REST_SECONDS
        told = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "team": charge.team, "tier": charge.tier}
        try:
            outcome = await relabel(self._connection, pod, charge, is_leading=self._is_leading)
        except ClusterError as error:
            self._logs.event.warning("pod not adopted", **told, why=str(error))
            return
        if outcome is Relabelled.GONE:
            return
        self._logs.event.info("pod adopted", **told)
        text = f"ran without a decision of Fairgate's; now it is one of team {charge.team}'s, {charge.tier}"
        about = ObjectRef("Pod", pod.namespace, pod.name, pod.uid)
        self._teller.tell(Event(about, EventType.NORMAL, EventReason.ADOPTED, "Adopt", text))
