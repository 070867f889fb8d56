"""The cluster in a few numbers: what is in use, preemptible, free, held and waited for, and what fits now. Pure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from webhook.core.model.amount import Units, gpus_text
from webhook.core.model.names import TeamName
from webhook.core.model.text import plural
from webhook.core.placement.gpu_inventory import GpuInventory
from webhook.core.world.world import World

_PERCENT = 100


class Shares(NamedTuple):
    """The GPUs of a cluster as a bar, in percent: what is left is on closed nodes, or does not count."""

    guaranteed: int
    preemptible: int
    held: int
    free: int


class Summary(NamedTuple):
    """Numbers of GPUs as text. `free`, `capacity`, `held`, `largest` and `shares` are empty where nodes are not shown.

    `largest` has the largest pod that fits now for each model that has room, the largest first.
    """

    used: str
    preemptible: str
    pods_in_line: str
    gpus_in_line: str
    waiting: str
    capacity: str = ""
    free: str = ""
    held: str = ""
    closed: str = ""
    largest: tuple[tuple[str, str], ...] = ()
    shares: Shares | None = None


def summary_of(world: World, teams: Iterable[TeamName], models: Sequence[GpuInventory]) -> Summary:
    """Return the numbers of these teams, and of these GPUs."""
    usages = [(world.usage(team), team) for team in teams]
    waiting = sum(usage.waiting for usage, _ in usages)
    used = sum(usage.total for usage, _ in usages) - waiting
    lines = [world.waiting.uncharged(team) for _, team in usages]
    preemptible = sum(usage.preemptible for usage, _ in usages)
    found = Summary(
        used=_text(used),
        preemptible=_text(preemptible),
        pods_in_line=plural(sum(line.pods for line in lines), "pod"),
        gpus_in_line=_text(sum(line.gpus for line in lines)),
        waiting=_text(waiting) if waiting else "",
    )
    if not models:
        return found
    capacity, free, held, closed = (
        sum(getattr(each, name) for each in models) for name in ("capacity", "free", "held", "closed")
    )
    sizes = sorted(((each.largest, each.model or each.resource) for each in models if each.largest), reverse=True)
    parts = (max(0, used - preemptible), min(used, preemptible), held, free)
    return found._replace(
        capacity=_text(capacity),
        free=_text(free),
        held=_text(held),
        closed=_text(closed) if closed else "",
        largest=tuple((_text(gpus), str(model)) for gpus, model in sizes),
        shares=Shares(*(int(_PERCENT * each / max(1, capacity, sum(parts))) for each in parts)),
    )


def _text(gpus: Units) -> str:
    return gpus_text(gpus, rounded="~", tiny="<0.001")
