"""Borrowed GPUs taken back for the queue.

Queued pods as reclaim sees them: those that it may make room for before they start.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import accumulate
from typing import Final

from webhook.core.admission.assessment import Assessment, assess
from webhook.core.admission.domain_rules import request_of
from webhook.core.admission.node_choice import placement_options
from webhook.core.admission.pools import allowed_pools
from webhook.core.admission.queueing import share_used
from webhook.core.line.judged_pod import NO_REQUESTER
from webhook.core.model.amounts import GangId, NodeName, TeamName, Uid, Units, User, exceeds
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.model.pod import Pod
from webhook.core.model.policy import Team
from webhook.core.model.reasons import LEVELS
from webhook.core.quota.charges import InFlightCharge, flight_of
from webhook.core.reclaim.limit_plan import Entitled, LimitRound, plan_limits
from webhook.core.reclaim.limit_victims import LevelName, LimitLevel, is_anything_borrowed, level_names, limit_levels
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_plan import ReclaimSnapshot
from webhook.core.reclaim.reclaim_pods import ReclaimPod, SchedulerReport
from webhook.core.reclaim.snapshot import may_take_room, pods_within_share
from webhook.core.tiers.tier_changes import inside_share
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World


def as_guaranteed(waiting: WaitingPod, pod: Pod, *, team: TeamName, user: User | None) -> ReclaimPod:
    """Return a queued pod as a guaranteed pod that finds no room; `pod` has its demand resolved."""
    labeled = pod._replace(team_label=team, tier_label=str(Tier.GUARANTEED))
    charge = Charge(team, Tier.GUARANTEED, pod.demand.gpus, None, user)
    return ReclaimPod(
        flight_of(labeled, charge).pod._replace(created=waiting.created),
        labels=pod.labels,
        constraints=pod.constraints,
        topology=pod.topology,
        report=SchedulerReport(waiting.created, is_for_room=True),
    )


def as_charged(waiting: WaitingPod, flight: InFlightCharge, world: World, *, since: int = 0) -> ReclaimPod | None:
    """Return a queued pod that is charged inside its team's share and starts once reclaim has made its room.

    It is bound to the pool of the node that was chosen for it, if it may use that, or else to its first one, and where
    that node has room, it has it there. `since` is when its charge was seen first, in Unix seconds. None where it is
    not such a pod now.
    """
    charge, pod, fleet = flight.charge, waiting.pod, world.fleet
    pools = [world.pools.joined(pod.constraints, pool) for pool in allowed_pools(pod, charge.team, world).allowed]
    is_due = flight.takes_back and charge.tier is Tier.GUARANTEED and charge.team == waiting.team and waiting.has_turn
    if not (is_due and pools):
        return None
    bit = 0 if flight.node is None else fleet.bit(flight.node)
    constraints = next((each for each in pools if fleet.matching(each) & bit), pools[0])
    found = as_guaranteed(waiting, pod, team=charge.team, user=charge.user)
    gang = pod.gang
    return replace(
        found,
        constraints=constraints,
        gang=None if gang is None else gang.id,
        domain=None if gang is None else request_of(gang, world),
        chosen=() if flight.node is None else (flight.node,),
        report=SchedulerReport(max(since, waiting.created), is_for_room=True),
        in_line=waiting,
    )


# Queued pods for which reclaim makes room under limits: those inside their teams' guaranteed shares.
#
# A limit of the team or of a department may be in their way, and nothing else. They are tried in the order of each
# team's line, as many as its share has room for: others would borrow once they start.


MOST: Final = 64
"""Pods that are planned for at once: a plan takes milliseconds, and the rest follows when these have started."""


def guaranteed_in_line(
    world: World, *, paused: Set[Uid] = frozenset(), paused_teams: Set[TeamName] = frozenset()
) -> list[tuple[Entitled, ...]]:
    """Return the pods that are not paused, the longest waiting first; those of a gang start together.

    Of more than are planned for at once, each team has the first of its line before any team has more.
    """
    found = [
        (number, group)
        for name in world.waiting.teams()
        if name not in paused_teams and (team := world.policy.team(name)) is not None
        for number, group in enumerate(_of_team(team, world, paused))
    ]
    found.sort(key=lambda each: (each[0], _age(each[1])))
    groups = [group for _, group in found]
    ahead = accumulate(map(len, groups), initial=0)
    return sorted((group for group, count in zip(groups, ahead, strict=False) if count < MOST), key=_age)


def _of_team(team: Team, world: World, paused: Set[Uid]) -> Iterator[tuple[Entitled, ...]]:
    """Yield the pods of a team in the order of its line for which its guaranteed share has room, one after the other.

    Where the share of a GPU model decides, only the first pod: each changes what is left for the next one.
    """
    usage, levels = world.usage(team.name), level_names(team)
    if usage.guaranteed >= team.gpus.guaranteed or not (levels and is_anything_borrowed(team, world)):
        return
    share = _Share(team, world, levels)
    seen: set[GangId] = set()
    count = 0
    for waiting in sorted(world.waiting.of(team.name), key=_turn):
        if share.is_used or count >= MOST:
            return
        members = _members(waiting, seen, world)
        if any(member.uid in paused for member in members):
            continue
        if not share.has_room(members) or (len(members) > 1 and team.has_model_shares):
            continue
        count += len(members)
        group = share.take(members)
        if group:
            yield group
        if group and team.has_model_shares:
            return


def _members(waiting: WaitingPod, seen: set[GangId], world: World) -> list[WaitingPod]:
    """Return the pods that start with a pod, itself alone for most; none where they may not start, or were `seen`.

    A gang is whole once so many of its pods wait as the leader of the webhook wrote on them.
    """
    gang = waiting.pod.gang
    if gang is None or world.gangs.has_started(gang.id):
        return [waiting] if _may_claim(waiting, world) else []
    if gang.id in seen:
        return []
    seen.add(gang.id)
    members = [each for each in world.waiting.of_gang(gang.id) if each.gang_whole and each.team == waiting.team]
    whole = max((each.gang_whole for each in members), default=0)
    is_whole = len(members) >= whole and all(_may_claim(each, world) for each in members)
    return sorted(members, key=_turn) if is_whole else []


def _may_claim(waiting: WaitingPod, world: World) -> bool:
    would_borrow = waiting.pod.requested_tier is Tier.PREEMPTIBLE
    return waiting.has_turn and not would_borrow and not world.is_assumed(waiting.uid)


class _Share:
    """A team's guaranteed share, as the pods of a round fill it, one after the other."""

    def __init__(self, team: Team, world: World, levels: tuple[LevelName, ...]) -> None:
        self._team = team
        self._world = world
        self._levels = levels
        self._taken = share_used(team, world)
        self._by_user: dict[User, Units] = {}

    @property
    def is_used(self) -> bool:
        """Whether the share has no room for any pod."""
        return self._taken >= self._team.gpus.guaranteed

    def has_room(self, members: Sequence[WaitingPod]) -> bool:
        """Whether the share has room for pods together; False without any."""
        gpus = sum(member.pod.demand.gpus for member in members)
        return bool(members) and self._taken + gpus <= self._team.gpus.guaranteed

    def take(self, members: Sequence[WaitingPod]) -> tuple[Entitled, ...]:
        """Take the room of pods that start together; nothing where one of them may not start."""
        taken, by_user = self._taken, dict(self._by_user)
        found: list[Entitled] = []
        for member in members:
            entitled = self._take(member)
            if entitled is None:
                self._taken, self._by_user = taken, by_user
                return ()
            found.append(entitled)
        return tuple(found)

    def _take(self, waiting: WaitingPod) -> Entitled | None:
        team, world, user = self._team, self._world, waiting.user
        assessed = assess(waiting.pod, NO_REQUESTER, world).of_user(user)
        gpus = assessed.pod.demand.gpus
        held = 0 if user is None else world.usage(team.name).user(user) + self._by_user.get(user, 0)
        is_over = self._taken + gpus > team.gpus.guaranteed
        is_over = is_over or (user is not None and exceeds(held + gpus, team.per_user))
        slots = 0 if is_over else _slots(assessed, world)
        if not slots:
            return None
        self._taken += gpus
        if user is not None:
            self._by_user[user] = self._by_user.get(user, 0) + gpus
        found, gang = as_guaranteed(waiting, assessed.pod, team=team.name, user=user), waiting.pod.gang
        domain = None if gang is None or world.gangs.has_started(gang.id) else request_of(gang, world)
        return Entitled(replace(found, domain=domain), slots, self._levels)


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


def _turn(waiting: WaitingPod) -> tuple[int, int, str, str, str]:
    return (-waiting.priority, waiting.created, waiting.pod.namespace, waiting.pod.name, waiting.uid)


def _age(group: Sequence[Entitled]) -> tuple[int, str, str, str]:
    pod = group[0].waiting
    return pod.pod.created, pod.namespace, pod.name, pod.uid


# A round of plans for queued pods, on one view of the cluster: who is entitled, and what goes for them.


NOTHING = LimitRound(())


def plan_line(
    world: World,
    reclaim_index: ReclaimIndex,
    snapshot: Callable[[], ReclaimSnapshot],
    *,
    held: Iterable[NodeName] = (),
    before: Mapping[Uid, Set[Uid]] | None = None,
    paused: Set[Uid] = frozenset(),
    paused_teams: Set[TeamName] = frozenset(),
) -> LimitRound:
    """Return for which queued pods room is made under limits, and by which victims; `before` as in plan_limits.

    A `snapshot` is only taken where some limit is short of room, or was.

    Pods that run as preemptible inside their own shares, such as back-fill, are spared: they do not borrow from others.
    No room is counted on a node that is `held`: the webhook starts no pod there. Charged pods that wait for room on
    a node take it first.
    """
    kept_off = 0
    for node in held:
        kept_off |= world.fleet.bit(node)
    groups = [
        tuple([each._replace(slots=each.slots & ~kept_off) for each in group])
        for group in guaranteed_in_line(world, paused=paused, paused_teams=paused_teams)
    ]
    if not groups:
        return NOTHING
    teams = dict.fromkeys(each.waiting.team for group in groups for each in group)
    if not (before or world.waiting.keeping() or _is_any_short(groups, limit_levels(teams, world))):
        return NOTHING
    there = snapshot()
    levels = limit_levels(teams, world, leaving=[gpu_pod.uid for gpu_pod in there.leaving])
    has_room = {hold.waiting.uid for hold in there.holds}
    waits = (each for each in pods_within_share(reclaim_index, world) if each.uid not in has_room)
    ahead = [each for each in waits if may_take_room(each)]
    by_right = {change.pod.uid for team in world.policy.teams for change in inside_share(team, world)}
    there = replace(there, spared=there.spared | by_right)
    return plan_limits(groups, levels, there, ahead=ahead, before=before)


def _is_any_short(groups: Iterable[Sequence[Entitled]], levels: Iterable[LimitLevel]) -> bool:
    """Whether a limit has no room now for all of the pods."""
    pods = [each for group in groups for each in group]
    return any(
        level.free < sum(each.waiting.demand.gpus for each in pods if level.name in each.levels) for level in levels
    )
