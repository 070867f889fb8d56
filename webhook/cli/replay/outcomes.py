"""Runs a history under a policy, and says what came of each pod and of each team."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from webhook.core.model.names import Uid
from webhook.core.model.reason import refusal_text
from webhook.core.model.tier import Tier
from webhook.core.world.world import World
from webhook.simulation.engine import Simulation
from webhook.simulation.simulate import under_policy
from webhook.simulation.task import Task, TaskRecord, TaskState

_DIGITS: Final = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one pod. `tier` is that of its first start, None if it did not start in the time of the history."""

    tier: Tier | None
    is_refused: bool = False
    is_queued: bool = False
    is_evicted: bool = False
    wait_seconds: int = 0
    why: str = ""

    @property
    def text(self) -> str:
        """Return the outcome in words."""
        parts = [word for word, holds in (("refused", self.is_refused), ("queued", self.is_queued)) if holds]
        parts.append("not started" if self.tier is None else self.tier.value)
        if self.is_evicted:
            parts.append("evicted")
        return ", ".join(parts)


class TeamSums(msgspec.Struct):
    """The pods of a team by what came of them under one policy; a pod may be in several."""

    refused: int = 0
    queued: int = 0
    guaranteed: int = 0
    preemptible: int = 0
    evicted: int = 0
    not_started: int = 0
    waited_hours: Annotated[float, msgspec.Meta(description="GPU-hours that pods asked for before they started")] = 0.0


def decide_again(tasks: Iterable[Task], world: World, *, until: int) -> dict[str, Outcome]:
    """Return what comes of each task, by name, until a time; the world's policy decides."""
    queued: set[str] = set()

    def note(uid: Uid) -> None:
        if uid in world.waiting:
            queued.add(uid.rpartition("~")[0])

    simulation = Simulation(world, (task._replace(pod=under_policy(task.pod, world.policy)) for task in tasks))
    world.waiting.on_pod = note
    simulation.run(until=until)
    return {record.task.name: _outcome(record, queued, until) for record in simulation.records}


def _outcome(record: TaskRecord, queued: set[str], until: int) -> Outcome:
    name, created = record.task.name, record.task.created
    return Outcome(
        record.tier,
        is_refused=record.refusals > 0 or record.state is TaskState.REFUSED,
        is_queued=name in queued,
        is_evicted=record.evictions > 0,
        wait_seconds=max(0, (until if record.started is None else record.started) - created),
        why=refusal_text(record.refused) if record.state is TaskState.REFUSED else "",
    )


def sums_by_team(
    tasks: Iterable[Task], outcomes: Mapping[str, Outcome], gpus: Mapping[str, float]
) -> dict[str, TeamSums]:
    """Return the sums of each team; `gpus` are the GPUs of each task."""
    sums: dict[str, TeamSums] = {}
    for task in tasks:
        found, outcome = sums.setdefault(task.team, TeamSums()), outcomes[task.name]
        found.refused += outcome.is_refused
        found.queued += outcome.is_queued
        found.guaranteed += outcome.tier is Tier.GUARANTEED
        found.preemptible += outcome.tier is Tier.PREEMPTIBLE
        found.evicted += outcome.is_evicted
        found.not_started += outcome.tier is None
        found.waited_hours += outcome.wait_seconds / 3600 * gpus[task.name]
    for found in sums.values():
        found.waited_hours = round(found.waited_hours, _DIGITS)
    return sums
