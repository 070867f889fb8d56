"""Pods that share devices by a ResourceClaim: who shares what another pod borrows borrows, too.

A guaranteed pod keeps its devices, so beside one the borrowed devices could not be taken back.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from webhook.core.dra.claim_spec import ClaimKey
from webhook.core.model.names import Uid
from webhook.core.model.pod import Pod, Resident
from webhook.core.model.tier import Tier
from webhook.core.quota.in_flight import Alive
from webhook.core.quota.usage import TeamUsage
from webhook.core.world.world import World


class Sharer(NamedTuple):
    """A pod that shares a claim whose GPUs are borrowed."""

    pod: Resident
    claim: ClaimKey


def borrowed_claim(pod: Pod | Resident, world: World) -> ClaimKey | None:
    """Return a claim of a pod that another pod is charged for as borrowed; None where there is none."""
    for key in world.claims.shared_by(pod.uid, pod.namespace, pod.claims):
        charged = world.claims.users.charged_pod(key)
        charge = None if charged is None or charged == pod.uid else world.charge_of(charged)
        if charge is not None and charge.tier is Tier.PREEMPTIBLE:
            return key
    return None


def guaranteed_sharers(usage: TeamUsage, world: World, *, demoted: Collection[Uid]) -> Iterator[Sharer]:
    """Yield the pods with a guaranteed label that share what pods of the team borrow, the demoted ones among them."""
    users = world.claims.users
    if users.is_empty:
        return
    found = set(demoted)
    for uid, entry in usage.entries():
        pod = world.pod(uid)
        if pod is None or not pod.claims or (entry.charge.tier is Tier.GUARANTEED and uid not in demoted):
            continue
        for key in world.claims.shared_by(uid, pod.namespace, pod.claims):
            for other in users.of(key) if users.charged_pod(key) == uid else ():
                sharer = world.pod(other)
                if other not in found and sharer is not None and _can_be_demoted(sharer, world):
                    found.add(other)
                    yield Sharer(sharer, key)


def _can_be_demoted(pod: Resident, world: World) -> bool:
    is_seen = isinstance(world.evidence(pod.uid), Alive)
    return is_seen and pod.tier is Tier.GUARANTEED and not pod.is_terminating
