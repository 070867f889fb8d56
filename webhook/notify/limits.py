"""Teams and departments that hold almost as many GPUs as their limit allows. Pure."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Final, NamedTuple

from webhook.core.model.amount import Limit, Units, Unlimited, gpus_text
from webhook.core.model.text import plural_gpus
from webhook.core.world.world import World
from webhook.notify.message import Severity, State

SETTLE_SECONDS: Final = 30.0
"""How long use must be that high: a pod that ends and one that starts make a peak for a moment."""


class _Level(NamedTuple):
    name: str
    held: Units
    limit: Limit


def limit_states(world: World, share: Fraction) -> dict[str, State]:
    """Return each team and department that holds at least this share of a limit above 0, of all GPUs or of a model."""
    found: dict[str, State] = {}
    part, whole = share.as_integer_ratio()  # products of fractions take most of the time
    for each in _levels(world):
        if not isinstance(each.limit, Unlimited) and each.limit and each.held * whole >= each.limit * part:
            is_full = each.held >= each.limit
            left = "nothing is left" if is_full else f"{plural_gpus(each.limit - each.held)} left"
            text = f"{each.name} holds {gpus_text(each.held)} of at most {plural_gpus(each.limit)}: {left}"
            found[each.name.removeprefix("team ")] = State(
                Severity.WARNING, text, key="full" if is_full else "", settle_seconds=SETTLE_SECONDS
            )
    return found


def _levels(world: World) -> Iterator[_Level]:
    for team in world.policy.teams:
        usage = world.usage(team.name)
        yield _Level(f"team {team.name}", usage.total, team.gpus.limit)
        for model, share in team.models.items():
            yield _Level(f"team {team.name}, model {model}", usage.model(model), share.limit)
    for level in world.departments():
        of = level.department
        yield _Level(f"department {of.name}", level.total, of.gpus.limit)
        for model, share in of.models.items():
            yield _Level(f"department {of.name}, model {model}", level.model(model), share.limit)
