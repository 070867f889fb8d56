"""Labels pods that run without a decision, as core.tiers.adoption finds them, with one patch each."""

import asyncio
from itertools import chain

from webhook.cluster.api.errors import ClusterError
from webhook.cluster.writes.relabel import RelabelResult, relabel
from webhook.core.model.names import Uid
from webhook.core.model.policy import NO_TEAM
from webhook.core.tiers.adoption import Adoption, adoptions
from webhook.kube.objects.events import EventReason
from webhook.observe.logs import pod_fields
from webhook.server.leader.leader_context import LeaderContext
from webhook.server.leader.tiers import AT_ONCE, REST_SECONDS


class Adopter:
    """Adopts pods. A patched pod is skipped for REST_SECONDS, by when the watch shows it if the patch succeeded."""

    def __init__(self, context: LeaderContext) -> None:
        self._context = context
        self._world = context.world
        self._skipped: dict[Uid, float] = {}

    async def adopt_new(self) -> None:
        """Adopt new pods, at most AT_ONCE of each team."""
        now = asyncio.get_running_loop().time()
        self._skipped = {uid: until for uid, until in self._skipped.items() if until > now}
        policy = self._world.policy
        for team in (*policy.teams, NO_TEAM) if self._has_candidates() else ():
            due = [each for each in adoptions(team, self._world) if each.pod.uid not in self._skipped]
            for adoption in due[:AT_ONCE]:
                if self._world.policy is not policy:
                    return
                await self._adopt(adoption)

    def _has_candidates(self) -> bool:
        found = chain(self._world.without_decision(), self._world.without_decision(sharing=True))
        pods = map(self._world.pod, found)
        return any(pod is not None and pod.may_be_labeled for pod in pods)

    async def _adopt(self, adoption: Adoption) -> None:
        context, (pod, charge) = self._context, adoption
        self._skipped[pod.uid] = asyncio.get_running_loop().time() + REST_SECONDS
        fields = {**pod_fields(pod), "team": charge.team, "tier": charge.tier}
        try:
            outcome = await relabel(context.connection, pod, charge, is_leading=context.is_leading)
        except ClusterError as error:
            context.logs.event.warning("pod not adopted", **fields, why=str(error))
            return
        if outcome is RelabelResult.GONE:
            return
        context.logs.event.info("pod adopted", **fields)
        text = f"ran without a decision of Fairgate; now it is charged to team {charge.team} as {charge.tier}"
        context.report(pod, EventReason.ADOPTED, text)
