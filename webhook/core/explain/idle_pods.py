"""Pods that hold GPUs and do not use them, by the marks of the evictor."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from webhook.core.model.amount import Units
from webhook.core.model.idle_rules import IdleAction
from webhook.core.model.names import TeamName
from webhook.core.model.pod import Resident
from webhook.core.model.policy import Policy
from webhook.core.model.text import plural, plural_gpus, printable
from webhook.core.model.tier import Tier
from webhook.core.world.world import World

NAMED: Final = 3
"""Pods that are named in a text."""


class IdlePods(NamedTuple):
    """The idle pods of one team, those that hold most first, and their GPU units."""

    team: TeamName
    pods: tuple[Resident, ...]
    gpus: Units

    @property
    def text(self) -> str:
        """The text for people: how many, and the first of them."""
        named = ", ".join(f"{pod.namespace}/{printable(pod.name)}" for pod in self.pods[:NAMED])
        more = f" and {len(self.pods) - NAMED} more" if len(self.pods) > NAMED else ""
        do = "does" if len(self.pods) == 1 else "do"
        held = f"{plural(len(self.pods), 'pod')} of team {self.team} {do} not use {plural_gpus(self.gpus)}"
        return f"{held}: {named}{more}"


def idle_pods(world: World) -> Iterator[IdlePods]:
    """Yield the idle pods of each team that has some, the teams by name; none without rules."""
    by_team: dict[TeamName, list[Resident]] = {}
    for uid in world.stages.idle if world.policy.idle is not None else ():
        pod, entry = world.pod(uid), world.entry_of(uid)
        if pod is not None and entry is not None and pod.demand.gpus:
            by_team.setdefault(entry.charge.team, []).append(pod)
    for team, pods in sorted(by_team.items()):
        pods.sort(key=lambda pod: (-pod.demand.gpus, pod.namespace, pod.name))
        yield IdlePods(team, tuple(pods), sum(pod.demand.gpus for pod in pods))


def idle_text(pod: Resident, policy: Policy) -> str:
    """Return that a pod does not use its GPUs, and what may follow; "" if it does, or nothing is known."""
    if not pod.idle_since or policy.idle is None:
        return ""
    since = datetime.fromtimestamp(pod.idle_since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    actions, borrows = policy.on_idle(pod.team_label), pod.tier is Tier.PREEMPTIBLE
    text = f"its GPUs have not been used since {since}"
    if borrows and IdleAction.PREFER in actions:
        text += "; it is evicted before borrowing pods that use theirs"
    if not borrows and IdleAction.DEMOTE in actions:
        text += "; it becomes preemptible while other pods wait"
    return text + ("; it is evicted after a notice" if IdleAction.EVICT in actions else "")
