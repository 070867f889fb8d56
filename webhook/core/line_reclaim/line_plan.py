"""A round of plans for pods in line, on one view of the cluster: who is entitled, and what goes for them."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace

from webhook.core.line_reclaim.guaranteed_in_line import guaranteed_in_line
from webhook.core.model.names import NodeName, TeamName, Uid
from webhook.core.reclaim.limit_levels import limit_levels
from webhook.core.reclaim.limit_plan import Entitled, LimitLevel, LimitRound, plan_limits
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_plan import ReclaimSnapshot
from webhook.core.reclaim.reclaim_snapshot import may_take_room, pods_within_share
from webhook.core.tiers.tier_changes import inside_share
from webhook.core.world.world import World

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
    """Return for which pods in line room is made under limits, and by which victims; `before` as in plan_limits.

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
