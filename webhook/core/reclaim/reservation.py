"""What is being done on one node: whose room it keeps, and who goes for that.

It is written on the node itself, so that the next leader finds it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from webhook.core.model.demand import Demand
from webhook.core.model.names import Namespace, NodeName, ResourceName, Uid
from webhook.core.model.tier import Tier
from webhook.core.model.topology import anti_affinity
from webhook.core.placement.fleet import Fleet
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_plan import Hold, Leaving, Move
from webhook.core.reclaim.victim import GangId


class Claim(NamedTuple):
    """A waiting pod for which a node keeps room."""

    uid: Uid
    namespace: Namespace
    name: str


class Target(NamedTuple):
    """A victim, on this node or (of a gang) on another: for whom it goes, and from when on, in seconds of Unix time.

    `is_past_budgets`: it is deleted where its PodDisruptionBudgets do not let it be evicted. `grace_seconds` is what it
    gets to end, None: its own grace period.
    """

    uid: Uid
    namespace: Namespace
    name: str
    claim: Uid
    at: int
    gang: GangId | None = None
    is_past_budgets: bool = False
    grace_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """The room that one node keeps. `id` is the value of its taint; after `until` it is given up.

    `since` is when it was begun: however often it is prolonged, there is an end. `broken` are gangs of which somebody
    went: the others follow, whatever becomes of the claims.
    """

    id: str
    node: NodeName
    until: int
    claims: tuple[Claim, ...]
    targets: tuple[Target, ...] = ()
    broken: frozenset[GangId] = frozenset()
    since: int = 0

    def joined(self, move: Move, *, at: int, until: int) -> "Holding":
        """Keep room for one more pod, and send its victims away."""
        waiting = move.waiting
        return replace(
            self,
            until=max(self.until, until),
            claims=(*self.claims, Claim(waiting.uid, waiting.namespace, waiting.name)),
            targets=self.targets + targets_of((move,), at=at),
        )

    def without(self, uid: Uid) -> "Holding":
        """Let one target stay."""
        return replace(self, targets=tuple([target for target in self.targets if target.uid != uid]))

    def given_up(self) -> "Holding | None":
        """Keep no room any more; only the rest of broken gangs goes. None where there is none."""
        return self._cut((), self.targets, self.broken)

    def trimmed(self, reclaim_index: ReclaimIndex) -> "Holding | None":
        """Drop the claims that wait no more, and the targets that are going, gone, or guaranteed by now.

        Targets whose claim is dropped stay, but for those of broken gangs. None where nothing is left.
        """
        claims = tuple([c for c in self.claims if (pod := reclaim_index.get(c.uid)) is not None and pod.is_waiting])
        went = {target.uid: target for target in self.targets if reclaim_index.is_going(target.uid)}
        broken = self.broken.union(target.gang for target in went.values() if target.gang is not None)
        return self._cut(claims, tuple([target for target in self.targets if _may_go(target, reclaim_index)]), broken)

    def _cut(
        self, claims: tuple[Claim, ...], targets: tuple[Target, ...], broken: frozenset[GangId]
    ) -> "Holding | None":
        kept = {claim.uid for claim in claims}
        targets = tuple([target for target in targets if target.claim in kept or target.gang in broken])
        return replace(self, claims=claims, targets=targets, broken=broken) if claims or targets else None


def targets_of(moves: Iterable[Move], *, at: int) -> tuple[Target, ...]:
    """List the victims of plans."""
    return tuple(
        Target(
            victim.uid,
            victim.namespace,
            victim.name,
            move.waiting.uid,
            at,
            victim.gang,
            move.is_past_budgets,
            victim.grace_seconds,
        )
        for move in moves
        for victim in move.victims
    )


def holds(holdings: Iterable[Holding], reclaim_index: ReclaimIndex) -> list[Hold]:
    """List all room that is kept, as plans take it."""
    return [
        Hold(
            claim.uid,
            holding.node,
            tenant.pod.demand,
            tenant.pod.namespace,
            tenant.labels,
            anti_affinity(tenant.topology),
        )
        for holding in holdings
        for claim in holding.claims
        if (tenant := reclaim_index.get(claim.uid)) is not None
    ]


def inherited(
    before: Holding, kept: Holding, reclaim_index: ReclaimIndex, fleet: Fleet, *, leaving: Sequence[Leaving]
) -> Holding:
    """Have victims of claims that were seated go for those that still wait, as many as the room is short of.

    The room of a node is for any of its claims: who is seated may sit where the victims of another were.
    """
    units: dict[GangId | Uid, tuple[Target, ...]] = {}
    for target in before.targets:
        if target not in kept.targets and _may_go(target, reclaim_index):
            units[target.gang or target.uid] = (*units.get(target.gang or target.uid, ()), target)
    served = {target.claim for target in kept.targets}
    heir = next((claim.uid for claim in kept.claims if claim.uid not in served), kept.claims[0].uid)
    added: list[tuple[Target, ...]] = []

    def with_added(units: Iterable[tuple[Target, ...]]) -> Holding:
        more = [target._replace(claim=heir) for unit in units for target in unit]
        return replace(kept, targets=(*kept.targets, *more))

    for unit in units.values():
        if not is_short(with_added(added), reclaim_index, fleet, leaving=leaving):
            break
        added.append(unit)
    for unit in list(added):
        rest = [each for each in added if each is not unit]
        if not is_short(with_added(rest), reclaim_index, fleet, leaving=leaving):
            added = rest
    return with_added(added)


def is_short(holding: Holding, reclaim_index: ReclaimIndex, fleet: Fleet, *, leaving: Sequence[Leaving]) -> bool:
    """Tell whether the room it keeps will not be there: the node went or was closed, or somebody took it.

    `leaving` are the pods that leave its node.
    """
    if not fleet.bit(holding.node) & fleet.open_bits:
        return True
    wanted: dict[ResourceName, int] = {}
    for claim in holding.claims:
        if (tenant := reclaim_index.get(claim.uid)) is not None:
            _add(wanted, tenant.pod.demand, 1)
    for each in leaving:
        _add(wanted, each.demand, -1)
    for target in holding.targets:
        victim = reclaim_index.staying(target.uid)
        if victim is not None and victim.pod.node == holding.node:
            _add(wanted, victim.pod.demand, -1)
    asked = {
        name for claim in holding.claims if (pod := reclaim_index.get(claim.uid)) for name, _ in pod.pod.demand.requests
    }
    return any(wanted[name] > fleet.free(holding.node, name) for name in asked)


def _may_go(target: Target, reclaim_index: ReclaimIndex) -> bool:
    """Tell whether a target is there, is not going yet, and borrows."""
    victim = reclaim_index.staying(target.uid)
    return victim is not None and victim.pod.tier is Tier.PREEMPTIBLE


def _add(amounts: dict[ResourceName, int], demand: Demand, sign: int) -> None:
    for name, amount in demand.requests:
        amounts[name] = amounts.get(name, 0) + sign * amount
