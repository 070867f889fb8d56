"""The moves that make room.

Moves tried on the fleet itself, step by step, and undone: what earlier plans take is not there for later ones.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Final, NamedTuple

from webhook.addons.moves.candidates import MovablePod, Move, Moves, NoMoves, Room, Target
from webhook.core.model.amounts import NodeName, ResourceName, Uid, Units
from webhook.core.model.demand import Demand
from webhook.core.placement.best_nodes import best_nodes
from webhook.core.placement.devices import lowest_slots
from webhook.core.placement.fleet import Fleet
from webhook.core.reclaim.costs import Effort
from webhook.core.reclaim.victims import GuardId

NO_MOVED: Final[Mapping[str, int]] = MappingProxyType({})


class _Step(NamedTuple):
    """Room taken (sign 1) or freed (-1) on a node."""

    node: NodeName
    uid: Uid
    demand: Demand
    sign: int
    devices: tuple[int, ...]


class TriedMoves:
    """The fleet after the moves tried so far, the pods that may still be moved, and how many each bound still allows.

    `left` is how many evictions each disruption budget allows; none of a budget that it does not name. At most
    `per_workload` pods of one controller are moved, with those that were `moved` before.
    """

    def __init__(
        self,
        fleet: Fleet,
        movable: Iterable[MovablePod],
        *,
        left: Mapping[GuardId, int],
        per_workload: int,
        moved: Mapping[str, int] = NO_MOVED,
    ) -> None:
        self.fleet = fleet
        self.left: Counter[GuardId] = Counter(left)
        self._per_workload = per_workload
        self._moved: Counter[str] = Counter(moved)
        self._by_node: dict[NodeName, list[MovablePod]] = {}
        self._steps: list[_Step] = []
        for each in movable:
            self._by_node.setdefault(each.node, []).append(each)

    def on(self, node: NodeName) -> list[MovablePod]:
        """Return the pods on a node that may be moved."""
        return [each for each in self._by_node.get(node, ()) if self.may_move(each)]

    def nodes(self) -> Iterable[NodeName]:
        """Return the nodes with such pods."""
        return self._by_node

    def of_workload(self, workload: str) -> int:
        """Return how many pods of a workload may still be moved."""
        return self._per_workload - self._moved[workload]

    def may_move(self, pod: MovablePod, *, with_others: Sequence[MovablePod] = ()) -> bool:
        """Whether its budgets and the bound of its workload allow a pod to move besides these others."""
        same = sum(each.workload == pod.workload for each in with_others)
        drawn = Counter(guard for each in with_others for guard in each.guards) if pod.guards else Counter[GuardId]()
        return same < self.of_workload(pod.workload) and all(self.left[guard] > drawn[guard] for guard in pod.guards)

    def savepoint(self) -> int:
        """Return a name of the present state for `undo`."""
        return len(self._steps)

    def undo(self, savepoint: int) -> None:
        """Restore the room of an earlier state."""
        while len(self._steps) > savepoint:
            step = self._steps.pop()
            self.fleet.take(step.node, step.demand, sign=-step.sign, holder=step.uid, devices=step.devices)

    def free(self, pod: MovablePod) -> None:
        """Free the room of a pod on its node."""
        self._change(pod.node, pod.uid, pod.victim.demand, -1)

    def take(self, node: NodeName, uid: Uid, demand: Demand) -> None:
        """Take room on a node."""
        self._change(node, uid, demand, 1)

    def move(self, found: Moves) -> None:
        """Have pods on their new nodes, where they stay; the room of the target is left free."""
        for pod, to, _ in found.moves:
            self.free(pod)
            self.take(to, pod.uid, pod.victim.demand)
            self._by_node[pod.node].remove(pod)
            self._moved[pod.workload] += 1
            self.left.subtract(pod.guards)

    def withdraw(self, room: Room, savepoint: int) -> None:
        """Take back moves that were made since a savepoint, and the room that was taken."""
        for pod, _, _ in room.moves:
            self._by_node[pod.node].append(pod)
            self._moved[pod.workload] -= 1
            self.left.update(pod.guards)
        self.undo(savepoint)

    def _change(self, node: NodeName, uid: Uid, demand: Demand, sign: int) -> None:
        devices = self.fleet.devices_of(node, uid) if sign < 0 else ()
        self._steps.append(_Step(node, uid, demand, sign, devices))
        self.fleet.take(node, demand, sign=sign, holder=uid, devices=devices)


# The cheapest moves that make room for one pod: exact, within a bound of work.
#
# A plan empties a part of one node. Each pod that leaves has room elsewhere now, so no move waits for another one, and
# none is made for room that may never come. Of all such plans the one that loses the least work wins, then the one that
# moves the fewest GPUs, then the fewest pods. Where a pod goes costs nothing, so for each set of pods one distribution
# over other nodes is enough; nodes with the same free room serve alike, and are tried once.


_BATCH: Final = 16
"""Nodes that are listed at a time: most often the first one serves."""

_Rank = tuple[Units, Units, int]
"""The work that is lost, the GPU units that move, and the number of pods: what plans are compared by."""


def cheapest_moves(target: Target, tried: TriedMoves, *, now: int, effort: Effort | None = None) -> Moves | NoMoves:
    """Return the moves that make room for a pod at the least cost, none where a node has room; or why there are none.

    The state of `tried` is the same afterwards.
    """
    fleet, effort = tried.fleet, Effort() if effort is None else effort
    able = fleet.with_capacity(target.demand, target.slots & fleet.open_bits)
    if not able:
        return NoMoves.NO_NODE
    if room := fleet.with_room(target.demand, able):
        node = (*best_nodes(fleet, target.demand, room, count=1), *fleet.names_of(room & -room))[0]
        return Moves(target, node)
    if not _is_enough_free(target.demand, tried):
        return NoMoves.TOO_FEW_FREE
    best: Moves | None = None
    rank: _Rank | None = None
    for each in sorted(_candidates(target, able, tried, now=now), key=lambda each: (each.bound, each.node)):
        if rank is not None and each.bound >= rank:
            break
        search = _NodeSearch(target, each.node, each.rows, tried, now=now, effort=effort, rank=rank)
        search.descend(0, (), (0, 0, 0))
        if search.best is not None:
            best, rank = Moves(target, each.node, search.best), search.rank
        if effort.left < 0:
            break
    if best is None:
        return NoMoves.TOO_MUCH_WORK if effort.left < 0 else NoMoves.NOT_ENOUGH_MOVABLE
    return best._replace(is_cheapest=effort.left >= 0)


class _Candidate(NamedTuple):
    """A node, the least that room on it can cost, and its pods in rows of equal ones."""

    bound: _Rank
    node: NodeName
    rows: "list[_Row]"


class _RowKey(NamedTuple):
    """The fields in which pods on a node are equal, so that they differ only in the work that is lost.

    `workload` is set only where not all of its pods may be moved.
    """

    demand: Demand
    where: int
    guards: tuple[GuardId, ...]
    workload: str


@dataclass(slots=True)
class _Row:
    """Equal pods, those that lose the least first, with the work that each loses."""

    key: _RowKey
    pods: list[tuple[Units, Uid, MovablePod]] = field(default_factory=list)


def _candidates(target: Target, able: int, tried: TriedMoves, *, now: int) -> Iterator[_Candidate]:
    for node in tried.nodes():
        if not tried.fleet.bit(node) & able:
            continue
        rows = _rows(tried.on(node), tried, now=now)
        bound = _bound(_by_loss(rows), _missing_gpus(target.demand, node, tried))
        if bound is not None:
            yield _Candidate(bound, node, rows)


def _rows(pods: Sequence[MovablePod], tried: TriedMoves, *, now: int) -> list[_Row]:
    """Return the pods in rows, the row whose pods lose the least per GPU first."""
    counts: dict[str, int] = {}
    for pod in pods:
        counts[pod.workload] = counts.get(pod.workload, 0) + 1
    rows: dict[_RowKey, _Row] = {}
    for pod in pods:
        is_bound = counts[pod.workload] > tried.of_workload(pod.workload)
        key = _RowKey(pod.victim.demand, pod.where, pod.guards, pod.workload if is_bound else "")
        rows.setdefault(key, _Row(key)).pods.append((pod.lost_work(now), pod.uid, pod))
    for row in rows.values():
        row.pods.sort(key=lambda each: each[:2])
    return sorted(
        rows.values(), key=lambda row: (Fraction(row.pods[0][0]) / max(1, row.key.demand.gpus), row.pods[0][1])
    )


def _missing_gpus(demand: Demand, node: NodeName, tried: TriedMoves) -> Units:
    """Return how many GPU units are missing at least; 0 is always a valid lower bound."""
    held = demand.held
    if len(held) != 1 or tried.fleet.bit(node) & tried.fleet.slices.slots:
        return 0
    ((resource, amount),) = held
    return max(0, amount - tried.fleet.free(node, resource)) * (demand.gpus // amount)


def _by_loss(rows: Sequence[_Row]) -> list[tuple[Units, Units]]:
    """Return the work that is lost and the GPU units of each pod of these rows, the least per GPU first."""
    pairs = [(work, row.key.demand.gpus) for row in rows for work, _, _ in row.pods if row.key.demand.gpus]
    return sorted(pairs, key=lambda each: Fraction(each[0]) / each[1])


def _bound(pairs: Sequence[tuple[Units, Units]], missing: Units) -> _Rank | None:
    """Return the least that it can cost to free so many GPU units of these pods; None where they do not hold them.

    Pods count in parts, in their order.
    """
    lost: Units = 0
    left = missing
    for work, gpus in pairs:
        if left <= 0:
            break
        lost += work if gpus <= left else work * left // gpus
        left -= gpus
    return None if left > 0 else (lost, missing, int(missing > 0))


def _is_enough_free(demand: Demand, tried: TriedMoves) -> bool:
    """Whether the devices of a demand are free on all open nodes together: moves free none."""
    fleet = tried.fleet
    return all(
        sum(max(0, free) for _, free in fleet.free_on(fleet.open_bits, resource)) >= amount
        for resource, amount in demand.held
    )


class _NodeSearch:
    """A depth-first search over how many pods of each row leave one node."""

    def __init__(
        self,
        target: Target,
        node: NodeName,
        rows: Sequence[_Row],
        tried: TriedMoves,
        *,
        now: int,
        effort: Effort,
        rank: _Rank | None,
    ) -> None:
        self.best: tuple[Move, ...] | None = None
        self.rank = rank
        self._target = target
        self._node = node
        self._rows = rows
        self._pairs = [_by_loss(rows[number:]) for number in range(len(rows) + 1)]
        self._tried = tried
        self._now = now
        self._effort = effort
        self._misfits: set[tuple[int, ...]] = set()  # how many of each row have no room elsewhere together

    def descend(self, number: int, chosen: tuple[MovablePod, ...], rank: _Rank, counts: tuple[int, ...] = ()) -> None:
        """Let 0, 1, 2 … pods of a row leave, those that lose the least first, and continue with the next row."""
        if self._effort.is_spent() or self._is_hopeless(number, rank):
            return
        tried = self._tried
        if tried.fleet.fits(self._node, self._target.demand):
            if (moves := self._distributed(chosen, counts)) is not None:
                self.best, self.rank = moves, rank
            return
        if number == len(self._rows):
            return
        self.descend(number + 1, chosen, rank, (*counts, 0))
        before = tried.savepoint()
        for taken, (lost, _, pod) in enumerate(self._rows[number].pods, start=1):
            if not tried.may_move(pod, with_others=chosen):
                break
            tried.free(pod)
            chosen = (*chosen, pod)
            rank = rank[0] + lost, rank[1] + pod.victim.demand.gpus, rank[2] + 1
            self.descend(number + 1, chosen, rank, (*counts, taken))
        tried.undo(before)

    def _is_hopeless(self, number: int, rank: _Rank) -> bool:
        bound = _bound(self._pairs[number], _missing_gpus(self._target.demand, self._node, self._tried))
        if bound is None:
            return True
        least = rank[0] + bound[0], rank[1] + bound[1], rank[2] + bound[2]
        return self.rank is not None and least >= self.rank

    def _distributed(self, chosen: tuple[MovablePod, ...], counts: tuple[int, ...]) -> tuple[Move, ...] | None:
        """Return where all of these pods have room together, once the target has its own; None where they do not."""
        key = (*counts, *([0] * (len(self._rows) - len(counts))))
        if key in self._misfits:
            return None
        tried, target = self._tried, self._target
        before = tried.savepoint()
        tried.take(self._node, target.uid, target.demand)
        order = sorted(chosen, key=lambda pod: (-pod.victim.demand.gpus, pod.where.bit_count(), pod.uid))
        found = self._place(order)
        tried.undo(before)
        if found is None:
            self._misfits.add(key)
            return None
        return tuple([Move(pod, node, pod.lost_work(self._now)) for pod, node in zip(order, found, strict=True)])

    def _place(self, pods: Sequence[MovablePod]) -> list[NodeName] | None:
        if not pods:
            return []
        tried, (pod, *rest) = self._tried, pods
        fleet, demand = tried.fleet, pod.victim.demand
        room = fleet.with_room(demand, pod.where & fleet.open_bits & ~fleet.bit(self._node))
        names = {name for each in pods for name, _ in each.victim.demand.requests}
        tested: set[tuple[object, ...]] = set()
        for node in _in_order(demand, room, tried):
            if self._effort.is_spent():
                return None
            state = _state(node, sorted(names), pods, tried)
            if state in tested:
                continue
            tested.add(state)
            before = tried.savepoint()
            tried.take(node, pod.uid, demand)
            others = self._place(rest)
            tried.undo(before)
            if others is not None:
                return [node, *others]
        return None


def _in_order(demand: Demand, room: int, tried: TriedMoves) -> Iterator[NodeName]:
    """Yield the nodes with room: the one that the webhook would choose, then the others by slot."""
    fleet = tried.fleet
    first = best_nodes(fleet, demand, room, count=1)
    yield from first
    for node in first:
        room &= ~fleet.bit(node)
    while room:
        slots: list[int] = []
        lowest_slots(room, _BATCH, slots)
        for slot in slots:
            room ^= 1 << slot
        yield from fleet.names(slots)


def _state(
    node: NodeName, names: Sequence[ResourceName], pods: Sequence[MovablePod], tried: TriedMoves
) -> tuple[object, ...]:
    """Return what tells a node from others for these pods: what is free on it, and which of them may go there."""
    fleet, bit = tried.fleet, tried.fleet.bit(node)
    if any(pod.victim.demand.per_device is not None for pod in pods):
        return (node,)
    return (*[fleet.free(node, name) for name in names], *[bool(pod.where & bit) for pod in pods])
