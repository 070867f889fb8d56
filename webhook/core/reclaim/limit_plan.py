"""Room under limits: which borrowing pods are evicted for pods that wait in the queue inside their guaranteed shares.

Limits are hard, so such a pod is charged only once those that borrow under the limit in its way are gone. The plan
frees the limit, and room on a node that the pod can use with the same victims where that is possible. No pod is
evicted that is not counted by a limit in the way. A node that only others than these could free is left to the plan
for nodes (reclaim.py), once the pod is charged; but nothing is evicted for a pod that would find no room then.

A round plans for all waiting pods in their order, each on top of the earlier ones, and leaves the snapshot as it was.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

from webhook.core.model.amounts import TeamName, Uid, Units
from webhook.core.model.constraints import asked_levels
from webhook.core.reclaim.limit_victims import LevelName, LimitLevel, cheapest_under
from webhook.core.reclaim.reclaim import rooms_for
from webhook.core.reclaim.reclaim_plan import NoPlan, NotPlanned, ReclaimSnapshot, overrides_of, waits_past_budgets
from webhook.core.reclaim.reclaim_pods import ReclaimPod, Sharing, freeing
from webhook.core.reclaim.trial import Trial
from webhook.core.reclaim.victims import Victim

MOST_DOMAINS: Final = 8
"""Domains that are planned for, of a gang that is to be in one: those where the fewest GPUs are missing."""


class Entitled(NamedTuple):
    """A queued pod inside its team's guaranteed share, the slots that it may use, and its limits, the lowest first."""

    waiting: ReclaimPod
    slots: int
    levels: tuple[LevelName, ...]


class LimitMove(NamedTuple):
    """A pod that would start, and the victims for it: none where pods that leave make the room.

    `levels` are the limits that have no room now for it, or for another of its group; none where it can start at once.
    """

    waiting: ReclaimPod
    levels: tuple[LevelName, ...]
    victims: tuple[Victim, ...] = ()
    is_past_budgets: bool = False


class LimitRound(NamedTuple):
    """The pods that have room under their limits or get it, and those that wait for it and cannot."""

    moves: tuple[LimitMove, ...]
    refused: tuple[NotPlanned, ...] = ()


def plan_limits(
    together: Iterable[Sequence[Entitled]],
    levels: Iterable[LimitLevel],
    snapshot: ReclaimSnapshot,
    *,
    ahead: Iterable[ReclaimPod] = (),
    before: Mapping[Uid, Set[Uid]] | None = None,
) -> LimitRound:
    """Return the plans for queued pods; those of one group start together or not at all.

    `ahead` are charged pods that wait for nodes, whose room is taken first. `before` are the victims that were chosen
    for each pod by an earlier round: they are kept as long as they are needed and enough.
    """
    planner = _Planner(snapshot, levels, before or {})
    moves: list[LimitMove] = []
    refused: list[NotPlanned] = []
    try:
        for other in ahead:
            planner.trial.place(other)
        for group in together:
            is_short = planner.is_short(group)
            found = planner.place(group)
            moves += [move for move in found if isinstance(move, LimitMove)]
            refused += [each for each in found if isinstance(each, NotPlanned) and is_short]
    finally:
        planner.trial.undo(0)
    return LimitRound(tuple(moves), tuple(refused))


@dataclass(slots=True)
class _Room:
    """The room of one limit in the round: `free` now, `coming` later."""

    teams: frozenset[TeamName]
    free: Units
    coming: Units


class _Choice(NamedTuple):
    """Victims that make room; `frees_node`: some node has room for the pod once they are gone."""

    victims: tuple[Victim, ...]
    frees_node: bool


class _State(NamedTuple):
    """What a plan may change, to restore it."""

    savepoint: int
    gone: frozenset[Uid]
    rooms: Mapping[LevelName, tuple[Units, Units]]


class _Planner:
    def __init__(self, snapshot: ReclaimSnapshot, levels: Iterable[LimitLevel], before: Mapping[Uid, Set[Uid]]) -> None:
        self.trial = Trial(snapshot)
        self._snapshot = snapshot
        self._rooms = {level.name: _Room(level.teams, level.free, level.coming) for level in levels}
        self._before = before
        self._gone: set[Uid] = set()

    def is_short(self, group: Sequence[Entitled]) -> bool:
        """Whether a limit has no room now for all pods of a group."""
        gpus = sum(each.waiting.demand.gpus for each in group)
        return any(self._rooms[name].free < gpus for each in group for name in each.levels)

    def place(self, group: Sequence[Entitled]) -> list[LimitMove | NotPlanned]:
        """Plan for the pods of a group, in one domain if they require that; where one has no room, nothing changes."""
        pods = [each.waiting for each in group]
        request = next((pod.domain for pod in pods if pod.domain is not None and pod.domain.is_required), None)
        if request is None:
            return self._together(group)
        (level,) = asked_levels(request, self._snapshot.levels)
        best: tuple[int, Units, int] | None = None
        for room in rooms_for(pods, level, self._snapshot)[:MOST_DOMAINS]:
            among, state = self._snapshot.fleet.meeting(room.requirements), self._state()
            found = self._together(group, among=among)
            self._restore(state)
            if (cost := self._cost(found)) is not None and (best is None or cost < best[:2]):
                best = (*cost, among)
        if best is None:
            return [NotPlanned(pod, NoPlan.NO_DOMAIN) for pod in pods]
        return self._together(group, among=best[2])

    def _cost(self, found: Sequence[LimitMove | NotPlanned]) -> tuple[int, Units] | None:
        """Return how many victims of a group are new, and what all hold; None where it has no room."""
        moves = [move for move in found if isinstance(move, LimitMove)]
        if len(moves) < len(found):
            return None
        known = set(chain.from_iterable(self._before.values()))
        victims = [victim for move in moves for victim in move.victims]
        return sum(victim.uid not in known for victim in victims), sum(victim.demand.gpus for victim in victims)

    def _state(self) -> "_State":
        rooms = {name: (room.free, room.coming) for name, room in self._rooms.items()}
        return _State(self.trial.savepoint(), frozenset(self._gone), rooms)

    def _restore(self, state: "_State") -> None:
        self.trial.undo(state.savepoint)
        self._gone = set(state.gone)
        for name, (free, coming) in state.rooms.items():
            self._rooms[name].free, self._rooms[name].coming = free, coming

    def _together(self, group: Sequence[Entitled], *, among: int = -1) -> list[LimitMove | NotPlanned]:
        """Plan for all pods of a group on these slots, or for none."""
        state, found = self._state(), list[LimitMove | NotPlanned]()
        for each in group:
            found.append(self._place(each._replace(slots=each.slots & among)))
            if isinstance(found[-1], NotPlanned):
                break
        else:
            return _together(found)
        self._restore(state)
        return [NotPlanned(each.waiting, NoPlan.GANG_INCOMPLETE) for each in group[: len(found) - 1]] + found[-1:]

    def _place(self, each: Entitled) -> LimitMove | NotPlanned:
        waiting, trial = each.waiting, self.trial
        gpus = waiting.demand.gpus
        short = tuple([name for name in each.levels if self._rooms[name].free < gpus])
        choice: _Choice | None = _Choice((), frees_node=False)
        if any(self._missing(name, gpus) > 0 for name in short):
            choice = self._choice(each)
        if choice is None:
            return NotPlanned(waiting, self._why_not(each))
        savepoint = trial.savepoint()
        trial.evict(choice.victims)
        outcome = trial.place_on(waiting, each.slots)
        if isinstance(outcome, NotPlanned) and outcome.cause is not NoPlan.FITS:
            trial.undo(savepoint)
            return outcome
        self._gone.update(victim.uid for victim in choice.victims)
        for room in self._rooms.values():
            room.coming += self._held(choice.victims, room.teams)
        for name in each.levels:
            self._rooms[name].free -= gpus
        return LimitMove(waiting, short, choice.victims, waits_past_budgets(waiting, self._snapshot))

    def _why_not(self, each: Entitled) -> NoPlan:
        """Return why no victims are found: no node is able to hold the pod, or the limits stay full."""
        savepoint = self.trial.savepoint()
        outcome = self.trial.place_on(each.waiting, each.slots)
        self.trial.undo(savepoint)
        if isinstance(outcome, NotPlanned) and outcome.cause in {NoPlan.NO_NODE, NoPlan.TOPOLOGY_UNMET}:
            return outcome.cause
        return NoPlan.LIMITS_FULL

    def _choice(self, each: Entitled) -> _Choice | None:
        """Return victims that are all counted by limits in the way, and that free no more than is needed."""
        found = self._earlier(each) or self._with_node(each) or self._without_node(each)
        if found is None:
            return None
        victims = found.victims
        for unit in reversed(_units(victims, self._snapshot.sharing)):
            rest = tuple([victim for victim in victims if victim not in unit])
            if self._is_enough(each, rest) and (not found.frees_node or self._frees_node(each, rest)):
                victims = rest
        return found._replace(victims=victims)

    def _earlier(self, each: Entitled) -> _Choice | None:
        """Return the victims of an earlier round, with more where they are no longer enough."""
        uids = self._before.get(each.waiting.uid, frozenset())
        if not uids:
            return None
        spared = self._snapshot.spared | self._snapshot.refused | self._gone
        kept = (victim for victim in self._under(each) if victim.uid in uids and victim.uid not in spared)
        victims = freeing(kept, self._snapshot.sharing, gone=self.trial.gone)
        if not self._is_enough(each, victims):  # the others keep their notice
            completed = self._completed(each, _Choice(victims, frees_node=False)) if victims else None
            if completed is None:
                return None
            victims = completed.victims
        frees_node = self._frees_node(each, victims)
        return _Choice(victims, frees_node) if frees_node or self._may_follow(each, victims) else None

    def _with_node(self, each: Entitled) -> _Choice | None:
        """Return victims that free the limits and room on a node; none for the node where one has room."""
        others = {victim.team for victim in self._snapshot.victim_index}
        for name in self._short(each):
            savepoint = self.trial.savepoint()
            outside = frozenset(others - self._rooms[name].teams)
            outcome = self.trial.place_on(each.waiting, each.slots, outside=outside)
            self.trial.undo(savepoint)
            if isinstance(outcome, NotPlanned):
                if outcome.cause is not NoPlan.FITS:
                    continue
                return self._completed(each, _Choice((), frees_node=True))
            return self._completed(each, _Choice(outcome.victims, frees_node=True))
        return None

    def _without_node(self, each: Entitled) -> _Choice | None:
        """Return victims that free the limits, if others make room on a node afterwards."""
        found = self._completed(each, _Choice((), frees_node=False))
        return found if found is not None and self._may_follow(each, found.victims) else None

    def _completed(self, each: Entitled, choice: _Choice) -> _Choice | None:
        """Return a choice with more victims until each limit has room, the lowest first."""
        gpus = each.waiting.demand.gpus
        for name in self._short(each):
            teams = self._rooms[name].teams
            missing = self._missing(name, gpus) - self._held(choice.victims, teams)
            if missing <= 0:
                continue
            chosen = set(choice.victims)
            savepoint = self.trial.savepoint()
            self.trial.evict(choice.victims)
            for how in overrides_of(each.waiting, self._snapshot):
                scale = self.trial.scale(each.waiting.team, how)
                among = [victim for victim in self._snapshot.victim_index if victim.team in teams]
                more = cheapest_under(missing, (victim for victim in among if victim not in chosen), scale=scale)
                if more is not None:
                    break
            else:
                more = None
            self.trial.undo(savepoint)
            if more is None:
                return None
            choice = choice._replace(victims=choice.victims + more.victims)
        return choice

    def _is_enough(self, each: Entitled, victims: Sequence[Victim]) -> bool:
        """Whether each limit has room once the victims are gone."""
        gpus = each.waiting.demand.gpus
        return all(
            self._missing(name, gpus) <= self._held(victims, self._rooms[name].teams) for name in self._short(each)
        )

    def _frees_node(self, each: Entitled, victims: Sequence[Victim]) -> bool:
        """Whether a node has room for the pod once the victims are gone."""
        savepoint = self.trial.savepoint()
        self.trial.evict(victims)
        has_room = self.trial.has_room(each.waiting, each.slots)
        self.trial.undo(savepoint)
        return has_room

    def _may_follow(self, each: Entitled, victims: Sequence[Victim]) -> bool:
        """Whether the plan for nodes could make room for the pod once the victims are gone."""
        savepoint = self.trial.savepoint()
        self.trial.evict(victims)
        outcome = self.trial.place_on(each.waiting, each.slots)
        self.trial.undo(savepoint)
        return not isinstance(outcome, NotPlanned) or outcome.cause is NoPlan.FITS

    def _short(self, each: Entitled) -> list[LevelName]:
        gpus = each.waiting.demand.gpus
        return [name for name in each.levels if self._missing(name, gpus) > 0]

    def _under(self, each: Entitled) -> Iterable[Victim]:
        teams = frozenset(chain.from_iterable(self._rooms[name].teams for name in self._short(each)))
        return (victim for victim in self._snapshot.victim_index if victim.team in teams)

    def _missing(self, name: LevelName, gpus: Units) -> Units:
        room = self._rooms[name]
        return gpus - room.free - room.coming

    def _held(self, victims: Iterable[Victim], teams: Set[TeamName]) -> Units:
        return sum(victim.demand.gpus for victim in victims if victim.team in teams)


def _together(found: list[LimitMove | NotPlanned]) -> list[LimitMove | NotPlanned]:
    """Return the moves of a group, each with the limits that any of them waits for: none starts before."""
    moves = [move for move in found if isinstance(move, LimitMove)]
    levels = tuple(dict.fromkeys(chain.from_iterable(move.levels for move in moves)))
    return [move._replace(levels=levels) for move in moves]


def _units(victims: Sequence[Victim], sharing: Sharing) -> list[set[Victim]]:
    """Return victims as they are evicted: a gang together, the users of a claim as well, the others one by one."""
    found: dict[object, set[Victim]] = {}
    for victim in victims:
        others = () if victim.demand.own is None else chain.from_iterable(sharing.others(victim.uid).values())
        names = {victim.gang or victim.uid, *others}
        together = {id(unit): unit for name in names if (unit := found.get(name)) is not None}
        first, *rest = together.values() or (set[Victim](),)
        unit = first.union(*rest) if rest else first  # most join one: a gang of any size is not copied for each member
        unit.add(victim)
        for each in unit if rest else (victim,):
            found[each.uid] = unit
            found[each.gang or each.uid] = unit
    return list({id(unit): unit for unit in found.values()}.values())
