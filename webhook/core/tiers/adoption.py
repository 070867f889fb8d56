"""Which tier pods without a decision get: those that came while nothing was enforced, or that others placed.

Until then they count against the guaranteed share, all of them. Those that fit into what labelled pods leave of it are
guaranteed, the oldest first, the rest borrows: so nobody's guaranteed room grows, nobody is pushed out, and no charge
has to be taken for it.
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
    """A pod that gets the labels of a team and a tier."""

    pod: Resident
    charge: Charge


def adoptions(team: Team, world: World) -> tuple[Adoption, ...]:
    """List the pods of a team that run without a decision and are ours to label, and what they are charged then."""
    room, found = Room(team), []
    for uid, entry in world.usage(team.name).entries():
        pod = world.pod(uid)
        if pod is not None and pod.team_label is None and _may_be_labelled(pod, entry, world):
            found.append((pod, entry))
        elif entry.charge.tier is Tier.GUARANTEED or entry.is_unlabeled:
            room.take(entry.charge)
    made = []
    for pod, entry in in_order(found):
        tier = Tier.PREEMPTIBLE
        if pod.tier_label != Tier.PREEMPTIBLE and room.fits(entry.charge):
            tier = Tier.GUARANTEED
            room.take(entry.charge)
        made.append(Adoption(pod, entry.charge._replace(tier=tier)))
    return tuple(made)


def _may_be_labelled(pod: Resident, entry: Entry, world: World) -> bool:
    """Tell whether a pod is ours to label: one that the ledger still lists waits for its turn.

    One that terminates is: whoever may delete pods may say that it takes a year.
    """
    is_ours = pod.may_be_labeled and not entry.is_reserved
    return is_ours and not world.is_assumed(pod.uid) and not world.tenancy(pod.namespace).is_exempt
