"""Room under limits in the simulated cluster: the plans of the evictor for pods in line, carried out at once.

Left out is what it does about pods that never use their room: in a simulation each pod starts once it may.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from webhook.core.model.names import NodeName, TeamName, Uid
from webhook.core.reclaim.held_room import holds
from webhook.core.reclaim.limit_plan import LimitMove
from webhook.core.reclaim.reclaim_snapshot import take_snapshot
from webhook.core.reclaim.reservation import Beneficiary, NodeHold, Target, limit_place, targets_of
from webhook.core.release.line_plan import NOTHING, plan_line
from webhook.simulation.cluster import SimulatedCluster


class SimulatedLimitReclaim:
    """The holds of room under limits. `wake` is called with the times at which something is due."""

    def __init__(self, cluster: SimulatedCluster, *, wake: Callable[[int], None]) -> None:
        self._cluster = cluster
        self._wake = wake
        self._holds: dict[NodeName, NodeHold] = {}

    def look(self, node_holds: Mapping[NodeName, NodeHold], losses: Mapping[TeamName, int]) -> bool:
        """Plan for the pods in line; return whether a plan for another one was made."""
        cluster, world, found = self._cluster, self._cluster.world, NOTHING
        if world.policy.is_enforced and len(world.waiting):
            with cluster.as_bound():
                snapshot = partial(
                    take_snapshot,
                    cluster.index,
                    world,
                    now=world.now,
                    holds=holds(node_holds.values(), cluster.index),
                    chosen={target.uid for each in node_holds.values() for target in each.targets},
                    evicted=losses,
                )
                before = {each.beneficiaries[0].uid: {t.uid for t in each.targets} for each in self._holds.values()}
                found = plan_line(world, cluster.index, snapshot, held=node_holds, before=before)
        return self._accept(found.moves)

    def targets(self) -> set[Uid]:
        """Return the victims that are chosen."""
        return {target.uid for each in self._holds.values() for target in each.targets}

    def due(self) -> Iterator[Target]:
        """Yield the victims whose eviction is due now; the caller removes them."""
        for place, hold in list(self._holds.items()):
            for target in hold.targets:
                if target.at <= self._cluster.world.now:
                    self._holds[place] = self._holds[place].without(target.uid)
                    if self._cluster.index.get(target.uid) is not None:
                        yield target

    def _accept(self, moves: Iterable[LimitMove]) -> bool:
        """Keep the holds of the pods that still wait, add those of new ones, and end the others."""
        wanted = {limit_place(move.waiting.uid): move for move in moves}
        for place in [place for place in self._holds if place not in wanted]:
            self._mark(self._holds.pop(place).beneficiaries[0].uid, is_kept=False)
        now, has_new = self._cluster.world.now, False
        at = now + self._cluster.world.policy.reclaim.notice_seconds
        for place, move in wanted.items():
            known, waiting = self._holds.get(place), move.waiting
            if known is None and not move.levels:
                continue
            if known is None:
                who = Beneficiary(waiting.uid, waiting.namespace, waiting.name)
                known, has_new = NodeHold("", place, 0, (who,), since=now), True
                self._mark(waiting.uid, is_kept=True)
                self._wake(at)
            earlier = {each.uid: each for each in known.targets}
            targets = tuple([earlier.get(each.uid, each) for each in targets_of((move,), at=at)])
            self._holds[place] = replace(known, targets=targets)
        return has_new

    def _mark(self, uid: Uid, *, is_kept: bool) -> None:
        world = self._cluster.world
        waiting = world.waiting.get(uid)
        if waiting is not None and waiting.keeps_room is not is_kept:
            world.set_waiting(replace(waiting, keeps_room=is_kept))
