"""How many replicas each workload must keep, and how many it has: by the annotation of its pods, or by what scales it.

A minimum is a tenant's own word. It counts only while the workload has more pods than that, queued ones included:
what has nothing to give up gets nothing for saying so. The minimum of an autoscaler counts where pods state none.

Plans read it as it is. Tiers follow it only once it has stayed the same for a while: who changes it all the time
changes no tier.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from webhook.core.model.amounts import Uid, WorkloadName
from webhook.core.model.pod import Replica
from webhook.core.model.reasons import Statement

WHOLE: Final = 1 << 30
"""The minimum of a gang that goes whole, however many pods it has."""

MOST_SCALERS: Final = 4
"""Objects that scale one workload of which the minimum is read: each is a mistake but the first."""

TIER_SECONDS: Final = 60
"""For how long another minimum must stay the same before it counts for tiers; the first one of a workload counts at
once."""


class Replicas(NamedTuple):
    """A workload's minimum, and its pods: all that exist or wait in the queue, and those that are ready and stay.

    `is_scaled`: the minimum is that of what scales it. `is_gang`: they are of no use below it, and go together then.
    `for_tiers` is the minimum that tiers follow until this one has stayed the same for TIER_SECONDS, None for the same.
    """

    minimum: int
    pods: int
    ready: int
    is_scaled: bool = False
    is_gang: bool = False
    for_tiers: int | None = None

    @property
    def has_surplus(self) -> bool:
        """Whether it has more pods than its minimum, so that the minimum counts."""
        return self.pods > self.minimum

    @property
    def is_below(self) -> bool:
        """Whether it has fewer pods ready than its minimum."""
        return self.ready < self.minimum

    @property
    def spare(self) -> int:
        """How many ready pods it may lose."""
        return max(0, self.ready - self.minimum)

    @property
    def may_go(self) -> int:
        """How many of its pods go before other pods: none where the minimum does not count."""
        return self.spare if self.has_surplus else 0

    @property
    def statement(self) -> Statement:
        """What its minimum means for those of its pods that borrow."""
        if self.minimum == WHOLE:
            words = "its gang is evicted as a whole, by its disruption mode"
        elif self.is_gang and not self.may_go:
            words = "its gang has no more pods than its minimum of {minimum}: it is evicted as a whole"
        elif not self.has_surplus:
            words = "its workload has no more pods than its minimum of {minimum}, which therefore has no effect"
        elif self.spare:
            words = "replicas ready: {ready}, minimum: {minimum}; {spare} may be evicted first"
        else:
            words = "its workload has no more than its minimum of {minimum} ready: it is evicted after other pods"
        facts = {"minimum": self.minimum, "ready": self.ready, "spare": self.spare}
        if self.for_tiers is not None:
            words += "; its pods keep the tiers of its minimum of {before} until this one has stayed for {seconds} s"
            facts |= {"before": self.for_tiers, "seconds": TIER_SECONDS}
        return Statement(words, facts)


class _Member(NamedTuple):
    minimum: int | None
    is_ready: bool


class _Other(NamedTuple):
    minimum: int
    since: int


@dataclass(slots=True)
class _Workload:
    """The pods of one workload, and the minimums of what scales it, by their handles.

    `for_tiers` is the minimum that counts for tiers, 0 for none, and None before any did; `other` is what may count
    after it.
    """

    members: dict[Uid, _Member] = field(default_factory=dict)
    scalers: dict[str, int] = field(default_factory=dict)
    is_gang: bool = False
    stated: int = 0  # pods that state a minimum
    replicas: Replicas | None = None
    for_tiers: int | None = None
    other: "_Other | None" = None


_NOTHING: Final = _Workload()


def _ignore(_workload: WorkloadName) -> None:
    return


class Minimums:
    """The replicas of every workload, kept by events.

    `on_scaled` is called with each workload that something begins or ceases to scale. `now` is the time of the world,
    in seconds of Unix time.
    """

    def __init__(self) -> None:
        self.now = 0
        self.on_scaled: Callable[[WorkloadName], None] = _ignore
        self._workloads: dict[WorkloadName, _Workload] = {}
        self._of_pod: dict[Uid, WorkloadName] = {}
        self._of_scaler: dict[str, WorkloadName] = {}
        self._with_minimum: dict[WorkloadName, None] = {}

    def workloads(self) -> Collection[WorkloadName]:
        """Return the workloads that have pods and a minimum."""
        return self._with_minimum.keys()

    def of(self, workload: WorkloadName) -> Replicas | None:
        """Return the replicas of a workload; None where none of its pods exists, or it has no minimum."""
        if workload not in self._with_minimum:
            return None
        there = self._workloads[workload]
        if there.replicas is None:
            there.replicas = _replicas(there)
        return there.replicas._replace(for_tiers=there.for_tiers) if there.other is not None else there.replicas

    def for_tiers(self, workload: WorkloadName) -> int:
        """Return the minimum of a workload that counts for tiers now, 0 where none does."""
        replicas = self.of(workload)
        if replicas is None:
            return 0
        there = self._workloads[workload]
        minimum = replicas.minimum if replicas.has_surplus else 0
        if there.for_tiers is None and minimum:
            there.for_tiers = minimum
        elif minimum == there.for_tiers or there.for_tiers is None:
            there.other = None
        elif there.other is None or there.other.minimum != minimum:
            there.other = _Other(minimum, self.now)
        elif there.other.since + TIER_SECONDS <= self.now:
            there.for_tiers, there.other = minimum, None
        return there.for_tiers or 0

    def is_scaled(self, workload: WorkloadName) -> bool:
        """Whether something scales a workload by a minimum of its own."""
        return bool(self._workloads.get(workload, _NOTHING).scalers)

    def pods(self, workload: WorkloadName) -> Collection[Uid]:
        """Return the pods of a workload."""
        return self._workloads.get(workload, _NOTHING).members.keys()

    def workload_of(self, uid: Uid) -> WorkloadName | None:
        """Return the workload of a pod; None for one that is of none."""
        return self._of_pod.get(uid)

    def set_pod(self, uid: Uid, replica: Replica, *, is_ready: bool) -> None:
        """Add a pod that exists or waits in the queue, or what changed of it; `is_ready`: it is ready, and stays."""
        workload, minimum = replica.workload, replica.minimum
        if self._of_pod.get(uid, workload) != workload:
            self.remove_pod(uid)
        if not workload:
            return
        there = self._workloads.setdefault(workload, _Workload())
        before, member = there.members.get(uid), _Member(minimum, is_ready)
        if before != member:
            there.stated += (minimum is not None) - (before is not None and before.minimum is not None)
            there.members[uid] = member
            self._of_pod[uid] = workload
            self._changed(workload, there)

    def remove_pod(self, uid: Uid) -> None:
        """Remove a pod that ended; one that is of no workload changes nothing."""
        if (workload := self._of_pod.pop(uid, None)) is not None:
            there = self._workloads[workload]
            there.stated -= there.members.pop(uid).minimum is not None
            self._changed(workload, there)

    def set_scaler(self, handle: str, workload: WorkloadName, minimum: int, is_gang: bool = False) -> bool:
        """Set what an object says that scales a workload, earlier maybe another one; return whether that is news.

        `is_gang`: the object says that of a gang.
        """
        if self._of_scaler.get(handle, workload) != workload:
            self.remove_scaler(handle)
        there = self._workloads.setdefault(workload, _Workload())
        before = len(there.scalers)
        if there.scalers.get(handle) == minimum or (handle not in there.scalers and before >= MOST_SCALERS):
            return False
        there.scalers[handle], self._of_scaler[handle], there.is_gang = minimum, workload, is_gang
        self._changed(workload, there)
        self.for_tiers(workload)  # so that each change begins its time again
        if not before:
            self.on_scaled(workload)
        return True

    def copy_scalers(self, of: "Minimums") -> None:
        """Set what scales workloads elsewhere here, too."""
        for handle, workload in of._of_scaler.items():
            there = of._workloads[workload]
            self.set_scaler(handle, workload, there.scalers[handle], there.is_gang)

    def remove_scaler(self, handle: str) -> bool:
        """Remove such an object; return whether it was there."""
        if (workload := self._of_scaler.pop(handle, None)) is None:
            return False
        there = self._workloads[workload]
        del there.scalers[handle]
        self._changed(workload, there)
        if not there.scalers:
            self.on_scaled(workload)
        return True

    def _changed(self, workload: WorkloadName, there: _Workload) -> None:
        there.replicas = None
        if there.members and (there.stated or there.scalers):
            self._with_minimum[workload] = None
        else:
            self._with_minimum.pop(workload, None)
        if not (there.members or there.scalers):
            del self._workloads[workload]


def _replicas(there: _Workload) -> Replicas:
    """Return what the pods of a workload, and what scales it, come to: the least of what they say.

    Of two revisions one may have had another minimum.
    """
    members = there.members.values()
    stated = [member.minimum for member in members if member.minimum is not None]
    least = min(stated or there.scalers.values())
    ready = sum(member.is_ready for member in members)
    return Replicas(least, len(members), ready, is_scaled=not stated, is_gang=there.is_gang)
