"""The tiers of pods without a decision: created while policy was not enforced, or placed externally.

Before adoption all of them count against the guaranteed share. Those that fit into the part of it that labeled pods
leave become guaranteed, the oldest first; the rest borrows. So no team's guaranteed usage grows, no pod loses its
place, and no new charge is needed.
"""

from typing import NamedTuple

from webhook.core.model.decision import Charge
from webhook.core.model.pod import Resident
from webhook.core.model.policy import Team
from webhook.core.model.tier import Tier
from webhook.core.quota.usage import Entry
from webhook.core.tiers.tier_changes import Room, in_order
from webhook.core.world.world import World


class Adoption(NamedTuple):
    """A pod to label, with the charge whose team and tier it gets."""

    pod: Resident
    charge: Charge


def adoptions(team: Team, world: World) -> tuple[Adoption, ...]:
    """Return the pods of a team without a decision that may be labeled, and their new charges."""
    room, unlabeled = Room(team), []
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
    return tuple(adopted)


def _may_be_labeled(pod: Resident, entry: Entry, world: World) -> bool:
    """Whether a pod may be labeled now: not while the ledger still lists it.

    A terminating pod may be: its grace period can be as long as a year.
    """
    can_label = pod.may_be_labeled and not entry.is_reserved
    return can_label and not world.is_assumed(pod.uid) and not world.tenancy(pod.namespace).is_exempt
