"""Room under limits in the simulated cluster: the plans of the evictor for pods in line, carried out at once.

Left out is what it does about pods that never use their room: in a simulation each pod starts once it may.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from webhook.core.line_reclaim.line_plan import NOTHING, plan_line
from webhook.core.model.names import Uid
from webhook.core.reclaim.limit_plan import LimitMove
from webhook.core.reclaim.reclaim_plan import ReclaimSnapshot
from webhook.simulation.cluster import SimulatedCluster


class SimulatedLimitReclaim:
    """The holds of room under limits. `wake` is called with the times at which something is due."""

    def __init__(self, cluster: SimulatedCluster, *, wake: Callable[[int], None]) -> None:
        self._cluster = cluster
        self._evictions = cluster.index.evictions
        self._wake = wake

    def look(self, snapshot: Callable[[], ReclaimSnapshot]) -> bool:
        """Plan for the pods in line; return whether a plan for another one was made."""
        cluster, world, found = self._cluster, self._cluster.world, NOTHING
        if world.policy.is_enforced and len(world.waiting):
            with cluster.as_bound():
                holds = self._evictions.limit_holds.values()
                before = {each.beneficiaries[0].uid: {target.uid for target in each.targets} for each in holds}
                found = plan_line(world, cluster.index, snapshot, held=self._evictions.holds, before=before)
        return self._accept(found.moves)

    def _accept(self, moves: Iterable[LimitMove]) -> bool:
        """Keep the holds of the pods that still wait, add those of new ones, and end the others."""
        now, is_going = self._cluster.world.now, self._cluster.index.is_going
        at = now + self._cluster.world.policy.reclaim.notice_seconds
        done = self._evictions.keep_limits(
            moves, since=now, at=at, is_going=is_going, may_begin=lambda move: bool(move.levels)
        )
        for hold in done.ended:
            self._mark(hold.beneficiaries[0].uid, is_kept=False)
        for move in done.begun:
            self._mark(move.waiting.uid, is_kept=True)
            self._wake(at)
        for hold in self._evictions.limit_holds.values():
            self._evictions.written(hold)
        return bool(done.begun)

    def _mark(self, uid: Uid, *, is_kept: bool) -> None:
        world = self._cluster.world
        waiting = world.waiting.get(uid)
        if waiting is not None and waiting.keeps_room is not is_kept:
            world.set_waiting(replace(waiting, keeps_room=is_kept))
