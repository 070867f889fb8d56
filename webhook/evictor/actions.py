"""What is to be done next: on one node, or for one pod that room under limits is kept for."""

from dataclasses import dataclass

from webhook.core.model.names import NodeName, TeamName, Uid
from webhook.core.reclaim.reservation import Beneficiary, EvictionTarget, NodeHold


@dataclass(frozen=True, slots=True)
class NodeActions:
    """The pending actions on one node.

    `node_hold` is None where nothing is held; `is_news`: the node does not state that yet. `first` are those
    of `to_tolerate` without any toleration yet.
    """

    node: NodeName
    node_hold: NodeHold | None
    is_news: bool
    to_tolerate: tuple[Beneficiary, ...] = ()
    first: frozenset[Uid] = frozenset()
    notices: tuple[tuple[EvictionTarget, TeamName], ...] = ()
    evictions: tuple[EvictionTarget, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.is_news or self.to_tolerate or self.notices or self.evictions)


@dataclass(frozen=True, slots=True)
class LimitActions:
    """The pending actions for one pod in line that room under limits is kept for.

    `since` is when that began. Nothing else is done before the pod states it (`is_marked`). `team` is that of the pod.
    """

    place: NodeName
    waiting: Beneficiary
    team: TeamName
    since: int
    is_marked: bool
    notices: tuple[EvictionTarget, ...] = ()
    evictions: tuple[EvictionTarget, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return self.is_marked and not (self.notices or self.evictions)
