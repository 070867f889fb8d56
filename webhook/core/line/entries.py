"""An entry of the queue: a pod or a gang; verdicts.

The nodes that back-fill leaves alone for an entry that waits for room which reclaim cannot take back for it.

An entry that would only borrow may not have others evicted. Without kept nodes, smaller entries would take every GPU
that comes free before enough of them are free on one node.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heappop, heapreplace
from typing import Final, NamedTuple

from webhook.core.model.amounts import (
    GangId,
    GpuModel,
    Limit,
    Namespace,
    NodeName,
    TeamName,
    Uid,
    Units,
    Unlimited,
    User,
    exact_units,
)
from webhook.core.model.constraints import MAX_MEMBERS, Tier
from webhook.core.world.world import World


class KeepableNode(NamedTuple):
    """A node where the entry may run: GPU units that are free now, and those that are once all pods there ended."""

    name: NodeName
    free: Units
    size: Units


def kept_nodes(
    pods: Sequence[Units], rooms: Iterable[KeepableNode], *, before: frozenset[NodeName] = frozenset()
) -> frozenset[NodeName]:
    """Return the nodes to keep for pods of these sizes; none if the nodes together are too small.

    Each pod, the largest first, gets the node where the least is missing; then the smaller node, then the first by
    name. Nodes that were kept `before` are kept as long as the pods would fit there, so that room accumulates in one
    place.
    """
    all_rooms = tuple(rooms)
    return _chosen(pods, [room for room in all_rooms if room.name in before]) or _chosen(pods, all_rooms)


def _chosen(pods: Sequence[Units], rooms: Iterable[KeepableNode]) -> frozenset[NodeName]:
    left = {room.name: room for room in rooms}
    chosen = set()
    for gpus, count in sorted(Counter(pods).items(), reverse=True):
        by_cost = [(_cost(room, gpus), room) for room in left.values() if room.size >= gpus]
        heapify(by_cost)
        for _ in range(count):
            if not by_cost:
                return frozenset()
            best = by_cost[0][1]
            chosen.add(best.name)
            rest = left[best.name] = KeepableNode(best.name, best.free - gpus, best.size - gpus)
            if rest.size >= gpus:
                heapreplace(by_cost, (_cost(rest, gpus), rest))
            else:
                heappop(by_cost)
    return frozenset(chosen)


def _cost(room: KeepableNode, gpus: Units) -> tuple[Units, Units, NodeName]:
    return max(0, gpus - room.free), room.size, room.name


# A pod that waits in the queue, and the entry that it waits in: alone, or with the other members of its gang.


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


# What the caller says about an entry: it starts now, or what it waits for. The queue knows no limits and no nodes.


class Way(StrEnum):
    """How an entry starts: in its turn, or as back-fill, ahead of entries that wait for room."""

    IN_TURN = "inTurn"
    BACKFILL = "backfill"


class Attempt(NamedTuple):
    """How a start is tried: off the nodes that are `kept` for others; `before` are those that were kept for it."""

    way: Way = Way.IN_TURN
    kept: frozenset[NodeName] = frozenset()
    before: frozenset[NodeName] = frozenset()


IN_TURN: Final = Attempt()


@dataclass(frozen=True, slots=True)
class Fits:
    """It starts now: nodes have room, or (only in its turn) reclaim makes it by evicting preemptible pods."""


@dataclass(frozen=True, slots=True)
class OverLimit:
    """Other pods use up a limit, of which this is the key among the entry's `limits`."""

    limit: Hashable


@dataclass(frozen=True, slots=True)
class NoRoom:
    """No nodes have room, and reclaim cannot make it now. `reach` are the nodes that it may ever use, None for all.

    `keep` are nodes that back-fill must leave alone for it (`kept_nodes`). It is empty where reclaim takes room from
    back-fill for it: then back-fill may have every node. `has_devices`: one of its nodes has the GPUs free that it asks
    for, and lacks something else.
    """

    keep: frozenset[NodeName] = frozenset()
    reach: frozenset[NodeName] | None = None
    has_devices: bool = False


@dataclass(frozen=True, slots=True)
class Never:
    """It cannot start whatever ends, such as after a limit was lowered: it holds up no other entry."""


@dataclass(frozen=True, slots=True)
class Paced:
    """Reclaim takes room back for many pods of its team already: it and those like it follow, and hold up no other."""


Verdict = Fits | OverLimit | NoRoom | Paced | Never


# What judging gangs may cost: large ones pause after a judgment, and a pass judges so many members of a team.


MEMBERS_PER_PASS: Final = MAX_MEMBERS + 12
"""Members of one team's gangs that are judged in a pass: a judgment takes 0.1 ms, and no team may slow down others."""

MEMBERS_PER_SECOND: Final = 64
"""A gang that may not start is judged again after a second for so many of its members: small ones with each pass."""

_PAUSE_SECONDS: Final = 4
"""How long a team's gangs pause once it has used up a pass, so that those behind them have their turn in the next."""


class _Pause(NamedTuple):
    until: int
    members: tuple[Hashable, ...]
    verdict: Verdict


class GangPauses:
    """The verdicts on gangs that are not judged again yet. Times are in seconds of Unix time."""

    def __init__(self) -> None:
        self._pauses: dict[Hashable, _Pause] = {}
        self._judged: Counter[TeamName] = Counter()
        self._blocked: dict[TeamName, list[tuple[QueueEntry, Verdict]]] = {}

    def begin(self, *, now: int) -> None:
        """Begin a pass."""
        self._pauses = {key: pause for key, pause in self._pauses.items() if now < pause.until}
        self._judged.clear()
        self._blocked.clear()

    def known(self, entry: QueueEntry, *, now: int, extra: int = 0) -> Verdict | None:
        """Return the verdict on a gang that is not to be judged now; None for one that is.

        `extra` is what its judgment costs beside that of its members, in members.
        """
        pause = self._pauses.get(entry.key)
        if pause is not None and now < pause.until and pause.members == _members(entry):
            return pause.verdict
        if self._judged[entry.team] and self._judged[entry.team] + len(entry.pods) + extra > MEMBERS_PER_PASS:
            for each, verdict in self._blocked.pop(entry.team, ()):
                self._pause(each, verdict, until=now + _PAUSE_SECONDS)
            return Never()
        return None

    def note(self, entry: QueueEntry, verdict: Verdict, *, now: int, extra: int = 0) -> None:
        """Note a judgment; `extra` as in `known`."""
        cost = len(entry.pods) + extra
        self._judged[entry.team] += cost
        if isinstance(verdict, Fits):
            return
        self._blocked.setdefault(entry.team, []).append((entry, verdict))
        if cost >= MEMBERS_PER_SECOND:
            self._pause(entry, verdict, until=now + cost // MEMBERS_PER_SECOND)

    def _pause(self, entry: QueueEntry, verdict: Verdict, *, until: int) -> None:
        self._pauses[entry.key] = _Pause(until, _members(entry), verdict)


def _members(entry: QueueEntry) -> tuple[Hashable, ...]:
    return tuple(pod.uid for pod in entry.pods)


# For how long entries that find no room hold back those behind them: a bound, so that none does so forever.
#
# An entry whose GPUs are free on a node that it may use waits for something else there, such as cpu. What is kept idle
# for it then helps no one, so that is bounded closely.


IDLE_SECONDS: Final = 600
"""How long GPUs that are free where an entry may go are kept idle for it, while something else is missing there."""


class _Since(NamedTuple):
    """When an entry began to hold others back, and since when its GPUs are free all the while; None if they are not."""

    begin: int
    idle: int | None


class HoldBacks:
    """When each entry began to hold others back, in Unix seconds, by its key. One pass after the other."""

    def __init__(self) -> None:
        self._since: dict[Hashable, _Since] = {}
        self._seen: dict[Hashable, _Since] = {}

    def begin(self) -> None:
        """Begin a pass: entries that did not wait for room in the one before start again."""
        self._since, self._seen = self._seen, {}

    def is_over(self, key: Hashable, verdict: NoRoom, *, now: int, bound_seconds: Limit) -> bool:
        """Whether an entry that waits for room has held others back for too long."""
        before = self._since.get(key) or self._seen.get(key)
        idle = None
        if verdict.has_devices:
            idle = now if before is None or before.idle is None else before.idle
        found = self._seen[key] = _Since(now if before is None else before.begin, idle)
        if idle is not None and idle + IDLE_SECONDS <= now:
            return True
        return not isinstance(bound_seconds, Unlimited) and found.begin + bound_seconds <= now


# Pods that are charged for room that reclaim takes back: so many of each team at a time, until they have a node.


MOST: Final = 64
"""Pods of one team that wait for such room. Their ledger, which may be one for a whole department, lists each of them
until then, and the evictor has room for few more of a team under way at a time (UNDER_WAY in
webhook.core.reclaim.reclaim)."""

SECONDS: Final = 30
"""After so long a pod no longer counts: some can never be bound, and must not keep the others of their team queued."""


class ReclaimPace:
    """The pods that wait for room that reclaim takes back, by team. Times are in Unix seconds."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._released: dict[TeamName, dict[Uid, int]] = {}

    def note(self, team: TeamName, uid: Uid, *, now: int) -> None:
        """Note that a pod is charged for such room."""
        self._released.setdefault(team, {})[uid] = now

    def are_enough(self, team: TeamName, *, now: int) -> bool:
        """Whether the next pods of a team wait in the queue until one of these has a node, or its time is over."""
        released = self._released.get(team, {})
        if len(released) >= MOST:
            released = {uid: at for uid, at in released.items() if now < at + SECONDS and self._has_no_node(uid)}
            self._released[team] = released
        return len(released) >= MOST

    def _has_no_node(self, uid: Uid) -> bool:
        """Whether a pod is charged and not bound yet; one that went back to the queue is not charged."""
        pod = self._world.pod(uid)
        return pod is not None and pod.node is None
