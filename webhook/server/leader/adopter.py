"""Labels pods that run without a decision, as core.tiers.adoption finds them, with one patch each."""

from webhook.cluster.api.errors import ClusterError
from webhook.cluster.writes.relabel import RelabelResult, relabel
from webhook.core.model.policy import NO_TEAM
from webhook.core.tiers.adoption import Adoption, adoptions, are_due
from webhook.kube.objects.events import EventReason
from webhook.observe.logs import pod_fields
from webhook.server.leader.leader_context import LeaderContext
from webhook.server.leader.tiers import AT_ONCE, Rests


class Adopter:
    """Adopts pods. A patched pod is skipped for REST_SECONDS, by when the watch shows it if the patch succeeded."""

    def __init__(self, context: LeaderContext) -> None:
        self._context = context
        self._world = context.world
        self._rests = Rests()

    async def adopt_new(self) -> None:
        """Adopt new pods, at most AT_ONCE of each team."""
        self._rests.tidy()
        policy = self._world.policy
        for team in (*policy.teams, NO_TEAM) if are_due(self._world) else ():
            due = [each for each in adoptions(team, self._world) if each.pod.uid not in self._rests]
            for adoption in due[:AT_ONCE]:
                if self._world.policy is not policy:
                    return
                await self._adopt(adoption)

    async def _adopt(self, adoption: Adoption) -> None:
        context, (pod, charge) = self._context, adoption
        fields = {**pod_fields(pod), "team": charge.team, "tier": charge.tier}
        try:
            outcome = await relabel(context.connection, pod, charge, is_leading=context.is_leading)
        except ClusterError as error:
            self._rests.failed(pod.uid)
            context.logs.event.warning("pod not adopted", **fields, why=str(error))
            return
        self._rests.succeeded(pod.uid)
        if outcome is RelabelResult.GONE:
            return
        context.logs.event.info("pod adopted", **fields)
        text = f"ran without a decision of Fairgate; now it is charged to team {charge.team} as {charge.tier}"
        context.report(pod, EventReason.ADOPTED, text)
