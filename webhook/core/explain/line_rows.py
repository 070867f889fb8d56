"""LineRow, HolderRow, GangRow; place and past waits.

How long the last pods of a team and size waited in the queue: what is known of those behind them.
"""

import math
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final, NamedTuple

from webhook.core.admission.assessment import assess
from webhook.core.admission.pod_rules import recounted
from webhook.core.admission.queueing import behind_other_teams, limits_in_the_way
from webhook.core.explain.line_places import Place, places
from webhook.core.line.entries import IN_TURN, Fits, Never, NoRoom, OverLimit, Paced, Verdict
from webhook.core.line.gangs import gang_in_line
from webhook.core.line.judged_pod import BorrowedRoom, Judged, judge_pod
from webhook.core.line.line import queued_pod
from webhook.core.model.amounts import GangId, TeamName, Uid, Units
from webhook.core.model.constraints import HELD
from webhook.core.model.pod import Requester
from webhook.core.model.reasons import Code, Reason
from webhook.core.quota.limits import HOLDERS
from webhook.core.quota.shares import Holder, is_hidden
from webhook.core.starting.starts import AssumedStart, NextPass, next_pass, together
from webhook.core.world.minimums import Replicas
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World

LAST: Final = 20
"""Starts that count, the last ones."""

MAX_SIZES: Final = 1_000
"""Sizes of teams of which waits are kept: some 200 KB in a Report."""


class TeamWaits(NamedTuple):
    """How many seconds the last pods of a team with so many GPUs waited, the last one last."""

    team: TeamName
    gpus: Units
    seconds: tuple[int, ...]


class EarlierStarts(NamedTuple):
    """The last starts of a team's pods of one size: how many, and the shortest and longest are queued in seconds."""

    number: int
    shortest: int
    longest: int


class EarlierWaits:
    """The waits of the last pods of each team and size that started from the queue, from their creation to their start.

    Above `MAX_SIZES`, of the team that has most the size is forgotten that started least recently: users choose sizes.
    """

    def __init__(self, waits: Iterable[TeamWaits] = ()) -> None:
        self._teams: dict[TeamName, dict[Units, deque[int]]] = {}
        self._number = 0
        self.add(waits)

    def __iter__(self) -> Iterator[TeamWaits]:
        return (TeamWaits(team, gpus, tuple(those)) for team, of in self._teams.items() for gpus, those in of.items())

    def add(self, waits: Iterable[TeamWaits]) -> None:
        """Add waits, the least recent size and wait first."""
        for each in waits:
            for seconds in each.seconds:
                self.note(each.team, each.gpus, seconds)

    def clear(self) -> None:
        """Forget all."""
        self._teams.clear()
        self._number = 0

    def note(self, team: TeamName, gpus: Units, seconds: int) -> None:
        """Note how long a pod waited that starts now."""
        of_team = self._teams.setdefault(team, {})
        known = of_team.pop(gpus, None)
        self._number += known is None
        of_team[gpus] = deque(maxlen=LAST) if known is None else known
        of_team[gpus].append(seconds)
        if self._number > MAX_SIZES:
            largest = max(self._teams.values(), key=len)
            del largest[next(iter(largest))]
            self._number -= 1

    def of(self, team: TeamName, gpus: Units) -> EarlierStarts | None:
        """Return the last starts of a team's pods with so many GPUs; None where none is known."""
        waits = self._teams.get(team, {}).get(gpus)
        return EarlierStarts(len(waits), min(waits), max(waits)) if waits else None


# How long jobs waited, by their size: pods, and gangs as one. The history, metrics and simulations read this.


PERCENTILES: Final = (50, 90, 99)

_SIZES: Final = ((0, "none"), (0.999, "part of 1"), (1, "1"), (2, "2"), (4, "3-4"), (8, "5-8"), (64, "9-64"))
_LARGEST: Final = "65 and more"
SIZES: Final = (*(name for _, name in _SIZES), _LARGEST)
"""The classes of sizes, by the GPUs of the whole job, the smallest first."""

BOUNDS: Final = (1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0, 259200.0, math.inf)
"""Upper bounds in seconds of the groups into which waits are counted where single ones are not kept."""


class Start(NamedTuple):
    """A job that started: the class of its size, and how many seconds after its creation."""

    size: str
    wait: float


class WaitPercentiles(NamedTuple):
    """How many jobs, and the seconds that 50, 90 and 99 percent of them did not exceed.

    Each is the smallest wait for which that is so; None where it has no end or is beyond the last group, or without
    jobs.
    """

    jobs: int
    p50: float | None
    p90: float | None
    p99: float | None


def size_of(gpus: float) -> str:
    """Return the class of a job's size, from its GPUs."""
    return next((name for most, name in _SIZES if gpus <= most), _LARGEST)


def bound_of(wait: float) -> float:
    """Return the upper bound of the group that a wait is counted in."""
    return next(bound for bound in BOUNDS if wait <= bound)


def percentiles(waits: Iterable[float]) -> WaitPercentiles:
    """Return the percentiles of waits; infinity is one that has not ended."""
    return percentiles_of(Counter(waits))


def percentiles_of(counts: Mapping[float, int]) -> WaitPercentiles:
    """Return the same of counted waits, such as those of groups, each as the upper bound of its group."""
    waits = sorted(counts)
    until = list(accumulate(counts[wait] for wait in waits))
    total = until[-1] if until else 0
    ranks = [max(1, math.ceil(total * percent / 100)) for percent in PERCENTILES]
    found = [waits[bisect_left(until, rank)] for rank in ranks] if total else [math.inf] * len(ranks)
    return WaitPercentiles(total, *(None if math.isinf(wait) else wait for wait in found))


# The pods that wait in the queue, each with its place, what it waits for, who holds that, and how long others waited.
#
# What starts now is what the leader's next pass starts, which is played here. Of the others each is judged on the
# present world by the judge of that pass. The text on the pod is used where that is not possible: where the viewer does
# not see all nodes, and for more kinds of pods than `MAX_JUDGED`.


MAX_JUDGED: Final = 1_000
"""Kinds of pods that are judged, equal pods of one user once: a tenant may make every pod another one."""

_NO_REQUESTER: Final = Requester("")


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A waiting pod. `place` is None where it is not in the queue: another controller's gate holds it, or it ends.

    `reason` says what it waits for, in numbers; `holders` hold most of that. `gates` are those of other controllers.
    `earlier` is how long the last pods like it waited, None where none is known or it is not queued, `replicas` are
    those of its workload, where it has a minimum. `is_charged`: its turn has come, and it keeps its gate until reclaim
    has made its room; it has no place then.
    """

    waiting: WaitingPod
    gpus: Units
    reason: Reason
    place: Place | None = None
    holders: tuple[Holder, ...] = ()
    gates: tuple[str, ...] = ()
    earlier: EarlierStarts | None = None
    replicas: Replicas | None = None
    is_charged: bool = False

    @property
    def code(self) -> Code:
        """The code of what it waits for."""
        return self.reason.code

    @property
    def cause(self) -> str:
        """What it waits for, as text."""
        return self.reason.text

    @property
    def needs_evictor(self) -> bool:
        """Whether it waits for borrowed GPUs, which an evictor takes back if one leads."""
        return self.code is Code.WAITS_FOR_BORROWERS or self.reason in (_AWAITS_ROOM, _AWAITS_GANG, _TAKEN_BACK)


_NOT_KNOWN: Final = Reason(Code.WAITS_IN_LINE, "not known")
_DELETED: Final = Reason(Code.WAITS_IN_LINE, "it is being deleted")
_STARTS: Final = Reason(Code.WAITS_IN_LINE, "it starts within seconds")
_RELEASED: Final = Reason(Code.WAITS_IN_LINE, "it is about to be released")
_AWAITS_ROOM: Final = Reason(Code.WAITS_IN_LINE, "borrowed GPUs are reclaimed for it, and it starts once they are free")
_AWAITS_GANG: Final = Reason(
    Code.WAITS_IN_LINE, "borrowed GPUs are reclaimed for its gang, which starts once all of them are free"
)
_TAKEN_BACK: Final = Reason(Code.WAITS_IN_LINE, "borrowed GPUs are reclaimed for it, with one of the next releases")


class _Cause(NamedTuple):
    """What pods of one kind wait for; `verdict` is None where they were not judged."""

    reason: Reason
    verdict: Verdict | None = None
    holders: tuple[Holder, ...] = ()
    starts_now: bool = False


class QueueReader:
    """Reads the line of a world, which must not change meanwhile. `waits` are those of earlier pods.

    `now` is in Unix seconds, None for the time of the world.
    """

    def __init__(
        self,
        world: World,
        *,
        waits: EarlierWaits | None = None,
        is_room_known: bool = True,
        now: int | None = None,
    ) -> None:
        self._world = world
        self._waits = EarlierWaits() if waits is None else waits
        self._is_room_known = is_room_known
        self._borrowed = BorrowedRoom(world)
        self._held_room = world.fleet.tainted(HELD)
        self._awaiting_gangs: dict[GangId, bool] = {}
        self._causes: dict[Hashable, _Cause] = {}
        now = world.now if now is None else now
        is_played = is_room_known and world.policy.is_enforced and len(world.waiting)
        self._pass = next_pass(world, now=now, most=MAX_JUDGED) if is_played else NextPass()
        self._firsts = _firsts(self._pass.turns)
        self._places = places(world, self._verdict, now=now)

    def rows(self, team: TeamName | None = None) -> list[QueueRow]:
        """Return the waiting pods of a team, or of all: by place, then those that are not in the queue by age."""
        return [self.row(pod) for pod in self.in_order(team)]

    def in_order(self, team: TeamName | None = None) -> list[WaitingPod]:
        """Return the waiting pods in the order of their rows, without judging them, and without those of others."""
        waiting = self._world.waiting.all() if team is None else self._world.waiting.of(team)
        return sorted((pod for pod in waiting if not is_hidden(pod.pod.namespace)), key=self._order)

    def row(self, waiting: WaitingPod) -> QueueRow:
        """Return one waiting pod."""
        row = self._row(waiting)
        if row.place is None:
            return row
        return replace(row, earlier=self._waits.of(waiting.team, row.gpus))

    def _row(self, waiting: WaitingPod) -> QueueRow:
        pod, place = waiting.pod, self._places.get(waiting.uid)
        gpus = (self._world.with_claims(pod).demand if pod.needs_resolution else pod.demand).gpus
        replicas = self._world.minimums.of(pod.replica.workload)
        is_charged = self._world.is_assumed(waiting.uid)
        row = QueueRow(waiting, gpus, written_reason(waiting), place, replicas=replicas, is_charged=is_charged)
        if waiting.is_terminating:
            return replace(row, reason=_DELETED)
        if waiting.is_held:
            gates = pod.foreign_gates
            held = Reason(Code.WAITS_FOR_GATE, "scheduling gate {gates} of another controller", {"gates": gates})
            return replace(row, reason=held, gates=gates)
        if waiting.problem:
            problem = Reason(Code.WAITS_IN_LINE, "{problem}", {"problem": waiting.problem})
            return replace(row, reason=problem)
        if not self._world.policy.is_enforced:
            return replace(row, reason=_RELEASED)
        gang = gang_in_line(waiting, self._world)
        if gang is not None and self._gang_awaits_room(gang):
            return replace(row, reason=_AWAITS_GANG)
        if self._awaits_room(waiting):
            return replace(row, reason=_AWAITS_ROOM)
        if place is None:
            return replace(row, reason=_RELEASED)
        return self._in_line(row, place)

    def _awaits_room(self, waiting: WaitingPod) -> bool:
        """Whether a node keeps room for a pod, or it is charged on one whose devices others still hold."""
        if not self._held_room.keys().isdisjoint(waiting.holds):
            return True
        charged = self._world.pod(waiting.uid)
        node = None if charged is None else self._world.node_of(waiting.uid)
        return charged is not None and node is not None and self._world.fleet.is_overbooked(node, charged.demand)

    def _gang_awaits_room(self, gang: GangId) -> bool:
        """Whether room is taken back for a gang, which starts once all of it is free."""
        found = self._awaiting_gangs.get(gang)
        if found is None:
            world = self._world
            members = () if world.gangs.has_started(gang) else world.waiting.of_gang(gang)
            found = self._awaiting_gangs[gang] = any(map(self._awaits_room, members))
        return found

    def _in_line(self, row: QueueRow, place: Place) -> QueueRow:
        waiting = row.waiting
        if (turn := self._firsts.get(waiting.uid)) is not None:
            return replace(row, reason=_TAKEN_BACK if turn.takes_back else _STARTS)
        gang = gang_in_line(waiting, self._world)
        if gang is not None and not self._world.gangs.has_started(gang):
            return replace(row, reason=self._of_gang(row.reason, gang))
        found = self._cause(waiting)
        if not found.starts_now:
            return replace(row, reason=found.reason, holders=found.holders)
        return replace(row, reason=self._behind(waiting, place)) if self._is_room_known else row

    def _behind(self, waiting: WaitingPod, place: Place) -> Reason:
        """Return why a pod waits that could start if it were alone."""
        judged = self._pass.blocked.get(waiting.uid)
        if place.of_team > 1:
            facts = {"pods": place.of_team - 1, "team": waiting.team}
            return Reason(Code.WAITS_IN_LINE, "{pods:pod} of team {team} ahead of it", facts)
        if judged is not None and judged.reason is not None:
            return judged.reason
        return Reason(Code.WAITS_IN_LINE, *behind_other_teams())

    def _of_gang(self, written: Reason, gang: GangId) -> Reason:
        """Return why a gang waits, by what is written on a pod: the leader knows the size, and that may be older.

        It is not written again for each pod that comes, so the number of those that have come is counted here.
        """
        members = self._world.waiting.of_gang(gang)
        is_described = any(pod.pod.gang is not None and pod.pod.gang.is_described for pod in members)
        others = 0 if is_described else self._world.gangs.others(gang)
        come = sum(pod.has_turn for pod in members) + others
        return Reason(Code.WAITS_FOR_GANG, *recounted(written.statement, come))

    def _order(self, waiting: WaitingPod) -> tuple[int, int, str, str]:
        place = self._places.get(waiting.uid)
        number = len(self._places) + 1 if place is None else place.overall
        return number, waiting.created, waiting.pod.namespace, waiting.pod.name

    def _cause(self, waiting: WaitingPod) -> _Cause:
        key = queued_pod(waiting, self._world).like
        found = self._causes.get(key)
        if found is None:
            if len(self._causes) >= MAX_JUDGED:
                return _Cause(written_reason(waiting))
            judged = None if self._pass.turns else self._pass.blocked.get(waiting.uid)
            if judged is None or judged.attempt != IN_TURN:
                judged = judge_pod(waiting, self._world, self._borrowed)
            found = self._causes[key] = self._cause_of(judged)
        return found

    def _verdict(self, uid: Uid) -> Verdict | None:
        waiting = self._world.waiting.get(uid) if self._is_room_known else None
        return None if waiting is None else self._cause(waiting).verdict

    def _cause_of(self, judged: Judged) -> _Cause:
        verdict, reason = judged.verdict, judged.reason or _NOT_KNOWN
        match verdict:
            case Fits():
                return _Cause(_STARTS, verdict, starts_now=True)
            case Never() | Paced():
                return _Cause(reason, verdict)
            case NoRoom():
                return _Cause(reason, verdict, self._largest_of_all())
            case OverLimit():
                return _Cause(reason, verdict, self._holders_of_limit(judged))

    def _holders_of_limit(self, judged: Judged) -> tuple[Holder, ...]:
        assessed = assess(judged.pod, _NO_REQUESTER, self._world).of_user(judged.waiting.user)
        blocking = limits_in_the_way(assessed)
        if not blocking:  # it asks never to borrow
            return tuple(assessed.usage.largest(HOLDERS, is_guaranteed=True))
        return tuple(blocking[0].holders(assessed.usage))

    def _largest_of_all(self) -> tuple[Holder, ...]:
        found = [holder for usage in self._world.usage_by_team().values() for holder in usage.largest(HOLDERS)]
        return tuple(sorted(found, key=lambda each: (-each.gpus, each.name))[:HOLDERS])


def _firsts(turns: Sequence[AssumedStart]) -> dict[Uid, AssumedStart]:
    """Return the turns of each team's first pod or gang that starts."""
    groups: dict[TeamName, list[AssumedStart]] = {}
    for group in together(turns):
        groups.setdefault(group[0].waiting.team, group)
    return {turn.waiting.uid: turn for group in groups.values() for turn in group}


def written_reason(waiting: WaitingPod) -> Reason:
    """Return why a pod waits by what is written on it: that may be older."""
    if waiting.reason is not None or not waiting.text:
        return waiting.reason or _NOT_KNOWN
    return Reason(Code.WAITS_IN_LINE, "{text}", {"text": waiting.text})  # its facts cannot be read
