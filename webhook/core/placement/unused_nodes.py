"""Nodes that a pod does not use: what kube-scheduler reported, until they change.

When something last changed on each node that a scheduler would try a waiting pod again for.

That is the node itself (labels, taints, what it offers), or a pod that left it: one that came makes no room.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from webhook.core.model.amounts import Namespace, NodeName, Uid
from webhook.core.model.demand import Demand
from webhook.core.model.pod import Obstacle, Owner, Pod, Resident
from webhook.core.placement.fleet import Fleet

_REMEMBERED_SECONDS: Final = 3600
"""How long a change is kept: schedulers have tried the pods again long before."""


class NodeChanges:
    """The times, in seconds of Unix time, by the clock that `tick` is called with.

    Events come without a time. Each gets that of the first tick after it, so that it never seems to be earlier.
    """

    def __init__(self) -> None:
        self._at: dict[NodeName, int] = {}  # the earliest first
        self._new: set[NodeName] = set()

    def note(self, node: NodeName) -> None:
        """Note that a node changed just now, or that a pod left it."""
        self._new.add(node)

    def tick(self, now: int) -> None:
        """Set the time."""
        for node in self._new:
            self._at.pop(node, None)
            self._at[node] = now
        self._new.clear()
        while self._at and self._at[node := next(iter(self._at))] + _REMEMBERED_SECONDS < now:
            del self._at[node]

    def latest(self) -> Iterator[tuple[NodeName, int]]:
        """Yield the nodes that changed and when, the latest first."""
        for node in reversed(self._at):
            yield node, self._at[node]


# Nodes whose promised room a scheduler does not use: it refuses them to pods of a controller for a cause of its own.
#
# The pods that a controller makes are alike, so the next one would not start there either. It is sent elsewhere, or
# is queued without a charge. Pods of other controllers, or that ask for something else, are not affected; those of
# a StatefulSet have volumes of their own and say nothing of each other.


PATIENCE_SECONDS: Final = 30
"""How long a scheduler may report no room for a pod before it says something of the node: it tries a pod again within
10 s, and others may take the room in between."""

CLOSED_SECONDS: Final = 600
"""How long a node stays closed to them after the last such pod was seen, unless it changes before."""

MOST: Final = 1024
"""Kinds of pods that are remembered."""

TIDY_SECONDS: Final = 5


class _Kind(NamedTuple):
    """Pods that are alike."""

    namespace: Namespace
    owner: Owner
    demand: Demand


class UnusedNodes:
    """What the reports on pods without a node say of the nodes that were chosen for them."""

    def __init__(self) -> None:
        self._waiting: dict[Uid, tuple[_Kind, NodeName, int]] = {}  # and since when
        self.closed: dict[_Kind | None, dict[NodeName, int]] = {}  # and until when
        """The nodes that are closed to pods that are alike."""
        self._tidy_at = 0

    def see(self, pod: Resident, *, now: int) -> None:
        """Note a pod: what its scheduler reports where it has no node, or that it is on one."""
        if pod.node is not None:
            if self._waiting:
                self.forget(pod.uid)
            if self.closed and (kind := _kind_of(pod)) in self.closed:
                self.closed[kind].pop(pod.node, None)
            return
        kind, why = _kind_of(pod), pod.unbound
        if kind is None or pod.promised is None or why is None or why.obstacle not in _REFUSED:
            self.forget(pod.uid)
        elif self._waiting.get(pod.uid, ())[:2] != (kind, pod.promised):
            self._waiting[pod.uid] = kind, pod.promised, now

    def forget(self, uid: Uid) -> None:
        """Forget a pod that has a node, or is gone."""
        self._waiting.pop(uid, None)

    def tick(self, now: int, changes: NodeChanges) -> None:
        """Set the time: now and then close nodes that were not used for long, and open those that changed."""
        if now < self._tidy_at or not (self._waiting or self.closed):
            return
        self._tidy_at = now + TIDY_SECONDS
        changed = dict(changes.latest())
        for kind, node, since in self._waiting.values():
            if max(since, changed.get(node, 0)) + PATIENCE_SECONDS <= now:
                self.closed.setdefault(kind, {})[node] = now + CLOSED_SECONDS
        for alike, nodes in list(self.closed.items()):
            left = {
                node: until
                for node, until in nodes.items()
                if now < until and changed.get(node, 0) + CLOSED_SECONDS <= until
            }
            del self.closed[alike]
            if left:
                self.closed[alike] = left
        while len(self.closed) > MOST:
            del self.closed[next(iter(self.closed))]

    def closed_to(self, pod: Pod | Resident, fleet: Fleet) -> int:
        """Return the nodes that look free to a pod, and that pods like it did not use."""
        found = 0
        for node in self.closed.get(_kind_of(pod), ()) if self.closed else ():
            found |= fleet.bit(node)
        return fleet.with_room(pod.demand, found) if found else 0

    def has(self, pod: Pod | Resident) -> bool:
        """Whether any node is closed to a pod."""
        return bool(self.closed) and _kind_of(pod) in self.closed


_REFUSED: Final = frozenset({Obstacle.ROOM, Obstacle.PEERS, Obstacle.OTHER})


def _kind_of(pod: Pod | Resident) -> _Kind | None:
    if pod.owner is None or pod.owner.kind == "StatefulSet":
        return None
    return _Kind(pod.namespace, pod.owner, pod.demand)
