"""The pods that room is made for.

Plans of moves for all pods that wait for room, one after the other, each on top of the earlier ones.

The longest waiting comes first. A gang gets room for all of its pods or none, in the one domain that it asks for if
moves make room there. Nothing is changed: the fleet is as before once the plans are made.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from webhook.addons.moves.candidates import (
    FreeRoom,
    MovablePod,
    Moves,
    NoMoves,
    NotPlanned,
    Room,
    Target,
    free_room,
    usable_nodes,
)
from webhook.addons.moves.search import NO_MOVED, TriedMoves, cheapest_moves
from webhook.core.admission.assessment import Assessment, assess
from webhook.core.line.gangs import gang_in_line
from webhook.core.model.amounts import GangId, ResourceName, TeamName, Units
from webhook.core.model.constraints import DomainLevel, DomainRequest, asked_levels
from webhook.core.model.demand import Weights, demand_of
from webhook.core.model.pod import CONTROLLER, Pod, Requester
from webhook.core.placement.domains import EmptyRoom, EqualPods, domain_rooms
from webhook.core.placement.fleet import Fleet
from webhook.core.reclaim.costs import STEPS, Effort
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.core.reclaim.victims import GuardId
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World

MAX_GROUPS: Final = 50
"""Pods and gangs that are planned for at once: a tenant may create any number. Of each team as many as of others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """What plans are made from. `left` is how many evictions each disruption budget allows now.

    `held` are the slots of nodes that are kept for waiting pods, `weights` the GPU units of each resource, `levels`
    those of the policy's domains. At most `per_workload` pods of one controller are moved, with those that were `moved`
    lately.
    """

    fleet: Fleet
    movable: Sequence[MovablePod]
    now: int
    left: Mapping[GuardId, int]
    weights: Weights
    per_workload: int = 1
    levels: tuple[str, ...] = ()
    held: int = 0
    moved: Mapping[str, int] = field(default_factory=lambda: NO_MOVED)

    @property
    def usable(self) -> int:
        """The slots of the nodes that may be used."""
        return self.fleet.open_bits & ~(self.held | self.fleet.held_bits)

    @property
    def free(self) -> FreeRoom:
        """What is free on these nodes now."""
        return free_room(self.fleet, self.weights, among=self.usable)


class Defragmentation(NamedTuple):
    """The plans, the pods without one, and what is free on nodes before and after all moves.

    `rest` is how many more pods and gangs wait for which no plan was sought.
    """

    rooms: tuple[Room, ...]
    refused: tuple[NotPlanned, ...]
    before: FreeRoom
    after: FreeRoom
    rest: int = 0


def make_room(targets: Iterable[Target], movement: Movement, *, steps: int = STEPS) -> Defragmentation:
    """Plan moves for pods, with a bound of work for each of them or each gang."""
    groups = _together(targets)
    chosen = _fair_part(groups)
    tried = _tried(movement)
    before = movement.free
    rooms: list[Room] = []
    refused: list[NotPlanned] = []
    failed: dict[Hashable, NoMoves] = {}  # since the last plan: equal pods fail alike
    try:
        for together in chosen:
            kind = _kind(together)
            found = failed.get(kind) or _for_group(together, movement, tried, steps=steps)
            if isinstance(found, NoMoves):
                failed[kind] = found
                refused.append(NotPlanned(together, found))
            else:
                failed.clear()
                rooms.append(found)
        after = movement.free
    finally:
        tried.undo(0)
    return Defragmentation(tuple(rooms), tuple(refused), before, after, len(groups) - len(chosen))


def separate_plans(targets: Iterable[Target], movement: Movement, *, steps: int = STEPS) -> Iterator[Room | NotPlanned]:
    """Yield a plan for each pod and each gang alone, the longest waiting first; each is made when it is asked for.

    Only one of them may be carried out: the next is to be planned on what is there then.
    """
    failed: dict[Hashable, NoMoves] = {}
    for together in _fair_part(_together(targets)):
        kind = _kind(together)
        found: Room | NoMoves | None = failed.get(kind)
        if found is None:
            tried = _tried(movement)
            try:
                found = _for_group(together, movement, tried, steps=steps)
            finally:
                tried.undo(0)
        if isinstance(found, NoMoves):
            failed[kind] = found
            yield NotPlanned(together, found)
        else:
            yield found


def grow(resource: ResourceName, movement: Movement, *, steps: int = STEPS) -> Defragmentation:
    """Plan the moves after which one node has as many of these devices free as possible, with a bound of work for all.

    Of several nodes it is the one where that costs the least.
    """
    fleet, effort, tried = movement.fleet, Effort(steps), _tried(movement)
    before = movement.free
    most = fleet.largest_amount(resource, movement.usable)
    for number in range(most, before.largest(resource), -1):
        found = cheapest_moves(imagined(resource, number, movement), tried, now=movement.now, effort=effort)
        if isinstance(found, Moves):
            tried.move(found)
            after = movement.free
            tried.undo(0)
            return Defragmentation((Room((found,)),), (), before, after)
    return Defragmentation((), (), before, before)


def imagined(resource: ResourceName, number: int, movement: Movement) -> Target:
    """Return a pod of so many devices that does not exist: any open node may take it, and it needs nothing else."""
    demand = demand_of({resource: number}, movement.weights)
    return Target(f"a pod of {number} {resource}", TeamName(""), demand, movement.usable)


def _kind(together: tuple[Target, ...]) -> Hashable:
    """Return what decides on moves for these pods."""
    return tuple((each.demand, each.slots, each.domain) for each in together)


def _tried(movement: Movement) -> TriedMoves:
    return TriedMoves(
        movement.fleet,
        movement.movable,
        left=movement.left,
        per_workload=movement.per_workload,
        moved=movement.moved,
    )


def _together(targets: Iterable[Target]) -> list[tuple[Target, ...]]:
    """Return the targets by gang, those that wait longest first."""
    groups: dict[str, list[Target]] = {}
    for each in sorted(targets, key=lambda each: (each.since, each.name)):
        groups.setdefault(each.gang or f"pod {each.name}", []).append(each)
    return [tuple(group) for group in groups.values()]


def _fair_part(groups: Sequence[tuple[Target, ...]]) -> list[tuple[Target, ...]]:
    """Return MAX_GROUPS of the groups, in their order: the first of each team, then the second of each, and so on."""
    counts: Counter[TeamName] = Counter()
    turns: list[tuple[int, int]] = []
    for place, group in enumerate(groups):
        team = group[0].team
        turns.append((counts[team], place))
        counts[team] += 1
    return [groups[place] for _, place in sorted(sorted(turns)[:MAX_GROUPS], key=lambda turn: turn[1])]


def _for_group(together: tuple[Target, ...], movement: Movement, tried: TriedMoves, *, steps: int) -> Room | NoMoves:
    """Plan for a pod or a gang, and keep the moves in `tried`; where there is no plan, nothing changes."""
    request = next((each.domain for each in together if each.domain is not None), None)
    levels = asked_levels(request, movement.levels)
    for level in levels:
        best: tuple[Units, int] | None = None
        for among in _domains(level, together, movement):
            before = tried.savepoint()
            found = _placed(together, movement, tried, among=among, effort=Effort(steps))
            if isinstance(found, Room):
                tried.withdraw(found, before)
                if best is None or found.lost_work < best[0]:
                    best = found.lost_work, among
        if best is not None:
            return _placed(together, movement, tried, among=best[1], effort=Effort(steps))
    if request is not None and request.is_required and levels:
        return NoMoves.NO_DOMAIN
    return _placed(together, movement, tried, among=-1, effort=Effort(steps))


def _placed(
    together: Sequence[Target], movement: Movement, tried: TriedMoves, *, among: int, effort: Effort
) -> Room | NoMoves:
    """Plan for one pod after the other on these slots, and keep their moves; all of them or none."""
    before = tried.savepoint()
    places: list[Moves] = []
    for each in together:
        found = cheapest_moves(each._replace(slots=each.slots & among), tried, now=movement.now, effort=effort)
        if isinstance(found, NoMoves):
            tried.withdraw(Room(tuple(places)), before)
            return found
        tried.move(found)
        tried.take(found.node, found.target.uid, found.target.demand)
        places.append(found._replace(target=each))
    return Room(tuple(places))


def _domains(level: DomainLevel, together: Sequence[Target], movement: Movement) -> Iterator[int]:
    """Yield the slots of the domains that could hold the pods if they were empty, the least full first."""
    fleet = movement.fleet
    numbers = Counter((each.demand, each.slots) for each in together)
    kinds = [EqualPods(demand, number, slots) for (demand, slots), number in numbers.items()]
    for room in domain_rooms(fleet, level, kinds, EmptyRoom(fleet)).enough:
        yield fleet.meeting(room.requirements)


# Waiting pods as targets that room is sought for: those in the queue, and those that their scheduler finds no room for.


_NO_REQUESTER = Requester("")


def target_in_line(waiting: WaitingPod, world: World, *, held: int = 0) -> Target | None:
    """Return a pod that waits in the queue; None where a limit or another controller's gate keeps it there.

    `held`, here and below, are the slots of nodes that are kept for others.
    """
    assessed = assess(waiting.pod, _NO_REQUESTER, world).of_user(waiting.user)
    if assessed.broken or not waiting.has_turn:
        return None
    gang = waiting.pod.gang
    own = None if gang is None else gang.domain
    return _target(assessed, world, held, since=waiting.created, gang=gang_in_line(waiting, world), domain=own)


def target_of_scheduler(gpu_pod: ReclaimPod, template: Pod, world: World, *, held: int = 0) -> Target | None:
    """Return a pod without a node; None where its scheduler reports something else than too little room.

    `template` is the pod as its user asked for it.
    """
    report = gpu_pod.report
    if report is None or not report.is_for_room or gpu_pod.is_gated or gpu_pod.pod.is_terminating:
        return None
    assessed = assess(template, CONTROLLER, world)
    return _target(assessed, world, held, since=report.since, gang=gpu_pod.gang, domain=gpu_pod.domain)


def target_to_come(pod: Pod, requester: Requester, world: World, *, held: int = 0) -> Target | None:
    """Return a pod that does not exist; None where a limit or a rule would refuse it, or keep it waiting."""
    assessed = assess(pod, requester, world)
    return None if assessed.broken else _target(assessed, world, held)


def _target(
    assessed: Assessment,
    world: World,
    held: int,
    *,
    since: int = 0,
    gang: GangId | None = None,
    domain: DomainRequest | None = None,
) -> Target | None:
    """Return a pod as a target, in the domain that it asks for or the PodGroup of its gang does."""
    if assessed.early_decision is not None:
        return None
    pod = assessed.pod
    if domain is None and gang is not None:
        domain = world.group_domains.get(gang)
    return Target(
        f"{pod.namespace}/{pod.name}",
        assessed.team.name,
        pod.demand,
        usable_nodes(assessed, world, held=held),
        since,
        gang or "",
        domain,
    )
