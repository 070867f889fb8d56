"""What is being done on one node: whose room it keeps, and who goes for that.

It is written on the node itself, so that the next leader finds it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from webhook.core.demand import Demand
from webhook.core.fleet import Fleet
from webhook.core.names import Namespace, NodeName, ResourceName, Uid
from webhook.core.reclaim import Hold, Leaving, Move
from webhook.core.roll import Roll
from webhook.core.tier import Tier


class Claim(NamedTuple):
    """A waiting pod for which a node keeps room."""

    uid: Uid
    namespace: Namespace
    name: str


class Target(NamedTuple):
    """A victim, on this node or (of a gang) on another: for whom it goes, and from when on, in seconds of Unix time."""

    uid: Uid
    namespace: Namespace
    name: str
    claim: Uid
    at: int


@dataclass(frozen=True, slots=True)
class Holding:
    """The room that one node keeps. `id` is the value of its taint; after `until` it is given up."""

    id: str
    node: NodeName
    until: int
    claims: tuple[Claim, ...]
    targets: tuple[Target, ...] = ()

    def joined(self, move: Move, *, at: int, until: int) -> "Holding":
        """Keep room for one more pod, and send its victims away."""
        waiting = move.waiting
        targets = tuple(Target(victim.uid, victim.namespace, victim.name, waiting.uid, at) for victim in move.victims)
        return replace(
            self,
            until=max(self.until, until),
            claims=(*self.claims, Claim(waiting.uid, waiting.namespace, waiting.name)),
            targets=self.targets + targets,
        )

    def without(self, uids: Iterable[Uid]) -> "Holding | None":
        """Give up some of its claims and targets; None where no claim is left."""
        gone = frozenset(uids)
        claims = tuple([claim for claim in self.claims if claim.uid not in gone])
        if not claims:
            return None
        kept = {claim.uid for claim in claims}
        targets = tuple([t for t in self.targets if t.uid not in gone and t.claim in kept])
        return replace(self, claims=claims, targets=targets)


def over(holding: Holding, roll: Roll) -> list[Uid]:
    """List the claims that wait no more, and the targets that are going, gone, or guaranteed by now."""
    found = [claim.uid for claim in holding.claims if (pod := roll.get(claim.uid)) is None or not pod.is_waiting]
    for target in holding.targets:
        victim = roll.get(target.uid)
        if victim is None or roll.is_going(target.uid) or victim.pod.tier is not Tier.PREEMPTIBLE:
            found.append(target.uid)
    return found


def holds(holdings: Iterable[Holding], roll: Roll) -> list[Hold]:
    """List all room that is kept, as plans take it."""
    return [
        Hold(claim.uid, holding.node, tenant.pod.demand)
        for holding in holdings
        for claim in holding.claims
        if (tenant := roll.get(claim.uid)) is not None
    ]


def is_short(holding: Holding, roll: Roll, fleet: Fleet, *, leaving: Sequence[Leaving]) -> bool:
    """Tell whether the room it keeps will not be there: the node went or was closed, or somebody took it."""
    if not fleet.bit(holding.node) & fleet.open_bits:
        return True
    wanted: dict[ResourceName, int] = {}
    for claim in holding.claims:
        if (tenant := roll.get(claim.uid)) is not None:
            _add(wanted, tenant.pod.demand, 1)
    for each in leaving:
        if each.node == holding.node:
            _add(wanted, each.demand, -1)
    for target in holding.targets:
        victim = roll.get(target.uid)
        if victim is not None and victim.pod.node == holding.node and not roll.is_going(target.uid):
            _add(wanted, victim.pod.demand, -1)
    return any(amount > fleet.free(holding.node, name) for name, amount in wanted.items() if amount > 0)


def _add(amounts: dict[ResourceName, int], demand: Demand, sign: int) -> None:
    for name, amount in demand.requests:
        amounts[name] = amounts.get(name, 0) + sign * amount
