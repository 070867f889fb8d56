"""Moves in the simulated cluster, within the policy's bounds, or without such a policy as an admin might make them.

That admin looks every ten minutes, and evicts the pods of each plan that loses no more work than was waited for. The
evictor looks every minute, and carries out one plan.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from webhook.addons.moves.candidates import (
    NotPlanned,
    PastMove,
    Room,
    Target,
    bound_on,
    movable_pods,
    moved_pods,
    moves_left,
    recent,
)
from webhook.addons.moves.targets import (
    Movement,
    make_room,
    separate_plans,
    target_in_line,
    target_of_scheduler,
    target_to_come,
)
from webhook.addons.simulation.cluster import PodOf, SimulatedCluster
from webhook.addons.simulation.runs import RefusedPods
from webhook.addons.simulation.task import Evictions, MovedTiers, Settings
from webhook.core.model.amounts import Uid
from webhook.core.model.pod import CONTROLLER
from webhook.core.reclaim.reclaim_pods import Controller, ReclaimPod

LOOK_SECONDS: Final = 600
"""The time between two looks of an admin."""

PLAN_SECONDS: Final = 60
"""The time between two plans of the evictor: the pods of one end and come again first."""


class SimulatedMoves:
    """Plans moves for pods that wait: those in the world's line, those with their scheduler, and the `refused` ones."""

    def __init__(self, cluster: SimulatedCluster, refused: RefusedPods, settings: Settings) -> None:
        self._cluster = cluster
        self._refused = refused
        self._settings = settings
        self._looked_at = 0
        self._past: list[PastMove] = []

    def next_look(self) -> int | None:
        """Return when to look next while pods wait; None where no pods are moved, or none waits."""
        cluster = self._cluster
        waits = bool(len(cluster.world.waiting) or cluster.unbound or len(self._refused))
        if not (self._is_on and waits):
            return None
        return max(self._cluster.world.now + 1, self._looked_at + self._pause)

    def due(self) -> list[Uid]:
        """Return the pods to evict now."""
        world = self._cluster.world
        if not (self._is_on and world.policy.is_enforced) or world.now < self._looked_at + self._pause:
            return []
        with self._cluster.as_bound():
            targets = list(filter(None, self._waiting()))
            if not targets:
                return []
            self._looked_at = world.now
            rules, now = world.policy.defragment, world.now
            self._past = recent(self._past, now=now)
            pods, index = self._cluster.pods, self._cluster.index
            movable = movable_pods(self._as_tasks(), lambda each: pods[each.uid].pod, index, world, now=now, held=0)
            movement = Movement(
                fleet=world.fleet,
                movable=movable.pods,
                now=now,
                left=movable.left,
                weights=world.policy.resources,
                per_workload=rules.moves_per_workload if rules.on_demand else 1,
                levels=world.policy.topology.levels,
                held=world.fleet.held_bits,
                moved=moved_pods(self._past, now=now),
            )
            if rules.on_demand:
                left = moves_left(self._past, rules, now=now)
                rooms = self._first(separate_plans(targets, movement), left=left)
            else:
                rooms = [room for room in make_room(targets, movement).rooms if room.lost_work <= room.waited(now)]
        moves = [move for room in rooms for move in room.moves]
        self._past += [PastMove(now, move.pod.workload) for move in moves]
        return [move.pod.uid for move in moves]

    def _first(self, plans: Iterator[Room | NotPlanned], *, left: int) -> list[Room]:
        """Return the first plan that policy allows now, if there is one."""
        rules, now = self._cluster.world.policy.defragment, self._cluster.world.now
        for each in plans:
            if isinstance(each, Room) and each.moves and bound_on(each, rules, now=now, left=left) is None:
                return [each]
        return []

    @property
    def _is_on(self) -> bool:
        match self._settings.moved:
            case MovedTiers.NONE:
                return False
            case MovedTiers.POLICY:
                return self._cluster.world.policy.defragment.on_demand
            case _:
                return True

    @property
    def _pause(self) -> int:
        return PLAN_SECONDS if self._cluster.world.policy.defragment.on_demand else LOOK_SECONDS

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

    def _as_tasks(self) -> Iterator[ReclaimPod]:
        for uid, pod_of in self._cluster.pods.items():
            gpu_pod = self._cluster.index.get(uid) if pod_of.is_bound else None
            if gpu_pod is not None:
                yield self._as_task(gpu_pod, pod_of)

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
