"""Pods in line for which reclaim makes room under limits: those inside their teams' guaranteed shares.

A limit of the team or of a department may be in their way, and nothing else. They are tried in the order of each team's
line, as many as its share has room for: others would borrow once they start.
"""

from collections.abc import Iterator, Set
from typing import Final

from webhook.core.admission.assessment import Assessment, assess
from webhook.core.admission.placement_options import placement_options
from webhook.core.admission.queueing import LEVELS, share_used
from webhook.core.model.amount import Units, exceeds
from webhook.core.model.decision import Charge
from webhook.core.model.names import TeamName, User
from webhook.core.model.policy import Team
from webhook.core.model.tier import Tier
from webhook.core.quota.charged_pod import flight_of
from webhook.core.reclaim.limit_levels import is_anything_borrowed, level_names
from webhook.core.reclaim.limit_plan import Entitled
from webhook.core.reclaim.reclaim_pod import ReclaimPod, Report
from webhook.core.release.judge import NO_REQUESTER
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World

MOST: Final = 64
"""Pods that are planned for at once: a plan takes milliseconds, and the rest follows when these have started."""


def entitled_pods(world: World, *, resting: Set[TeamName] = frozenset()) -> list[tuple[Entitled, ...]]:
    """Return the pods of all teams that do not rest, the longest waiting first; each starts alone."""
    found = [
        each
        for name in world.waiting.teams()
        if name not in resting and (team := world.policy.team(name)) is not None
        for each in _of_team(team, world)
    ]
    found.sort(key=lambda each: _age(each.waiting))
    return [(each,) for each in found[:MOST]]


def _of_team(team: Team, world: World) -> Iterator[Entitled]:
    """Yield the pods of a team in the order of its line for which its guaranteed share has room, one after the other.

    Where the share of a GPU model decides, only the first: each changes what is left for the next one.
    """
    usage, levels = world.usage(team.name), level_names(team)
    if usage.guaranteed >= team.gpus.guaranteed or not (levels and is_anything_borrowed(team, world)):
        return
    taken = share_used(team, world)
    by_user: dict[User, Units] = {}
    count = 0
    for waiting in sorted(world.waiting.of(team.name), key=_turn):
        if taken >= team.gpus.guaranteed or count == MOST:
            return
        if not _may_claim(waiting, world) or taken + waiting.pod.demand.gpus > team.gpus.guaranteed:
            continue
        count += 1
        assessed = assess(waiting.pod, NO_REQUESTER, world).of_user(waiting.user)
        gpus, user = assessed.pod.demand.gpus, waiting.user
        held = 0 if user is None else usage.user(user) + by_user.get(user, 0)
        is_over = taken + gpus > team.gpus.guaranteed or (user is not None and exceeds(held + gpus, team.per_user))
        slots = 0 if is_over else _slots(assessed, world)
        if not slots:
            continue
        taken += gpus
        if user is not None:
            by_user[user] = by_user.get(user, 0) + gpus
        yield Entitled(_as_reclaim_pod(waiting, assessed), slots, levels)
        if team.has_model_shares:
            return


def _may_claim(waiting: WaitingPod, world: World) -> bool:
    is_alone = waiting.pod.gang is None or world.gangs.has_started(waiting.pod.gang.id)
    would_borrow = waiting.pod.requested_tier is Tier.PREEMPTIBLE
    return waiting.has_turn and is_alone and not would_borrow and not world.is_assumed(waiting.uid)


def _slots(assessed: Assessment, world: World) -> int:
    """Return the slots where a pod would be guaranteed, if limits had room; 0 where more keeps it from starting."""
    if assessed.early_decision is not None or assessed.rules or assessed.pools.refusal is not None:
        return 0
    if not {reason.code for reason in assessed.broken} <= LEVELS:
        return 0
    slots, has_shares = 0, assessed.team.has_model_shares
    for option in placement_options(assessed.pod, assessed.pools.allowed, assessed, world):
        is_refused = has_shares and option.model is not None and assessed.model_refusal(option.demand, option.model)
        if option.tier is Tier.GUARANTEED and not is_refused:
            slots |= option.slots
    return slots


def _as_reclaim_pod(waiting: WaitingPod, assessed: Assessment) -> ReclaimPod:
    pod = assessed.pod._replace(team_label=assessed.team.name, tier_label=str(Tier.GUARANTEED))
    charge = Charge(assessed.team.name, Tier.GUARANTEED, pod.demand.gpus, None, waiting.user)
    return ReclaimPod(
        flight_of(pod, charge).pod._replace(created=waiting.created),
        labels=pod.labels,
        constraints=pod.constraints,
        topology=pod.topology,
        report=Report(waiting.created, is_for_room=True),
    )


def _turn(waiting: WaitingPod) -> tuple[int, int, str, str, str]:
    return (-waiting.priority, waiting.created, waiting.pod.namespace, waiting.pod.name, waiting.uid)


def _age(pod: ReclaimPod) -> tuple[int, str, str, str]:
    return pod.pod.created, pod.namespace, pod.name, pod.uid
