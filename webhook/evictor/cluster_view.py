"""What an evictor sees.

The evictor's view of the cluster: the world, the index of its GPU pods, and the holds that nodes state.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from webhook import __version__
from webhook.cluster.api.client import ApiConnection
from webhook.cluster.watch.feed import AutoscalerWatch, Feed, FoundAutoscalers
from webhook.cluster.writes.events import EventWriter, OwnerEvent
from webhook.cluster.writes.lease import Lease
from webhook.core.model.amounts import NodeName, Uid
from webhook.core.model.policy import Policy
from webhook.core.model.policy_addons import NotifyKind
from webhook.core.quota.charges import InFlightCharge
from webhook.core.reclaim.holds import Beneficiary, EvictionTarget, NodeHold
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.core.reclaim.victims import Victim
from webhook.core.starting.line_reclaim import as_charged
from webhook.core.tiers.shadow_labels import ShadowLabels, unlabeled_borrowers
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World
from webhook.kube.ledger.reports import ReplicaReport, shortened
from webhook.kube.nodes.holds import is_marked, read_node_hold
from webhook.kube.objects import objects
from webhook.kube.objects.events import Event, EventReason, ObjectRef
from webhook.kube.watched.world_kinds import reclaim_kinds
from webhook.observe.evictor import ReclaimMetrics
from webhook.observe.logs import Logs
from webhook.observe.processes import Component
from webhook.policy.watch import PolicyHolder


class ClusterView:
    """The view, updated by watch events. `changed` is set with each; `marked` are the nodes that carry a hold.

    `clock` returns Unix seconds.
    """

    def __init__(self, policy: Policy, *, clock: Callable[[], float] = time.time) -> None:
        self.world = World(policy, is_live=True)
        self.reclaim_index = ReclaimIndex(policy.reclaim, self.world.minimums)
        self.marked: dict[NodeName, NodeHold | None] = {}
        self.changed = asyncio.Event()
        self._shadow_labels = ShadowLabels(self.world)
        self._claiming: dict[Uid, ReclaimPod] = {}  # those that have no devices yet are not in the index
        self._recounted: set[Uid] = (
            set()
        )  # of those, pods that the world counts otherwise now: another user came or went
        self.world.notify_of_pods(self._note_recounted)
        self._clock = clock
        self._in_line: dict[Uid, WaitingPod] = {}
        self._charged_at: dict[Uid, int] = {}  # of those, the charged ones
        self._charges: dict[str, Mapping[Uid, InFlightCharge]] = {}  # of queued pods, by the ledger that lists them

    def feed(self, connection: ApiConnection, *, note: Callable[[FoundAutoscalers], None] = lambda _: None) -> Feed:
        """Return the feed that keeps it up to date; `note` is called with what changed of the autoscalers."""
        kinds = reclaim_kinds(
            self.world,
            self.reclaim_index,
            pods=self,
            ledger=self._ledger_changed,
            node=self._node_changed,
            device=self._device_changed,
            other=lambda *_: self.changed.set(),
        )
        return Feed(connection, kinds, autoscalers=AutoscalerWatch(connection, self.world, note=note))

    def set_policy(self, policy: Policy) -> None:
        """Replace the policy."""
        self.reclaim_index.set_rules(policy.reclaim)
        self._shadow_labels.set_policy(policy)
        for pod in self.world.pods():
            gpu_pod = self.reclaim_index.get(pod.uid)
            if gpu_pod is not None and gpu_pod.pod.tier_label != pod.tier_label:
                self._index(gpu_pod)
        for waiting in self._in_line.values():  # pools may be others now
            self._set_in_line(waiting)
        self.changed.set()

    def find_borrowers(self) -> None:
        """Find the pods that borrow and have no label yet: they are victims like others."""
        self.reclaim_index.set_borrowing(unlabeled_borrowers(self.world))

    def update_tiers(self) -> None:
        """Give pods without a decision the tiers that they have by now, or would have while policy is not enforced."""
        self.find_borrowers()
        for uid in self._shadow_labels.update_tiers(team.name for team in self.world.policy.teams):
            gpu_pod = self.reclaim_index.get(uid)
            if gpu_pod is not None:
                self._index(gpu_pod)

    def set_pod(self, gpu_pod: ReclaimPod | WaitingPod) -> None:
        """Add a pod, or what changed of it."""
        if isinstance(gpu_pod, WaitingPod):
            self._in_line[gpu_pod.uid] = gpu_pod
            self._set_in_line(gpu_pod)
            return
        self._leave_line(gpu_pod.uid)
        self._shadow_labels.set_pod(gpu_pod.pod)
        self._index(gpu_pod)
        self._index_recounted()

    def remove_pod(self, uid: Uid) -> None:
        """Remove a pod that ended."""
        self._leave_line(uid)
        self._shadow_labels.remove_pod(uid)
        self.reclaim_index.remove(uid)
        self._claiming.pop(uid, None)
        self._index_recounted()
        self.changed.set()

    def _ledger_changed(self, ledger: str, charges: Mapping[Uid, InFlightCharge]) -> None:
        """Note which queued pods are charged: a node is to keep room for these, as for pods without a gate."""
        before = self._charges.pop(ledger, {})
        if charges:
            self._charges[ledger] = charges
        for uid in before.keys() | charges.keys():
            if before.get(uid) != charges.get(uid) and (waiting := self._in_line.get(uid)) is not None:
                self._set_in_line(waiting)

    def _leave_line(self, uid: Uid) -> None:
        self._in_line.pop(uid, None)
        self._charged_at.pop(uid, None)

    def _set_in_line(self, waiting: WaitingPod) -> None:
        """Add or update a queued pod: one that is charged waits like a pod without a gate, any other for its turn."""
        uid = waiting.uid
        flight = next((charges[uid] for charges in self._charges.values() if uid in charges), None)
        since = self._charged_at.get(uid) or int(self._clock())
        charged = None if flight is None else as_charged(waiting, flight, self.world, since=since)
        if charged is not None:
            self._charged_at[uid] = since
            self._shadow_labels.set_pod(charged.pod)
            self._index(charged)
            return
        self._charged_at.pop(uid, None)
        if self.reclaim_index.get(uid) is not None:
            self._shadow_labels.remove_pod(uid)
            self.reclaim_index.remove(uid)
        self.world.set_waiting(waiting)
        self.changed.set()

    def _index(self, gpu_pod: ReclaimPod) -> None:
        """Index a pod with the demand that the world counts: only the world resolves its device claims."""
        uid, counted = gpu_pod.uid, self.world.pod(gpu_pod.uid) or gpu_pod.pod
        if counted.claims:
            self._claiming[uid] = gpu_pod
        if counted.demand.gpus or counted.demand.devices:  # one that shares a claim may be charged nothing
            self.reclaim_index.set(replace(gpu_pod, pod=counted))
            self.changed.set()
        elif self.reclaim_index.get(uid) is not None:
            self.reclaim_index.remove(uid)

    def _device_changed(self, _found: Any, _handle: str) -> None:  # noqa: ANN401 - of any kind of device
        """Count the pods again that claim devices: a claim, a class or a device changed."""
        self._recounted |= self._claiming.keys()
        self._index_recounted()
        self.changed.set()

    def _note_recounted(self, uid: Uid) -> None:
        if uid in self._claiming:
            self._recounted.add(uid)

    def _index_recounted(self) -> None:
        while self._recounted:
            uid = self._recounted.pop()
            indexed, counted = self.reclaim_index.get(uid), self.world.pod(uid)
            if counted is not None and (indexed is None or indexed.demand != counted.demand):
                self._index(self._claiming[uid])

    def _node_changed(self, node: objects.Node | None, name: str) -> None:
        marked = NodeName(name) in self.marked
        if node is not None and is_marked(node):
            self.marked[NodeName(name)] = read_node_hold(node.metadata)
        else:
            self.marked.pop(NodeName(name), None)
        if marked:  # its taint keeps other pods off than before, or none any more
            self.world.rejecting_nodes.changes.note(NodeName(name))
        self.changed.set()


# What the parts of a leading evictor share: the cluster as it sees it, and the ways to change and report it.


def controller_ref(gpu_pod: ReclaimPod) -> ObjectRef | None:
    """Return the controller of a pod as Events and lookups refer to it; None for a pod without one."""
    if (made_by := gpu_pod.controller) is None:
        return None
    return ObjectRef(made_by.kind, gpu_pod.namespace, made_by.name, made_by.uid, made_by.api_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictorContext:
    """One evictor's view and tools. `why_stale` returns why the view may not be current; `clock` gives Unix time.

    `notify_owner` queues Events on owners of pods; `notify` has people of a pod's team get a message about it.
    """

    cluster_view: ClusterView
    connection: ApiConnection
    events: EventWriter
    notify_owner: Callable[[OwnerEvent], None]
    notify: Callable[[NotifyKind, ReclaimPod, str], None]
    logs: Logs
    metrics: ReclaimMetrics
    why_stale: Callable[[], str | None]
    is_leading: Callable[[], bool]
    clock: Callable[[], float]

    @property
    def may_act(self) -> bool:
        """Whether policy is enforced, and what is seen is fresh."""
        return self.cluster_view.world.policy.is_enforced and self.why_stale() is None

    def report(self, pod: ReclaimPod | Victim | EvictionTarget | Beneficiary, reason: EventReason, text: str) -> None:
        """Record an Event on a pod."""
        self.events.record(Event(ObjectRef("Pod", pod.namespace, pod.name, pod.uid), reason, text))

    def report_on_controller(self, gpu_pod: ReclaimPod, reason: EventReason, text: str, *, series: str) -> None:
        """Record an Event on the controller of a pod; those of one series become one with a count."""
        if (owner := controller_ref(gpu_pod)) is not None:
            self.notify_owner(OwnerEvent(owner, reason, text, series))


# What one evictor reports of itself: policy, watches and leadership.


@dataclass(frozen=True, slots=True)
class EvictorState:
    """The sources of an evictor's report."""

    holder: PolicyHolder
    lease: Lease
    why_not_ready: Callable[[], str | None]
    unevictable: Callable[[], list[str]]
    unserved: Callable[[], list[str]]
    left_out: Callable[[], list[str]]
    of_addons: Callable[[], Mapping[str, Any]]

    def report(self, at: str) -> ReplicaReport:
        """Return the evictor's state now; `at` is the time of day."""
        policy, why = self.holder.current, self.why_not_ready()
        return ReplicaReport(
            component=Component.EVICTOR,
            at=at,
            version=__version__,
            policy=policy.hash,
            enforce=policy.enforce.value,
            policy_problem=shortened(self.holder.problem or ""),
            leading=self.lease.is_leading,
            election=shortened(self.lease.problem or ""),
            not_ready=[shortened(f"world: {why}")] if why else [],
            unevictable=[shortened(text) for text in self.unevictable()],
            unserved=[shortened(text) for text in self.unserved()],
            left_out=self.left_out(),
            **self.of_addons(),
        )
