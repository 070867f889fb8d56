"""Room that comes: what preemptible pods, or those under a limit, hold; what a pod's nodes have free and in all."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from webhook.core.admission.assessment import Assessment
from webhook.core.admission.pools import EVERY_TAINT
from webhook.core.model.amount import Units
from webhook.core.model.decision import Charge
from webhook.core.model.demand import Demand
from webhook.core.model.names import NodeName, ResourceName, TeamName, Uid
from webhook.core.model.pod import Pod, Resident
from webhook.core.model.tier import Tier
from webhook.core.peers.topology_filter import TopologyRequest, evaluate_topology
from webhook.core.reclaim.reclaim_pod import is_protected_by
from webhook.core.world.gang_reservations import RESERVED
from webhook.core.world.world import World

MAX_REACH: Final = 64
"""Nodes that pods behind a waiting one may be kept off by name: a list of more costs too much to compare."""


_NOTHING: Final[dict[ResourceName, int]] = {}


def _never(_team: TeamName) -> bool:
    return False


def borrows(charge: Charge) -> bool:
    """Whether a charge is borrowed, so that reclaim may take it back."""
    return charge.tier is Tier.PREEMPTIBLE


class BorrowedRoom:
    """What borrowing pods hold on each node, by resource in pieces; counted once, when it is first asked for.

    Room that is promised to such a pod counts, too: else pods that are created and deleted again and again could keep
    it from shares, without ever being on a node.

    Whether the evictor finds victims at once depends on more (minimum runtimes, budgets, notice). A pod that is
    charged for room that it can take back waits for that, inside its guaranteed share. `is_paced` says of which teams
    so many wait for it that the next follow later. `first` is a node that serves if it can still hold the pod: then no
    others are counted. A pod waits for what pods deleted by force leave, where nothing else is in its way: no eviction
    ends that sooner. `counts` says whose room comes, if not that of borrowing pods.
    """

    def __init__(
        self,
        world: World,
        *,
        is_paced: Callable[[TeamName], bool] = _never,
        first: NodeName | None = None,
        counts: Callable[[Charge], bool] = borrows,
    ) -> None:
        self.is_paced = is_paced
        self._world = world
        self._counts = counts
        self._first = first
        self._held: dict[NodeName, dict[ResourceName, int]] | None = None
        self._left: dict[NodeName, dict[ResourceName, int]] = {}  # the part of pods that were deleted by force

    def node_for(self, assessed: Assessment) -> NodeName | None:
        """Return the node that would have the devices of a pod free if borrowing pods on it were evicted; None if none.

        It is the one where the least is missing, then the first by name.
        """
        demand, first = assessed.pod.demand, self._first
        slots = _slots(assessed, self._world) & _allowed(assessed.pod, self._world)
        if first is not None and slots & self._world.fleet.bit(first) and self._can_hold(first, demand):
            return first
        return self._best_node(demand, slots)

    def could_hold(self, demand: Demand, slots: int) -> bool:
        """Whether one of the slots would have the devices of a pod free if borrowing pods on it were evicted."""
        return self._best_node(demand, self._world.fleet.could_start(demand, slots)) is not None

    def _can_hold(self, name: NodeName, demand: Demand) -> bool:
        held: dict[ResourceName, int] = {}
        left: dict[ResourceName, int] = {}
        for pod in (*self._world.pods_on(name), *self._world.pods_on(name, is_expected=True)):
            entry = self._world.entry_of(pod.uid)
            if entry is not None and self._counts(entry.charge):
                self._add(held, pod)
                if entry.lingers and self._is_evicted:
                    self._add(left, pod)
        return self._serves(name, demand, held, left)

    def _serves(
        self, name: NodeName, demand: Demand, held: Mapping[ResourceName, int], left: Mapping[ResourceName, int]
    ) -> bool:
        """Whether a node could hold a pod once borrowing pods are evicted, and not by waiting alone."""
        free, devices = self._world.fleet.free, demand.held
        if not all(free(name, resource) + held.get(resource, 0) >= amount for resource, amount in devices):
            return False
        return not left or any(free(name, resource) + left.get(resource, 0) < amount for resource, amount in devices)

    def _best_node(self, demand: Demand, slots: int) -> NodeName | None:
        fleet, devices = self._world.fleet, demand.held
        if self._held is None:
            self._held = self._count()
        found: list[tuple[int, NodeName]] = []
        for name in fleet.names_of(slots):
            held = self._held.get(name)
            if held is not None and self._serves(name, demand, held, self._left.get(name, _NOTHING)):
                missing = sum(max(0, amount - fleet.free(name, resource)) for resource, amount in devices)
                found.append((missing, name))
        return min(found)[1] if found else None

    def able(self, demand: Demand, among: int) -> int:
        """Return those of the slots where a pod would have room for all but its devices; implements Supply."""
        fleet = self._world.fleet
        return fleet.could_start(demand, among & fleet.open_bits)

    def amounts(self, resource: ResourceName, slots: Sequence[int]) -> Sequence[int]:
        """Return what is free or held by borrowing pods; of resources that are no devices, all there is."""
        fleet = self._world.fleet
        if resource not in self._world.policy.resources:
            return fleet.allocatable_at(slots, resource)
        if self._held is None:
            self._held = self._count()
        held, nothing = self._held, _NOTHING
        free = zip(fleet.names(slots), fleet.free_at(slots, resource), strict=True)
        return [amount + held.get(name, nothing).get(resource, 0) for name, amount in free]

    def _count(self) -> dict[NodeName, dict[ResourceName, int]]:
        held: dict[NodeName, dict[ResourceName, int]] = {}
        for uid in self._counted():
            pod, node, entry = self._world.pod(uid), self._world.node_of(uid), self._world.entry_of(uid)
            if pod is not None and node is not None:
                self._add(held.setdefault(node, {}), pod)
                if entry is not None and entry.lingers and self._is_evicted:
                    self._add(self._left.setdefault(node, {}), pod)
        return held

    @property
    def _is_evicted(self) -> bool:
        """Whether it is evictions that make the room."""
        return self._counts is borrows

    def _add(self, held: dict[ResourceName, int], pod: Resident) -> None:
        """Add what a counted pod holds, unless it borrows and is never evicted, as is room for later pods of a gang."""
        is_kept = pod.uid.startswith(RESERVED) or is_protected_by(self._world.policy.reclaim, pod.namespace, pod.labels)
        if not (self._is_evicted and is_kept):
            for resource, amount in pod.demand.held:
                held[resource] = held.get(resource, 0) + amount

    def _counted(self) -> Iterator[Uid]:
        for usage in self._world.usage_by_team().values():
            if usage.preemptible or self._counts is not borrows:
                yield from (uid for uid, entry in usage.entries() if self._counts(entry.charge))


def nodes_for(assessed: Assessment, world: World) -> Iterator[tuple[NodeName, Units, Units]]:
    """Yield the nodes that could hold a pod beside their own pods, with their free and their allocatable GPU units."""
    fleet = world.fleet
    weights = [(name, world.policy.resources.get(name, 0)) for name, _ in assessed.pod.demand.devices]
    for name in fleet.names_of(_slots(assessed, world)):
        node = fleet.get(name)
        if node is not None:
            free = sum(fleet.free(name, resource) * weight for resource, weight in weights)
            size = sum(node.allocatable.get(resource, 0) * weight for resource, weight in weights)
            yield name, max(0, free), size


def reachable(assessed: Assessment, world: World) -> frozenset[NodeName] | None:
    """Return the nodes that could hold a pod beside their own pods; None if these are many, or all that there are."""
    slots = _slots(assessed, world)
    count = slots.bit_count()
    return None if count > MAX_REACH or count == len(world.fleet) else frozenset(world.fleet.names_of(slots))


def has_free_devices(assessed: Assessment, world: World) -> bool:
    """Whether a node that could hold a pod has all of its devices free, counted in pieces; what it lacks is other."""
    slots = _slots(assessed, world) & world.fleet.open_bits
    for resource, amount in assessed.pod.demand.devices:
        slots = world.fleet.having(resource, amount, slots)
    return bool(slots)


def may_ever_start(assessed: Assessment, world: World) -> bool:
    """Whether any node could hold a pod beside the pods that come with it, though it may be held or reject pods now."""
    return bool(_able(assessed, world, ignores_taints=True))


def _slots(assessed: Assessment, world: World) -> int:
    avoided = world.rejecting_nodes.avoided(assessed.team.name, assessed.pod, world.fleet)
    return _able(assessed, world) & ~avoided.closed


def has_free_room(assessed: Assessment, world: World) -> bool:
    """Whether a node has room for a pod now where the rules between pods let it be."""
    slots = _slots(assessed, world) & _allowed(assessed.pod, world) & world.fleet.open_bits
    return bool(world.fleet.with_room(assessed.pod.demand, slots))


def _allowed(pod: Pod, world: World) -> int:
    """Return the slots where the rules between pods let a pod be, as reclaim reads them."""
    counts = world.pod_counts
    if not (pod.topology or counts.against(pod.namespace, pod.labels)):
        return -1
    if counts.are_costly(pod.namespace, pod.topology):
        return 0
    request = TopologyRequest(pod.namespace, pod.labels, pod.topology, pod.constraints)
    return evaluate_topology(request, world.fleet, counts).allowed


def _able(assessed: Assessment, world: World, *, ignores_taints: bool = False) -> int:
    pod, slots = assessed.pod, 0
    for pool in assessed.pools.allowed:
        joined = world.pools.joined(pod.constraints, pool)
        slots |= world.fleet.matching(joined.joined(tolerations=EVERY_TAINT) if ignores_taints else joined)
    return world.fleet.could_start(pod.demand, slots)
