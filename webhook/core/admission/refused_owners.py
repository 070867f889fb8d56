"""Controllers that should retry now: their pods were refused, and would be admitted by now. Pure.

A controller whose pod is refused backs off up to a quarter of an hour, while freed GPUs stay idle. Those that waited
longest come first, and at most as many at once as the team has room for: a controller that is refused again doubles its
backoff.

A tenant may have pods refused without end, and may forge the Events that the leader reads. So the number of remembered
owners is bounded, per namespace and in total, and each owner is triggered less and less often.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from webhook.core.admission.admission import admit
from webhook.core.model.amounts import Namespace, TeamName, Units, exceeds
from webhook.core.model.decision import Admit
from webhook.core.model.pod import CONTROLLER, Pod
from webhook.core.quota.shares import DepartmentUsage
from webhook.core.reclaim.reclaim_pods import Controller
from webhook.core.world.world import World

MAX_OWNERS: Final = 1024
MAX_OWNERS_PER_NAMESPACE: Final = 64
"""Owners remembered, in total and of one namespace; the oldest of the namespace is dropped first."""

FORGET_SECONDS: Final = 3600
"""How long an owner is remembered after its last refusal: longer than any controller backs off."""

FIRST_PAUSE_SECONDS: Final = 10
LONGEST_PAUSE_SECONDS: Final = 640
"""The pause after an owner's first trigger, and the longest pause; each further one is twice as long."""

RESERVED_SECONDS: Final = 5
"""How long a team's room counts as taken by the pods of an owner that was triggered."""

OWNERS_PER_RUN: Final = 8
"""Owners triggered per run …"""

JUDGED_PER_RUN: Final = 32
"""… and owners judged per run."""


class RefusedOwner(NamedTuple):
    """A controller whose pods were refused."""

    namespace: Namespace
    controller: Controller


@dataclass(frozen=True, slots=True)
class MissingPods:
    """A pod that a controller would create, and how many of them are missing."""

    pod: Pod
    count: int


@dataclass(slots=True)
class _Refused:
    since: float
    last: float
    pods: tuple[MissingPods, ...] | None = None
    triggered_at: float | None = None
    pause: int = FIRST_PAUSE_SECONDS

    def is_due(self, now: float) -> bool:
        """Whether it was refused since its last trigger, and its pause is over."""
        triggered_at = self.triggered_at
        return triggered_at is None or (self.last > triggered_at and now >= triggered_at + self.pause)


@dataclass(slots=True)
class Retries:
    """The owners whose pods were refused recently. Times are seconds of any monotonic clock."""

    _refused: OrderedDict[RefusedOwner, _Refused] = field(default_factory=OrderedDict)
    _of_namespace: Counter[Namespace] = field(default_factory=Counter)
    _reserved: list[tuple[float, TeamName, Units]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._refused)

    def note(self, owner: RefusedOwner, *, now: float) -> None:
        """Record that a pod of an owner was refused."""
        found = self._refused.get(owner)
        if found is not None:
            found.last = now
            found.pods = None if found.triggered_at is not None else found.pods  # it may need other pods by now
            return
        if self._of_namespace[owner.namespace] >= MAX_OWNERS_PER_NAMESPACE:
            self.forget(next(each for each in self._refused if each.namespace == owner.namespace))
        elif len(self._refused) >= MAX_OWNERS:
            self.forget(next(iter(self._refused)))
        self._refused[owner] = _Refused(now, now)
        self._of_namespace[owner.namespace] += 1

    def forget(self, owner: RefusedOwner) -> None:
        """Drop an owner: it is gone, or cannot be read."""
        if self._refused.pop(owner, None) is not None:
            self._of_namespace[owner.namespace] -= 1
            if not self._of_namespace[owner.namespace]:
                del self._of_namespace[owner.namespace]

    def clear(self) -> None:
        """Drop all owners."""
        self._refused.clear()
        self._of_namespace.clear()
        self._reserved.clear()

    def unread(self, *, now: float, count: int) -> list[RefusedOwner]:
        """Return due owners whose pods are not known, those that wait longest first."""
        for owner in [each for each, found in self._refused.items() if found.last + FORGET_SECONDS <= now]:
            self.forget(owner)
        found = (each for each, kept in self._refused.items() if kept.pods is None and kept.is_due(now))
        return [owner for owner, _ in zip(found, range(count), strict=False)]

    def learn(self, owner: RefusedOwner, pods: Iterable[MissingPods]) -> None:
        """Set the pods that an owner would create; an owner without missing pods is dropped."""
        found = self._refused.get(owner)
        if found is not None:
            found.pods = tuple([each for each in pods if each.count > 0])
            if not found.pods:
                self.forget(owner)

    def due(self, world: World, *, now: float) -> list[RefusedOwner]:
        """Return the owners to trigger now, and record that they were."""
        self._reserved = [each for each in self._reserved if each[0] > now]
        chosen = []
        for owner, found in self._ready(now):
            admitted = self._admitted(found, world)
            if admitted is None:
                continue
            team, gpus = admitted
            is_first = found.triggered_at is None
            found.pause = FIRST_PAUSE_SECONDS if is_first else min(LONGEST_PAUSE_SECONDS, found.pause * 2)
            found.triggered_at = now
            self._reserved.append((now + RESERVED_SECONDS, team, gpus))
            chosen.append(owner)
            if len(chosen) >= OWNERS_PER_RUN:
                break
        return chosen

    def _ready(self, now: float) -> Iterator[tuple[RefusedOwner, _Refused]]:
        """Return owners to judge; judged ones go to the end, so that all get a turn."""
        ready = [each for each in self._refused.items() if each[1].pods and each[1].is_due(now)][:JUDGED_PER_RUN]
        for owner, _ in ready:
            self._refused.move_to_end(owner)
        return iter(sorted(ready, key=lambda each: each[1].since))

    def _admitted(self, found: _Refused, world: World) -> tuple[TeamName, Units] | None:
        """Return the team and GPUs of an owner's pods; None where none of them would be admitted."""
        for missing in found.pods or ():
            decision = admit(missing.pod, CONTROLLER, world)
            if isinstance(decision, Admit):
                team, gpus = decision.charge.team, decision.charge.gpus
                if self._has_room(team, gpus, world):
                    return team, gpus * missing.count
        return None

    def _has_room(self, name: TeamName, gpus: Units, world: World) -> bool:
        """Whether the limits of a team and its departments have room besides what other owners were triggered for."""
        team, usage = world.policy.team(name), world.usage(name)
        if team is None:
            return True
        reserved = sum(each for _, of, each in self._reserved if of == name)
        return not exceeds(usage.total + reserved + gpus, team.gpus.limit) and all(
            not exceeds(level.total + self._reserved_below(level, world) + gpus, level.department.gpus.limit)
            for level in usage.levels
        )

    def _reserved_below(self, level: DepartmentUsage, world: World) -> Units:
        return sum(each for _, of, each in self._reserved if level in world.usage(of).levels)
