"""Which controllers should try again now: their pods were refused, and would be admitted by now. Pure.

A controller whose pod is refused waits longer each time, up to a quarter of an hour, while GPUs that became free idle.
Those that waited longest come first, and no more at once than the room of a team has space for: a controller that is
refused again waits twice as long by itself.

A tenant may have pods refused without end, and may forge the Events by which the leader hears of them. So what is kept
is bounded, for each namespace and in all, and each owner's turns come less and less often.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from webhook.core.admission.admission import admit
from webhook.core.model.amount import Units, Unlimited
from webhook.core.model.decision import Admit
from webhook.core.model.names import Namespace, TeamName
from webhook.core.model.pod import CONTROLLER, Pod
from webhook.core.reclaim.reclaim_pod import Controller
from webhook.core.world.world import World

KEPT: Final = 1024
KEPT_OF_NAMESPACE: Final = 64
"""Owners that are kept, in all and of one namespace; the oldest of the namespace makes room."""

FORGET_SECONDS: Final = 3600
"""How long an owner is kept after its last refusal: longer than any controller waits."""

FIRST_REST_SECONDS: Final = 10
LONGEST_REST_SECONDS: Final = 640
"""How long an owner is left alone after its first turn; after each further one twice as long."""

PROMISED_SECONDS: Final = 5
"""How long the room of a team counts as taken by the pods of an owner that had its turn."""

AT_ONCE: Final = 8
"""Owners that have their turn in one look …"""

JUDGED: Final = 32
"""… and owners that are judged in one."""


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
    nudged_at: float | None = None
    rest: int = FIRST_REST_SECONDS
    team: TeamName | None = None

    def is_due(self, now: float) -> bool:
        """Tell whether it was refused since its last turn, and has rested since then."""
        nudged_at = self.nudged_at
        return nudged_at is None or (self.last > nudged_at and now >= nudged_at + self.rest)


@dataclass(slots=True)
class Retries:
    """The owners whose pods were refused lately. Times are seconds of any clock that never goes back."""

    _refused: OrderedDict[RefusedOwner, _Refused] = field(default_factory=OrderedDict)
    _of_namespace: Counter[Namespace] = field(default_factory=Counter)
    _promised: list[tuple[float, TeamName, Units]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._refused)

    def note(self, owner: RefusedOwner, *, now: float) -> None:
        """Take in that a pod of an owner was refused."""
        found = self._refused.get(owner)
        if found is not None:
            found.last = now
            found.pods = None if found.nudged_at is not None else found.pods  # it may want others by now
            return
        if self._of_namespace[owner.namespace] >= KEPT_OF_NAMESPACE:
            self.forget(next(each for each in self._refused if each.namespace == owner.namespace))
        elif len(self._refused) >= KEPT:
            self.forget(next(iter(self._refused)))
        self._refused[owner] = _Refused(now, now)
        self._of_namespace[owner.namespace] += 1

    def forget(self, owner: RefusedOwner) -> None:
        """Keep an owner no longer: it is gone, or cannot be read."""
        if self._refused.pop(owner, None) is not None:
            self._of_namespace[owner.namespace] -= 1
            if not self._of_namespace[owner.namespace]:
                del self._of_namespace[owner.namespace]

    def clear(self) -> None:
        """Forget all."""
        self._refused.clear()
        self._of_namespace.clear()
        self._promised.clear()

    def unread(self, *, now: float, count: int) -> list[RefusedOwner]:
        """List owners whose pods are not known and who may have their turn, those that wait longest first."""
        for owner in [each for each, found in self._refused.items() if found.last + FORGET_SECONDS <= now]:
            self.forget(owner)
        found = (each for each, kept in self._refused.items() if kept.pods is None and kept.is_due(now))
        return [owner for owner, _ in zip(found, range(count), strict=False)]

    def learn(self, owner: RefusedOwner, pods: Iterable[MissingPods]) -> None:
        """Take in which pods an owner would create; one that misses none is forgotten."""
        found = self._refused.get(owner)
        if found is not None:
            found.pods = tuple([each for each in pods if each.count > 0])
            if not found.pods:
                self.forget(owner)

    def due(self, world: World, *, now: float) -> list[RefusedOwner]:
        """List the owners who should try again now, and count their turns."""
        self._promised = [each for each in self._promised if each[0] > now]
        chosen = []
        for owner, found in self._ready(now):
            asked = self._admitted(found, world)
            if asked is None:
                continue
            team, gpus = asked
            found.rest = FIRST_REST_SECONDS if found.nudged_at is None else min(LONGEST_REST_SECONDS, found.rest * 2)
            found.nudged_at = now
            self._promised.append((now + PROMISED_SECONDS, team, gpus))
            chosen.append(owner)
            if len(chosen) >= AT_ONCE:
                break
        return chosen

    def _ready(self, now: float) -> Iterator[tuple[RefusedOwner, _Refused]]:
        """Give owners to judge; those that are judged go to the end, so that all get their turn."""
        ready = [each for each in self._refused.items() if each[1].pods and each[1].is_due(now)][:JUDGED]
        for owner, _ in ready:
            self._refused.move_to_end(owner)
        return iter(sorted(ready, key=lambda each: each[1].since))

    def _admitted(self, found: _Refused, world: World) -> tuple[TeamName, Units] | None:
        """Tell what an owner's pods would take, and of which team; None where none of them would be admitted."""
        for missing in found.pods or ():
            decision = admit(missing.pod, CONTROLLER, world)
            if isinstance(decision, Admit):
                team, gpus = decision.charge.team, decision.charge.gpus
                if self._has_room(team, gpus, world):
                    return team, gpus * missing.count
        return None

    def _has_room(self, name: TeamName, gpus: Units, world: World) -> bool:
        """Tell whether a team's limit has room besides what others were promised a moment ago."""
        team = world.policy.team(name)
        if team is None or isinstance(team.gpus.limit, Unlimited):
            return True
        promised = sum(each for _, of, each in self._promised if of == name)
        return world.usage(name).total + promised + gpus <= team.gpus.limit
