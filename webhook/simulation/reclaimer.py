"""Reclaim in the simulated cluster: the planner of the evictor, and what the evictor does with its plans, at once.

Plans, the choice of pods to plan for, the table of evictions and the end of holds are the core's. Left out is what
slows a real evictor down: refusals by the API server, the time that a victim takes to end, and pauses of teams that
waste evictions.
"""

from collections.abc import Callable, Iterator, Set
from typing import Final

from webhook.core.model.names import NodeName, Uid
from webhook.core.reclaim.held_room import current
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_plan import Move, ReclaimSnapshot
from webhook.core.reclaim.reclaim_snapshot import pods_within_share, select_pods, take_snapshot
from webhook.core.reclaim.reservation import EvictionTarget, NodeHold, is_limit_place
from webhook.simulation.cluster import SimulatedCluster
from webhook.simulation.limit_reclaimer import SimulatedLimitReclaim

HOLD_SECONDS: Final = 60
"""How long a node keeps room after the last progress, as in the evictor."""

_NONE: Final[Set[Uid]] = frozenset()


class SimulatedReclaim:
    """Plans and evictions. `wake` is called with the times at which something is due."""

    def __init__(self, cluster: SimulatedCluster, *, wake: Callable[[int], None]) -> None:
        self._cluster = cluster
        self._evictions = cluster.index.evictions
        self._wake = wake
        self._limits = SimulatedLimitReclaim(cluster, wake=wake)
        self._number = 0

    def look(self) -> bool:
        """Plan for the pods that wait inside their shares; return whether a plan was made."""
        is_planned = self._look_at_nodes()
        return self._limits.look(self._snapshot) or is_planned

    def due(self) -> Iterator[EvictionTarget]:
        """Yield the victims whose eviction is due now; the caller removes them."""
        evictions, index, now = self._evictions, self._cluster.index, self._cluster.world.now
        for hold in [*evictions.limit_holds.values(), *evictions.holds.values()]:
            for target in evictions.due(hold, now=now):
                if evictions.send(target.uid, hold.node):
                    index.accept(target.uid, now=now)
                    yield target
                all_holds = evictions.limit_holds if is_limit_place(hold.node) else evictions.holds
                self._keep(hold.node, all_holds[hold.node].without(target.uid))

    def hold_of(self, uid: Uid) -> NodeHold | None:
        """Return the hold that keeps room for a pod."""
        every = self._evictions.holds.values()
        return next((held for held in every for each in held.beneficiaries if each.uid == uid), None)

    def _look_at_nodes(self) -> bool:
        cluster, now = self._cluster, self._cluster.world.now
        index, world = cluster.index, cluster.world
        if not world.policy.is_enforced or not any(True for _ in index.waiting()):
            self._tidy()
            return False
        with cluster.as_bound():
            self._tidy()
            selected = select_pods(pods_within_share(index, world), index, now=now)
            if selected.is_growing:
                self._wake(now + 1)
            if not selected.waiting:
                return False
            found = plan(selected.waiting, self._snapshot(refused=self._evictions.listed_for_limits()))
        for move in found.moves:
            self._accept(move)
        return bool(found.moves)

    def _snapshot(self, *, refused: Set[Uid] = _NONE) -> ReclaimSnapshot:
        world = self._cluster.world
        return take_snapshot(self._cluster.index, world, now=world.now, refused=refused)

    def _accept(self, move: Move) -> None:
        world = self._cluster.world
        now, rules = world.now, world.policy.reclaim
        at = now + rules.notice_seconds
        self._number += 1
        before = self._evictions.holds.get(move.node) or NodeHold(str(self._number), move.node, 0, (), since=now)
        self._keep(move.node, before.joined(move, at=at, until=at + HOLD_SECONDS))
        self._wake(at)
        self._wake(at + HOLD_SECONDS + 1)

    def _tidy(self) -> None:
        """End the holds that are over or will not have their room."""
        cluster, now = self._cluster, self._cluster.world.now
        for node, before in list(self._evictions.holds.items()):
            kept, has_room = current(before, cluster.index, cluster.world.fleet, leaving=())
            if kept is not None and kept.beneficiaries and (kept.until < now or not has_room):
                kept = kept.given_up()
            if kept is not None and not kept.beneficiaries and not kept.targets:
                kept = None
            if kept != before:
                self._keep(node, kept)
        self._evictions.end_finished(lambda uid: uid in cluster.pods, now=now)

    def _keep(self, node: NodeName, held: NodeHold | None) -> None:
        before = self._evictions.holds.get(node)
        self._evictions.keep(node, held, is_going=self._cluster.index.is_going)
        if held is not None:
            self._evictions.written(held)
        had = before is not None and bool(before.beneficiaries)
        if not is_limit_place(node) and had != (held is not None and bool(held.beneficiaries)):
            self._cluster.hold(node, held)
