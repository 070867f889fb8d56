"""Pods that run, pods that are refused.

Pods that were refused for now, and that their controllers create again once GPUs came back.

Equal pods are tried in the order in which they came, and no further once one of them is refused again.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from webhook.addons.simulation.cluster import PodOf, SimulatedCluster
from webhook.addons.simulation.task import TaskRecord, TaskState
from webhook.core.model.amounts import GangId, NodeName, Uid
from webhook.core.model.constraints import Tier
from webhook.core.reclaim.costs import loses_no_work

MAX_KINDS: Final = 256
"""Kinds of pods that are tried after one change, those that waited longest first."""


class RefusedPods:
    """The refused pods by kind."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, deque[PodOf]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[PodOf]:
        return chain.from_iterable(self._kinds.values())

    def add(self, pod_of: PodOf) -> None:
        """Add a pod that was refused."""
        pod = pod_of.pod
        kind = (pod.namespace, pod.demand, pod.constraints, pod.tier_label, pod.gang, pod_of.record.task.user)
        self._kinds.setdefault(kind, deque()).append(pod_of)
        self._size += 1

    def retry(self, decide: Callable[[PodOf], bool]) -> bool:
        """Create pods again, and return whether any was not refused; `decide` returns that of one pod."""
        before = self._size
        oldest = sorted(self._kinds.items(), key=lambda kind: _age(kind[1][0]))
        for kind, pods in oldest[:MAX_KINDS]:
            while pods and decide(pods[0]):
                pods.popleft()
                self._size -= 1
            if not pods:
                del self._kinds[kind]
        return self._size < before


def _age(pod_of: PodOf) -> tuple[int, str]:
    return pod_of.record.task.created, pod_of.uid


# The runs of pods: when they end, what an eviction loses, and gangs, whose members run together.


@dataclass(slots=True)
class _Gang:
    """The members of a gang that are on nodes."""

    size: int
    started: dict[Uid, PodOf] = field(default_factory=dict)


class Runs:
    """Starts and stops pods. `end_at` and `look_at` are called with times; an end counts only if it still `is_due`."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        *,
        checkpoint_seconds: int,
        end_at: Callable[[Uid, int], None],
        look_at: Callable[[int], None],
    ) -> None:
        self._cluster = cluster
        self._checkpoint_seconds = checkpoint_seconds
        self._end_at = end_at
        self._look_at = look_at
        self._ends: dict[Uid, int] = {}
        self._gangs: dict[GangId, _Gang] = {}

    def start(self, pod_of: PodOf, node: NodeName) -> None:
        """Start a pod on a node; the time of a gang begins with its last member."""
        self._cluster.bind(pod_of, node)
        record, now = pod_of.record, self._cluster.world.now
        tier = None if pod_of.resident is None else pod_of.resident.tier
        record.state = TaskState.RUNNING
        if record.started is None:
            record.started, record.node, record.tier = now, node, tier
        minimum = self._cluster.world.policy.reclaim.minimum_runtime_seconds
        if minimum and tier is Tier.PREEMPTIBLE:
            self._look_at(now + minimum)
        gang = pod_of.pod.gang
        if gang is None or not gang.size:
            self._schedule(pod_of)
            return
        known = self._gangs.setdefault(gang.id, _Gang(gang.size))
        known.started[pod_of.uid] = pod_of
        if len(known.started) >= known.size:
            for member in known.started.values():
                self._schedule(member)

    def end_later(self, uid: Uid, *, at: int) -> None:
        """Let a pod end at a time."""
        self._ends[uid] = at
        self._end_at(uid, at)

    def is_due(self, uid: Uid) -> bool:
        """Whether a pod ends now: it was neither evicted nor given more time since its end was planned."""
        return self._ends.get(uid) == self._cluster.world.now

    def end(self, uid: Uid) -> None:
        """End a pod that has done its work."""
        pod_of = self._cluster.pods.get(uid)
        if pod_of is not None:
            pod_of.record.state, pod_of.record.ended = TaskState.ENDED, self._cluster.world.now
        self._stop(uid, pod_of)

    def evict(self, uid: Uid) -> TaskRecord | None:
        """Evict a pod; return the record of its task, None for a pod that was there from the beginning."""
        pod_of, world = self._cluster.pods.get(uid), self._cluster.world
        resident = None if pod_of is None else pod_of.resident
        is_spared = resident is not None and loses_no_work(resident, world.minimums)
        self._stop(uid, pod_of)
        if pod_of is None:
            return None
        record = pod_of.record
        ran = 0 if pod_of.since is None else world.now - pod_of.since
        every = self._checkpoint_seconds
        lost = 0 if is_spared else ran % every if every else ran
        record.evictions += 1
        record.lost_seconds += lost
        record.saved_seconds += ran - lost
        record.state = TaskState.EVICTED
        return record

    def _schedule(self, pod_of: PodOf) -> None:
        record = pod_of.record
        if record.task.seconds is None:
            return
        left = record.task.seconds - record.saved_seconds
        self.end_later(pod_of.uid, at=self._cluster.world.now + max(0, left))

    def _stop(self, uid: Uid, pod_of: PodOf | None) -> None:
        self._ends.pop(uid, None)
        gang = None if pod_of is None else pod_of.pod.gang
        if gang is not None and (known := self._gangs.get(gang.id)) is not None:
            known.started.pop(uid, None)
            if not known.started:
                del self._gangs[gang.id]
        self._cluster.remove(uid)
