"""Moves in the simulated cluster: at fixed times the plans of `fairgate defragment` that are worth it, carried out.

As if an admin looked every ten minutes, and evicted the pods of each plan that loses no more work than was waited for.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from webhook.core.defragment.defragment import Movement, make_room
from webhook.core.defragment.movable_pod import MovablePod, movable_pod
from webhook.core.defragment.move_plan import Target
from webhook.core.defragment.waiting_targets import target_in_line, target_of_scheduler, target_to_come
from webhook.core.model.names import Uid
from webhook.core.model.pod import CONTROLLER, Pod
from webhook.core.reclaim.reclaim_pod import Controller, ReclaimPod
from webhook.simulation.cluster import PodOf, SimulatedCluster
from webhook.simulation.refused_pods import RefusedPods
from webhook.simulation.task import Evictions, MovedTiers, Settings

LOOK_SECONDS: Final = 600
"""The time between two looks."""


class SimulatedMoves:
    """Plans moves for pods that wait: those in the world's line, those with their scheduler, and the `refused` ones."""

    def __init__(self, cluster: SimulatedCluster, refused: RefusedPods, settings: Settings) -> None:
        self._cluster = cluster
        self._refused = refused
        self._settings = settings
        self._looked_at = 0

    def next_look(self) -> int | None:
        """Return when to look next while pods wait; None where no pods are moved, or none waits."""
        cluster = self._cluster
        waits = bool(len(cluster.world.waiting) or cluster.unbound or len(self._refused))
        if self._settings.moved is MovedTiers.NONE or not waits:
            return None
        return max(self._cluster.world.now + 1, self._looked_at + LOOK_SECONDS)

    def due(self) -> list[Uid]:
        """Return the pods to evict now."""
        world = self._cluster.world
        is_off = self._settings.moved is MovedTiers.NONE or not world.policy.is_enforced
        if is_off or world.now < self._looked_at + LOOK_SECONDS:
            return []
        with self._cluster.as_bound():
            targets = list(filter(None, self._waiting()))
            if not targets:
                return []
            self._looked_at = world.now
            movement = Movement(
                fleet=world.fleet,
                movable=list(self._movable()),
                now=world.now,
                left={},
                weights=world.policy.resources,
                levels=world.policy.topology.levels,
                held=world.fleet.held_bits,
            )
            rooms = make_room(targets, movement).rooms
        return [move.pod.uid for room in rooms if room.lost_work <= room.waited(world.now) for move in room.moves]

    def _waiting(self) -> Iterator[Target | None]:
        world, index = self._cluster.world, self._cluster.index
        for waiting in world.waiting.all():
            yield target_in_line(waiting, world)
        for uid, pod_of in self._cluster.unbound.items():
            if (gpu_pod := index.get(uid)) is not None:
                yield target_of_scheduler(gpu_pod, pod_of.pod, world)
        for pod_of in self._refused:
            target = target_to_come(pod_of.pod, CONTROLLER, world)
            yield None if target is None else target._replace(since=pod_of.record.task.created)

    def _movable(self) -> Iterator[MovablePod]:
        world, index = self._cluster.world, self._cluster.index
        for uid, pod_of in self._cluster.pods.items():
            gpu_pod = index.get(uid) if pod_of.is_bound else None
            if gpu_pod is None:
                continue
            as_task = self._as_task(gpu_pod, pod_of)
            template = partial(_pod, pod_of)
            judged = movable_pod(as_task, index.evictable(as_task), template, world, now=world.now)
            if isinstance(judged, MovablePod):
                yield judged

    def _as_task(self, gpu_pod: ReclaimPod, pod_of: PodOf) -> ReclaimPod:
        """Return a pod with what is assumed of tasks: they come again, and save their work at equal times."""
        now, started, name = self._cluster.world.now, pod_of.since or 0, pod_of.record.task.name
        comes_again = self._settings.evictions is Evictions.RESTART
        every = self._settings.checkpoint_seconds
        return replace(
            gpu_pod,
            controller=Controller("", "Task", name, name) if comes_again else None,
            saved_at=now - (now - started) % every if every else 0,
            is_movable=self._settings.moved is MovedTiers.ALL,
            grace_seconds=0,
        )


def _pod(pod_of: PodOf) -> Pod:
    return pod_of.pod
