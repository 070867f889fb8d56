"""The world: one door for pods.

The world: the nodes, GPU pods and usage that a decision is made from, updated by events.

Between two events it does not change, and a decision contains no `await`: on one event loop that is the lock. An
admitted pod is *assumed* at once (charged, its room taken on the first node), then *confirmed* or *forgotten*.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

from webhook.core.devices.claim_users import AllocatedAt, ClaimKey, ClaimSpec, GroupEntry
from webhook.core.devices.claims import AS_IS, Instead, ResolvedDemand
from webhook.core.devices.slices import ClassCondition, DraSlices, Slice, TaintRule
from webhook.core.model.amounts import GangId, Namespace, NodeName, TeamName, Uid
from webhook.core.model.constraints import DomainRequest, Tier
from webhook.core.model.decision import Charge
from webhook.core.model.gpu_shares import DeviceClass
from webhook.core.model.node import Autoscaler, Node
from webhook.core.model.pod import NO_LABELS, NamespaceFacts, Pod, PriorityTriple, Resident, Stage
from webhook.core.model.policy import Policy
from webhook.core.placement.pod_counts import PodCounts
from webhook.core.placement.rejecting_nodes import AbsentNodes, RejectingNodes
from webhook.core.quota.charges import ENDED, UNSEEN, Alive, Evidence, InFlightCharge, Unseen
from webhook.core.quota.shares import DepartmentUsage, Tenancies, Tenancy
from webhook.core.quota.usage import EMPTY_USAGE, TeamUsage, UsageEntry
from webhook.core.world.charged_pods import ChargedPods, PodStages, is_lost
from webhook.core.world.minimums import Minimums
from webhook.core.world.pod_index import PodRecord
from webhook.core.world.reservations import PoolAccess, TentativeReservations
from webhook.core.world.waiting_pods import GangMembers, GangReservations, WaitingPod, WaitingPods


class World:
    """Nodes, pods, namespaces and the usage of all teams, under one policy.

    `is_live`: a cluster feeds it, and the event of an unknown namespace is still to come. `now` is of the last `tick`.
    """

    def __init__(self, policy: Policy, *, is_live: bool = False) -> None:
        self.policy = policy
        self.is_live = is_live
        self.now = 0
        self._tenancies = Tenancies(policy)
        self.pod_counts = PodCounts()
        self.pod_counts.namespace_labels = lambda name: self.tenancy(name).facts.labels
        self.rejecting_nodes = RejectingNodes(lambda namespace: self.tenancy(namespace).team_name)
        self.tentative = TentativeReservations(self.pod_counts, self.rejecting_nodes)
        self._charged = ChargedPods(policy, tenancies=self._tenancies, pod_counts=self.pod_counts)
        self.fleet = self._charged.fleet
        self.claims = self._charged.claims
        self._pods = self._charged.pods
        self._usage = self._charged.usage
        self.absent_nodes = AbsentNodes()
        self.keeping: set[NodeName] = set()  # the nodes that keep places for pods to come
        self._dra_slices = DraSlices()
        self.claims.classes.facts_of = self._dra_slices.facts_of
        self.priority_classes: dict[str, PriorityTriple] = {}
        self.pools = PoolAccess(policy)
        self.autoscalers: frozenset[Autoscaler] = frozenset()  # those that run in the cluster
        self._assumed: dict[Uid, Evidence] = {}
        self.stages = PodStages(self._charged, policy.reclaim)
        self.waiting = WaitingPods()
        self.waiting.on_kept = lambda team: self._charged.keep_room(team, self.waiting)
        self.waiting.is_charged = self.is_assumed
        self.gangs = GangMembers()
        self.gang_reservations = GangReservations()
        self.minimums = Minimums()
        self.group_domains: dict[GangId, DomainRequest] = {}  # by the PodGroups that ask for a domain
        self._track()

    @property
    def on_usage_changed(self) -> Callable[[], None]:
        """Return the function that is called at each change of a usage or of the shares it is compared with."""
        return self._charged.on_change

    @on_usage_changed.setter
    def on_usage_changed(self, listener: Callable[[], None]) -> None:
        self._charged.on_change = listener

    def notify_of_pods(self, listener: Callable[[Uid], None]) -> None:
        """Call a function with the UID of each pod that may count as something else now: charged, waiting or gone.

        It is called while the world changes, so it must not read the world before that event is over.
        """
        self._charged.on_pod = self.waiting.on_pod = listener

    def tenancy(self, name: Namespace) -> Tenancy:
        """Return the team of a namespace; an unseen one is assigned by its name alone."""
        return self._tenancies.of(name)

    def knows(self, namespace: Namespace) -> bool:
        """Whether a namespace's labels and annotations are known; without a cluster no event will add any."""
        return not self.is_live or namespace in self._tenancies

    @property
    def knows_all_namespaces(self) -> bool:
        """Whether the team of every pod is certain: no pod is in a namespace that was not seen yet."""
        return not (self.is_live and self._tenancies.has_unseen)

    def is_assumed(self, uid: Uid) -> bool:
        """Whether the ledger lists a pod, seen or not."""
        return uid in self._assumed

    def evidence(self, uid: Uid, *, is_promotion: bool = False) -> Evidence:
        """Return what was seen of a pod that is assumed or exists, or of the label of one that is promoted."""
        if is_promotion:
            return self._charged.promotion(uid)
        record = self._pods.get(uid)
        if record is not None and not record.is_reserved:
            return Alive(record.since)
        return self._assumed.get(uid, UNSEEN)

    def node_of(self, uid: Uid) -> NodeName | None:
        """Return the node whose room a pod takes: its own, or the one promised to it; None for none."""
        record = self._pods.get(uid)
        return None if record is None else record.node

    def usage(self, team: TeamName) -> TeamUsage:
        """Return the usage of a team, read-only."""
        return self._usage.get(team, EMPTY_USAGE)

    def usage_by_team(self) -> Mapping[TeamName, TeamUsage]:
        """Return the usage of all teams that were ever charged."""
        return self._usage

    def departments(self) -> Iterable[DepartmentUsage]:
        """Return the usage of every department of the policy, by name."""
        return self._charged.departments.values()

    def charge_of(self, uid: Uid) -> Charge | None:
        """Return the charge of a pod; None where it holds no GPU."""
        entry = self.entry_of(uid)
        return None if entry is None else entry.charge

    def entry_of(self, uid: Uid) -> UsageEntry | None:
        """Return a pod's entry in its team's usage; None where it holds no GPU."""
        record = self._pods.get(uid)
        return None if record is None else self.usage(record.team).get(uid)

    def pod(self, uid: Uid) -> Resident | None:
        """Return a pod; None where it is unknown."""
        record = self._pods.get(uid)
        return None if record is None else record.pod

    def pods(self) -> Iterable[Resident]:
        """Return all pods, assumed ones included."""
        return (record.pod for record in self._pods.all())

    def pods_on(self, node: NodeName, *, is_expected: bool = False) -> Iterator[Resident]:
        """Return the pods that are on a node; or those that are expected there, whose room is taken already."""
        there = (self._pods[uid].pod for uid in self._pods.on_node(node))
        return (pod for pod in there if (pod.node != node) is is_expected)

    def without_decision(self, *, sharing: bool = False) -> Iterable[Uid]:
        """Return the GPU pods without a decision of the webhook; or those that share what others are charged for."""
        return self._pods.sharing_without_decision() if sharing else self._pods.without_decision()

    def namespaces(self) -> Iterable[NamespaceFacts]:
        """Return the known namespaces."""
        return self._tenancies.seen()

    def with_claims(self, pod: Pod | Resident, *, instead: Instead = AS_IS) -> ResolvedDemand:
        """Resolve a pod's demand: its claims, the device classes of its resources, and its shares of devices."""
        return self._charged.resolve(pod, instead=instead)

    def tick(self, now: int) -> None:
        """Set the time, in seconds of Unix time: what lasts for a time ends here, for all who ask next."""
        if now != self.now:
            self.now = self.minimums.now = now
            self.absent_nodes.tick(now)
            self.rejecting_nodes.tick(now)
            self.waiting.tick(now)
            self.stages.tick(now)
            if self.tentative.expire(self.fleet, now=now):
                self.on_usage_changed()

    def set_policy(self, policy: Policy) -> None:
        """Replace the policy; every pod is weighed and charged again."""
        self.policy = policy
        self._tenancies.set_policy(policy)
        self.pools = PoolAccess(policy)
        self._track()
        self.stages.rules = policy.reclaim
        self._charged.set_policy(policy)
        self._assign_waiting()
        for team in self.waiting.teams():
            self._charged.keep_room(team, self.waiting)

    def set_node(self, node: Node) -> None:
        """Add or update a node."""
        before = self.fleet.get(node.name)
        self._set_fleet_node(self._dra_slices.set_node(node))
        if is_lost(before) is not is_lost(node):
            self.stages.refresh(self._pods.on_node(node.name))
        node = self.fleet.get(node.name) or node
        if before is None or before.model != node.model or before.slice != node.slice:
            if before is not None:
                self._charged.keep_kind(before)
            if node.slice or (before is not None and before.slice):
                self._charged.recount(self._pods.on_node(node.name))
            self._charged.recharge(self._pods.on_node(node.name))

    def remove_node(self, name: NodeName) -> None:
        """Remove a node; its pods stay charged until they are seen to end, or their deletion is overdue."""
        self._dra_slices.remove_node(name)
        self.rejecting_nodes.remove_node(name)
        if self.is_live and (before := self.fleet.get(name)) is not None:
            self.absent_nodes.note(before)
        self.absent_nodes.maintained.pop(name, None)
        self.fleet.remove(name)
        self.keeping.discard(name)
        self.stages.refresh(self._pods.on_node(name))

    def set_pod(self, pod: Resident) -> None:
        """Add or update a pod as reported by the cluster; this confirms an assumed one."""
        before = self._pods.get(pod.uid)
        if pod.uid in self.waiting:
            self.waiting.discard(pod.uid)
        self.gangs.set(pod)
        if pod.demand.gpus or pod.claims:
            self.minimums.set_pod(pod.uid, pod.replica, is_ready=pod.is_ready and not pod.is_terminating)
        since, devices, reserved = pod.version, pod.devices, None if before is None else before.node
        stage, node = self.stages.place(pod, reserved or pod.promised)
        self.rejecting_nodes.unused.see(pod, now=self.now)
        if before is None or before.is_reserved:  # it arrives; it may have been assumed several times
            user = pod.user or (None if before is None else before.pod.user)
            self.fleet.gpus.demand_mix.note(pod.demand, team=pod.team_label or pod.namespace, user=user)
        if before is None:
            self.tentative.consume(self.fleet, node, pod)
        else:
            if pod.user is None and before.pod.user is not None:
                pod = pod._replace(user=before.pod.user)
            if not before.is_reserved:
                if before.pod == pod and before.node == node and before.stage is stage:
                    return
                since = before.since
            if node is not None and node == before.node and not pod.devices:
                devices = self.fleet.devices_of(node, pod.uid)
        self._charged.confirm_promotion(pod)
        team = self.tenancy(pod.namespace).team_name
        self._charged.add(PodRecord(pod, team, node, since=since, stage=stage), devices=devices)

    def set_waiting(self, pod: WaitingPod) -> None:
        """Add or update a pod that waits in the queue; it is charged nothing, unless the ledger lists it already.

        It is in the line of the team that its namespace belongs to now, whatever its label says.
        """
        team = self.tenancy(pod.pod.namespace).team_name
        self.waiting.set(pod if pod.team == team else replace(pod, team=team), now=self.now)
        self.minimums.set_pod(pod.uid, pod.pod.replica, is_ready=False)

    def remove_pod(self, uid: Uid) -> None:
        """Remove a pod that was seen deleted or terminal."""
        if uid in self._assumed:
            self._assumed[uid] = ENDED
        self.waiting.discard(uid)
        self.gangs.discard(uid)
        self.minimums.remove_pod(uid)
        self.stages.forget(uid)
        self.rejecting_nodes.remove_pod(uid, self.pod(uid))
        self._charged.end_promotion(uid)
        self._charged.remove(uid)

    def set_namespace(self, facts: NamespaceFacts) -> None:
        """Add or update a namespace; its pods move if it belongs to another team now."""
        if self._tenancies.set(facts):
            self._charged.update_team(facts.name)
            self._assign_waiting(facts.name)
            self._charged.recount(self._pods.in_namespace(facts.name))

    def remove_namespace(self, name: Namespace) -> None:
        """Remove a namespace."""
        if self._tenancies.remove(name):
            self._tenancies.note_pods(name, are_there=self._pods.has_seen_pods(name))
            self._charged.update_team(name)
            self._assign_waiting(name)

    def set_priority_class(self, triple: PriorityTriple) -> None:
        """Add or update a PriorityClass."""
        self.priority_classes[triple.name] = triple

    def remove_priority_class(self, name: str) -> None:
        """Remove a PriorityClass."""
        self.priority_classes.pop(name, None)

    def set_claim(
        self, key: ClaimKey, spec: ClaimSpec | None, uid: Uid | None = None, *, allocated: AllocatedAt | None = None
    ) -> None:
        """Set or remove (None) a claim or a claim template."""
        nodes = self._dra_slices.set_allocated(key, allocated.devices if allocated else frozenset())
        self._set_devices(nodes, self.claims.set(key, spec, uid, allocated=allocated))

    def set_group(self, key: ClaimKey, entries: frozenset[GroupEntry] | None) -> None:
        """Set or remove (None) the claims shared by the pods of a PodGroup."""
        self._charged.recount(self.claims.set_group(key, entries))

    def set_device_class(self, name: str, device_class: DeviceClass | None, *conditions: ClassCondition) -> None:
        """Set or remove (None) a DeviceClass."""
        nodes = self._dra_slices.set_class(name, device_class, conditions)
        self._set_devices(nodes, self.claims.set_class(name, device_class))

    def set_slice(self, name: str, found: Slice | None) -> None:
        """Set or remove (None) the devices that a driver offers on a node."""
        self._set_devices(self._dra_slices.set_slice(name, found), self.claims.set_slice(name, found))

    def set_taint_rule(self, name: str, rule: TaintRule | None) -> None:
        """Set or remove (None) a rule that taints devices."""
        self._set_devices(self._dra_slices.set_rule(name, rule), ())

    def _set_devices(self, nodes: Iterable[Node], uids: Iterable[Uid]) -> None:
        """Update nodes, and pods whose demand changed: all, if the facts of a class did."""
        for node in nodes:
            self._set_fleet_node(node)
        self._charged.recount(self.claims.users.pods() if self._dra_slices.take_changed() else uids)

    def sort_nodes(self) -> None:
        """Sort nodes by name, after a first list or a world file brought many at once."""
        self.fleet = self._charged.fleet = self.fleet.sorted_copy()

    def assume(self, flight: InFlightCharge, *, is_counted: bool = True) -> None:
        """Charge an admitted pod and take its room until it is seen or forgotten; or promote a running pod.

        The same UID again changes nothing. Neither does a pod that was seen already: alive it is charged, and ended it
        no longer counts. Nor does a charge that another one duplicates (not `is_counted`).
        """
        uid = flight.pod.uid
        self.gang_reservations.set(flight)
        if flight.is_promotion:
            self._charged.promote(uid)
        elif isinstance(self._assumed.setdefault(uid, UNSEEN), Unseen) and is_counted and uid not in self._pods:
            if not flight.lingers:
                self.tentative.consume(self.fleet, flight.node, flight.pod)
            stage = self.stages.note_left(uid) if flight.is_left else Stage.ADMITTED
            record = PodRecord(flight.pod, flight.charge.team, flight.node, is_reserved=True, stage=stage)
            self._charged.add(record, flight.charge)
        self.waiting.keep_room(uid)

    def what_if(self) -> AbstractContextManager[Callable[[InFlightCharge], None]]:
        """Give a function that charges pods until the context ends: nothing is woken, and nothing is learned."""
        return self._charged.what_if()

    def drop_reservation(self, uid: Uid) -> None:
        """Drop the reservation of an assumed pod; a pod that was seen stays charged like any other."""
        self.cancel_promotion(uid)
        self.gang_reservations.discard(uid)
        self._assumed.pop(uid, None)
        record = self._pods.get(uid)
        if record is not None and record.is_reserved:
            self._charged.end_reservation(uid, now=self.now)
            self.stages.forget(uid)
            self.rejecting_nodes.give_up(record.node, record.pod.namespace, uid)
        self.waiting.keep_room(uid)

    def add_pod(self, flight: InFlightCharge) -> None:
        """Add an admitted pod that exists from now on, where no watch will show it."""
        if flight.pod.uid not in self._pods:
            self.fleet.gpus.demand_mix.note(flight.pod.demand, team=flight.charge.team, user=flight.pod.user)
            self.tentative.consume(self.fleet, flight.node, flight.pod)
            self.gangs.set(flight.pod)
            self.minimums.set_pod(flight.pod.uid, flight.pod.replica, is_ready=True)
            record = PodRecord(flight.pod._replace(node=flight.node), flight.charge.team, flight.node)
            self._charged.add(record, flight.charge)

    def cancel_promotion(self, uid: Uid) -> None:
        """Charge a pod by its label again."""
        self._charged.cancel_promotion(uid)

    def _set_fleet_node(self, node: Node) -> None:
        before = self.fleet.get(node.name) if self.is_live else node
        if self.is_live and before is not None:
            self.absent_nodes.note(before, node)
        self.fleet.set(node)
        self.rejecting_nodes.set_node(node, before=before)
        (self.keeping.add if node.kept else self.keeping.discard)(node.name)
        self.absent_nodes.note_maintenance(node)

    def _assign_waiting(self, namespace: Namespace | None = None) -> None:
        """Put the waiting pods of a namespace, or of all, in the lines of the teams that these belong to now."""
        for pod in [pod for pod in self.waiting.all() if namespace in (None, pod.pod.namespace)]:
            self.set_waiting(pod)

    def _track(self) -> None:
        self.fleet.count_replicas(is_counted=self.policy.counts_replicas)
        for resource in self.policy.resources:
            self.fleet.track(resource)
        self.fleet.gpus.demand_mix.set_prior(self.policy.placement.demand_mix)


# Pods that were deleted by force: the API server removed them, but their nodes may still run them.
#
# kubelet ends such a pod within the grace period of its spec, as after a normal deletion, and nothing in the API
# reports when (kubelet, pod_workers.go, calculateEffectiveGracePeriod). Until then it holds its GPUs, so it is charged.
# That charge borrows: a pod that is gone uses no guaranteed share.


LONGEST_SECONDS: Final = 86_400
"""The longest grace period that policy may allow: no charge stays longer, even if the pod's spec says so."""

UNACKNOWLEDGED_SECONDS: Final = 10
"""The longest grace period that counts for a pod of which no kubelet had reported anything.

kubelet reports a pod's start time when it begins with it, before its volumes and containers (kubelet.go, SyncPod), and
repeats a failed report every ten seconds (status_manager.go, syncPeriod); pods with GPUs are never too large for that.
One without a report was never begun, or it was begun while its report was on its way: a container that has just
started, and ignores SIGTERM, runs uncharged for the rest of its grace period.
"""

REPORTED_SECONDS: Final = 5
"""A pod that was there for longer on a node that is ready counts as reported: its kubelet may be late, with the reports
of a hundred other pods, and had time to start containers."""

MARGIN_SECONDS: Final = 5
"""Added to the grace period: kubelet learns of the deletion late, and gives a container two seconds after its hook."""


def lingering(uid: Uid, world: World, *, is_watched: bool) -> InFlightCharge | None:
    """Return the charge that remains of a deleted pod not seen to end; None where its node runs nothing of it.

    It is a separate charge with its own UID: the pod itself has ended for the ledger. `is_watched`: every state of the
    pod was seen. If no kubelet had acknowledged it then, it takes no room on its node.
    """
    pod, charge = world.pod(uid), world.charge_of(uid)
    if pod is None or pod.node is None or charge is None or not isinstance(world.evidence(uid), Alive):
        return None
    if world.tenancy(pod.namespace).is_exempt:
        return None
    is_acknowledged = pod.is_acknowledged or not is_watched or _is_report_late(pod, world)
    node = pod.node if is_acknowledged else None
    left = pod._replace(
        uid=Uid(f"{uid}/lingers"),
        node=node,
        is_terminating=True,
        tier_label=Tier.PREEMPTIBLE.value,
        demand=replace(pod.demand, strange=(), own=None),  # as it was counted: its claims are gone
        claims=(),
        shares_by="",
        admitted=None,
        packed=NO_LABELS,
        anti_affinity_rules=(),
    )
    longest = LONGEST_SECONDS if is_acknowledged else UNACKNOWLEDGED_SECONDS
    seconds = min(max(pod.grace_seconds, 0), longest) + MARGIN_SECONDS
    return InFlightCharge(left, charge._replace(tier=Tier.PREEMPTIBLE), node, seconds)


def _is_report_late(pod: Resident, world: World) -> bool:
    node = None if pod.node is None else world.fleet.get(pod.node)
    return not is_lost(node) and world.now - pod.created > REPORTED_SECONDS
