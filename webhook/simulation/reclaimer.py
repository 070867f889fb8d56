"""Reclaim in the simulated cluster: the planner of the evictor, and what the evictor does with its plans, at once.

Plans, the choice of pods to plan for, and the end of holds are the core's. Left out is what slows a real evictor down:
refusals by the API server, the time that a victim takes to end, and pauses of teams that waste evictions.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from webhook.core.model.names import NodeName, TeamName, Uid
from webhook.core.reclaim.held_room import current, holds
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_plan import Move
from webhook.core.reclaim.reclaim_snapshot import pods_within_share, select_pods, take_snapshot
from webhook.core.reclaim.reservation import NodeHold, Target
from webhook.simulation.cluster import SimulatedCluster
from webhook.simulation.limit_reclaimer import SimulatedLimitReclaim

HOLD_SECONDS: Final = 60
"""How long a node keeps room after the last progress, as in the evictor."""

_RATE_SECONDS: Final = 60


class SimulatedReclaim:
    """Holds and evictions. `wake` is called with the times at which something is due."""

    def __init__(self, cluster: SimulatedCluster, *, wake: Callable[[int], None]) -> None:
        self.holds: dict[NodeName, NodeHold] = {}
        self._cluster = cluster
        self._wake = wake
        self._limits = SimulatedLimitReclaim(cluster, wake=wake)
        self._number = 0
        self._evicted: deque[tuple[int, TeamName]] = deque()

    def look(self) -> bool:
        """Plan for the pods that wait inside their shares; return whether a plan was made."""
        is_planned = self._look_at_nodes()
        losses = self._losses(self._cluster.world.now) if len(self._cluster.world.waiting) else {}
        return self._limits.look(self.holds, losses) or is_planned

    def _look_at_nodes(self) -> bool:
        cluster, now = self._cluster, self._cluster.world.now
        index, world = cluster.index, cluster.world
        if not world.policy.is_enforced or not any(True for _ in index.waiting()):
            self._tidy()
            return False
        with cluster.as_bound():
            self._tidy()
            held = holds(self.holds.values(), index)
            selected = select_pods(pods_within_share(index, world), index, now=now, has_holds=bool(held))
            if selected.is_growing:
                self._wake(now + 1)
            have_room = {each.waiting.uid for each in held}
            waiting = [each for each in selected.waiting if each.uid not in have_room]
            if not waiting:
                return False
            chosen = {target.uid for each in self.holds.values() for target in each.targets}
            there = take_snapshot(
                index,
                world,
                now=now,
                holds=held,
                chosen=chosen,
                refused=self._limits.targets(),
                evicted=self._losses(now),
            )
            found = plan(waiting, there)
        for move in found.moves:
            self._accept(move)
        return bool(found.moves)

    def due(self) -> Iterator[Target]:
        """Yield the victims whose eviction is due now; the caller removes them."""
        now = self._cluster.world.now
        for target in self._limits.due():
            self._note_eviction(target)
            yield target
        for node, held in list(self.holds.items()):
            for target in held.targets:
                if target.at > now:
                    continue
                self._keep(node, self.holds[node].without(target.uid))
                if self._cluster.index.get(target.uid) is not None:
                    self._note_eviction(target)
                    yield target

    def _note_eviction(self, target: Target) -> None:
        if (gone := self._cluster.index.get(target.uid)) is not None:
            self._evicted.append((self._cluster.world.now, gone.team))

    def hold_of(self, uid: Uid) -> NodeHold | None:
        """Return the hold that keeps room for a pod."""
        return next((held for held in self.holds.values() for each in held.beneficiaries if each.uid == uid), None)

    def _accept(self, move: Move) -> None:
        world = self._cluster.world
        now, rules = world.now, world.policy.reclaim
        at = now + rules.notice_seconds
        self._number += 1
        before = self.holds.get(move.node) or NodeHold(str(self._number), move.node, 0, (), since=now)
        self._keep(move.node, before.joined(move, at=at, until=at + HOLD_SECONDS))
        self._wake(at)
        self._wake(at + HOLD_SECONDS + 1)

    def _tidy(self) -> None:
        """End the holds that are over or will not have their room."""
        cluster, now = self._cluster, self._cluster.world.now
        for node, before in list(self.holds.items()):
            kept, has_room = current(before, cluster.index, cluster.world.fleet, leaving=())
            if kept is not None and kept.beneficiaries and (kept.until < now or not has_room):
                kept = kept.given_up()
            if kept is not None and not kept.beneficiaries and not kept.targets:
                kept = None
            if kept != before:
                self._keep(node, kept)

    def _keep(self, node: NodeName, held: NodeHold | None) -> None:
        before = self.holds.get(node)
        if held is None:
            self.holds.pop(node, None)
        else:
            self.holds[node] = replace(held)
        had = before is not None and bool(before.beneficiaries)
        if had != (held is not None and bool(held.beneficiaries)):
            self._cluster.hold(node, held)

    def _losses(self, now: int) -> dict[TeamName, int]:
        """Return how many pods each team lost within the last minute, or is about to lose."""
        while self._evicted and self._evicted[0][0] <= now - _RATE_SECONDS:
            self._evicted.popleft()
        found = Counter(team for _, team in self._evicted)
        for held in self.holds.values():
            for target in held.targets:
                if (gpu_pod := self._cluster.index.get(target.uid)) is not None:
                    found[gpu_pod.team] += 1
        return dict(found)
