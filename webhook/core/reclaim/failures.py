"""Workloads that count failed pods: how many more evictions each of them survives.

A Job fails, with all of its pods, once more of them failed than its backoffLimit allows; its guaranteed pods end then
as well. Reclaim does not use the last failure of such a budget, unless all of the workload's pods are evicted together.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple, NewType

WorkloadId = NewType("WorkloadId", str)
"""The object that controls pods and counts their failures: its namespace and UID, so none of other namespaces."""


class Loss(Enum):
    """The effect of a pod's eviction on its controller.

    COUNTED: it counts as a failure, if the controller has a budget for them. FATAL: the workload fails with it.
    HARMLESS: it never counts, though other pods of the same workload are FATAL.
    """

    COUNTED = auto()
    FATAL = auto()
    HARMLESS = auto()


class FailureBudget(NamedTuple):
    """How many failed pods a workload survives, and how many it has counted already."""

    limit: int
    failed: int = 0


class Remaining(NamedTuple):
    """What is left of a workload's failure budget, and how many of its pods exist and do not leave."""

    left: int
    pods: int


NOTHING_LEFT: Final = Remaining(0, 0)
_WHOLE: Final = 1000


def share_used(left: int) -> int:
    """Return what one more failure costs a workload: the share of its remaining budget, in thousandths."""
    return _WHOLE // (max(0, left) + 1)


class Departure(NamedTuple):
    """Pods of one workload that leave together: how many there are, and how many of them count as failures."""

    workload: WorkloadId
    pods: int
    counted: int


class FailureLimits:
    """The failure budgets during one search: which evictions they still allow.

    With `may_break` a workload may fail. Then each one that does is returned, since it costs as much as a broken gang.
    """

    __slots__ = ("_may_break", "_remaining")

    def __init__(self, remaining: Mapping[WorkloadId, Remaining], *, may_break: bool) -> None:
        self._remaining = remaining
        self._may_break = may_break

    def draw(self, left: dict[WorkloadId, int], departures: tuple[Departure, ...]) -> int | None:
        """Count leaving pods against the budgets; return how many workloads fail by it, None where that is forbidden.

        A workload all of whose pods leave has no budget to keep: that is allowed, unless some of it left before.
        """
        broken = 0
        for departure in departures:
            workload, pods, counted = departure
            remaining = self._remaining.get(workload, NOTHING_LEFT)
            before = left.get(workload, remaining.left)
            if pods >= remaining.pods:
                if before != remaining.left and not self._may_break:
                    return None
                left[workload] = min(before, 0)
                continue
            after = left[workload] = before - counted
            if counted and after < 0:
                if not self._may_break:
                    return None
                broken += before >= 0
        return broken

    def left(self, workload: WorkloadId) -> int:
        """Return how many failures a workload survives from here."""
        return self._remaining.get(workload, NOTHING_LEFT).left

    def singles(self, workload: WorkloadId | None) -> int | None:
        """Return how many pods of a workload may leave one by one; None: any number."""
        remaining = None if workload is None or self._may_break else self._remaining.get(workload)
        if remaining is None:
            return None
        return max(remaining.left, 1 if remaining.pods <= 1 else 0)

    def pods(self, workload: WorkloadId) -> int:
        """Return how many pods of a workload exist and do not leave."""
        return self._remaining.get(workload, NOTHING_LEFT).pods

    @property
    def may_break(self) -> bool:
        """Whether a workload may fail."""
        return self._may_break
