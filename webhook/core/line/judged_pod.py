"""May this pod start, or why it waits.

Room that comes: what preemptible pods, or those under a limit, hold; what a pod's nodes have free and in all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from webhook.core.admission.admission import start
from webhook.core.admission.assessment import Assessment, assess
from webhook.core.admission.domain_rules import place_beside
from webhook.core.admission.node_choice import in_domain
from webhook.core.admission.pools import EVERY_TAINT, may_grow
from webhook.core.admission.queueing import limits_in_the_way, reason_to_wait, waits_for_room
from webhook.core.line.entries import (
    IN_TURN,
    MOST,
    Attempt,
    Fits,
    KeepableNode,
    Never,
    NoRoom,
    OverLimit,
    Paced,
    Verdict,
    Way,
    kept_nodes,
)
from webhook.core.line.line import DEPARTMENT, MODEL, SHARE, TEAM, USER
from webhook.core.model.amounts import NodeName, ResourceName, TeamName, Uid, Units, exceeds
from webhook.core.model.constraints import DomainPlace, Tier
from webhook.core.model.decision import Admit, Charge, Decision, Deny, NodeChoice, NotApplicable, Retry, lacks_room
from webhook.core.model.demand import Demand
from webhook.core.model.pod import Pod, Requester, Resident
from webhook.core.model.policy import Mode
from webhook.core.model.reasons import LIMITS, NO_ROOM, Code, Reason
from webhook.core.placement.topology_rules import TopologyRequest, evaluate_topology
from webhook.core.quota.charges import InFlightCharge, flight_of
from webhook.core.reclaim.reclaim_pods import is_protected_by
from webhook.core.world.waiting_pods import RESERVED, WaitingPod
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


# Judges whether a waiting pod may start now, by the same decision that a new pod gets.


NO_REQUESTER: Final = Requester("")
KEPT: Final = "kept"
"""The limit that is named where room is kept for others: it is not in the way of pods that do not borrow."""
_NO_NODE: Final = frozenset({Code.NEVER_FITS, Code.POOL_UNFIT})
"""The codes of pods for which there is no node."""
_NO_OTHER_NODE: Final = Reason(Code.WAITS_FOR_ROOM, "no other node could hold it")
_NEVER_BESIDE: Final = (
    "{short}, but none beside its own pods, such as those of DaemonSets: request less; no other pod is kept waiting "
    "for it"
)
_BACKFILLS: Final = "runs ahead of pods that wait for room, and gives it back when they can start"


class Judged(NamedTuple):
    """A waiting pod with the decision on it, if it started now; `reason` is why it waits on, None if it does not.

    It starts as the `attempt` says, and in the domain of its gang (`place`). `gang_whole` is what the pod is to say
    of its gang (WaitingPod). With `takes_back` reclaim makes its room.
    """

    waiting: WaitingPod
    pod: Pod
    decision: Decision
    verdict: Verdict
    reason: Reason | None = None
    attempt: Attempt = IN_TURN
    place: DomainPlace | None = None
    gang_whole: int = 0
    takes_back: bool = False

    @property
    def flight(self) -> InFlightCharge:
        """Its charge in flight; only of a pod that starts."""
        if not isinstance(admit := self.decision, Admit):
            raise TypeError(f"a pod that does not start has no charge: {admit}")
        charge, pod = admit.charge, self.waiting.pod
        made = pod._replace(demand=admit.demand, team_label=charge.team, tier_label=str(charge.tier))
        return flight_of(made, charge, nodes=admit.node_choice.nodes or admit.node_choice.expected)

    @property
    def may_await_room(self) -> bool:
        """Whether it may keep its gate while reclaim makes room: on one node, which changes nothing of its charge."""
        if not isinstance(admit := self.decision, Admit):
            return False
        return bool(admit.node_choice.nodes) and admit.charge.model is None and admit.demand == self.pod.demand


def judge_pod(
    waiting: WaitingPod,
    world: World,
    borrowed: BorrowedRoom | None,
    attempt: Attempt = IN_TURN,
    *,
    is_member: bool = False,
    place: DomainPlace | None = None,
) -> Judged:
    """Return whether a waiting pod may start now, with its decision.

    The member of a gang (`is_member`) starts with room only, whatever policy says of pods without room. It starts in
    the domain `place`, by default that of the members that have started. Without `borrowed`, no room is taken back.
    If it has no room, tentative reservations are dropped, as for a new pod: their pods may never be created.
    """
    if place is None:
        place = place_beside(waiting.pod, world)
    assessed = _assessed(waiting, world, attempt, place)
    decision = start(assessed, world)
    if lacks_room(decision) and world.tentative.clear(world.fleet):
        decision = start(assessed, world)
    match decision:
        case Admit():
            is_left_to_wait = not waits_for_room(assessed, world) and (
                not is_member or may_grow(assessed.pools.allowed, world)
            )
            is_ahead = attempt.way is Way.BACKFILL
            may_wait = is_left_to_wait and not (is_ahead or attempt.kept)
            judged = _admitted(waiting, assessed, decision, world, None if is_ahead else borrowed, may_wait=may_wait)
            if is_ahead and isinstance(judged.decision, Admit):
                requested = waiting.pod.requested_tier
                ahead = judged.decision._replace(reason=Reason(Code.BACKFILLS, _BACKFILLS), requested_tier=requested)
                judged = judged._replace(decision=ahead)
        case NotApplicable(reason=reason, charge=charge):
            decision = _unplaced(waiting, assessed, charge, reason, world)
            judged = Judged(waiting, assessed.pod, decision, Fits())
        case Retry(reason=reason):
            judged = Judged(waiting, assessed.pod, decision, Never(), Reason(Code.WAITS_IN_LINE, *reason.statement))
        case Deny(reasons=reasons) if attempt.kept and not _is_refused_anywhere(
            waiting, reasons, world, attempt, place
        ):
            judged = Judged(waiting, assessed.pod, decision, NoRoom(), _NO_OTHER_NODE)
        case Deny(reasons=reasons):
            why = reason_to_wait(assessed, reasons, world)
            judged = Judged(waiting, assessed.pod, decision, _refused(assessed, reasons), why)
        case _:
            raise AssertionError(f"a pod that starts is never queued: {decision}")
    if place is not None and isinstance(judged.decision, Admit):
        choice = in_domain(judged.decision.node_choice, place)
        judged = judged._replace(place=place, decision=judged.decision._replace(node_choice=choice))
    judged = judged._replace(attempt=attempt)
    return _without_room(judged, assessed, world) if isinstance(judged.verdict, NoRoom) else judged


def has_place(waiting: WaitingPod, world: World, coming: BorrowedRoom) -> bool:
    """Whether a pod would start if no limit kept it out: a node has room for it, or gets it as others leave."""
    assessed = _assessed(waiting, world, IN_TURN, place_beside(waiting.pod, world)).as_if_unused()
    decision = start(assessed, world)
    match decision:
        case Admit(warnings=reasons) | Deny(reasons=reasons):
            codes = {reason.code for reason in reasons}
        case _:
            return isinstance(decision, NotApplicable)
    if isinstance(decision, Deny) and not codes <= NO_ROOM:
        return False
    is_free = codes.isdisjoint(NO_ROOM) and (not waiting.pod.topology or has_free_room(assessed, world))
    return is_free or may_grow(assessed.pools.allowed, world) or coming.node_for(assessed) is not None


def _without_room(judged: Judged, assessed: Assessment, world: World) -> Judged:
    """Return for which room a pod waits, and what back-fill leaves alone for it."""
    why, (_, kept, before) = judged.reason or _NO_OTHER_NODE, judged.attempt
    reach = reachable(assessed, world)
    if not (kept or may_ever_start(assessed, world)):
        never = Reason(Code.WAITS_IN_LINE, _NEVER_BESIDE, {"short": why.statement})
        return judged._replace(verdict=Never(), reason=never)
    if kept:
        words = "{short}; room on {nodes:node} is reserved for pods ahead of it"
        why = Reason(why.code, words, {"short": why.statement, "nodes": len(kept)})
    charge = judged.decision.charge if isinstance(judged.decision, Admit) else None
    return judged._replace(verdict=_no_room(assessed, charge, world, before, reach), reason=why)


def _is_refused_anywhere(
    waiting: WaitingPod, reasons: tuple[Reason, ...], world: World, attempt: Attempt, place: DomainPlace | None
) -> bool:
    """Whether a pod that is refused for these reasons, off the nodes kept for others, is refused on those as well."""
    if not {reason.code for reason in reasons} <= _NO_NODE:
        return True
    return isinstance(start(_assessed(waiting, world, Attempt(attempt.way), place), world), Deny)


def _assessed(waiting: WaitingPod, world: World, attempt: Attempt, place: DomainPlace | None) -> Assessment:
    pod = waiting.pod
    if attempt.way is Way.BACKFILL:
        pod = pod._replace(tier_label=str(Tier.PREEMPTIBLE))
    if attempt.kept:
        pod = pod._replace(constraints=pod.constraints.excluding(attempt.kept))
    assessed = assess(pod, NO_REQUESTER, world).of_user(waiting.user)
    return assessed if place is None else assessed.within(place)


def _admitted(
    waiting: WaitingPod,
    assessed: Assessment,
    admit: Admit,
    world: World,
    borrowed: BorrowedRoom | None,
    *,
    may_wait: bool,
) -> Judged:
    has_room = not any(each.code in NO_ROOM for each in admit.warnings)
    if has_room or may_wait:
        return Judged(waiting, assessed.pod, admit, Fits())
    may_reclaim = borrowed is not None and admit.charge.tier is Tier.GUARANTEED
    if borrowed is not None and may_reclaim and (node := borrowed.node_for(assessed)) is not None:
        team = assessed.team.name
        if borrowed.is_paced(team):
            words = "borrowed GPUs are reclaimed for {pods} pods of team {team} ahead of it"
            paced = Reason(Code.WAITS_IN_LINE, words, {"pods": MOST, "team": team})
            return Judged(waiting, assessed.pod, admit, Paced(), paced)
        # its room is taken there at once: pods behind it do not start on what reclaim frees for it
        choice = admit.node_choice
        if choice.mode is Mode.OFF:
            choice = choice._replace(expected=(node,))
        else:
            choice = choice._replace(mode=Mode.PREFER, nodes=(node,))
        return Judged(waiting, assessed.pod, admit._replace(node_choice=choice), Fits(), takes_back=True)
    return Judged(waiting, assessed.pod, admit, NoRoom(), reason_to_wait(assessed, admit.warnings, world))


def _refused(assessed: Assessment, reasons: tuple[Reason, ...]) -> OverLimit | NoRoom | Never:
    """Return the verdict on a pod that a new decision refuses."""
    codes = {reason.code for reason in reasons}
    team, user = assessed.team.name, assessed.user
    if not codes <= LIMITS | NO_ROOM:
        return Never()
    if any(each.kept for each in limits_in_the_way(assessed)):
        return OverLimit((KEPT, team))
    if Code.TEAM_LIMIT_EXCEEDED in codes:
        return OverLimit((TEAM, team))
    if Code.USER_LIMIT_EXCEEDED in codes:
        return OverLimit((USER, team, user))
    if Code.DEPARTMENT_LIMIT_EXCEEDED in codes:
        return OverLimit((DEPARTMENT, _full_department(assessed)))
    if Code.MODEL_LIMIT_EXCEEDED in codes:
        return OverLimit((MODEL, team, None))
    if Code.GUARANTEED_SHARE_USED in codes:
        return OverLimit((SHARE, team))
    return NoRoom()


def _full_department(assessed: Assessment) -> str | None:
    """Return the department whose limit has no room, the nearest first; None where it is a limit per model."""
    gpus = assessed.request.gpus
    full = (each for each in assessed.usage.levels if exceeds(each.total + gpus, each.department.gpus.limit))
    level = next(full, None)
    return None if level is None else level.department.name


def _no_room(
    assessed: Assessment,
    charge: Charge | None,
    world: World,
    before: frozenset[NodeName],
    reach: frozenset[NodeName] | None,
) -> NoRoom:
    """Return what back-fill must leave alone: nothing for a pod that reclaim makes room for."""
    tier = assessed.tier(assessed.pod.demand, None) if charge is None else charge.tier
    idle = has_free_devices(assessed, world)
    if tier is Tier.GUARANTEED:
        return NoRoom(reach=reach, has_devices=idle)
    rooms = (KeepableNode(name, free, size) for name, free, size in nodes_for(assessed, world))
    return NoRoom(kept_nodes((assessed.pod.demand.gpus,), rooms, before=before), reach, idle)


def start_unjudged(waiting: WaitingPod, world: World) -> Judged:
    """Return the start of a pod where policy is no longer enforced: charged as borrowing, bound to no node."""
    assessed = assess(waiting.pod, NO_REQUESTER, world).of_user(waiting.user)
    reason = Reason(Code.NOT_ENFORCED, "policy is not enforced")
    return Judged(waiting, assessed.pod, _unplaced(waiting, assessed, None, reason, world), Fits())


def _unplaced(waiting: WaitingPod, assessed: Assessment, charge: Charge | None, reason: Reason, world: World) -> Admit:
    """Return the decision on a pod that Fairgate no longer decides on, such as one of an exempt namespace."""
    kept = charge or Charge(waiting.team, Tier.PREEMPTIBLE, assessed.pod.demand.gpus)
    counted = Reason(Code.BORROWS, "{why}; {gpus:GPUs} counted", {"why": reason.statement, "gpus": kept.gpus})
    return Admit(
        kept,
        assessed.pod.demand,
        NodeChoice(Mode.OFF),
        counted,
        world.policy.hash,
        requested_tier=waiting.pod.requested_tier,
    )
