"""Moves of other pods that would make room for an explained one. Pure."""

from typing import Final

from webhook.cli.defragment.reading import read_movement
from webhook.cli.explain.reclaim import Evictions
from webhook.cli.explain.subjects import Subject
from webhook.cli.world_source import Objects
from webhook.core.defragment.defragment import Movement, make_room
from webhook.core.defragment.move_plan import Room, Target
from webhook.core.defragment.waiting_targets import target_in_line, target_of_scheduler, target_to_come
from webhook.core.explain.explanation import Explanation
from webhook.core.explain.policy_replay import requester_of
from webhook.core.model.decision import Admit, Queue
from webhook.core.model.names import Uid

MAX_OBJECTS: Final = 20_000
"""Objects of a world up to which moves are sought: each pod is read again, which takes 0.1 ms. `fairgate defragment`
reads more."""


class OtherPods:
    """The other pods of a world, read once, when moves are first sought."""

    def __init__(self, objects: Objects, now: int) -> None:
        self._objects = objects
        self._now = now
        self._movement: Movement | None = None

    def room_for(self, subject: Subject, explanation: Explanation, evictions: Evictions) -> Room | None:
        """Return moves that would make room for a pod that waits, or would wait, for room; None where it needs none."""
        if len(self._objects) > MAX_OBJECTS or not isinstance(explanation.decision, Admit | Queue):
            return None
        target = _target(subject, explanation, evictions)
        if target is None:
            return None
        if self._movement is None:
            self._movement, _ = read_movement(self._objects, evictions, now=self._now, per_workload=1)
        rooms = make_room((target._replace(gang="", domain=None),), self._movement).rooms
        return next((room for room in rooms if room.moves), None)


def _target(subject: Subject, explanation: Explanation, evictions: Evictions) -> Target | None:
    world, held, pod = evictions.world, evictions.held, explanation.pod
    if subject.existing is None:
        return target_to_come(pod, requester_of(pod, explanation.user or ""), world, held=held)
    uid = Uid(subject.existing.uid)
    if (waiting := world.waiting.get(uid)) is not None:
        return target_in_line(waiting, world, held=held)
    gpu_pod = evictions.reclaim_index.get(uid)
    return None if gpu_pod is None else target_of_scheduler(gpu_pod, pod, world, held=held)
