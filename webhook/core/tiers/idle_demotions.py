"""Which guaranteed pods become preemptible since they do not use their GPUs while other pods wait."""

from webhook.core.model.idle_rules import IdleAction
from webhook.core.model.names import Uid
from webhook.core.model.policy import Team
from webhook.core.model.tier import Tier
from webhook.core.quota.usage import TeamUsage
from webhook.core.world.world import World


def idle_to_demote(team: Team, book: TeamUsage, world: World) -> set[Uid]:
    """Return a team's idle guaranteed pods, if policy demotes them and any pod waits; the evictor says what is idle.

    A pod that was demoted stays preemptible until it uses its GPUs: others may wait again at any moment.
    """
    if IdleAction.DEMOTE not in world.policy.on_idle(team.name):
        return set()
    held = ((uid, book.get(uid)) for uid in world.stages.idle)
    found = {uid for uid, entry in held if entry is not None and entry.charge.tier is Tier.GUARANTEED}
    return found if found and is_any_waiting(world) else set()


def is_any_waiting(world: World) -> bool:
    """Whether a pod is in line, or was admitted and has no node."""
    return bool(len(world.waiting)) or any(book.waiting for book in world.usage_by_team().values())
