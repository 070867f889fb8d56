"""Nodes that look free to a waiting pod, while its scheduler reports no room for it: what it knows there is not seen.

No model knows all that a scheduler does: limits of attached volumes, rules of other plugins, expressions of claims. So
the report itself is evidence. A node is closed to the pod that was reported since the node looked free, until something
on it changes; then the scheduler is given the time that it takes to try the pod again. A report on one pod closes no
node to another pod: each has its own.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from webhook.core.model.amounts import NodeName, Uid
from webhook.core.model.constraints import Operator, Requirement
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.unused_nodes import NodeChanges
from webhook.core.reclaim.reclaim_pods import ReclaimPod

SETTLED_SECONDS: Final = 5
"""A report that is so much later than the last change of a node was made with it: a watch takes far less."""

RETRY_SECONDS: Final = 15
"""After a change kube-scheduler tries a waiting pod again within 10 s, its longest pause for one pod."""

LOOKS_FREE_SECONDS: Final = 60
"""A pod for which some node looked free for so long was tried in the meantime, though nodes change all the time."""

NAMED: Final = 3
"""Nodes that a message names."""

_ZONE: Final = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedNodes:
    """What is known of the reports of schedulers.

    `is_behind` says whether the scheduler of a pod may not have tried it since a time; without it the past is not
    known, and a report counts once it is older than the longest pause. `looked_free` is since when some node looks free
    to a pod. `tried` are the nodes where room was made for a pod without effect.
    """

    now: int = 0
    changes: NodeChanges = field(default_factory=NodeChanges)
    is_behind: Callable[[ReclaimPod, float], bool] | None = None
    looked_free: Mapping[Uid, int] = field(default_factory=dict)
    tried: Mapping[Uid, Set[NodeName]] = field(default_factory=dict)

    def among(self, room: int, waiting: ReclaimPod, fleet: Fleet) -> int:
        """Return those of the nodes with room for a pod that are closed to it, and others that the same closes.

        A queued pod was not tried, and its report has no words. Where a volume's zone is named as the cause, all nodes
        of that zone are closed.
        """
        report = waiting.report
        if report is None or not report.why or not room:
            return 0
        if self.is_behind is None and self._is_behind(waiting, report.since):
            return 0
        is_long = self.looked_free.get(waiting.uid, self.now) + LOOKS_FREE_SECONDS <= self.now
        found = room
        for node, at in () if is_long else self.changes.latest():
            if at + SETTLED_SECONDS <= report.since or not self._is_behind(waiting, max(at, report.since)):
                break
            found &= ~fleet.bit(node)
        return found | self._zones(found, fleet) if found and report.is_for_zone else found

    def tried_on(self, waiting: ReclaimPod, fleet: Fleet) -> int:
        """Return the nodes where room was made for a pod without effect."""
        found = 0
        for node in self.tried.get(waiting.uid, ()):
            found |= fleet.bit(node)
        return found

    def _is_behind(self, waiting: ReclaimPod, since: int) -> bool:
        return self.now < since + RETRY_SECONDS if self.is_behind is None else self.is_behind(waiting, since)

    def _zones(self, slots: int, fleet: Fleet) -> int:
        nodes = (fleet.get(name) for name in fleet.names_of(slots))
        zones = {node.labels.get(_ZONE, "") for node in nodes if node is not None} - {""}
        return fleet.meeting((Requirement(_ZONE, Operator.IN, tuple(sorted(zones))),)) if zones else 0


class ClosedNodes:
    """The nodes that are closed to single pods, in one round of planning."""

    def __init__(self, refused: RefusedNodes, fleet: Fleet) -> None:
        self._refused = refused
        self._fleet = fleet
        self._closed: dict[Uid, int] = {}
        self._free: dict[Uid, int] = {}  # of those, the ones that look free

    def to(self, waiting: ReclaimPod) -> int:
        """Return the nodes that are closed to a pod; at first those where room was made for it without effect."""
        found = self._closed.get(waiting.uid)
        if found is None:
            found = self._closed[waiting.uid] = self._refused.tried_on(waiting, self._fleet)
        return found

    def close(self, waiting: ReclaimPod, free: int) -> bool:
        """Close those of the free nodes that the scheduler of a pod finds no room on; False where there are none."""
        found = self._refused.among(free, waiting, self._fleet)
        self._closed[waiting.uid] = self.to(waiting) | found
        if found:
            self._free[waiting.uid] = self._free.get(waiting.uid, 0) | (found & free)
        return bool(found)

    def reopen(self, waiting: ReclaimPod) -> bool:
        """Open the nodes where room was made without effect, since there is none elsewhere; False for none."""
        closed, free = self.to(waiting), self._free.get(waiting.uid, 0)
        again = self._refused.tried_on(waiting, self._fleet) & closed & ~free
        self._closed[waiting.uid] = closed & ~again
        return bool(again)

    def look_free(self, waiting: ReclaimPod) -> bool:
        """Whether some of the nodes look free to a pod."""
        return waiting.uid in self._free

    def names(self) -> dict[Uid, tuple[NodeName, ...]]:
        """Return the nodes that look free to each pod."""
        return {uid: tuple(self._fleet.names_of(slots)) for uid, slots in self._free.items()}


def unseen_text(nodes: Sequence[NodeName], waiting: ReclaimPod) -> str:
    """Return what its scheduler says of a pod where nodes look free to it."""
    named, more = ", ".join(nodes[:NAMED]), len(nodes) - NAMED
    where = f"{named} and {more} more" if more > 0 else named
    why = "" if waiting.report is None else waiting.report.why
    return f"kube-scheduler finds no room on {where}: {why}; Fairgate cannot see why"
