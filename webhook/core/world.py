"""The world: nodes, GPU pods and usage that a decision is made from, kept by events.

Between two events it does not change, and no decision awaits anything: on one event loop that is the lock. A pod that
was admitted is *assumed* at once (its charge reserved, its room taken on the first node that the gate chose), then
*confirmed* when the watch shows it, or *forgotten* when it never comes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from webhook.core.claims import ADMIN_ACCESS, ClaimKey, ClaimRef, Claims, ClaimSpec, DeviceClass, Found, GroupEntry
from webhook.core.decision import Charge
from webhook.core.demand import Demand, reweighed
from webhook.core.equipment import Condition, Equipment, Slice
from webhook.core.fleet import Fleet
from webhook.core.ledger import EMPTY_BOOK, Book, Entry
from webhook.core.lookalike import looks_like_gpu
from webhook.core.names import UNASSIGNED, GpuModel, Namespace, NodeName, PoolName, ResourceName, TeamName, Uid
from webhook.core.node import Node
from webhook.core.pod import NamespaceFacts, Owner, PriorityTriple, Resident
from webhook.core.policy import Policy, Pool, Team
from webhook.core.selector import Constraints
from webhook.core.team import is_exempt, team_of, unknown_namespace
from webhook.core.tier import TIERS, Tier

ASSUMED_SECONDS: Final = 90.0
"""How long an admitted pod may stay unseen: kube-apiserver gives up a request after 34 s, a watch may lag."""

_KEPT_JOINS: Final = 1024
"""Pairs of pod constraints and pool remembered."""


@dataclass(frozen=True, slots=True)
class Tenancy:
    """Whose a namespace is under the current policy."""

    facts: NamespaceFacts
    team: Team | None
    is_exempt: bool

    @property
    def team_name(self) -> TeamName:
        """Name the team that is charged; UNASSIGNED where nobody claimed the namespace."""
        return UNASSIGNED if self.team is None else self.team.name


@dataclass(slots=True)
class _Held:
    """What one pod holds: its record, its book, the node whose room it takes, and until when it may stay unseen."""

    pod: Resident
    team: TeamName
    node: NodeName | None
    forget_at: float | None = None


class World:
    """Nodes, pods, namespaces and the books of all teams, under one policy."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.fleet = Fleet()
        self._claims = Claims()
        self._equipment = Equipment()
        self.priority_classes: dict[str, PriorityTriple] = {}
        self._namespaces: dict[Namespace, NamespaceFacts] = {}
        self._tenancies: dict[Namespace, Tenancy] = {}
        self._held: dict[Uid, _Held] = {}
        self._assumed: dict[Uid, _Held] = {}
        self._by_namespace: dict[Namespace, dict[Uid, None]] = {}
        self._by_node: dict[NodeName, dict[Uid, None]] = {}
        self._books: dict[TeamName, Book] = {}
        self._open_pools: dict[TeamName, tuple[Pool, ...]] = {}
        self._joined: dict[tuple[Constraints, PoolName], Constraints] = {}
        self._track()

    # -- what decisions read

    def tenancy(self, name: Namespace) -> Tenancy:
        """Tell whose a namespace is; an unseen one is judged by its name alone."""
        known = self._tenancies.get(name)
        if known is None:
            facts = self._namespaces.get(name) or unknown_namespace(name)
            known = Tenancy(facts, team_of(facts, self.policy), is_exempt(facts, self.policy))
            self._tenancies[name] = known
        return known

    def book(self, team: TeamName) -> Book:
        """Give a team's book, to read."""
        return self._books.get(team, EMPTY_BOOK)

    def books(self) -> Mapping[TeamName, Book]:
        """Give all books that have been written to."""
        return self._books

    def charge_of(self, uid: Uid) -> Charge | None:
        """Tell what a pod is charged; None where it holds no GPU."""
        held = self._held.get(uid)
        entry = None if held is None else self.book(held.team).get(uid)
        return None if entry is None else entry.charge

    def pods(self) -> Iterable[Resident]:
        """List the pods that hold something, assumed ones included."""
        return (held.pod for held in self._held.values())

    def open_pools(self, team: TeamName) -> tuple[Pool, ...]:
        """List the pools that a team may enter with any pod: those without a `match` of their own."""
        known = self._open_pools.get(team)
        if known is None:
            known = tuple(pool for pool in self.policy.pools if pool.match is None and pool.admits(team))
            self._open_pools[team] = known
        return known

    def joined(self, constraints: Constraints, pool: Pool) -> Constraints:
        """Add a pool's conditions to a pod's own; remembered, since pods of one template ask again and again."""
        if not (pool.node_selector or pool.affinity or pool.tolerations):
            return constraints
        key = (constraints, pool.name)
        known = self._joined.get(key)
        if known is None:
            if len(self._joined) >= _KEPT_JOINS:
                self._joined.clear()
            known = self._joined[key] = constraints.joined(
                node_selector=pool.node_selector, requirements=pool.affinity, tolerations=pool.tolerations
            )
        return known

    def with_claims(self, demand: Demand, refs: tuple[ClaimRef, ...], *, namespace: Namespace, uid: Uid) -> Found:
        """Add to a demand what a pod claims, and what device classes know of it."""
        return self._claims.find(
            demand,
            refs,
            namespace=namespace,
            uid=uid,
            is_admin=self.tenancy(namespace).facts.labels.get(ADMIN_ACCESS) == "true",
            policy=self.policy,
        )

    def are_ordinary(self, resources: tuple[ResourceName, ...]) -> bool:
        """Tell whether none of these resources, which policy does not weigh, can be a GPU."""
        return not any(self._claims.knows(name) or looks_like_gpu(name) for name in resources)

    # -- events

    def set_policy(self, policy: Policy) -> None:
        """Judge from now on by another policy; every pod is weighed and charged anew."""
        self.policy = policy
        self._tenancies.clear()
        self._joined.clear()
        self._open_pools.clear()
        self._books = {}
        self._track()
        for held in self._held.values():
            self._refit(held, self._counted(replace(held.pod, demand=reweighed(held.pod.demand, policy.resources))))
            self._charge(held)

    def set_node(self, node: Node) -> None:
        """Add a node or take in what changed of it."""
        before = self.fleet.get(node.name)
        self.fleet.set(self._equipment.set_node(node))
        if before is None or before.model != node.model:
            self._recharge(self._by_node.get(node.name, ()))

    def remove_node(self, name: NodeName) -> None:
        """Drop a node; its pods stay charged until they are seen to end."""
        self._equipment.remove_node(name)
        self.fleet.remove(name)

    def set_pod(self, pod: Resident) -> None:
        """Take in what the cluster says of a pod: this confirms an assumed one."""
        before = self._held.get(pod.uid)
        node, devices = pod.node, pod.devices
        if before is None:
            self.fleet.gpus.mix.note(pod.demand)
        else:
            if pod.user is None and before.pod.user is not None:
                pod = replace(pod, user=before.pod.user)
            node = node or before.node  # still waiting for the scheduler: keep the room it was promised
            if before.pod == pod and before.node == node and before.forget_at is None:
                return
            if node is not None and node == before.node and not pod.devices:
                devices = self.fleet.devices_of(node, pod.uid)
        self._put_down(pod.uid)
        self._hold(_Held(pod, self.tenancy(pod.namespace).team_name, node), devices=devices)

    def remove_pod(self, uid: Uid) -> None:
        """Take a pod off: it was seen deleted or terminal."""
        self._drop(uid)

    def set_namespace(self, facts: NamespaceFacts) -> None:
        """Take in a namespace; its pods move if it belongs to another team now."""
        if self._namespaces.get(facts.name) != facts:
            self._namespaces[facts.name] = facts
            self._revise(facts.name)
            self._recount(self._by_namespace.get(facts.name, ()))

    def remove_namespace(self, name: Namespace) -> None:
        """Forget a namespace."""
        if self._namespaces.pop(name, None) is not None:
            self._revise(name)

    def set_priority_class(self, triple: PriorityTriple) -> None:
        """Take in a PriorityClass."""
        self.priority_classes[triple.name] = triple

    def remove_priority_class(self, name: str) -> None:
        """Forget a PriorityClass."""
        self.priority_classes.pop(name, None)

    def set_claim(self, key: ClaimKey, spec: ClaimSpec | None) -> None:
        """Take in a claim or a template of claims (None: it is gone)."""
        self._recount(self._claims.set(key, spec))

    def set_group(self, key: ClaimKey, entries: frozenset[GroupEntry] | None) -> None:
        """Take in which claims the pods of a PodGroup share (None: it is gone)."""
        self._recount(self._claims.set_group(key, entries))

    def set_device_class(self, name: str, device_class: DeviceClass | None, *conditions: Condition) -> None:
        """Take in a DeviceClass (None: it is gone)."""
        for node in self._equipment.set_class(name, device_class, conditions):
            self.fleet.set(node)
        self._recount(self._claims.set_class(name, device_class))

    def set_slice(self, name: str, found: Slice | None) -> None:
        """Take in the devices that a driver offers on a node (None: they are gone)."""
        for node in self._equipment.set_slice(name, found):
            self.fleet.set(node)

    def arrange(self) -> None:
        """Order nodes by name, after a first list or a world file brought many at once."""
        self.fleet = self.fleet.arranged()

    # -- the life of a reservation

    def assume(self, pod: Resident, charge: Charge, *, node: NodeName | None, forget_at: float | None) -> None:
        """Charge a pod that was just admitted and take its room, until it is seen; the same UID again changes nothing.

        `forget_at` is the time after which it may be forgotten if it is still unseen; None: it exists from now on.
        """
        if pod.uid in self._held:
            return
        self.fleet.gpus.mix.note(pod.demand)
        held = _Held(replace(pod, node=node) if forget_at is None else pod, charge.team, node, forget_at)
        self._hold(held, charge)

    def forget_unseen(self, now: float) -> tuple[Resident, ...]:
        """Take back what was assumed and never seen in time; tells which."""
        late = [held for held in self._assumed.values() if held.forget_at is not None and held.forget_at <= now]
        for held in late:
            self._drop(held.pod.uid)
        return tuple(held.pod for held in late)

    # -- bookkeeping

    def _track(self) -> None:
        for resource in self.policy.resources:
            self.fleet.track(resource)
        self.fleet.gpus.mix.set_prior(self.policy.placement.demand_mix)

    def _hold(self, held: _Held, charge: Charge | None = None, *, devices: tuple[int, ...] = ()) -> None:
        uid = held.pod.uid
        self._held[uid] = held
        if held.pod.claims or held.pod.demand.strange:
            heirs = self._claims.join(uid, held.pod.namespace, held.pod.claims)
            held.pod = self._counted(held.pod)
            self._recount(heirs)
        self._by_namespace.setdefault(held.pod.namespace, {})[uid] = None
        if held.forget_at is not None:
            self._assumed[uid] = held
        if held.node is not None:
            self._by_node.setdefault(held.node, {})[uid] = None
            self.fleet.take(held.node, held.pod.demand, holder=uid, devices=devices)
        self._charge(held, charge)

    def _drop(self, uid: Uid) -> None:
        self._put_down(uid)
        self._recount(self._claims.leave(uid))

    def _put_down(self, uid: Uid) -> None:
        """Take a pod off its node and book; its claims stay its own."""
        held = self._held.pop(uid, None)
        if held is None:
            return
        self._assumed.pop(uid, None)
        _unlist(self._by_namespace, held.pod.namespace, uid)
        if held.node is not None:
            _unlist(self._by_node, held.node, uid)
            self.fleet.take(held.node, held.pod.demand, sign=-1, holder=uid)
        if (book := self._books.get(held.team)) is not None:
            book.release(uid)

    def _counted(self, pod: Resident) -> Resident:
        if not (pod.claims or pod.demand.strange):
            return pod
        return replace(
            pod, demand=self.with_claims(pod.demand, pod.claims, namespace=pod.namespace, uid=pod.uid).demand
        )

    def _recount(self, several: Iterable[Uid]) -> None:
        """Count pods anew whose claims are known better now, or that pay for others' no longer."""
        for uid in several:
            held = self._held[uid]
            pod = self._counted(held.pod)
            if pod.demand == held.pod.demand:
                continue
            self._refit(held, pod)
            entry = self.book(held.team).get(uid)
            if entry is not None:
                self._books[held.team].release(uid)
            self._charge(held, None if entry is None else entry.charge._replace(gpus=pod.demand.gpus))

    def _refit(self, held: _Held, pod: Resident) -> None:
        """Let a pod take other room where it is."""
        if held.node is not None and pod.demand.requests != held.pod.demand.requests:
            devices = self.fleet.devices_of(held.node, pod.uid)
            self.fleet.take(held.node, held.pod.demand, sign=-1, holder=pod.uid)
            self.fleet.take(held.node, pod.demand, holder=pod.uid, devices=devices)
        held.pod = pod

    def _charge(self, held: _Held, charge: Charge | None = None) -> None:
        if not held.pod.demand.gpus:
            return
        if charge is None:
            charge = self._charge_of(held)
        held.team = charge.team
        entry = Entry(
            charge,
            holder=holder_of(held.pod.namespace, held.pod.name, held.pod.owner),
            is_reserved=held.forget_at is not None,
            is_unlabelled=held.pod.tier_label not in TIERS,
        )
        self._books.setdefault(charge.team, Book()).charge(held.pod.uid, entry)

    def _charge_of(self, held: _Held) -> Charge:
        pod = held.pod
        tenancy = self.tenancy(pod.namespace)
        return Charge(
            team=tenancy.team_name,
            tier=TIERS.get(pod.tier_label or "", Tier.PREEMPTIBLE),
            gpus=pod.demand.gpus,
            model=self._model_of(held, tenancy.team),
            user=pod.user,
        )

    def _model_of(self, held: _Held, team: Team | None) -> GpuModel | None:
        if team is None or not team.models or held.node is None:
            return None
        node = self.fleet.get(held.node)
        return node.model if node is not None else None

    def _recharge(self, several: Iterable[Uid]) -> None:
        for uid in several:
            if (held := self._held[uid]).forget_at is None:
                if (book := self._books.get(held.team)) is not None:
                    book.release(held.pod.uid)
                self._charge(held)

    def _revise(self, namespace: Namespace) -> None:
        before = self._tenancies.pop(namespace, None)
        if before is None or before.team_name != self.tenancy(namespace).team_name:
            self._recharge(self._by_namespace.get(namespace, ()))


def holder_of(namespace: Namespace, name: str, owner: Owner | None) -> str:
    """Name who a person would look for: the controller of a pod, or the bare pod."""
    return f"{namespace}/{owner.kind}/{owner.name}" if owner is not None else f"{namespace}/Pod/{name}"


_Place = TypeVar("_Place", Namespace, NodeName)


def _unlist(places: dict[_Place, dict[Uid, None]], place: _Place, uid: Uid) -> None:
    members = places[place]
    del members[uid]
    if not members:
        del places[place]
