"""The order in which a team's pods have its guaranteed share: replicas of minimums first, those beyond them last.

A team's pods that belong to a minimum take the place of pods of the same team that are beyond another one. Pods of
workloads without a minimum neither give way nor displace any: a minimum costs others nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Final

from webhook.core.model.names import Uid, WorkloadName
from webhook.core.model.pod import Resident
from webhook.core.model.tier import Tier
from webhook.core.quota.usage import TeamUsage
from webhook.core.world.minimums import Minimums
from webhook.core.world.world import World

_GUARANTEED: Final = Tier.GUARANTEED


class Rank(IntEnum):
    """Where a pod stands in its team: part of its workload's minimum, of none, or beyond it."""

    MINIMUM = 0
    OTHER = 1
    SURPLUS = 2


Ranks = Mapping[Uid, Rank]
"""The ranks of pods other than OTHER."""

NO_RANKS: Final[Ranks] = {}


def ranks_of(book: TeamUsage, world: World) -> Ranks:
    """Return the ranks of a team's pods."""
    minimums = world.minimums
    if not minimums.workloads():
        return {}
    workloads = dict.fromkeys(minimums.workload_of(uid) for uid, _ in book.entries())
    return ranks_within(filter(None, workloads), minimums, world.pod)


def ranks_within(
    workloads: Iterable[WorkloadName], minimums: Minimums, pod_of: Callable[[Uid], Resident | None]
) -> Ranks:
    """Return the ranks of the pods of workloads.

    Of a workload the oldest are its minimum, whatever their tiers, so that a change of tier changes no rank.
    """
    ranks: dict[Uid, Rank] = {}
    for workload in workloads:
        if minimum := minimums.for_tiers(workload):
            pods = [pod for uid in minimums.pods(workload) if (pod := pod_of(uid)) is not None]
            for number, pod in enumerate(sorted(pods, key=_age)):
                ranks[pod.uid] = Rank.MINIMUM if number < minimum else Rank.SURPLUS
    return ranks


def rank_of(pod: Resident, ranks: Ranks) -> tuple[bool, int, int, str, str, str]:
    """Return where a pod stands: those that requested never to borrow first, then by rank, then by age."""
    rank = ranks.get(pod.uid, Rank.OTHER) if ranks else Rank.OTHER
    return (pod.requested_tier is not _GUARANTEED, rank, pod.created, pod.namespace, pod.name, pod.uid)


def gives_way(pod: Resident, ranks: Ranks) -> bool:
    """Whether a guaranteed pod gives way to a pod of a minimum: it did not request never to borrow."""
    return ranks.get(pod.uid) is Rank.SURPLUS and pod.requested_tier is not _GUARANTEED and not pod.claims


def _age(pod: Resident) -> tuple[bool, int, str, str]:
    return (pod.is_terminating, pod.created, pod.name, pod.uid)
