"""Pods by UID, node, namespace; promises.

The pods of the world, by UID, by namespace and by node. Their charges and requests are counted elsewhere.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, NamedTuple

from webhook.core.model.amounts import Namespace, NodeName, TeamName, Uid, drop_member
from webhook.core.model.constraints import TIERS, Tier
from webhook.core.model.decision import Charge
from webhook.core.model.pod import Owner, Resident, Stage
from webhook.core.model.policy import ReclaimRules
from webhook.core.placement.pod_counts import PlacedPod, PodCounts
from webhook.core.quota.usage import UsageEntry


class PodPlace(NamedTuple):
    """The stage of a pod, and the node whose room it takes; None for none."""

    stage: Stage
    node: NodeName | None


@dataclass(slots=True)
class PodRecord:
    """A pod of the world: the team charged, the node whose room it takes, its stage, whether it is only reserved."""

    pod: Resident
    team: TeamName
    node: NodeName | None
    is_reserved: bool = False
    since: int = 0  # the resourceVersion at which the pod was first seen
    stage: Stage = Stage.ADMITTED

    def entry(self, charge: Charge) -> UsageEntry:
        """Return the usage entry of a charge."""
        return UsageEntry(
            charge,
            holder=holder_of(self.pod.namespace, self.pod.name, self.pod.owner),
            is_reserved=self.is_reserved,
            is_unlabeled=self.pod.tier_label not in TIERS,
            is_waiting=self.pod.node is None and not self.pod.is_terminating,
            is_leaving=self.pod.is_terminating,
            created=self.pod.created,
        )


def holder_of(namespace: Namespace, name: str, owner: Owner | None) -> str:
    """Return the object that a person would look for: the controller of a pod, or the bare pod."""
    return f"{namespace}/{owner.kind}/{owner.name}" if owner is not None else f"{namespace}/Pod/{name}"


class PodIndex:
    """The pods of the world, assumed ones included."""

    def __init__(self, pod_counts: PodCounts | None = None) -> None:
        self._siblings = pod_counts or PodCounts()
        self._siblings.sources.append(self._placed)
        self._records: dict[Uid, PodRecord] = {}
        self._without_decision: dict[Uid, None] = {}
        self._by_namespace: dict[Namespace, dict[Uid, None]] = {}
        self._by_node: dict[NodeName, dict[Uid, None]] = {}

    def __contains__(self, uid: Uid) -> bool:
        return uid in self._records

    def __getitem__(self, uid: Uid) -> PodRecord:
        return self._records[uid]

    def get(self, uid: Uid) -> PodRecord | None:
        """Return a pod's record; None where it is unknown."""
        return self._records.get(uid)

    def all(self) -> Iterable[PodRecord]:
        """Return all records."""
        return self._records.values()

    def without_decision(self) -> Iterator[Uid]:
        """Return the GPU pods without a decision of the webhook."""
        return (uid for uid in self._without_decision if self._records[uid].pod.demand.gpus)

    def sharing_without_decision(self) -> Iterator[Uid]:
        """Return the others without one that use devices: another pod is charged for these."""
        demands = ((uid, self._records[uid].pod.demand) for uid in self._without_decision)
        return (uid for uid, demand in demands if demand.devices and not demand.gpus)

    def in_namespace(self, namespace: Namespace) -> Collection[Uid]:
        """Return the pods of a namespace."""
        return self._by_namespace.get(namespace, ())

    def on_node(self, node: NodeName) -> Collection[Uid]:
        """Return the pods that take room on a node."""
        return self._by_node.get(node, ())

    def has_seen_pods(self, namespace: Namespace) -> bool:
        """Whether any pod was seen in a namespace; a reservation itself says which team is charged."""
        return not all(self._records[uid].is_reserved for uid in self.in_namespace(namespace))

    def add(self, record: PodRecord) -> None:
        """Add a pod."""
        uid = record.pod.uid
        self._records[uid] = record
        if record.pod.team_label is None and (record.pod.demand.gpus or record.pod.claims):  # claims are resolved later
            self._without_decision[uid] = None
        self._by_namespace.setdefault(record.pod.namespace, {})[uid] = None
        if record.node is not None:
            self._by_node.setdefault(record.node, {})[uid] = None
            if not record.pod.is_terminating:
                self._siblings.change(record.pod, record.node, 1)

    def pop(self, uid: Uid) -> PodRecord | None:
        """Remove a pod; return its record."""
        record = self._records.pop(uid, None)
        if record is not None:
            self._without_decision.pop(uid, None)
            drop_member(self._by_namespace, record.pod.namespace, uid)
            if record.node is not None:
                drop_member(self._by_node, record.node, uid)
                if not record.pod.is_terminating:
                    self._siblings.change(record.pod, record.node, -1)
        return record

    def _placed(self, namespace: Namespace) -> Iterator[PlacedPod]:
        for uid in self.in_namespace(namespace):
            record = self._records[uid]
            if record.node is not None and not record.pod.is_terminating:
                yield PlacedPod(record.pod, record.node)


# Promises of room: the node that was chosen for a pod without a node, for as long as the pod may still go there.
#
# A promise keeps the room from pods that are placed after it. Each ends: when the pod has a node, when the pod goes, or
# after a time by the pod's stage. Nothing depends on a promise but where others are placed: kube-scheduler and reclaim
# count pods on nodes only. Times are those at which this world saw a pod, in seconds of Unix time: conditions of pods
# keep the time of an earlier state.


UNREPORTED_SECONDS: Final = 300
"""Of a pod that no scheduler has reported on: kube-scheduler is behind, or the pod's own scheduler does not run."""

BORROWING_SECONDS: Final = 60
"""Of a borrowing pod for which no node has room: it must not keep free GPUs from pods inside their shares."""

RECLAIM_SECONDS: Final = 330
"""Of a pod inside its share for which no node has room, beyond notice and the longest grace period: the evictor holds
room no longer."""

STALLED_SECONDS: Final = 10
"""Of a pod that something else than room keeps off every node: claims and volumes are created moments after it."""


@dataclass(slots=True)
class _Promise:
    """The node, when the pod was first seen without one, its stage, and since when it is at that.

    `end` is when the promise is over as things are.
    """

    node: NodeName
    first: int
    stage: Stage
    since: int
    end: int = -1
    is_over: bool = False


class Promises:
    """The promises of pods without a node, by UID. A promise that is over does not come back."""

    def __init__(self) -> None:
        self._promises: dict[Uid, _Promise] = {}
        self._due: list[tuple[int, Uid]] = []

    def __len__(self) -> int:
        return len(self._promises)

    def node_of(
        self, pod: Resident, node: NodeName | None, stage: Stage, *, now: int, rules: ReclaimRules
    ) -> NodeName | None:
        """Return the node whose room a pod without a node takes now, of the one that is promised; None for none."""
        known = self._promises.get(pod.uid)
        if known is None:
            if node is None:
                return None
            known = self._promises[pod.uid] = _Promise(node, now, stage, now)
        elif known.stage is not stage:
            known.stage, known.since = stage, now
        if not known.is_over:
            end = _end(known, pod, rules)
            known.is_over = end <= now
            if end != known.end and not known.is_over:
                known.end = end
                heappush(self._due, (end, pod.uid))
        return None if known.is_over else known.node

    def end(self, uid: Uid) -> None:
        """Forget a pod that has a node, or is gone; one without a promise changes nothing."""
        if self._promises and self._promises.pop(uid, None) is not None and not self._promises:
            self._due.clear()

    def all(self) -> list[Uid]:
        """Return the pods with a promise, over or not."""
        return list(self._promises)

    def next_end(self) -> int | None:
        """Return when a promise may be over next; None where there is none."""
        return self._due[0][0] if self._due else None

    def due(self, now: int) -> list[Uid]:
        """Return the pods whose promises may be over by now; ask `node_of` about each again."""
        found: dict[Uid, None] = {}
        while self._due and self._due[0][0] <= now:
            _, uid = heappop(self._due)
            known = self._promises.get(uid)
            if known is not None and not known.is_over:
                found[uid] = None
        return list(found)


def _end(promise: _Promise, pod: Resident, rules: ReclaimRules) -> int:
    """Return when a promise is over; a pod whose stage changes again and again does not prolong it."""
    longest = promise.first + UNREPORTED_SECONDS
    match promise.stage:
        case Stage.STALLED:
            # where the time is not known, as in a world file, the promise is over
            return min(longest, promise.since + STALLED_SECONDS) if promise.since else 0
        case Stage.WAITS if pod.tier is Tier.GUARANTEED:
            seconds = rules.notice_seconds + rules.longest_grace_seconds + RECLAIM_SECONDS
            return min(longest, promise.since) + seconds
        case Stage.WAITS:
            return min(longest, promise.since + BORROWING_SECONDS)
        case _:
            return longest
