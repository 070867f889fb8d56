"""What a plan of moves is made from in the evictor: the pods that wait for room, and those that may move."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Set
from functools import partial
from heapq import nsmallest
from typing import Final, NamedTuple, TypeVar

from webhook.core.defragment.movable_pod import Allowances, MovablePods, movable_pod, stays_early
from webhook.core.defragment.waiting_targets import target_in_line, target_of_scheduler
from webhook.core.model.kept_place import controller_key
from webhook.core.model.names import NodeName, TeamName, Uid
from webhook.core.model.reason import Code
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.reclaim.reclaim_snapshot import is_growing
from webhook.core.reclaim.reservation import NodeHold
from webhook.core.world.waiting_pods import WaitingPod
from webhook.evictor.cluster_view import ClusterView
from webhook.evictor.moves.templates import Templates
from webhook.evictor.moves.wanted import Wanted

T = TypeVar("T")

OF_A_TEAM: Final = 20
"""Waiting pods of one team that moves are sought for at once, the oldest ones: a tenant may create any number."""

PODS_AT_ONCE: Final = 250
"""Pods that are judged in one turn of the event loop: 5,000 take 0.3 s, and a turn of them 0.02 s."""


class LeftAlone(NamedTuple):
    """The holds that are there, and what is left alone for a while: pods on nodes, waiting pods, teams."""

    holds: Mapping[NodeName, NodeHold]
    pods: Set[Uid] = frozenset()
    waiting: Set[Uid] = frozenset()
    teams: Set[TeamName] = frozenset()


class Candidates:
    """Reads them from the evictor's view."""

    def __init__(self, cluster_view: ClusterView, left_alone: Callable[[], LeftAlone], templates: Templates) -> None:
        self._view = cluster_view
        self._left_alone = left_alone
        self._templates = templates

    @property
    def held(self) -> int:
        """The slots of the nodes that keep room already."""
        found = 0
        for node in {**self._left_alone().holds, **self._view.marked}:
            found |= self._view.world.fleet.bit(node)
        return found

    async def wanted(self, *, now: int) -> list[Wanted]:
        """Return the pods that wait for nothing but room, without those that have it already. Raises ClusterError."""
        world, held, apart = self._view.world, self.held, self._left_alone()
        left_alone = apart.waiting | {each.uid for hold in apart.holds.values() for each in hold.beneficiaries}
        teams = apart.teams
        in_scheduler = [
            each
            for each in self._oldest(self._view.reclaim_index.unplaced(), teams)
            if each.uid not in left_alone and each.in_line is None and self._is_whole(each, now)
        ]
        await self._templates.read(in_scheduler, kept=(each.uid for each in self._view.reclaim_index.on_nodes()))
        found: list[Wanted] = []
        for gpu_pod in in_scheduler:
            template = self._templates.get(gpu_pod.uid)
            made = None if template is None else target_of_scheduler(gpu_pod, template, world, held=held)
            if made is not None:  # it is bound to what was written on it
                slots = made.slots & world.fleet.matching(gpu_pod.constraints)
                found.append(Wanted(made._replace(slots=slots), gpu_pod=gpu_pod))
        for waiting in self._in_line(teams):
            made = None if waiting.uid in left_alone else target_in_line(waiting, world, held=held)
            if made is not None:
                found.append(Wanted(made, waiting=waiting))
        return found

    async def movable(self, *, now: int, away: Collection[str], teams: Collection[TeamName]) -> MovablePods:
        """Return the pods that may move now, without those whose controllers or teams are `away`.

        Raises ClusterError.
        """
        index, world = self._view.reclaim_index, self._view.world
        refused = self._left_alone().pods | index.evictions.listed() | index.evictions.listed_for_limits()
        gpu_pods = [
            each for each in index.on_nodes() if not (each.uid in refused or each.team in teams or key_of(each) in away)
        ]
        able = [
            each
            async for each in _in_turns(gpu_pods)
            if stays_early(each, index.evictable(each), world, now=now) is None
        ]
        await self._templates.read(able, kept=(each.uid for each in index.unplaced()))
        template, held = self._templates.get, self.held
        judged = [
            (each, movable_pod(each, index.evictable(each), partial(template, each.uid), world, now=now, held=held))
            async for each in _in_turns(gpu_pods)
        ]
        allowances = Allowances(index, world)  # of what is there by now
        there = [
            allowances.bounded(*each) async for each in _in_turns(judged) if index.staying(each[0].uid) is not None
        ]
        return MovablePods.of(there, allowances.left)

    def _oldest(self, gpu_pods: Iterable[ReclaimPod], without: Collection[TeamName]) -> Iterator[ReclaimPod]:
        by_team: dict[TeamName, list[ReclaimPod]] = {}
        for each in gpu_pods:
            if each.report is not None and each.report.is_for_room and each.team not in without:
                by_team.setdefault(each.team, []).append(each)
        for several in by_team.values():
            yield from nsmallest(OF_A_TEAM, several, key=lambda each: (each.pod.created, each.uid))

    def _in_line(self, without: Collection[TeamName]) -> Iterator[WaitingPod]:
        line = self._view.world.waiting
        for team in [each for each in line.teams() if each not in without]:
            able = (
                each for each in line.of(team) if each.reason is not None and each.reason.code is Code.WAITS_FOR_ROOM
            )
            yield from nsmallest(OF_A_TEAM, able, key=lambda each: (each.created, each.uid))

    def _is_whole(self, gpu_pod: ReclaimPod, now: int) -> bool:
        """Whether all pods of its gang exist."""
        if gpu_pod.gang is None:
            return True
        members = list(self._view.reclaim_index.members(gpu_pod.gang))
        return len(members) >= max(each.gang_size for each in members) and not is_growing(members, now=now)


async def _in_turns(pods: Iterable[T]) -> AsyncIterator[T]:
    """Yield pods, PODS_AT_ONCE in one turn of the event loop."""
    for number, each in enumerate(pods, 1):
        yield each
        if number % PODS_AT_ONCE == 0:
            await asyncio.sleep(0)


def key_of(gpu_pod: ReclaimPod) -> str:
    """Return the key of the next pod of a pod's controller; "" where it has none."""
    made_by = gpu_pod.controller
    return "" if made_by is None else controller_key(made_by.kind, gpu_pod.namespace, made_by.name)
