"""The cheapest victims of one node.

What pods lack on a node or on several: the amounts that victims must free there.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, product
from typing import NamedTuple

from webhook.core.model.amounts import NodeName, ResourceName, Uid, Units, WorkloadName
from webhook.core.model.demand import Demand
from webhook.core.placement.fleet import Fleet
from webhook.core.reclaim.costs import CostScale, Effort, Group, Need, NodeDevices, Trim
from webhook.core.reclaim.reclaim_pods import freeing
from webhook.core.reclaim.victims import NOWHERE, Departure, GuardId, Victim, VictimCost, VictimIndex, WorkloadId


def shortfall(fleet: Fleet, demands: Mapping[NodeName, Sequence[Demand]]) -> Need:
    """Return what is missing for all of these pods on their nodes; only a pod that is alone may ask for devices."""
    amounts: dict[tuple[NodeName, ResourceName], Units] = {}
    gpus: Units = 0
    for node, there in demands.items():
        wanted: Counter[ResourceName] = Counter()
        for demand in there:
            wanted.update(dict(demand.requests))
        for resource, amount in wanted.items():
            if (missing := amount - fleet.free(node, resource)) > 0:
                amounts[node, resource] = missing
        gpus += missing_gpus(fleet, node, there)
    (first, *_), *_ = demands.values()
    return Need(amounts, gpus, first.per_device)


def missing_gpus(fleet: Fleet, node: NodeName, demands: Sequence[Demand]) -> Units:
    """Return how many GPU units pods of one resource each lack on a node; 0 is always a valid lower bound.

    On slices each piece is less than the pod counts, if the pod may get whole GPUs.
    """
    if fleet.slices.slots and fleet.bit(node) & fleet.slices.slots:
        return 0
    if len(demands) == 1:
        held = demands[0].held
        if len(held) != 1:
            return 0
        ((resource, amount),) = held
        return max(0, amount - fleet.free(node, resource)) * (demands[0].gpus // amount)
    wanted: Counter[ResourceName] = Counter()
    weights: dict[ResourceName, Units] = {}
    for demand in demands:
        held = demand.held
        if len(held) == 1:
            ((resource, amount),) = held
            wanted[resource] += amount
            weights[resource] = demand.gpus // amount
    return sum(max(0, amount - fleet.free(node, name)) * weights[name] for name, amount in wanted.items())


def missing_on(fleet: Fleet, among: int, demand: Demand) -> list[tuple[NodeName, Units]]:
    """Return the same for one pod on each of these slots."""
    held = demand.held
    if len(held) != 1:
        return [(node, 0) for node in fleet.names_of(among)]
    ((resource, amount),) = held
    each, sliced = demand.gpus // amount, among & fleet.slices.slots
    missing: list[tuple[NodeName, Units]] = [
        (node, (amount - free) * each if free < amount else 0) for node, free in fleet.free_on(among ^ sliced, resource)
    ]
    return missing + [(node, 0) for node in fleet.names_of(sliced)] if sliced else missing


# The victim search: the cheapest victims that make room for one pod on one node, or for several on a few nodes.
#
# Exact: victims that free the same are interchangeable except for their cost, so only the number of victims per row is
# searched, and a branch ends as soon as it costs more than the best so far. A node has at most a few dozen GPU pods.


_NEITHER, _BOTH = (False,), (False, True)


class VictimChoice(NamedTuple):
    """Victims that free enough on a node, and their cost. `trims` are the workloads with a minimum that lose some."""

    cost: VictimCost
    victims: tuple[Victim, ...]
    trims: tuple[Trim, ...] = ()
    trim_cost: VictimCost = VictimCost()


class Unit(NamedTuple):
    """Victims that are evicted together: one single, a gang, the users of a claim or a workload.

    `here` is what they free of the need, `guards` how many of them each budget covers. `workless` of their GPU units
    are those of pods that have no work to lose.
    """

    victims: tuple[Victim, ...]
    here: tuple[Units, ...]
    gpus: Units
    cost: VictimCost
    departures: tuple[Departure, ...]
    guards: tuple[tuple[GuardId, int], ...]
    trims: tuple[Trim, ...] = ()
    workless: Units = 0


def guarded(victim: Victim) -> tuple[tuple[GuardId, int], ...]:
    """Return the budgets that cover a single victim."""
    return tuple([(guard, 1) for guard in victim.guards])


def clear(
    need: Need,
    nodes: Collection[NodeName],
    victim_index: VictimIndex,
    *,
    room: NodeDevices,
    scale: CostScale,
    effort: Effort | None = None,
) -> VictimChoice | None:
    """Return the victims of the least cost on these nodes together; None where no choice frees enough."""
    there = [node for node in nodes if victim_index.on(node) is not None]
    made = (
        *(row for node in there for row in _singles(need, node, victim_index, room=room, scale=scale)),
        *_groups(need, there, victim_index, room=room, scale=scale),
        *_whole(need, there, victim_index, room=room, scale=scale),
    )
    return cheapest(need, made, room=room, scale=scale, effort=effort)


def cheapest(
    need: Need, made: Iterable[list[Unit]], *, room: NodeDevices, scale: CostScale, effort: Effort | None = None
) -> VictimChoice | None:
    """Return the victims of the least cost among rows of units; those of a row free the same."""

    def order(unit: Unit) -> tuple[tuple[Units, ...], Uid]:
        return rank_alone(unit, scale), unit.victims[0].uid

    rows = [sorted(row, key=order)[: scale.failure_limits.singles(_limiting(row))] for row in made]
    rows = [row for row in rows if row]
    rows.sort(key=lambda row: order(row[0]))
    wanted = tuple(need.amounts.values())
    offered = [sum(part) for part in zip(*(unit.here for row in rows for unit in row), strict=True)]
    if not rows or any(got < want for got, want in zip(offered, wanted, strict=True)):
        return None
    search = _Search(need, rows, room, scale, Effort() if effort is None else effort)
    search.descend(0, _Branch(wanted), _copy(scale.left), {}, {})
    return search.best


def rank_alone(unit: Unit, scale: CostScale) -> tuple[Units, ...]:
    """Return the rank of a unit's cost if no other one goes."""
    drawn = scale.surplus.draw({}, unit.trims) if unit.trims else None
    return (unit.cost if drawn is None else unit.cost.plus(drawn)).ranked(scale.order)


def single(victim: Victim, here: tuple[Units, ...], scale: CostScale) -> Unit | None:
    """Return a victim that goes alone; None for a member of a gang that has no surplus."""
    trims = scale.surplus.trims((victim,)) if victim.replica_of is not None else ()
    if victim.gang is not None:
        if not trims or not scale.surplus.covers(trims):
            return None
        victim, trims = victim._replace(gang=None), tuple([trim._replace(is_member=True) for trim in trims])
    cost = scale.cost_of((victim,), gangs=0)
    gpus, workless = victim.demand.gpus, victim.workless
    return Unit((victim,), here, gpus, cost, departures((victim,)), guarded(victim), trims, workless)


def _singles(
    need: Need, node: NodeName, victim_index: VictimIndex, *, room: NodeDevices, scale: CostScale
) -> list[list[Unit]]:
    """Return rows of single victims; those on different devices are not equal where devices matter."""
    rows: dict[object, list[Unit]] = {}
    node_victims = victim_index.on(node)
    kinds = product(() if node_victims is None else node_victims.rows.items(), _BOTH if need.excluders else _NEITHER)
    for (alike, row), is_excluder in kinds:
        here = need.freed_by(alike.demand, node, is_excluder=is_excluder)
        if any(here) or need.per_device is not None:
            for _, victim in row:
                if (victim.uid in need.excluders) is not is_excluder:
                    continue
                if scale.is_past_minimum_runtime(victim) and scale.may_go(victim) and not scale.shares(victim):
                    key = (alike, is_excluder, room.devices_of(victim) if need.per_device is not None else ())
                    if (unit := single(victim, here, scale)) is not None:
                        rows.setdefault(key, []).append(unit)
    return list(rows.values())


def departures(victims: Sequence[Victim]) -> tuple[Departure, ...]:
    """Return the victims of each workload that counts failures."""
    found: dict[WorkloadId, tuple[int, int]] = {}
    for victim in victims:
        if victim.workload is not None:
            pods, counted = found.get(victim.workload, (0, 0))
            found[victim.workload] = pods + 1, counted + victim.is_counted
    return tuple([Departure(workload, pods, counted) for workload, (pods, counted) in found.items()])


def _limiting(row: Sequence[Unit]) -> WorkloadId | None:
    """Return the workload whose failure budget bounds a row: that of single pods that count."""
    victims = row[0].victims
    return victims[0].workload if len(victims) == 1 and victims[0].is_counted and victims[0].gang is None else None


def _groups(
    need: Need, nodes: Collection[NodeName], victim_index: VictimIndex, *, room: NodeDevices, scale: CostScale
) -> list[list[Unit]]:
    """Return a row for each gang, and for the users of each shared claim: all that go with one of them are evicted.

    Members that must not be, such as guaranteed ones, protect no others, and their minimum runtime is that of the
    oldest: a user who labels pods defines what a gang is.
    """
    rows: list[list[Unit]] = []
    seen: set[Uid] = set()
    for group in _groups_on(nodes, victim_index, scale):
        if seen.isdisjoint(group.sharing) and any(node in group.on for node in nodes):
            seen |= group.sharing
            if group.may_go_now:
                rows.append([_together(group, need, nodes, room=room)])
    return rows


def _groups_on(nodes: Collection[NodeName], victim_index: VictimIndex, scale: CostScale) -> Iterator[Group]:
    """Yield the gangs on nodes, then the singles there that share a claim, each with what goes with it."""
    for gang in dict.fromkeys(gang for node in nodes for gang in victim_index.gangs_on(node)):
        group = scale.groups.get(gang)
        if group is None:
            group = scale.groups[gang] = _group(victim_index.members(gang), victim_index, scale)
        yield group
    there = [node_victims for node in nodes if (node_victims := victim_index.on(node)) is not None]
    for row in chain.from_iterable(node_victims.rows.values() for node_victims in there):
        yield from (
            _group((victim,), victim_index, scale) for _, victim in row if victim.gang is None and scale.shares(victim)
        )


def _group(members: Sequence[Victim], victim_index: VictimIndex, scale: CostScale) -> Group:
    victims = scale.with_companions([member for member in members if scale.may_go(member)], victim_index)
    may_go_now = any(map(scale.is_past_minimum_runtime, (*members, *victims)))
    return _grouped(victims, scale, may_go_now=may_go_now)


def _grouped(victims: tuple[Victim, ...], scale: CostScale, *, may_go_now: bool) -> Group:
    on: dict[NodeName, list[Victim]] = {}
    for victim in victims:
        on.setdefault(victim.node, []).append(victim)
    guards = Counter(guard for victim in victims for guard in victim.guards)
    sharing = frozenset(victim.uid for victim in victims if victim.demand.own is not None)
    gpus = sum(victim.demand.gpus for victim in victims)
    is_gang = any(victim.gang is not None for victim in victims)
    cost, trims = scale.cost_of(victims, gangs=0), scale.surplus.trims(victims, is_whole=is_gang)
    return Group(victims, on, gpus, cost, departures(victims), tuple(guards.items()), may_go_now, sharing, trims)


def _whole(
    need: Need, nodes: Collection[NodeName], victim_index: VictimIndex, *, room: NodeDevices, scale: CostScale
) -> list[list[Unit]]:
    """Return a row for each workload that would fail by evictions and all of whose pods may be evicted."""
    rows: list[list[Unit]] = []
    if scale.failure_limits.may_break:
        return rows
    there = [node_victims for node in nodes if (node_victims := victim_index.on(node)) is not None]
    counted = (alike.workload for node_victims in there for alike in node_victims.rows if alike.is_counted)
    for workload in dict.fromkeys(counted):
        if workload is None or scale.failure_limits.pods(workload) <= 1:
            continue
        members = tuple(
            [
                each
                for each in victim_index.of_workload(workload)
                if scale.may_go(each) and scale.is_past_minimum_runtime(each)
            ]
        )
        is_whole = len(members) >= scale.failure_limits.pods(workload)
        if is_whole and all(each.gang is None for each in members) and any(each.node in nodes for each in members):
            group = _grouped(freeing(members, scale.sharing, gone=scale.gone), scale, may_go_now=True)
            rows.append([_together(group, need, nodes, room=room)])
    return rows


def _together(group: Group, need: Need, nodes: Collection[NodeName], *, room: NodeDevices) -> Unit:
    there = [victim for node in nodes for victim in group.on.get(node, ())]
    freed = [need.freed_by(victim.demand, victim.node, is_excluder=victim.uid in need.excluders) for victim in there]
    here = tuple([sum(part) for part in zip(*freed, strict=True)])
    is_broken = len(there) < len(group.victims) or is_more_than_needed(there, freed, need, room=room)
    cost = group.cost.plus(VictimCost(gangs=int(is_broken)))
    workless = sum(victim.workless for victim in group.victims)
    return Unit(group.victims, here, group.gpus, cost, group.departures, group.guards, group.trims, workless)


def is_more_than_needed(
    members: Sequence[Victim], freed: Sequence[tuple[Units, ...]], need: Need, *, room: NodeDevices
) -> bool:
    """Whether pods that go together make enough room also without one of them; `freed` is what each of them frees.

    Then that one is lost for nothing, as no single pod is. Where the room of each is needed, pods that go together cost
    what they would cost one by one: a user who pairs pods gains nothing by it.
    """
    if len(members) < 2:  # noqa: PLR2004 - a pod that goes alone
        return False
    total = [sum(part) for part in zip(*freed, strict=True)]
    places = [place for place, _ in need.amounts]
    for number, own in enumerate(freed):
        if need.per_device is None and not any(own):
            return True
        left = zip(places, total, own, need.amounts.values(), strict=True)
        node = members[number].node
        if any(place in (node, NOWHERE) and got - part < want for place, got, part, want in left):
            continue
        rest = (*members[:number], *members[number + 1 :])
        if need.per_device is None or room.has_devices(need.per_device, rest):
            return True
    return False


class _Branch(NamedTuple):
    """A part of a choice: what is still missing, the victims, how many GPU units they free, what they cost.

    `workless` as in Unit.
    """

    wanted: tuple[Units, ...]
    victims: tuple[Victim, ...] = ()
    gpus: Units = 0
    cost: VictimCost = VictimCost()
    trims: tuple[Trim, ...] = ()
    trim_cost: VictimCost = VictimCost()
    workless: Units = 0

    def plus(self, unit: Unit, *, missing_gpus: Units, drawn: VictimCost, broken: int = 0) -> "_Branch":
        """Return it with one more unit, by which `broken` workloads fail and minimums cost what is `drawn`."""
        gpus, workless = self.gpus + unit.gpus, self.workless + unit.workless
        surplus = min(gpus - workless, max(0, gpus - missing_gpus))
        cost, more = self.cost.plus(unit.cost), surplus - self.cost.surplus
        if broken or more:
            cost = cost.plus(VictimCost(gangs=broken, surplus=more))
        trims, trim_cost = self.trims, self.trim_cost
        if unit.trims:
            cost, trims, trim_cost = cost.plus(drawn), trims + unit.trims, trim_cost.plus(drawn)
        wanted = tuple([want - got for want, got in zip(self.wanted, unit.here, strict=True)])
        return _Branch(wanted, self.victims + unit.victims, gpus, cost, trims, trim_cost, workless)


class _Search:
    """A depth-first search over how many units of each row are evicted."""

    def __init__(self, need: Need, rows: list[list[Unit]], room: NodeDevices, scale: CostScale, effort: Effort) -> None:
        self.best: VictimChoice | None = None
        self._best_rank: tuple[Units, ...] = ()
        self._need = need
        self._rows = rows
        self._room = room
        self._scale = scale
        self._effort = effort
        offers = [[sum(part) for part in zip(*(unit.here for unit in row), strict=True)] for row in rows]
        zero = [0] * len(need.amounts)
        sums = accumulate(reversed(offers), lambda a, b: [x + y for x, y in zip(a, b, strict=True)], initial=zero)
        self._still = list(sums)[::-1]  # what the rows from here on can free at most

    def descend(
        self,
        row: int,
        branch: _Branch,
        left: dict[GuardId, int] | None,
        failures: dict[WorkloadId, int],
        taken: dict[WorkloadName, int],
    ) -> None:
        """Take 0, 1, 2 … units of a row, the cheapest first, and continue with the next row."""
        if self._is_hopeless(row, branch):
            return
        if max(branch.wanted, default=0) <= 0 and self._has_devices(branch.victims):
            self.best = VictimChoice(branch.cost, branch.victims, branch.trims, branch.trim_cost)
            self._best_rank = branch.cost.ranked(self._scale.order)
            return
        if row == len(self._rows):
            return
        self.descend(row + 1, branch, _copy(left), dict(failures), dict(taken))
        for unit in self._rows[row]:
            if left is not None and not _draw(left, unit.guards):
                return
            broken = self._scale.failure_limits.draw(failures, unit.departures)
            drawn = self._scale.surplus.draw(taken, unit.trims)
            if broken is None or drawn is None:
                return
            branch = branch.plus(unit, missing_gpus=self._need.missing_gpus, drawn=drawn, broken=broken)
            self.descend(row + 1, branch, _copy(left), dict(failures), dict(taken))

    def _is_hopeless(self, row: int, branch: _Branch) -> bool:
        if self._effort.is_spent():
            return True
        if self.best is not None and branch.cost.ranked(self._scale.order) >= self._best_rank:
            return True
        return any(want > still for want, still in zip(branch.wanted, self._still[row], strict=True))

    def _has_devices(self, chosen: tuple[Victim, ...]) -> bool:
        ask = self._need.per_device
        return ask is None or self._room.has_devices(ask, chosen)


def _copy(left: Mapping[GuardId, int] | None) -> dict[GuardId, int] | None:
    return None if left is None else dict(left)


def _draw(left: dict[GuardId, int], guards: Iterable[tuple[GuardId, int]]) -> bool:
    """Count victims against the budgets that guard them; False where one is used up."""
    for guard, count in guards:
        left[guard] = left.get(guard, 0) - count
        if left[guard] < 0:
            return False
    return True
