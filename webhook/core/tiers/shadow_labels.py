"""Shadow labels: while policy is not enforced, pods without a decision get the labels that it would give them.

All pods enter the world through this class. The world does not know that the labels are missing, so shares, tiers and
reclaim plans are reported as they would be. Once policy is enforced, every pod has only its real labels.
"""

from collections.abc import Iterable

from webhook.core.model.names import TeamName, Uid
from webhook.core.model.pod import Resident
from webhook.core.model.tier import TIERS, Tier
from webhook.core.tiers.tier_changes import tier_changes
from webhook.core.world.world import World


class ShadowLabels:
    """Adds pods to a world, those without a decision with the labels they would have."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._own_tiers: dict[Uid, str | None] = {}  # pods with shadow labels; the value of their own tier label

    def set_pod(self, pod: Resident) -> None:
        """Add or update a pod. A new one is preemptible until its team's tiers are updated."""
        if not self._needs_labels(pod):
            self._own_tiers.pop(pod.uid, None)
            self._world.set_pod(pod)
            return
        self._own_tiers[pod.uid] = pod.tier_label
        known = self._world.pod(pod.uid)
        tier = known.tier if known is not None else None
        self._world.set_pod(self._with_labels(pod, tier or Tier.PREEMPTIBLE))

    def remove_pod(self, uid: Uid) -> None:
        """Remove a pod."""
        self._own_tiers.pop(uid, None)
        self._world.remove_pod(uid)

    def relabel_all(self) -> None:
        """Give every pod its real labels or its shadow labels, by the policy in force."""
        own_tiers, self._own_tiers = self._own_tiers, {}
        for pod in list(self._world.pods()):
            if pod.uid in own_tiers:
                self._world.set_pod(pod._replace(team_label=None, tier_label=own_tiers[pod.uid]))
        for pod in list(self._world.pods()):
            if self._needs_labels(pod):
                self.set_pod(pod)
        self.update_tiers(team.name for team in self._world.policy.teams)

    def update_tiers(self, teams: Iterable[TeamName]) -> list[Uid]:
        """Update the tiers of these teams' pods with shadow labels, the oldest first; return the changed pods."""
        changed = []
        for name in teams if self._own_tiers else ():
            team = self._world.policy.team(name)
            for change in tier_changes(team, self._world) if team is not None else ():
                if change.pod.uid in self._own_tiers:
                    self._world.set_pod(change.pod._replace(tier_label=change.charge.tier.value))
                    changed.append(change.pod.uid)
        return changed

    def labeled(self, pod: Resident, *, team: TeamName, tier: Tier) -> Resident:
        """Return a pod in creation with the labels it would have."""
        return pod._replace(team_label=team, tier_label=tier.value, requested_tier=TIERS.get(pod.tier_label or ""))

    def _with_labels(self, pod: Resident, tier: Tier) -> Resident:
        return self.labeled(pod, team=self._world.tenancy(pod.namespace).team_name, tier=tier)

    def _needs_labels(self, pod: Resident) -> bool:
        return (
            not self._world.policy.is_enforced
            and pod.team_label is None
            and pod.may_be_labeled
            and bool(pod.demand.gpus or pod.claims)
            and not self._world.tenancy(pod.namespace).is_exempt
        )
