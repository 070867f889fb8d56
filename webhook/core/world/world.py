"""The world: nodes, GPU pods and usage that a decision is made from, kept by events.

Between two events it does not change, and no decision awaits anything: on one event loop that is the lock. A pod that
was admitted is *assumed* at once (its charge reserved, its room taken on the first node that the gate chose), then
*confirmed* when the watch shows it, or *settled* when whoever keeps the ledger knows that it need not be held any more.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from webhook.core.dra.dra_claims import ClaimKey, Claims, ClaimSpec, Found, GroupEntry
from webhook.core.dra.dra_slices import Condition, DraSlices, Slice
from webhook.core.model.decision import Charge
from webhook.core.model.demand import reweighed
from webhook.core.model.device_class import DeviceClass
from webhook.core.model.gpu_names import looks_like_gpu
from webhook.core.model.names import ANY_MODEL, GpuModel, Namespace, NodeName, ResourceName, TeamName, Uid
from webhook.core.model.node import Node
from webhook.core.model.pod import NamespaceFacts, Pod, PriorityTriple, Resident
from webhook.core.model.policy import Policy, Pool, Team
from webhook.core.model.selector import Constraints
from webhook.core.model.tier import TIERS, Tier
from webhook.core.peers.pod_counts import PodCounts
from webhook.core.placement.absent_nodes import AbsentNodes
from webhook.core.placement.fleet import Fleet
from webhook.core.quota.in_flight import ENDED, UNSEEN, Alive, Evidence, InFlightCharge, Unseen
from webhook.core.quota.tenancy import Tenancies, Tenancy
from webhook.core.quota.usage import EMPTY_USAGE, Entry, TeamUsage
from webhook.core.world.entrances import Entrances
from webhook.core.world.pod_index import Held, PodIndex
from webhook.core.world.tentative_reservations import TentativeReservations


class World:
    """Nodes, pods, namespaces and the books of all teams, under one policy.

    `is_live`: a cluster feeds it, so a namespace that is not known is one whose event is still to come.
    `on_usage_changed` is called at each change of a book or of the shares that it is held against. `now`, in seconds of
    Unix time, is what the server last said the time is, 0 where nothing says it.
    """

    def __init__(self, policy: Policy, *, is_live: bool = False) -> None:
        self.policy = policy
        self.is_live = is_live
        self.now = 0
        self.on_usage_changed: Callable[[], None] = _nobody_listens
        self.fleet = Fleet()
        self.absent_nodes = AbsentNodes()
        self.pod_counts = PodCounts()
        self.tentative = TentativeReservations(self.pod_counts)
        self.claims = Claims()
        self._equipment = DraSlices()
        self.priority_classes: dict[str, PriorityTriple] = {}
        self._tenancies = Tenancies(policy)
        self._entrances = Entrances(policy)
        self._residents = PodIndex(self.pod_counts)
        self._flights: dict[Uid, Evidence] = {}
        self._rising: dict[Uid, Evidence] = {}
        self._books: dict[TeamName, TeamUsage] = {}
        self._track()

    # -- what decisions read

    def tenancy(self, name: Namespace) -> Tenancy:
        """Tell whose a namespace is; an unseen one is judged by its name alone."""
        return self._tenancies.of(name)

    def knows(self, namespace: Namespace) -> bool:
        """Tell whether a namespace's labels and annotations are known; without a cluster nobody will tell more."""
        return not self.is_live or namespace in self._tenancies

    @property
    def knows_all_namespaces(self) -> bool:
        """Tell whether it is known whose every pod is: no pod sits in a namespace that is still to be seen."""
        return not (self.is_live and self._tenancies.has_strange)

    def is_assumed(self, uid: Uid) -> bool:
        """Tell whether the ledger lists a pod, seen or not."""
        return uid in self._flights

    def evidence(self, uid: Uid) -> Evidence:
        """Tell what was seen of a pod that is assumed, or is there."""
        held = self._residents.get(uid)
        if held is not None and not held.is_reserved:
            return Alive(held.since)
        return self._flights.get(uid, UNSEEN)

    def promotion(self, uid: Uid) -> Evidence:
        """Tell what was seen of the label of a pod that is promoted."""
        return self._rising.get(uid, UNSEEN)

    def usage(self, team: TeamName) -> TeamUsage:
        """Give a team's book, to read."""
        return self._books.get(team, EMPTY_USAGE)

    def usage_by_team(self) -> Mapping[TeamName, TeamUsage]:
        """Give all books that have been written to."""
        return self._books

    def charge_of(self, uid: Uid) -> Charge | None:
        """Tell what a pod is charged; None where it holds no GPU."""
        entry = self.entry_of(uid)
        return None if entry is None else entry.charge

    def entry_of(self, uid: Uid) -> Entry | None:
        """Give a pod's entry in its team's book; None where it holds no GPU."""
        held = self._residents.get(uid)
        return None if held is None else self.usage(held.team).get(uid)

    def pod(self, uid: Uid) -> Resident | None:
        """Find a pod that holds something."""
        held = self._residents.get(uid)
        return None if held is None else held.pod

    def pods(self) -> Iterable[Resident]:
        """List the pods that hold something, assumed ones included."""
        return (held.pod for held in self._residents.all())

    def without_decision(self) -> Iterable[Uid]:
        """List the GPU pods that carry no decision of the gate."""
        return self._residents.without_decision()

    def namespaces(self) -> Iterable[NamespaceFacts]:
        """List the namespaces that are known."""
        return self._tenancies.seen()

    def open_pools(self, team: TeamName) -> tuple[Pool, ...]:
        """List the pools that a team may enter with any pod: those without a `match` of their own."""
        return self._entrances.open_to(team)

    def joined(self, constraints: Constraints, pool: Pool) -> Constraints:
        """Add a pool's conditions to a pod's own."""
        return self._entrances.joined(constraints, pool)

    def with_claims(self, pod: Pod | Resident) -> Found:
        """Add to a pod's demand what it claims, what device classes know of it, and what its scheduler makes of it."""
        return self.claims.find(
            pod.demand,
            pod.claims,
            namespace=pod.namespace,
            uid=pod.uid,
            is_admin=self.tenancy(pod.namespace).may_look,
            shares_by=pod.shares_by,
            slices=self._slices(pod),
            policy=self.policy,
        )

    def are_ordinary(self, resources: tuple[ResourceName, ...]) -> bool:
        """Tell whether none of these resources, which policy does not weigh, can be a GPU."""
        return not any(self.claims.knows(name) or looks_like_gpu(name) for name in resources)

    # -- events

    def tick(self, now: int) -> None:
        """Take in what time it is, in seconds of Unix time."""
        if now != self.now:
            self.now = now
            self.absent_nodes.tick(now)

    def set_policy(self, policy: Policy) -> None:
        """Judge from now on by another policy; every pod is weighed and charged anew."""
        self.policy = policy
        self._tenancies.set_policy(policy)
        self._entrances = Entrances(policy)
        self._books = {}
        self._track()
        self.on_usage_changed()
        for held in self._residents.all():
            self._refit(held, self._counted(replace(held.pod, demand=reweighed(held.pod.demand, policy.resources))))
            self._charge(held)

    def set_node(self, node: Node) -> None:
        """Add a node or take in what changed of it."""
        before = self.fleet.get(node.name)
        self._equip(self._equipment.set_node(node))
        if before is None or before.model != node.model:
            if node.slice or (before is not None and before.slice):
                self._recount(self._residents.on_node(node.name))
            self._recharge(self._residents.on_node(node.name))

    def remove_node(self, name: NodeName) -> None:
        """Drop a node; its pods stay charged until they are seen to end."""
        self._equipment.remove_node(name)
        if self.is_live and (before := self.fleet.get(name)) is not None:
            self.absent_nodes.note(before)
        self.fleet.remove(name)

    def set_pod(self, pod: Resident) -> None:
        """Take in what the cluster says of a pod: this confirms an assumed one."""
        before = self._residents.get(pod.uid)
        node, since, devices = pod.node or pod.promised, pod.version, pod.devices
        if before is None:
            self.fleet.gpus.demand_mix.note(pod.demand)
            self.tentative.consume(self.fleet, node, pod)
        else:
            if pod.user is None and before.pod.user is not None:
                pod = replace(pod, user=before.pod.user)
            node = pod.node or before.node or node  # still waiting for the scheduler: keep the room it was promised
            if not before.is_reserved:
                if before.pod == pod and before.node == node:
                    return
                since = before.since
            if node is not None and node == before.node and not pod.devices:
                devices = self.fleet.devices_of(node, pod.uid)
        if pod.tier is Tier.GUARANTEED and isinstance(self._rising.get(pod.uid), Unseen):
            self._rising[pod.uid] = Alive(pod.version)
        self._put_down(pod.uid)
        self._hold(Held(pod, self.tenancy(pod.namespace).team_name, node, since=since), devices=devices)

    def remove_pod(self, uid: Uid) -> None:
        """Take a pod off: it was seen deleted or terminal."""
        if uid in self._flights:
            self._flights[uid] = ENDED
        if uid in self._rising:
            self._rising[uid] = ENDED
        self._drop(uid)

    def set_namespace(self, facts: NamespaceFacts) -> None:
        """Take in a namespace; its pods move if it belongs to another team now."""
        if self._tenancies.set(facts):
            self._revise(facts.name)
            self._recount(self._residents.in_namespace(facts.name))

    def remove_namespace(self, name: Namespace) -> None:
        """Forget a namespace."""
        if self._tenancies.remove(name):
            self._tenancies.note_pods(name, are_there=self._residents.has_seen_pods(name))
            self._revise(name)

    def set_priority_class(self, triple: PriorityTriple) -> None:
        """Take in a PriorityClass."""
        self.priority_classes[triple.name] = triple

    def remove_priority_class(self, name: str) -> None:
        """Forget a PriorityClass."""
        self.priority_classes.pop(name, None)

    def set_claim(self, key: ClaimKey, spec: ClaimSpec | None, uid: Uid | None = None) -> None:
        """Take in a claim or a template of claims (None: it is gone)."""
        self._recount(self.claims.set(key, spec, uid))

    def set_group(self, key: ClaimKey, entries: frozenset[GroupEntry] | None) -> None:
        """Take in which claims the pods of a PodGroup share (None: it is gone)."""
        self._recount(self.claims.set_group(key, entries))

    def set_device_class(self, name: str, device_class: DeviceClass | None, *conditions: Condition) -> None:
        """Take in a DeviceClass (None: it is gone)."""
        for node in self._equipment.set_class(name, device_class, conditions):
            self._equip(node)
        self._recount(self.claims.set_class(name, device_class))

    def set_slice(self, name: str, found: Slice | None) -> None:
        """Take in the devices that a driver offers on a node (None: they are gone)."""
        for node in self._equipment.set_slice(name, found):
            self._equip(node)

    def sort_nodes(self) -> None:
        """Order nodes by name, after a first list or a world file brought many at once."""
        self.fleet = self.fleet.sorted_copy()

    # -- the life of a reservation

    def assume(self, flight: InFlightCharge, *, is_counted: bool = True) -> None:
        """Charge a pod that was just admitted and take its room, until it is seen or settled; or promote one.

        The same UID again changes nothing, and neither does one that was seen already: alive it is charged, and ended
        it counts no more. Nor does one that another charge counts already, not `is_counted`.
        """
        uid = flight.pod.uid
        if flight.is_promotion:
            self._promote(uid)
        elif isinstance(self._flights.setdefault(uid, UNSEEN), Unseen) and is_counted and uid not in self._residents:
            if not flight.lingers:
                self.fleet.gpus.demand_mix.note(flight.pod.demand)
                self.tentative.consume(self.fleet, flight.node, flight.pod)
            self._hold(Held(flight.pod, flight.charge.team, flight.node, is_reserved=True), flight.charge)

    def settle(self, uid: Uid) -> None:
        """Stop holding what was assumed; a pod that was seen stays charged as any other."""
        self.cancel_promotion(uid)
        self._flights.pop(uid, None)
        held = self._residents.get(uid)
        if held is not None and held.is_reserved:
            self._drop(uid)

    def add_pod(self, flight: InFlightCharge) -> None:
        """Take in an admitted pod that exists from now on, since no watch will ever show it."""
        if flight.pod.uid not in self._residents:
            self.fleet.gpus.demand_mix.note(flight.pod.demand)
            self.tentative.consume(self.fleet, flight.node, flight.pod)
            self._hold(Held(replace(flight.pod, node=flight.node), flight.charge.team, flight.node), flight.charge)

    def cancel_promotion(self, uid: Uid) -> None:
        """Charge a pod as its label says, whatever it was promised."""
        if self._rising.pop(uid, None) is not None and uid in self._residents:
            self._recharge((uid,))

    # -- bookkeeping

    def _equip(self, node: Node) -> None:
        if self.is_live and (before := self.fleet.get(node.name)) is not None:
            self.absent_nodes.note(before, node)
        self.fleet.set(node)

    def _track(self) -> None:
        for resource in self.policy.resources:
            self.fleet.track(resource)
        self.fleet.gpus.demand_mix.set_prior(self.policy.placement.demand_mix)

    def _hold(self, held: Held, charge: Charge | None = None, *, devices: tuple[int, ...] = ()) -> None:
        uid = held.pod.uid
        self._residents.add(held)
        if held.pod.claims or held.pod.demand.strange or held.pod.shares_by:
            heirs = self.claims.join(uid, held.pod.namespace, held.pod.claims)
            held.pod = self._counted(held.pod)
            self._recount(heirs)
        elif held.pod.slices or self.fleet.mig_slots:
            held.pod = self._counted(held.pod)
        if not held.is_reserved:
            self._tenancies.note_pods(held.pod.namespace, are_there=True)
        self._charge(held, charge, is_seated=False)
        if held.node is not None:
            self.fleet.take(held.node, held.pod.demand, holder=uid, devices=devices)

    def _drop(self, uid: Uid) -> None:
        self._put_down(uid)
        self._recount(self.claims.leave(uid))

    def _put_down(self, uid: Uid) -> None:
        """Take a pod off its node and book; its claims stay its own."""
        held = self._residents.pop(uid)
        if held is None:
            return
        namespace = held.pod.namespace
        if self._tenancies.is_strange(namespace):
            self._tenancies.note_pods(namespace, are_there=self._residents.has_seen_pods(namespace))
        if held.node is not None:
            self.fleet.take(held.node, held.pod.demand, sign=-1, holder=uid)
        self.fleet.set_borrowed(uid, held.pod.demand, is_borrowed=False)
        if (book := self._books.get(held.team)) is not None:
            book.release(uid)
            self.on_usage_changed()

    def _counted(self, pod: Resident) -> Resident:
        own = pod.demand.own  # there if it counted something else until now
        if not (pod.claims or pod.demand.strange or pod.shares_by or own or self._slices(pod)):
            return pod
        return replace(pod, demand=self.with_claims(pod).demand)

    def _slices(self, pod: Pod | Resident) -> tuple[ResourceName, ...]:
        """Tell which MIG resources a pod's `nvidia.com/gpu` are: those of its node, or of all nodes that it may get."""
        name = pod.node_name if isinstance(pod, Pod) else pod.node
        node = None if name is None else self.fleet.get(name)
        if node is None:
            return pod.slices
        return () if node.slice is None else (node.slice,)

    def _recount(self, several: Iterable[Uid]) -> None:
        """Count pods anew whose claims are known better now, or that pay for others' no longer."""
        for uid in several:
            held = self._residents[uid]
            pod = self._counted(held.pod)
            if pod.demand == held.pod.demand:
                continue
            self._refit(held, pod)
            entry = self.usage(held.team).get(uid)
            if entry is not None:
                self._books[held.team].release(uid)
            self._charge(held, None if entry is None else entry.charge._replace(gpus=pod.demand.gpus))

    def _refit(self, held: Held, pod: Resident) -> None:
        """Let a pod take other room where it is."""
        if held.node is not None and pod.demand.requests != held.pod.demand.requests:
            devices = self.fleet.devices_of(held.node, pod.uid)
            self.fleet.take(held.node, held.pod.demand, sign=-1, holder=pod.uid)
            self.fleet.take(held.node, pod.demand, holder=pod.uid, devices=devices)
        held.pod = pod

    def _charge(self, held: Held, charge: Charge | None = None, *, is_seated: bool = True) -> None:
        if not held.pod.demand.gpus:
            return
        if charge is None:
            charge = self._charge_of(held)
        held.team = charge.team
        is_borrowed = charge.tier is Tier.PREEMPTIBLE and held.pod.tier_label in TIERS
        self.fleet.set_borrowed(
            held.pod.uid, held.pod.demand, is_borrowed=is_borrowed, on=held.node if is_seated else None
        )
        self._books.setdefault(charge.team, TeamUsage()).charge(held.pod.uid, held.entry(charge))
        self.on_usage_changed()

    def _charge_of(self, held: Held) -> Charge:
        pod = held.pod
        tenancy = self.tenancy(pod.namespace)
        return Charge(
            team=tenancy.team_name,
            tier=self._tier_of(pod),
            gpus=pod.demand.gpus,
            model=self._model_of(held, tenancy.team),
            user=pod.user,
        )

    def _tier_of(self, pod: Resident) -> Tier:
        if isinstance(self._rising.get(pod.uid), Unseen):
            return Tier.GUARANTEED
        return TIERS.get(pod.tier_label or "", Tier.PREEMPTIBLE)

    def _model_of(self, held: Held, team: Team | None) -> GpuModel | None:
        if team is None or not team.models:
            return None
        if held.node is not None and (node := self.fleet.get(held.node)) is not None:
            return node.model
        return ANY_MODEL if held.pod.model is None else held.pod.model

    def _promote(self, uid: Uid) -> None:
        """Charge a pod as guaranteed, as soon as it is seen and until its label says so itself."""
        if uid in self._rising:
            return
        held = self._residents.get(uid)
        is_done = held is not None and held.pod.tier is Tier.GUARANTEED and not held.is_reserved
        self._rising[uid] = Alive(held.pod.version) if held is not None and is_done else UNSEEN
        if held is not None:
            self._recharge((uid,))

    def _recharge(self, several: Iterable[Uid]) -> None:
        for uid in several:
            if not (held := self._residents[uid]).is_reserved:
                if (book := self._books.get(held.team)) is not None:
                    book.release(held.pod.uid)
                self._charge(held)

    def _revise(self, namespace: Namespace) -> None:
        if self._tenancies.judge_anew(namespace):
            self._recharge(self._residents.in_namespace(namespace))


def _nobody_listens() -> None:
    return None
