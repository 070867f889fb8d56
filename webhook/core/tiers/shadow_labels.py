"""While nothing is enforced: pods carry no decision, and are seen as if they did, with the tiers they would have.

Stands before the world where pods come in. The world never learns that the labels are not there, so shares, tiers and
plans of reclaim are told as they would be. As soon as policy is enforced, every pod is seen as it is again.
"""

from collections.abc import Iterable
from dataclasses import replace

from webhook.core.model.names import TeamName, Uid
from webhook.core.model.pod import Resident
from webhook.core.model.tier import TIERS, Tier
from webhook.core.tiers.tier_changes import tier_changes
from webhook.core.world.world import World


class ShadowLabels:
    """Keeps pods in a world, those without a decision with the one that they would have."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._asked: dict[Uid, str | None] = {}  # whose labels are supposed; what their own tier label says

    def set_pod(self, pod: Resident) -> None:
        """Keep a pod. One that is new borrows until its team's share is looked at."""
        if not self._is_supposed(pod):
            self._asked.pop(pod.uid, None)
            self._world.set_pod(pod)
            return
        self._asked[pod.uid] = pod.tier_label
        known = self._world.pod(pod.uid)
        tier = known.tier if known is not None else None
        self._world.set_pod(self._labelled(pod, tier or Tier.PREEMPTIBLE))

    def remove_pod(self, uid: Uid) -> None:
        """Drop a pod."""
        self._asked.pop(uid, None)
        self._world.remove_pod(uid)

    def relabel_all(self) -> None:
        """See every pod as the policy that came into force wants it: as it is, or as it would be."""
        asked, self._asked = self._asked, {}
        for pod in list(self._world.pods()):
            if pod.uid in asked:
                self._world.set_pod(replace(pod, team_label=None, tier_label=asked[pod.uid]))
        for pod in list(self._world.pods()):
            if self._is_supposed(pod):
                self.set_pod(pod)
        self.settle(team.name for team in self._world.policy.teams)

    def settle(self, teams: Iterable[TeamName]) -> list[Uid]:
        """Give the supposed pods of these teams the tiers that they would have by now, the oldest first; tell whose."""
        changed = []
        for name in teams if self._asked else ():
            team = self._world.policy.team(name)
            for change in tier_changes(team, self._world) if team is not None else ():
                if change.pod.uid in self._asked:
                    self._world.set_pod(replace(change.pod, tier_label=change.charge.tier.value))
                    changed.append(change.pod.uid)
        return changed

    def supposed(self, pod: Resident, *, team: TeamName, tier: Tier) -> Resident:
        """Describe a pod that is being created as it would be labelled."""
        return replace(pod, team_label=team, tier_label=tier.value, requested_tier=TIERS.get(pod.tier_label or ""))

    def _labelled(self, pod: Resident, tier: Tier) -> Resident:
        return self.supposed(pod, team=self._world.tenancy(pod.namespace).team_name, tier=tier)

    def _is_supposed(self, pod: Resident) -> bool:
        return (
            not self._world.policy.is_enforced
            and pod.team_label is None
            and pod.may_be_labeled
            and bool(pod.demand.gpus or pod.claims)
            and not self._world.tenancy(pod.namespace).is_exempt
        )
