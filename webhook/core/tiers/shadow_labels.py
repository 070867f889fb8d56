"""Tiers of pods without a decision: adoption, labels in shadow mode.

The tiers of pods without a decision: created while policy was not enforced, or placed externally.

Before adoption all of them count against the guaranteed share. Those that fit into the part of it that labeled pods
leave become guaranteed, the oldest first; the rest borrows. So no team's guaranteed usage grows, no pod loses its
place, and no new charge is needed.

A pod that shares claims which other pods are charged for has the tier of those: guaranteed if all of them are. Without
a label it could not be evicted, and would keep borrowed devices from their owner.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from webhook.core.model.amounts import TeamName, Uid
from webhook.core.model.constraints import TIERS, Tier
from webhook.core.model.decision import Charge
from webhook.core.model.pod import Resident
from webhook.core.model.policy import NO_TEAM, Policy, Team
from webhook.core.tiers.tier_changes import ShareTaken, in_order, tier_changes
from webhook.core.world.world import World


class Adoption(NamedTuple):
    """A pod to label, with the charge whose team and tier it gets."""

    pod: Resident
    charge: Charge


def adoptions(team: Team, world: World) -> tuple[Adoption, ...]:
    """Return the pods of a team without a decision that may be labeled, and their new charges."""
    return (*_charged(team, world), *_sharing(team, world))


def are_due(world: World) -> bool:
    """Whether any pod may be labeled that has no decision."""
    found = chain(world.without_decision(), world.without_decision(sharing=True))
    return any(pod is not None and _can_label(pod, world) for pod in map(world.pod, found))


def unlabeled_borrowers(world: World) -> dict[Uid, TeamName]:
    """Return the pods that borrow by their adoption and have no label yet, with their teams.

    They are borrowers from the decision on, whenever the label arrives.
    """
    if not world.policy.is_enforced or not are_due(world):
        return {}
    found = (each for team in (*world.policy.teams, NO_TEAM) for each in adoptions(team, world))
    return {pod.uid: charge.team for pod, charge in found if charge.tier is Tier.PREEMPTIBLE}


def _charged(team: Team, world: World) -> list[Adoption]:
    room, unlabeled = ShareTaken(team), []
    for uid, entry in world.usage(team.name).entries():
        pod = world.pod(uid)
        if pod is not None and pod.team_label is None and not entry.is_reserved and _is_to_be_labeled(pod, world):
            unlabeled.append((pod, entry))
        elif entry.charge.tier is Tier.GUARANTEED or entry.is_unlabeled:
            room.take(entry.charge)
    adopted = []
    for pod, entry in in_order(unlabeled):
        tier = Tier.PREEMPTIBLE
        if pod.tier_label != Tier.PREEMPTIBLE and room.fits(entry.charge):
            tier = Tier.GUARANTEED
            room.take(entry.charge)
        if not world.is_assumed(pod.uid):
            adopted.append(Adoption(pod, entry.charge._replace(tier=tier)))
    return adopted


def _sharing(team: Team, world: World) -> Iterator[Adoption]:
    for uid in world.without_decision(sharing=True):
        pod = world.pod(uid)
        if pod is None or world.tenancy(pod.namespace).team_name != team.name or not _can_label(pod, world):
            continue
        keys = world.claims.shared_by(uid, pod.namespace, pod.claims)
        charges = [
            world.charge_of(charged) for key in keys if (charged := world.claims.users.charged_pod(key)) is not None
        ]
        is_guaranteed = all(charge is not None and charge.tier is Tier.GUARANTEED for charge in charges)
        yield Adoption(
            pod, Charge(team.name, Tier.GUARANTEED if is_guaranteed else Tier.PREEMPTIBLE, 0, None, pod.user)
        )


def _can_label(pod: Resident, world: World) -> bool:
    """Whether a pod may be labeled now: not while the ledger still lists it. Until then it has its place by age."""
    return _is_to_be_labeled(pod, world) and not world.is_assumed(pod.uid)


def _is_to_be_labeled(pod: Resident, world: World) -> bool:
    """Whether a pod is labeled at all; a terminating one is, too: its grace period can be as long as a year."""
    return pod.may_be_labeled and not world.tenancy(pod.namespace).is_exempt


# Shadow labels: while policy is not enforced, pods without a decision get the labels that it would give them.
#
# All pods enter the world through this class. The world does not know that the labels are missing, so shares, tiers and
# reclaim plans are reported as they would be. Once policy is enforced, every pod has only its real labels.


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

    def set_policy(self, policy: Policy) -> None:
        """Put another policy in force."""
        self._world.set_policy(policy)
        self.relabel_all()

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
