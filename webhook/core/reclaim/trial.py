"""One round of planning on the fleet itself: room that is taken and freed step by step, and undone.

What one pod's victims free beyond its need, the next pod may use.
"""

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from enum import Enum, auto
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from webhook.core.model.amounts import DepartmentName, GangId, NodeName, TeamName, Uid, Units
from webhook.core.model.demand import Demand
from webhook.core.model.policy import ReclaimCost
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.pod_counts import PlacedPod
from webhook.core.placement.topology_rules import TopologyRequest, evaluate_topology
from webhook.core.reclaim.costs import CostBounds, CostScale, DevicesAfter, Group, Surplus
from webhook.core.reclaim.excluders import Excluders
from webhook.core.reclaim.reclaim_plan import (
    Move,
    NoPlan,
    NotPlanned,
    Overrides,
    ReclaimSnapshot,
    overrides_of,
    waits_past_budgets,
)
from webhook.core.reclaim.reclaim_pods import Going, ReclaimPod
from webhook.core.reclaim.refused_nodes import ClosedNodes
from webhook.core.reclaim.victim_search import VictimChoice, clear, departures, missing_gpus, missing_on, shortfall
from webhook.core.reclaim.victims import (
    BEFORE_CRITERIA,
    NOWHERE,
    FailureLimits,
    Remaining,
    Victim,
    VictimCost,
    WorkloadId,
)


class _Step(NamedTuple):
    """One tried change: room taken (sign 1) or freed (-1), and what is undone with it."""

    node: NodeName
    uid: Uid
    demand: Demand
    sign: int
    devices: tuple[int, ...]
    coming: int
    victim: Victim | None = None
    placed: PlacedPod | None = None


class Trial:
    """The snapshot after the moves planned so far; `undo` restores earlier states."""

    def __init__(self, snapshot: ReclaimSnapshot) -> None:
        self._snapshot = snapshot
        self._fleet = snapshot.fleet
        self._steps: list[_Step] = []
        self._gone: set[Uid] = set()
        self._quotas = dict(snapshot.quotas)
        self._exhausted = {team for team, left in snapshot.quotas.items() if left <= 0}
        self._reluctant = snapshot.spared | snapshot.refused
        self._have_rules = False  # some planned pods have anti-affinity
        self._coming = 0  # nodes whose room is not free yet, or held
        for hold in snapshot.holds:
            self._coming |= snapshot.fleet.bit(hold.node)
        self._left = dict(snapshot.left)
        self._failures: dict[WorkloadId, Remaining] = dict(snapshot.failures)
        self.surplus = Surplus(snapshot.minimums)
        place = snapshot.order.index(ReclaimCost.LOST_WORK)
        self._ahead, self._behind = (0,) * (place + BEFORE_CRITERIA), (0,) * (len(snapshot.order) - place - 1)
        self.closed_nodes = ClosedNodes(snapshot.refused_nodes, snapshot.fleet)
        self._excluders = Excluders(snapshot)
        self._offers: dict[tuple[Demand, int, Overrides, DepartmentName | None], _Offers] = {}
        self._groups: dict[tuple[Overrides, DepartmentName | None], dict[GangId, Group]] = {}
        going = Going(snapshot.sharing, together=[leaving.uid for leaving in snapshot.leaving])
        for leaving in snapshot.leaving:
            if (node := leaving.pod.node) is not None:
                self._give(node, leaving.uid, going.freed(leaving.uid, leaving.demand))
                if leaving.pod.is_ready and not leaving.pod.is_terminating:  # its eviction is not seen yet
                    self.surplus.take(leaving.pod.replica.workload, 1)
        for hold in snapshot.holds:
            self.take(hold.node, hold.waiting)

    @property
    def gone(self) -> Set[Uid]:
        """The pods that leave, or are evicted in this round."""
        return self._gone

    def savepoint(self) -> int:
        """Return a name of the present state for `undo`."""
        return len(self._steps)

    def undo(self, savepoint: int) -> None:
        """Restore an earlier state."""
        while len(self._steps) > savepoint:
            step = self._steps.pop()
            if step.sign < 0:
                self._gone.remove(step.uid)
            if step.victim is not None:
                self._draw(step.victim, 1)
            self._coming = step.coming
            if step.node != NOWHERE:
                self._fleet.take(step.node, step.demand, sign=-step.sign, holder=step.uid, devices=step.devices)
        self._offers.clear()
        self._groups.clear()

    def place(self, waiting: ReclaimPod, *, among: int = -1) -> Move | NotPlanned:
        """Find room for one pod, on these slots, and take it; without any, nothing changes."""
        return self.place_on(waiting, self._fleet.matching(waiting.constraints) & among)

    def place_on(
        self, waiting: ReclaimPod, slots: int, *, outside: frozenset[TeamName] = frozenset()
    ) -> Move | NotPlanned:
        """Find room for one pod on slots that match it, and take it; no pod of the teams `outside` is evicted."""
        outcome = self._place_on(waiting, slots, outside)
        if isinstance(outcome, NotPlanned) and outcome.cause is not NoPlan.FITS:
            if self.closed_nodes.reopen(waiting):
                return self.place_on(waiting, slots, outside=outside)
            if self.closed_nodes.look_free(waiting):
                return NotPlanned(waiting, NoPlan.ROOM_REFUSED)
        return outcome

    def _place_on(self, waiting: ReclaimPod, slots: int, outside: frozenset[TeamName]) -> Move | NotPlanned:
        fleet, demand = self._fleet, waiting.demand
        for node in self._snapshot.sharing.nodes(waiting.uid) if demand.own is not None else ():
            slots &= fleet.bit(node)
        able = self.able(waiting, slots)
        if not able:
            return NotPlanned(waiting, NoPlan.NO_NODE)
        allowed = self._allowed(waiting)
        if room := fleet.with_room(demand, able & allowed):
            free = room & ~self._coming
            if self.closed_nodes.close(waiting, free):
                return self._place_on(waiting, slots, outside)
            node = self._where(waiting, free or room)
            self.take(node, waiting)
            return NotPlanned(waiting, NoPlan.FITS) if free else Move(waiting, node, (), VictimCost())
        shut = able & ~allowed
        excluded = self._excluders.nodes(waiting, shut, self._request(waiting)) if shut else ()
        if shut == able and not excluded:
            return NotPlanned(waiting, NoPlan.TOPOLOGY_UNMET)
        for how in overrides_of(waiting, self._snapshot):
            how = how._replace(outside=outside) if outside else how  # noqa: PLW2901
            best = self._best(waiting, able, allowed, how)
            for each in excluded:
                found = self._excluders.offer(each, waiting, self.scale(waiting.team, how))
                if found and (best is None or self.rank_of(found.cost) < self.rank_of(best[1].cost)):
                    best = each.node, found
            if best is not None:
                break
        else:
            return NotPlanned(waiting, NoPlan.NOT_ENOUGH_VICTIMS)
        node, choice = best
        self.evict(choice.victims)
        self.take(node, waiting)
        is_past_budgets = waits_past_budgets(waiting, self._snapshot)
        return Move(waiting, node, choice.victims, choice.cost, is_past_budgets, how.may_break)

    def evict(self, victims: Sequence[Victim]) -> None:
        """Free the room of victims, as far as they are not gone in this round."""
        for victim in victims:
            if victim.uid in self._gone:
                continue
            self._give(victim.node, victim.uid, victim.demand, victim)

    def has_room(self, waiting: ReclaimPod, slots: int) -> bool:
        """Whether a node of these slots has room for a pod, now or once those that leave are gone."""
        able = self._fleet.with_room(waiting.demand, slots & self._open_to(waiting))
        return bool(able and able & self._allowed(waiting))

    def able(self, waiting: ReclaimPod, slots: int) -> int:
        """Return those of the slots that take pods of its team and would have room for it if they were empty."""
        return self._fleet.with_capacity(waiting.demand, slots & self._open_to(waiting))

    def is_bound_by_others(self, waiting: ReclaimPod) -> bool:
        """Whether rules between pods say where a pod may be, or where others may be because of it."""
        return bool(waiting.topology) or self._allowed(waiting) != -1

    def is_coming(self, node: NodeName) -> bool:
        """Whether the room of a node is not free yet, or held."""
        return bool(self._fleet.bit(node) & self._coming)

    def _open_to(self, waiting: ReclaimPod) -> int:
        closed = self._snapshot.keeping | self._snapshot.closed_to(waiting)
        return self._fleet.open_bits & ~(closed | self.closed_nodes.to(waiting))

    def _allowed(self, waiting: ReclaimPod) -> int:
        """Return the slots whose topology domains satisfy a pod's rules, with the pods placed so far."""
        pod_counts = self._snapshot.pod_counts
        if not (waiting.topology or self._have_rules or pod_counts.against(waiting.namespace, waiting.labels)):
            return -1
        if pod_counts.are_costly(waiting.namespace, waiting.topology):
            return 0
        return evaluate_topology(self._request(waiting), self._fleet, pod_counts).allowed

    def _request(self, waiting: ReclaimPod) -> TopologyRequest:
        """Return what a pod asks of the pods around it, as they are after the plans so far."""
        return TopologyRequest(
            waiting.namespace,
            waiting.labels,
            waiting.topology,
            waiting.constraints,
            left_out=self._excluders.among(self._gone, waiting),
            joined=tuple([step.placed for step in self._steps if step.placed is not None]),
        )

    def _where(self, waiting: ReclaimPod, among: int) -> NodeName:
        """Return the node that a pod will use: on any other, the plan would take the room of another pod."""
        among = among & ~self._fleet.labels.discouraged(waiting.constraints) or among
        first = next((name for name in waiting.chosen if self._fleet.bit(name) & among), None)
        return self._fleet.names_of(among & -among)[0] if first is None else first

    def _best(
        self, waiting: ReclaimPod, able: int, allowed: int, how: Overrides
    ) -> tuple[NodeName, VictimChoice] | None:
        key = (waiting.demand, able, how, self._snapshot.department_order.home(waiting.team))
        offers = self._offers.get(key)
        if offers is None:
            offers = self._offers[key] = _Offers(self, self._fleet, waiting, able, how)
        return offers.best(allowed)

    def bounds(self, among: int, demand: Demand) -> Iterator[tuple[tuple[Units, ...], NodeName]]:
        """Yield the least possible cost of room on each node that has victims."""
        now, on, ahead, behind = self._snapshot.now, self._snapshot.victim_index.on, self._ahead, self._behind
        for node, missing in missing_on(self._fleet, among, demand):
            node_victims = on(node)
            if node_victims is not None:
                yield (*ahead, node_victims.least_loss(missing, now), *behind), node

    def lower_bound(self, node: NodeName, demand: Demand, bounds: CostBounds) -> tuple[Units, ...] | None:
        """Return the least possible cost of room on a node, by all that is known without a search."""
        node_victims = self._snapshot.victim_index.on(node)
        if node_victims is None:
            return None
        return bounds.of_one(node_victims, missing_gpus(self._fleet, node, (demand,))).ranked(self._snapshot.order)

    def bounds_for(self, team: TeamName) -> CostBounds:
        """Return lower bounds of costs for pods of a team."""
        return CostBounds(self._snapshot, team)

    def rank_of(self, cost: VictimCost) -> tuple[Units, ...]:
        """Return the parts of a cost in the order in which they count."""
        return cost.ranked(self._snapshot.order)

    def offer(self, node: NodeName, demand: Demand, scale: CostScale) -> VictimChoice | None:
        """Return the cheapest choice of victims on a node in the present state."""
        need = shortfall(self._fleet, {node: (demand,)})
        room = DevicesAfter(self._fleet.device_slots(node), node)
        return clear(need, (node,), self._snapshot.victim_index, room=room, scale=scale)

    def scale(self, team: TeamName, how: Overrides) -> CostScale:
        """Return what victims cost in the present state, for a pod of this team."""
        snapshot = self._snapshot
        return CostScale(
            now=snapshot.now,
            over_share=snapshot.over_share,
            order=snapshot.order,
            left=None if how.is_past_budgets else self._left,
            gone=self._gone,
            spared=snapshot.spared if how.is_past_budgets else self._reluctant,
            exhausted=self._exhausted | how.outside if how.outside else self._exhausted,
            no_minimum_after=how.no_minimum_after,
            failure_limits=FailureLimits(self._failures, may_break=how.may_break),
            surplus=self.surplus,
            departments=snapshot.department_order.costs(team),
            idle=snapshot.idle,
            sharing=snapshot.sharing,
            groups=self._groups.setdefault((how, snapshot.department_order.home(team)), {}),
        )

    def allows(self, choice: VictimChoice, how: Overrides) -> bool:
        """Whether the victims of an earlier offer are still there, and budgets and minimums say what they said then."""
        if any(victim.uid in self._gone or victim.team in self._exhausted for victim in choice.victims):
            return False
        if choice.trims and self.surplus.draw({}, choice.trims) != choice.trim_cost:
            return False
        failure_limits = FailureLimits(self._failures, may_break=how.may_break)
        if failure_limits.draw({}, departures(choice.victims)) is None:
            return False
        drawn = Counter(guard for victim in choice.victims for guard in victim.guards)
        return how.is_past_budgets or all(self._left.get(guard, 0) >= count for guard, count in drawn.items())

    def _give(self, node: NodeName, uid: Uid, demand: Demand, victim: Victim | None = None) -> None:
        step = _Step(node, uid, demand, -1, self._fleet.devices_of(node, uid), self._coming, victim)
        self._gone.add(uid)
        if victim is not None:
            self._draw(victim, -1)
        self._coming |= self._fleet.bit(node)
        self._change(step)

    def take(self, node: NodeName, pod: ReclaimPod) -> None:
        """Take room for a pod."""
        self._have_rules |= bool(pod.anti_affinity_rules)
        self._change(_Step(node, pod.uid, pod.demand, 1, (), self._coming, placed=PlacedPod(pod, node)))

    def _draw(self, victim: Victim, sign: int) -> None:
        """Count a victim (sign -1) against its budgets, its workload's surplus and its team's quota; sign 1 undoes it.

        A plan is never cut in two: its last victims may exceed the team's quota of the minute.
        """
        for guard in victim.guards:
            self._left[guard] = self._left.get(guard, 0) + sign
        if victim.workload is not None and (remaining := self._failures.get(victim.workload)) is not None:
            left = remaining.left + sign * victim.is_counted
            self._failures[victim.workload] = Remaining(left, remaining.pods + sign)
        if victim.replica_of is not None:
            self.surplus.take(victim.replica_of, -sign)
        if victim.team in self._quotas:
            self._quotas[victim.team] += sign
            change = self._exhausted.add if self._quotas[victim.team] <= 0 else self._exhausted.discard
            change(victim.team)

    def _change(self, step: _Step) -> None:
        if step.node != NOWHERE:
            self._fleet.take(step.node, step.demand, sign=step.sign, holder=step.uid)
        self._steps.append(step)
        self._groups.clear()
        for offers in self._offers.values():
            offers.note(step.node)


class _Known(Enum):
    """What is known of the cost of room on a node that was not searched."""

    LOST_WORK = auto()
    LOWER_BOUND = auto()


_Entry = tuple[tuple[Units, ...], NodeName, int, VictimChoice | _Known]
"""A candidate node: rank, node, version, choice. Entries of one node and version replace each other, so choices are
never compared."""


class _Offers:
    """The nodes that could take pods of one demand, the cheapest on top.

    A heap whose entries start as lower bounds, of the lost work alone, then of all parts of the cost: a node is
    searched only when its bound reaches the top, and again only after a change there. What budgets allow only shrinks
    within a round, so an old offer is a lower bound too.
    """

    def __init__(self, trial: Trial, fleet: Fleet, waiting: ReclaimPod, among: int, how: Overrides) -> None:
        self._trial = trial
        self._how = how
        self._fleet = fleet
        self._demand = waiting.demand
        self._team = waiting.team
        self._among = among
        self._versions: dict[NodeName, int] = {}
        self._bounds = trial.bounds_for(waiting.team)
        known = _Known.LOST_WORK
        self._heap: list[_Entry] = [(rank, node, 0, known) for rank, node in trial.bounds(among, waiting.demand)]
        heapify(self._heap)

    def note(self, node: NodeName) -> None:
        """Note that something changed on a node."""
        if self._fleet.bit(node) & self._among:
            version = self._versions[node] = self._versions.get(node, 0) + 1
            if (rank := self._trial.lower_bound(node, self._demand, self._bounds)) is not None:
                heappush(self._heap, (rank, node, version, _Known.LOWER_BOUND))

    def best(self, allowed: int) -> tuple[NodeName, VictimChoice] | None:
        """Return the cheapest choice on an allowed node; it stays valid until its node changes."""
        aside: list[_Entry] = []
        found = self._cheapest(allowed, aside)
        for entry in aside:
            heappush(self._heap, entry)
        return found

    def _cheapest(self, allowed: int, aside: list[_Entry]) -> tuple[NodeName, VictimChoice] | None:
        while self._heap:
            _, node, version, choice = self._heap[0]
            if allowed != -1 and not self._fleet.bit(node) & allowed:
                aside.append(heappop(self._heap))
                continue
            if version == self._versions.get(node, 0):
                if choice is _Known.LOST_WORK:
                    rank = self._trial.lower_bound(node, self._demand, self._bounds)
                    if rank is not None:
                        heapreplace(self._heap, (rank, node, version, _Known.LOWER_BOUND))
                        continue
                elif isinstance(choice, VictimChoice) and self._trial.allows(choice, self._how):
                    return node, choice
                scale = self._trial.scale(self._team, self._how)
                found = self._trial.offer(node, self._demand, scale)
                if found is not None:
                    heapreplace(self._heap, (self._trial.rank_of(found.cost), node, version, found))
                    continue
            heappop(self._heap)
        return None
