"""Room held for a beneficiary.

The hold of one node: for which waiting pods it keeps room, and which pods are evicted for that.

It is written on the node itself, so that the next leader finds it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from webhook.core.model.amounts import GangId, Namespace, NodeName, Uid
from webhook.core.model.node import KeptPlace
from webhook.core.model.policy import LabelSelector, Policy, UnknownTeam
from webhook.core.reclaim.limit_plan import LimitMove
from webhook.core.reclaim.reclaim_plan import Move

_LIMIT: Final = "limit "
"""In the place of a node's name where room is kept under limits; no node has a name with a space."""


class Purpose(StrEnum):
    """Why a node keeps room for a pod: its team takes a share back, moves make room for it, or it moves there."""

    RECLAIM = ""
    MOVES = "moves"
    MOVED = "moved"


class Beneficiary(NamedTuple):
    """A waiting pod for which a node keeps room."""

    uid: Uid
    namespace: Namespace
    name: str
    purpose: Purpose = Purpose.RECLAIM


class EvictionTarget(NamedTuple):
    """A victim on this node, or on another one as part of a gang. It is evicted from `at` on, in seconds of Unix time.

    `beneficiary` is the waiting pod that it is evicted for. `is_past_budgets`: it is deleted if its
    PodDisruptionBudgets do not allow its eviction. `grace_seconds` overrides its own grace period, None keeps that.
    `is_moved`: it is evicted only while another node keeps a place for its replacement.
    """

    uid: Uid
    namespace: Namespace
    name: str
    beneficiary: Uid
    at: int
    gang: GangId | None = None
    is_past_budgets: bool = False
    grace_seconds: int | None = None
    is_moved: bool = False


class _Named(Protocol):
    @property
    def uid(self) -> Uid: ...

    @property
    def namespace(self) -> Namespace: ...

    @property
    def name(self) -> str: ...


def own_target(pod: _Named, *, at: int = 0, grace_seconds: int | None = None) -> EvictionTarget:
    """Return a pod as the target of an eviction that no other pod needs."""
    return EvictionTarget(pod.uid, pod.namespace, pod.name, beneficiary=pod.uid, at=at, grace_seconds=grace_seconds)


@dataclass(frozen=True, slots=True)
class NodeHold:
    """The room that one node keeps. `id` is the value of its taint. It is given up after `until`.

    `since` is when it began: there is an end however often it is extended. `broken` are gangs that lost a member: the
    others are evicted too, even if no pod still waits. `places` are for pods to come.
    """

    id: str
    node: NodeName
    until: int
    beneficiaries: tuple[Beneficiary, ...]
    targets: tuple[EvictionTarget, ...] = ()
    broken: frozenset[GangId] = frozenset()
    since: int = 0
    places: tuple[KeptPlace, ...] = ()

    @property
    def keeps_room(self) -> bool:
        """Whether it keeps any room, and does not only wait for pods to end."""
        return bool(self.beneficiaries or self.places)

    @property
    def has_moves(self) -> bool:
        """Whether it is part of moves that are under way."""
        return bool(self.places) or any(each.purpose is not Purpose.RECLAIM for each in self.beneficiaries)

    def is_stated_by(self, written: "NodeHold | None", *, late: int) -> bool:
        """Whether a node that was written so states all of it, with an end that is at most so many seconds `late`.

        Other beneficiaries that it states are over, which the next leader sees.
        """
        if written is None or written.id != self.id or written.until + late < self.until:
            return False
        return set(self.beneficiaries) <= set(written.beneficiaries) and self.places == written.places

    def joined(self, move: Move, *, at: int, until: int) -> "NodeHold":
        """Return it with room for one more pod, and with that pod's victims."""
        waiting = move.waiting
        return replace(
            self,
            until=max(self.until, until),
            beneficiaries=(*self.beneficiaries, Beneficiary(waiting.uid, waiting.namespace, waiting.name)),
            targets=self.targets + targets_of((move,), at=at),
        )

    def retargeted(self, move: LimitMove, *, at: int) -> "NodeHold":
        """Return it with the victims that are needed now; those that it had keep their time."""
        known = {target.uid: target for target in self.targets}
        return replace(self, targets=tuple([known.get(each.uid, each) for each in targets_of((move,), at=at)]))

    def without(self, uid: Uid) -> "NodeHold":
        """Return it without one target."""
        return replace(self, targets=tuple([target for target in self.targets if target.uid != uid]))

    def given_up(self) -> "NodeHold | None":
        """Return what is left when no room is kept: the rest of broken gangs; None where there is none."""
        return replace(self, places=()).reduced((), self.targets, self.broken)

    def reduced(
        self, beneficiaries: tuple[Beneficiary, ...], targets: tuple[EvictionTarget, ...], broken: frozenset[GangId]
    ) -> "NodeHold | None":
        """Return it with fewer beneficiaries and targets; None: nothing is left.

        Targets need their beneficiary, the place that is kept for it, or a broken gang.
        """
        kept = {each.uid for each in beneficiaries} | {Uid(place.key) for place in self.places}
        targets = tuple([target for target in targets if target.beneficiary in kept or target.gang in broken])
        if not (beneficiaries or targets or self.places):
            return None
        return replace(self, beneficiaries=beneficiaries, targets=targets, broken=broken)


def limit_place(uid: Uid) -> NodeName:
    """Return what stands for a node in the hold of a pod for which room is kept under limits."""
    return NodeName(f"{_LIMIT}{uid}")


def hold_under_limits(move: LimitMove, *, since: int) -> NodeHold:
    """Return the hold of a pod for which room is kept under limits, without victims yet."""
    waiting = move.waiting
    beneficiary = Beneficiary(waiting.uid, waiting.namespace, waiting.name)
    return NodeHold("", limit_place(waiting.uid), 0, (beneficiary,), since=since)


def is_limit_place(place: NodeName) -> bool:
    """Return whether this stands for room under limits, and for no node."""
    return place.startswith(_LIMIT)


def targets_of(moves: Iterable[Move | LimitMove], *, at: int) -> tuple[EvictionTarget, ...]:
    """Return the victims of plans as targets."""
    return tuple(
        EvictionTarget(
            uid=victim.uid,
            namespace=victim.namespace,
            name=victim.name,
            beneficiary=move.waiting.uid,
            at=at,
            gang=victim.gang,
            is_past_budgets=move.is_past_budgets,
            grace_seconds=victim.grace_seconds,
        )
        for move in moves
        for victim in move.victims
    )


# The held nodes, the pods that they are held for, and the namespaces whose other pods are kept off.


@dataclass(frozen=True, slots=True)
class HeldNodes:
    """The nodes, each with the pods that it keeps its room for, and the namespaces whose pods are kept off otherwise.

    `namespaces` and `exempt` are names or globs; exempt namespaces are never kept off.
    """

    nodes: Mapping[NodeName, tuple[Uid, ...]]
    namespaces: tuple[str, ...]
    selectors: tuple[LabelSelector, ...]
    exempt: tuple[str, ...]

    def covers(self, later: "HeldNodes") -> bool:
        """Whether it keeps off the same pods as a later state: pods that were bound or deleted since may stay in it."""
        return (
            self.nodes.keys() == later.nodes.keys()
            and (self.namespaces, self.selectors, self.exempt) == (later.namespaces, later.selectors, later.exempt)
            and all(set(uids) <= set(self.nodes[node]) for node, uids in later.nodes.items())
        )


def held_nodes(node_holds: Iterable[NodeHold], policy: Policy) -> HeldNodes:
    """Return the held nodes. A node that only waits for the rest of a broken gang to end keeps nothing."""
    is_open = policy.defaults.unknown_team is UnknownTeam.PREEMPTIBLE
    selectors = (team.namespace_selector for team in policy.teams if team.namespace_selector is not None)
    return HeldNodes(
        nodes={
            hold.node: tuple(sorted(pod.uid for pod in hold.beneficiaries)) for hold in node_holds if hold.keeps_room
        },
        namespaces=("*",) if is_open else tuple(sorted({name for team in policy.teams for name in team.namespaces})),
        selectors=() if is_open else tuple(selectors),
        exempt=tuple(sorted(policy.exempt)),
    )
