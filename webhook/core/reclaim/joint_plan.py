"""One plan for several pods, and the nodes that such plans share.

Nodes whose victims cannot be chosen apart: a gang, a disruption budget or a workload has victims on several.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import add, sub
from typing import Final, NamedTuple

from webhook.core.model.amounts import GangId, NodeName, Units
from webhook.core.model.demand import Demand
from webhook.core.reclaim.costs import NO_DEVICES, CostBounds, Effort
from webhook.core.reclaim.reclaim_plan import NO_OVERRIDES, Move, NoPlan, NotPlanned, ReclaimSnapshot
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.core.reclaim.trial import Trial
from webhook.core.reclaim.victim_search import VictimChoice, clear, missing_gpus, missing_on, shortfall
from webhook.core.reclaim.victims import Victim, VictimCost, VictimIndex

_Link = str


class LinkedNodes:
    """What links the nodes of one snapshot, found as it is asked for."""

    def __init__(self, victim_index: VictimIndex) -> None:
        self._victim_index = victim_index
        self._links: dict[NodeName, set[_Link]] = {}
        self._of_gang: dict[GangId, set[_Link]] = {}

    def parts(self, nodes: Iterable[NodeName]) -> list[list[NodeName]]:
        """Return the nodes in parts that no link crosses."""
        parts: list[tuple[set[_Link], list[NodeName]]] = []
        for node in nodes:
            links, there = self._of(node), [node]
            apart = []
            for part in parts:
                if links.isdisjoint(part[0]):
                    apart.append(part)
                else:
                    links, there = links | part[0], part[1] + there
            parts = [*apart, (links, there)]
        return [there for _, there in parts]

    def gangs(self, nodes: Iterable[NodeName]) -> list[GangId]:
        """Return the gangs with victims on at least two of these nodes, in the order of the nodes."""
        seen: dict[GangId, int] = {}
        for node in nodes:
            for gang in self._victim_index.gangs_on(node):
                seen[gang] = seen.get(gang, 0) + 1
        return [gang for gang, count in seen.items() if count > 1]

    def _of(self, node: NodeName) -> set[_Link]:
        links = self._links.get(node)
        if links is None:
            node_victims = self._victim_index.on(node)
            rows = () if node_victims is None else node_victims.rows.values()
            links = self._links[node] = {link for row in rows for link in _links(row[0][1])}  # equal in all of a row
            for gang in self._victim_index.gangs_on(node):
                if gang not in self._of_gang:
                    members = self._victim_index.members(gang)
                    self._of_gang[gang] = {f"gang {gang}", *(link for each in members for link in _links(each))}
                links |= self._of_gang[gang]
        return links


def _links(victim: Victim) -> Iterable[_Link]:
    yield from (f"guard {guard}" for guard in victim.guards)
    if victim.workload is not None:
        yield f"workload {victim.workload}"
    if victim.replica_of is not None:
        yield f"replicas {victim.replica_of}"


# Several waiting pods planned together: the nodes and the victims by which all of them cost the least.
#
# One after the other, each pod gets what is cheapest for it alone. Together they may need less: two of them share the
# room of one large victim, a gang that is evicted for one makes room for the others, too, and a node that only one of
# them can use is left to it. So for a few pods the choices of nodes are searched as well, each with its cheapest
# victims. Exact where that is within the effort, as in small clusters, and never worse than one after the other.


Outcome = Move | NotPlanned

MOST: Final = 32
"""Pods that are searched for together; more are planned for one after the other."""

EFFORT: Final = 3_000
"""Steps of the searches for one gang, and for one round: small clusters need some hundreds, and a step takes some ten
microseconds."""

CANDIDATES: Final = 256
"""Nodes that are tried for pods of one kind, those first that could cost the least."""

GANGS: Final = 32
"""Gangs that are tried as the victims of several pods."""


def is_served(outcome: Outcome) -> bool:
    """Whether a pod gets room, or has it."""
    return isinstance(outcome, Move) or outcome.cause is NoPlan.FITS


def rank_of(outcomes: Sequence[Outcome], trial: Trial) -> tuple[Units, ...]:
    """Return the cost of all moves together: protections that they override count first."""
    moves = [outcome for outcome in outcomes if isinstance(outcome, Move)]
    total = VictimCost.total(move.cost for move in moves)
    broken, past = sum(move.breaks_workloads for move in moves), sum(move.is_past_budgets for move in moves)
    return (broken, past, *trial.rank_of(total))


def repeat(outcomes: Sequence[Outcome], trial: Trial, *, among: int = -1) -> None:
    """Take the room of outcomes again after it was undone."""
    for outcome in outcomes:
        if isinstance(outcome, Move):
            trial.evict(outcome.victims)
            trial.take(outcome.node, outcome.waiting)
        elif outcome.cause is NoPlan.FITS:
            trial.place(outcome.waiting, among=among)


def plan_together(
    outcomes: Sequence[Outcome],
    trial: Trial,
    snapshot: ReclaimSnapshot,
    *,
    before: int,
    effort: Effort,
    among: int = -1,
) -> Sequence[Outcome]:
    """Return outcomes that serve all of these pods, and cost less if they were served; else the given ones.

    The given ones are taken in the trial since its savepoint `before`; afterwards those are that are returned.
    """
    pods = [outcome.waiting for outcome in outcomes if isinstance(outcome, Move) or outcome.cause in _LACKING]
    fitting = [outcome for outcome in outcomes if isinstance(outcome, NotPlanned) and outcome.cause is NoPlan.FITS]
    is_whole = len(pods) + len(fitting) == len(outcomes)
    if not is_whole or not 1 < len(pods) <= MOST or effort.left <= 0 or snapshot.quotas:
        return outcomes
    trial.undo(before)
    repeat(fitting, trial, among=among)
    found = None
    if len({snapshot.department_order.home(each.team) for each in pods}) == 1 and all(
        _is_plain(each, trial) for each in pods
    ):
        search = _Search(pods, trial, snapshot, effort=effort, among=among)
        known = {outcome.waiting.uid: outcome for outcome in outcomes if isinstance(outcome, Move)}
        if len(known) == len(pods):
            search.start([known[each.uid] for each in pods], trial)
        found = search.best()
    if found is None:
        trial.undo(before)
        repeat(outcomes, trial, among=among)
        return outcomes
    made = {each.waiting.uid: each for each in (*fitting, *_carry_out(pods, found, trial, snapshot))}
    return [made[outcome.waiting.uid] for outcome in outcomes]


_LACKING: Final = frozenset({NoPlan.NOT_ENOUGH_VICTIMS, NoPlan.GANG_INCOMPLETE, NoPlan.ROOM_REFUSED})


def _is_plain(waiting: ReclaimPod, trial: Trial) -> bool:
    """Whether only amounts decide where a pod has room: no single devices, claims or rules between pods."""
    demand = waiting.demand
    has_devices = demand.per_device is not None or demand.own is not None or len(demand.held) != 1
    return not has_devices and bool(demand.gpus) and not trial.is_bound_by_others(waiting)


class _Found(NamedTuple):
    """A node for each pod, and the victims for all of them."""

    nodes: tuple[NodeName, ...]
    choice: VictimChoice


Rank = tuple[Units, ...]
"""Parts of a cost, or of lower bounds of it, in the order in which they count."""


class _Candidate(NamedTuple):
    """The least cost of room for one pod of a kind on a node, the node, and how many of them it could hold."""

    least: Rank
    node: NodeName
    fits: int


class _Kind:
    """Equal pods: their candidates, the cheapest first, and the least cost of some of them from one candidate on."""

    def __init__(self, candidates: list[_Candidate], zero: Rank) -> None:
        self.candidates = candidates
        self._at = list(accumulate((each.fits for each in candidates), initial=0))
        ranks = (each.least for each in candidates for _ in range(each.fits))
        self._sums = list(accumulate(ranks, _plus, initial=zero))

    def least(self, start: int, count: int) -> Rank | None:
        """Return the least cost of so many pods on candidates from `start` on; None where they hold fewer."""
        first = self._at[start]
        return _minus(self._sums[first + count], self._sums[first]) if first + count < len(self._sums) else None


def _least(kinds: Sequence[_Kind], apart: _Kind, zero: Rank) -> Rank | None:
    """Return the least cost of the pods of these kinds but one, each kind by itself."""
    total = zero
    for kind in dict.fromkeys(kinds):
        if kind is not apart:
            least = kind.least(0, kinds.count(kind))
            if least is None:
                return None
            total = _plus(total, least)
    return total


def _plus(one: Rank, other: Rank) -> Rank:
    return tuple(map(add, one, other))


def _minus(one: Rank, other: Rank) -> Rank:
    return tuple(map(sub, one, other))


class _Search:
    """A depth-first search over the nodes of pods, the kinds one by one, the nodes of equal pods in one order."""

    def __init__(
        self, pods: Sequence[ReclaimPod], trial: Trial, snapshot: ReclaimSnapshot, *, effort: Effort, among: int
    ) -> None:
        self._trial = trial
        self._snapshot = snapshot
        self._effort = effort
        self._scale = trial.scale(pods[0].team, NO_OVERRIDES)
        self._links = LinkedNodes(snapshot.victim_index)
        fleet = snapshot.fleet
        slots = [trial.able(each, fleet.matching(each.constraints) & among) for each in pods]
        keys = list(zip((each.demand for each in pods), slots, strict=True))
        names = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        self._order = sorted(range(len(pods)), key=lambda place: (-pods[place].demand.gpus, names[keys[place]]))
        self._demands = [pods[place].demand for place in self._order]
        self._bounds = CostBounds(snapshot, pods[0].team)
        self._zero = trial.rank_of(VictimCost())
        kinds = {key: _Kind(self._candidates(*key, len(pods)), self._zero) for key in names}
        self._kinds = [kinds[keys[place]] for place in self._order]
        self._later = [_least(self._kinds[depth:], self._kinds[depth], self._zero) for depth in range(len(pods))]
        self._choices: dict[frozenset[tuple[NodeName, tuple[Demand, ...]]], VictimChoice | None] = {}
        self._best: _Found | None = None
        self._rank: Rank | None = None
        self._nodes: list[NodeName] | None = None

    def start(self, moves: Sequence[Move], trial: Trial) -> None:
        """Begin with a plan that is known: only what costs less than it is found."""
        broken, past, *rank = rank_of(moves, trial)
        if not broken and not past:
            self._rank = tuple(rank)
        self._nodes = [moves[place].node for place in self._order]
        self._try(self._nodes)

    def best(self) -> _Found | None:
        """Return the plan of the least cost; None where none costs less than the known one."""
        if self._nodes is not None:
            among = dict.fromkeys(each.node for kind in self._kinds for each in kind.candidates)
            for gang in self._links.gangs(among)[:GANGS]:
                if self._effort.left > 0:
                    self._try(self._beside(gang, self._nodes))
        self._descend([], 0, self._zero, {})
        return self._best

    def _candidates(self, demand: Demand, slots: int, most: int) -> list[_Candidate]:
        on, found = self._snapshot.victim_index.on, []
        for node, missing in missing_on(self._snapshot.fleet, slots, demand):
            victims = on(node)
            if victims is None:
                if not missing:
                    found.append(_Candidate(self._zero, node, most))
            elif (spare := victims.gpus - missing) >= 0:
                fits = most if not missing else min(most, 1 + int(spare // demand.gpus))
                found.append(_Candidate(self._trial.rank_of(self._bounds.of(victims, missing)), node, fits))
        self._effort.left -= len(found) // 4  # a node that is only looked at takes part of a step
        return sorted(found)[:CANDIDATES]

    def _descend(
        self, nodes: list[NodeName], start: int, cost: Rank, there: dict[NodeName, tuple[Demand, ...]]
    ) -> None:
        depth = len(nodes)
        if depth == len(self._kinds):
            self._try(nodes)
            return
        kind, demand = self._kinds[depth], self._demands[depth]
        same = self._kinds[depth:].count(kind)
        rest = self._later[depth]
        for number in range(start, len(kind.candidates)):
            least = kind.least(number, same)
            if rest is None or least is None or self._effort.is_spent():
                return
            if not self._is_better(_plus(cost, _plus(least, rest))):
                return
            node = kind.candidates[number].node
            before = there.get(node, ())
            after = (*before, demand)
            more = self._bound(node, after)
            if more is None or self._choice({node: after}) is None:
                continue
            own = _plus(cost, _minus(more, self._bound(node, before) or self._zero))
            if self._is_better(own):
                follows = depth + 1 < len(self._kinds) and self._kinds[depth + 1] is kind
                self._descend([*nodes, node], number if follows else 0, own, {**there, node: after})

    def _bound(self, node: NodeName, demands: tuple[Demand, ...]) -> Rank | None:
        missing = missing_gpus(self._snapshot.fleet, node, demands)
        victims = self._snapshot.victim_index.on(node)
        if victims is None or victims.gpus < missing:
            return None if missing else self._zero
        return self._trial.rank_of(self._bounds.of(victims, missing))

    def _is_better(self, rank: Rank) -> bool:
        return self._rank is None or rank < self._rank

    def _beside(self, gang: GangId, nodes: Sequence[NodeName]) -> list[NodeName]:
        """Return the nodes with as many pods as possible on those that a gang would free, the costliest pods first."""
        freed: dict[NodeName, Units] = {}
        for member in self._snapshot.victim_index.members(gang):
            freed[member.node] = freed.get(member.node, 0) + member.demand.gpus
        found, there = list(nodes), dict[NodeName, tuple[Demand, ...]]()
        costs = [self._bound(node, (demand,)) or self._zero for node, demand in zip(nodes, self._demands, strict=True)]
        costliest = sorted(range(len(nodes)), key=costs.__getitem__, reverse=True)
        for place in sorted(costliest, key=lambda place: -self._demands[place].gpus):
            allowed = {each.node for each in self._kinds[place].candidates}
            for node, amount in freed.items():
                after = (*there.get(node, ()), self._demands[place])
                if node in allowed and missing_gpus(self._snapshot.fleet, node, after) <= amount:
                    found[place], there[node] = node, after
                    break
        return found

    def _try(self, nodes: Sequence[NodeName]) -> None:
        """Keep nodes whose cheapest victims cost less than the best so far."""
        there: dict[NodeName, tuple[Demand, ...]] = {}
        for node, demand in zip(nodes, self._demands, strict=True):
            there[node] = (*there.get(node, ()), demand)
        choices = []
        for linked in self._links.parts(there):
            choice = self._choice({node: there[node] for node in linked})
            if choice is None:
                return
            choices.append(choice)
        cost = VictimCost.total(choice.cost for choice in choices)
        rank = self._trial.rank_of(cost)
        if self._is_better(rank):
            victims = tuple(dict.fromkeys(victim for choice in choices for victim in choice.victims))
            placed = dict(zip(self._order, nodes, strict=True))
            self._rank, self._nodes = rank, list(nodes)
            self._best = _Found(tuple([placed[place] for place in range(len(nodes))]), VictimChoice(cost, victims))

    def _choice(self, there: dict[NodeName, tuple[Demand, ...]]) -> VictimChoice | None:
        """Return the cheapest victims on nodes that are linked."""
        key = frozenset(there.items())
        if key not in self._choices:
            self._effort.left -= len(there)
            need = shortfall(self._snapshot.fleet, there)
            self._choices[key] = (
                clear(
                    need,
                    tuple(there),
                    self._snapshot.victim_index,
                    room=NO_DEVICES,
                    scale=self._scale,
                    effort=self._effort,
                )
                if need.amounts
                else VictimChoice(VictimCost(), ())
            )
        return self._choices[key]


def _carry_out(pods: Sequence[ReclaimPod], found: _Found, trial: Trial, snapshot: ReclaimSnapshot) -> list[Outcome]:
    """Evict the victims and take the room: each pod has the victims that it needs beside those of earlier ones."""
    outcomes: list[Outcome] = []
    scale, joint = trial.scale(pods[0].team, NO_OVERRIDES), found.choice.cost
    alone = scale.cost_of(found.choice.victims, gangs=0)
    failures = joint.failures - alone.failures
    extra = VictimCost(gangs=joint.gangs, surplus=joint.surplus, failures=failures, below=joint.below)
    left, fleet = {victim.uid: victim for victim in found.choice.victims}, snapshot.fleet
    for each, node in zip(pods, found.nodes, strict=True):
        mine: list[Victim] = []
        while not fleet.with_room(each.demand, fleet.bit(node)):
            first = next(victim for victim in left.values() if victim.node == node)
            gang = first.gang
            unit = [first] if gang is None else [victim for victim in left.values() if victim.gang == gang]
            trial.evict(unit)
            mine += unit
            for victim in unit:
                del left[victim.uid]
        fits = not mine and not trial.is_coming(node)
        trial.take(node, each)
        cost = scale.cost_of(mine, gangs=0)
        if mine:
            cost, extra = cost.plus(extra), VictimCost()
        outcomes.append(NotPlanned(each, NoPlan.FITS) if fits else Move(each, node, tuple(mine), cost))
    if left:  # of a workload that goes whole, since it would fail of less
        rest = tuple(left.values())
        trial.evict(rest)
        place, last = next((n, made) for n, made in reversed([*enumerate(outcomes)]) if isinstance(made, Move))
        cost = last.cost.plus(scale.cost_of(rest, gangs=0))
        outcomes[place] = last._replace(victims=(*last.victims, *rest), cost=cost)
    return outcomes
