"""Which pods hold something, and where: found by UID, by namespace and by node. What they hold is counted elsewhere."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from webhook.core.model.decision import Charge
from webhook.core.model.names import Namespace, NodeName, TeamName, Uid
from webhook.core.model.pod import Owner, Resident
from webhook.core.model.tier import TIERS
from webhook.core.peers.pod_counts import PlacedPod, PodCounts
from webhook.core.quota.usage import Entry

_Place = TypeVar("_Place", Namespace, NodeName)


@dataclass(slots=True)
class Held:
    """What one pod holds: its record, its book, the node whose room it takes, and whether it is only reserved."""

    pod: Resident
    team: TeamName
    node: NodeName | None
    is_reserved: bool = False
    since: int = 0  # the resourceVersion at which the pod was first seen

    def entry(self, charge: Charge) -> Entry:
        """Write down a charge as the line of a book."""
        return Entry(
            charge,
            holder=holder_of(self.pod.namespace, self.pod.name, self.pod.owner),
            is_reserved=self.is_reserved,
            is_unlabeled=self.pod.tier_label not in TIERS,
            is_waiting=self.pod.node is None,
            created=self.pod.created,
        )


def holder_of(namespace: Namespace, name: str, owner: Owner | None) -> str:
    """Name who a person would look for: the controller of a pod, or the bare pod."""
    return f"{namespace}/{owner.kind}/{owner.name}" if owner is not None else f"{namespace}/Pod/{name}"


class PodIndex:
    """The pods that hold something, assumed ones included."""

    def __init__(self, pod_counts: PodCounts | None = None) -> None:
        self._siblings = pod_counts or PodCounts()
        self._siblings.sources.append(self._seated)
        self._held: dict[Uid, Held] = {}
        self._undecided: dict[Uid, None] = {}
        self._by_namespace: dict[Namespace, dict[Uid, None]] = {}
        self._by_node: dict[NodeName, dict[Uid, None]] = {}

    def __contains__(self, uid: Uid) -> bool:
        return uid in self._held

    def __getitem__(self, uid: Uid) -> Held:
        return self._held[uid]

    def get(self, uid: Uid) -> Held | None:
        """Find what a pod holds."""
        return self._held.get(uid)

    def all(self) -> Iterable[Held]:
        """List what every pod holds."""
        return self._held.values()

    def without_decision(self) -> Iterator[Uid]:
        """List the GPU pods that carry no decision of the gate."""
        return (uid for uid in self._undecided if self._held[uid].pod.demand.gpus)

    def in_namespace(self, namespace: Namespace) -> Collection[Uid]:
        """List the pods of a namespace."""
        return self._by_namespace.get(namespace, ())

    def on_node(self, node: NodeName) -> Collection[Uid]:
        """List the pods that take room on a node."""
        return self._by_node.get(node, ())

    def has_seen_pods(self, namespace: Namespace) -> bool:
        """Tell whether any pod was seen in a namespace; what is reserved says itself who pays."""
        return not all(self._held[uid].is_reserved for uid in self.in_namespace(namespace))

    def add(self, held: Held) -> None:
        """Take in a pod that holds something from now on."""
        uid = held.pod.uid
        self._held[uid] = held
        if held.pod.team_label is None and (held.pod.demand.gpus or held.pod.claims):  # claims are counted later
            self._undecided[uid] = None
        self._by_namespace.setdefault(held.pod.namespace, {})[uid] = None
        if held.node is not None:
            self._by_node.setdefault(held.node, {})[uid] = None
            if not held.pod.is_terminating:
                self._siblings.change(held.pod, held.node, 1)

    def pop(self, uid: Uid) -> Held | None:
        """Forget a pod; give what it held."""
        held = self._held.pop(uid, None)
        if held is not None:
            self._undecided.pop(uid, None)
            _unlist(self._by_namespace, held.pod.namespace, uid)
            if held.node is not None:
                _unlist(self._by_node, held.node, uid)
                if not held.pod.is_terminating:
                    self._siblings.change(held.pod, held.node, -1)
        return held

    def _seated(self, namespace: Namespace) -> Iterator[PlacedPod]:
        for uid in self.in_namespace(namespace):
            held = self._held[uid]
            if held.node is not None and not held.pod.is_terminating:
                yield PlacedPod(held.pod, held.node)


def _unlist(places: dict[_Place, dict[Uid, None]], place: _Place, uid: Uid) -> None:
    members = places[place]
    del members[uid]
    if not members:
        del places[place]
