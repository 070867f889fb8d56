"""The pods of the world, by UID, by namespace and by node. Their charges and requests are counted elsewhere."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from webhook.core.life.pod_life import Stage
from webhook.core.model.counts import drop_member
from webhook.core.model.decision import Charge
from webhook.core.model.names import Namespace, NodeName, TeamName, Uid
from webhook.core.model.pod import Owner, Resident
from webhook.core.model.tier import TIERS
from webhook.core.peers.pod_counts import PlacedPod, PodCounts
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
