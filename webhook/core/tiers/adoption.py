"""The tiers of pods without a decision: created while policy was not enforced, or placed externally.

Before adoption all of them count against the guaranteed share. Those that fit into the part of it that labeled pods
leave become guaranteed, the oldest first; the rest borrows. So no team's guaranteed usage grows, no pod loses its
place, and no new charge is needed.

A pod that shares claims which other pods are charged for has the tier of those: guaranteed if all of them are. Without
a label it could not be evicted, and would keep borrowed devices from their owner.
"""

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from webhook.core.model.decision import Charge
from webhook.core.model.names import TeamName, Uid
from webhook.core.model.pod import Resident
from webhook.core.model.policy import NO_TEAM, Team
from webhook.core.model.tier import Tier
from webhook.core.quota.usage import UsageEntry
from webhook.core.tiers.tier_changes import ShareTaken, in_order
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
        if pod is not None and pod.team_label is None and _may_be_labeled(pod, entry, world):
            unlabeled.append((pod, entry))
        elif entry.charge.tier is Tier.GUARANTEED or entry.is_unlabeled:
            room.take(entry.charge)
    adopted = []
    for pod, entry in in_order(unlabeled):
        tier = Tier.PREEMPTIBLE
        if pod.tier_label != Tier.PREEMPTIBLE and room.fits(entry.charge):
            tier = Tier.GUARANTEED
            room.take(entry.charge)
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


def _may_be_labeled(pod: Resident, entry: UsageEntry, world: World) -> bool:
    return not entry.is_reserved and _can_label(pod, world)


def _can_label(pod: Resident, world: World) -> bool:
    """Whether a pod may be labeled now: not while the ledger still lists it.

    A terminating pod may be: its grace period can be as long as a year.
    """
    return pod.may_be_labeled and not world.is_assumed(pod.uid) and not world.tenancy(pod.namespace).is_exempt
