"""A pod that waits in the queue, and the entry that it waits in: alone, or with the other members of its gang."""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from webhook.core.model.amount import Units, exact_units
from webhook.core.model.names import GangId, GpuModel, Namespace, TeamName, Uid, User
from webhook.core.model.tier import Tier

Sites = frozenset[Hashable]
"""Sets of nodes, such as pools or GPU models. Pods without a common site never compete for room."""


class QueuedPod(NamedTuple):
    """A pod that waits with the scheduling gate. `created` is in seconds of Unix time.

    `kind` is all that decides whether nodes have room for it, pools of its team included: pods of equal kinds fit, or
    do not fit, alike. It is hashed often. `model` is the GPU model if it is known, `requested_tier` what its author
    asked for. `limits` are keys of the limits that count it (team, user, model, departments), in an order that is the
    same in every process. `sites` is where it may ever run, None: anywhere. `is_evictable`: reclaim may evict it, so it
    may run ahead of its turn. Members of a `gang` start together.
    """

    uid: Uid
    namespace: Namespace
    name: str
    team: TeamName
    gpus: Units
    created: int
    user: User | None = None
    priority: int = 0
    kind: Hashable = None
    model: GpuModel | None = None
    requested_tier: Tier | None = None
    limits: tuple[Hashable, ...] = ()
    sites: Sites | None = None
    is_evictable: bool = True
    gang: GangId | None = None

    @property
    def like(self) -> Hashable:
        """What it has in common with all pods that wait for the same, members of gangs left out."""
        return self.team, self.user, self.kind, self.gpus, self.requested_tier, self.namespace


class Age(NamedTuple):
    """The place of an entry among equals: by creation, ties by name. It is unique, since the UID is."""

    created: int
    namespace: Namespace
    name: str
    uid: Uid


class Lot(NamedTuple):
    """What entries have in common that fit, or do not fit, alike: one of them is judged for all."""

    kind: Hashable
    gpus: Units
    model: GpuModel | None
    requested_tier: Tier | None
    sites: Sites | None
    is_evictable: bool


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """What starts as one: a pod, or all members of a gang. `key` is the pod's UID, or that of the gang."""

    key: Hashable
    pods: tuple[QueuedPod, ...]
    team: TeamName
    user: User | None
    priority: int
    age: Age
    limits: tuple[Hashable, ...]
    lot: Lot

    @property
    def gpus(self) -> Units:
        """The GPU units of all its pods."""
        return self.lot.gpus

    @property
    def can_run_ahead(self) -> bool:
        """Whether it may run as preemptible before its turn: it may borrow, and reclaim may evict it."""
        return self.lot.is_evictable and self.lot.requested_tier is not Tier.GUARANTEED


def entry_of(pods: Iterable[QueuedPod]) -> QueueEntry:
    """Return the entry of a pod, or of the members of one gang, in whatever order they are given.

    A gang is as old as its oldest member and has that one's team and user, and the lowest priority of its members, so
    that one important pod does not put a large gang first.
    """
    members = tuple(sorted(pods, key=_age))
    first = members[0]
    return QueueEntry(
        key=first.uid if first.gang is None else first.gang,
        pods=members,
        team=first.team,
        user=first.user,
        priority=min(pod.priority for pod in members),
        age=_age(first),
        limits=tuple(dict.fromkeys(limit for pod in members for limit in pod.limits)),
        lot=_lot(members),
    )


def _age(pod: QueuedPod) -> Age:
    return Age(pod.created, pod.namespace, pod.name, pod.uid)


def _lot(pods: tuple[QueuedPod, ...]) -> Lot:
    first = pods[0]
    if first.gang is None:
        return Lot(first.kind, first.gpus, first.model, first.requested_tier, first.sites, first.is_evictable)
    sites = [pod.sites for pod in pods]
    wishes = {pod.requested_tier for pod in pods}
    return Lot(
        kind=frozenset(Counter(pod.kind for pod in pods).items()),
        gpus=exact_units(sum(pod.gpus for pod in pods)),
        model=first.model if all(pod.model == first.model for pod in pods) else None,
        requested_tier=Tier.GUARANTEED if Tier.GUARANTEED in wishes else first.requested_tier,
        sites=None if None in sites else frozenset().union(*(each for each in sites if each is not None)),
        is_evictable=all(pod.is_evictable for pod in pods),
    )
