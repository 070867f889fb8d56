"""The pods that start now, one after the other: each is assumed in the world before the next one is judged.

From judged to assumed (`due`), from assumed to what the ledger is to charge (`judge_again`), and back (`drop_assumed`).
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from webhook.core.line.entries import (
    IN_TURN,
    Attempt,
    Fits,
    GangPauses,
    HoldBacks,
    Never,
    NoRoom,
    OverLimit,
    QueueEntry,
    ReclaimPace,
)
from webhook.core.line.gang_plans import as_reservation
from webhook.core.line.judged_gang import EntryJudge, ReasonsBehind
from webhook.core.line.judged_pod import BorrowedRoom, Judged, judge_pod, start_unjudged
from webhook.core.line.line import WaitingEntries
from webhook.core.line.line_pass import QueuePass
from webhook.core.line.order import Order, waits_for_share
from webhook.core.model.amounts import UNLIMITED, GangId, Limit, NodeName, TeamName, Uid
from webhook.core.model.constraints import DomainPlace, Tier
from webhook.core.model.decision import Admit, Retry
from webhook.core.model.reasons import Code, Reason
from webhook.core.quota.charges import InFlightCharge, LedgerDecision
from webhook.core.starting.awaited_room import MOST, awaiting, resumed
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World


def _goes_on() -> bool:
    """Return that a pass is not to end early."""
    return False


def _lists_none(_team: TeamName, _uid: Uid) -> None:
    """Return that no charge is listed."""


_NO_LONGER = Retry(Reason(Code.RACE_LOST, "the pod may no longer start: it waits on"))


@dataclass(frozen=True, slots=True)
class AssumedStart:
    """A waiting pod that starts now, as it was judged: its charge is assumed in the world, not in the ledger yet.

    The turns of a `gang` follow one another, and start together or not at all, in the domain `place` if there is one.
    `reservation` is the room that was kept for the pod: its charge ends with the write that charges the pod.
    `is_reservation`: there is no pod yet, and its room is to be kept. `awaits_room`: all of its gang keep their gates
    until reclaim has made the room that they lack. `takes_back` as in Judged.
    """

    waiting: WaitingPod
    admit: Admit
    attempt: Attempt
    gang: GangId | None = None
    reservation: InFlightCharge | None = None
    is_reservation: bool = False
    place: DomainPlace | None = None
    awaits_room: bool = False
    takes_back: bool = False


class AssumedStarts:
    """Finds turns on one world. `blocked` says why the pods that were judged last wait on.

    `changed` are the pods that came, went or changed before the last pass. `listed` returns the charge of a pod that
    the ledger of a team lists already. `is_room_needed`: a pod found no room inside its guaranteed share. `active` as
    in WaitingEntries. `awaiting` are the charged pods that keep their gate, `most_blocked` as in QueuePass.
    """

    def __init__(
        self,
        world: World,
        *,
        listed: Callable[[TeamName, Uid], InFlightCharge | None] = _lists_none,
        active: Collection[Uid] = frozenset(),
        awaiting: Sized = (),
        most_blocked: Limit = UNLIMITED,
    ) -> None:
        self.entries = WaitingEntries(world, active=active)
        self.blocked: dict[Uid, Judged] = {}
        self.changed: Iterable[Uid] = ()
        self.is_room_needed = False
        self._world = world
        self._listed = listed
        self._awaiting = awaiting
        self._most_blocked = most_blocked
        self._noted: dict[Uid, None] = {}
        self._open: dict[Uid, AssumedStart] = {}  # charges that are assumed here, and not known to the ledger yet
        self._kept: dict[Uid, frozenset[NodeName]] = {}
        self._pauses = GangPauses()
        self._pace = ReclaimPace(world)
        self._hold_backs = HoldBacks()
        self._order = Order(self.entries.queue, self.entries)
        self._reasons_behind = ReasonsBehind(world, self.entries.queue)

    def due(
        self, *, now: int, count: int, is_enough: Callable[[], bool] = _goes_on, is_looked_at: bool = False
    ) -> list[AssumedStart]:
        """Return at most so many pods that start now, in order, and assume their charges. `now` is in Unix seconds.

        After each one `is_enough` may end the pass early: what else may start does with the next one. `is_looked_at`:
        `sync` was through with all teams just now, and where they stand is taken from then.
        """
        self._sync_entries(now=now)
        if not is_looked_at:
            self._order.look()
        self.changed, self._noted = self._noted, {}
        return self._due(now=now, count=count, is_enough=is_enough)

    def sync(self, *, now: int, most: int | None = None) -> bool:
        """Take note of the time, of pods that came, went or changed, and of teams; return whether of all.

        At `most` so many pods, or teams. `due` does so, too.
        """
        self._sync_entries(now=now, most=most)
        return self.entries.is_synced and self._order.look(most=most)

    def _sync_entries(self, *, now: int, most: int | None = None) -> None:
        self._world.tick(now)
        self._noted |= dict.fromkeys(self.entries.sync(now=now, most=most))

    def firsts(self) -> Iterator[QueueEntry]:
        """Yield the first entries of all teams, in the order of the queue."""
        return self._order.firsts()

    def close(self) -> None:
        """End: drop what was assumed and is not known to the ledger, and listen no longer."""
        for turn in [*self._open.values()]:
            self.drop_assumed(turn)
        self.entries.close()

    def _due(self, *, now: int, count: int, is_enough: Callable[[], bool]) -> list[AssumedStart]:
        self._pauses.begin(now=now)
        self.entries.note_use(now=now)
        world, queue = self._world, self.entries.queue
        judge = EntryJudge(world, before=self._kept, pauses=self._pauses, pace=self._pace, now=now)
        found: list[AssumedStart] = []
        if not world.policy.is_enforced:
            waiting = [pod for pod in world.waiting.all() if not self.entries.is_starting(pod.uid)][:count]
            return [turn for pod in waiting for turn in self._assumed(start_unjudged(pod, world))]
        found += self._of_reservations()
        self._hold_backs.begin()
        turns = QueuePass(
            self._order, world.policy.queue, now=now, hold_backs=self._hold_backs, most_blocked=self._most_blocked
        )
        while len(found) < count and (following := turns.next(judge)) is not None:
            queue.remove(following.entry.key)
            members = [judge.judged.pop(pod.uid) for pod in following.entry.pods]
            gang = following.entry.pods[0].gang
            awaits_room = gang is not None and self._await_room(members)
            for judged in members:
                if judged.takes_back:
                    self._pace.note(following.entry.team, judged.waiting.uid, now=now)
                found += self._assumed(judged, gang=gang, awaits_room=awaits_room)
            if is_enough():
                break
        self.blocked = {uid: judged for uid, judged in judge.judged.items() if not isinstance(judged.verdict, Fits)}
        for late, cause in self.entries.gangs.late(now=now):
            self.blocked[late.uid] = Judged(late, late.pod, _NO_LONGER, Never(), Reason(Code.WAITS_FOR_GANG, *cause))
        self.is_room_needed = any(map(_waits_inside_its_share, self.blocked.values()))
        no_room = {uid: v for uid, judged in self.blocked.items() if isinstance(v := judged.verdict, NoRoom)}
        reaches = [verdict.reach for verdict in no_room.values()]
        named = [reach for reach in reaches if reach is not None]
        world.waiting.wanted = frozenset().union(*named) if len(named) == len(reaches) else None
        self._kept = {uid: verdict.keep for uid, verdict in no_room.items() if verdict.keep}
        return found

    def behind(self, *, now: int) -> dict[Uid, Judged]:
        """Return why some of the pods wait that the last pass did not come to, others each second.

        One that waits for what its team's share does not help with claims none of it.
        """
        found, queue = self._reasons_behind.look(self.blocked, now=now), self.entries.queue
        for uid, judged in found.items():
            gang = judged.pod.gang
            entry = queue.get(uid) or (queue.get(gang.id) if gang is not None else None)
            if entry is None:
                continue
            if waits_for_share(judged.verdict, queue.teams()[entry.team].is_covered_by) is False:
                self._order.note_claim(entry, is_claim=False, is_denied=True)
        return found

    def drop_assumed(self, turn: AssumedStart) -> None:
        """Drop what was assumed for a turn, unless the ledger lists the pod; its reservation is kept on."""
        self._open.pop(turn.waiting.uid, None)
        if self._listed(turn.admit.charge.team, turn.waiting.uid) is None:
            self._world.drop_reservation(turn.waiting.uid)
            self.keep_reservation(turn)

    def judge_again(self, turn: AssumedStart) -> LedgerDecision:
        """Return the decision on a turn at the moment when it is charged; the charge assumed for it is dropped.

        What the ledger lists already stays as it is: the answer to an earlier write was lost, or another leader wrote.
        """
        world, uid = self._world, turn.waiting.uid
        self._open.pop(uid, None)
        waiting = turn.waiting if turn.is_reservation else world.waiting.get(uid)
        if (flight := self._listed(turn.admit.charge.team, uid)) is not None:
            if waiting is None:
                return LedgerDecision(_NO_LONGER, None)
            return LedgerDecision(resumed(waiting, flight, world), flight)
        world.drop_reservation(uid)
        if turn.reservation is not None:
            world.drop_reservation(turn.reservation.pod.uid)
        judged = None if waiting is None else self._judged_alone(waiting, turn)
        if judged is None or not (isinstance(judged.verdict, Fits) and isinstance(judged.decision, Admit)):
            self.keep_reservation(turn)
            return LedgerDecision(_NO_LONGER, None)
        flight = judged.flight
        if turn.is_reservation:
            flight = as_reservation(flight, world)
        elif turn.awaits_room or (judged.waiting.pod.gang is None and self._await_room([judged])):
            flight = awaiting(flight)
        replaces = None if turn.reservation is None else turn.reservation.pod.uid
        return LedgerDecision(judged.decision, flight, replaces)

    def _await_room(self, members: Sequence[Judged]) -> bool:
        """Whether pods that start together keep their gates until reclaim has made the room that some of them lack.

        kube-scheduler would try them again and again meanwhile. Not those whose charge depends on the nodes that they
        are bound to: these are planned for as they are bound. So are gangs of which some pods come later, to the room
        that is kept for them near the others, and the pods that follow a gang.
        """
        is_too_many = len(self._awaiting) + len(members) > MOST
        if is_too_many or any(each.waiting.uid in self._world.waiting.expected for each in members):
            return False
        return any(each.takes_back for each in members) and all(each.may_await_room for each in members)

    def _judged_alone(self, waiting: WaitingPod, turn: AssumedStart) -> Judged:
        world = self._world
        if not world.policy.is_enforced:
            return start_unjudged(waiting, world)
        is_member = turn.gang is not None
        nodes = turn.admit.node_choice.nodes or turn.admit.node_choice.expected
        borrowed = BorrowedRoom(world, first=nodes[0] if nodes else None)
        return judge_pod(waiting, world, borrowed, turn.attempt, is_member=is_member, place=turn.place)

    def _assumed(
        self, judged: Judged, *, gang: GangId | None = None, awaits_room: bool = False
    ) -> Iterator[AssumedStart]:
        if isinstance(judged.decision, Admit):
            world, flight = self._world, judged.flight
            is_expected = judged.waiting.uid in world.waiting.expected
            world.assume(as_reservation(flight, world) if is_expected else flight)
            turn = AssumedStart(
                judged.waiting,
                judged.decision,
                judged.attempt,
                gang,
                is_reservation=is_expected,
                place=judged.place,
                awaits_room=awaits_room,
                takes_back=judged.takes_back,
            )
            self._open[judged.waiting.uid] = turn
            yield turn

    def _of_reservations(self) -> Iterator[AssumedStart]:
        """Yield the pods for which room was kept that have come: they start in it, whatever waits ahead of them."""
        world = self._world
        for gang in world.gang_reservations.gangs():
            for pod in [*world.waiting.of_gang(gang)] if world.gangs.has_started(gang) else ():
                reservation = world.gang_reservations.fitting(gang, pod.pod.demand.gpus)
                if reservation is None or not self.entries.has_turn(pod):
                    continue
                world.drop_reservation(reservation.pod.uid)
                judged = judge_pod(pod, world, BorrowedRoom(world), is_member=True)
                if not (isinstance(judged.verdict, Fits) and isinstance(judged.decision, Admit)):
                    self._keep(reservation)
                    continue
                self.entries.queue.remove(pod.uid)
                world.assume(judged.flight)
                self._open[pod.uid] = AssumedStart(pod, judged.decision, IN_TURN, reservation=reservation)
                yield self._open[pod.uid]

    def keep_reservation(self, turn: AssumedStart) -> None:
        """Keep the room of a turn on that the ledger still lists."""
        if turn.reservation is not None:
            self._keep(turn.reservation)

    def _keep(self, reservation: InFlightCharge) -> None:
        if self._listed(reservation.charge.team, reservation.pod.uid) is not None:
            self._world.assume(reservation)


def _waits_inside_its_share(judged: Judged) -> bool:
    decision = judged.decision
    is_guaranteed = isinstance(decision, Admit) and decision.charge.tier is Tier.GUARANTEED
    return isinstance(judged.verdict, NoRoom) and is_guaranteed


class NextPass(NamedTuple):
    """What a pass does: the pods that start, in order, and the judgments on those that it looked at and that wait."""

    turns: tuple[AssumedStart, ...] = ()
    blocked: Mapping[Uid, Judged] = {}


def next_pass(world: World, *, now: int, most: int) -> NextPass:
    """Return what the leader's next pass does, up to so many starts and judgments; the world is as before then."""
    waiting, kept = world.waiting, world.gang_reservations
    listener, wanted = waiting.on_change, waiting.wanted
    reservations = {each.pod.uid: each for gang in kept.gangs() for each in kept.of(gang)}
    starts = AssumedStarts(world, listed=lambda _team, uid: reservations.get(uid), most_blocked=most)
    try:
        return NextPass(tuple(starts.due(now=now, count=most)), starts.blocked)
    finally:
        starts.close()
        waiting.on_change, waiting.wanted = listener, wanted


def together(turns: Sequence[AssumedStart]) -> list[list[AssumedStart]]:
    """Return the turns in groups that start together or not at all: a pod alone, or the members of a gang."""
    found: list[list[AssumedStart]] = []
    for turn in turns:
        if found and turn.gang is not None and turn.gang == found[-1][0].gang:
            found[-1].append(turn)
        else:
            found.append([turn])
    return found


# Whether the queue stands still: the first pod in it may start now, and is not released.


STALLED_SECONDS: Final = 30
"""A release follows within a second, and within ten where ledgers or patches are slow."""

MOST_JUDGED: Final = 8
"""Entries that are judged in one look."""


class StalledLine:
    """For how long the same pod has been first and could have started. Times are in seconds of Unix time."""

    def __init__(self, world: World) -> None:
        self.seconds = 0
        self._world = world
        self._first: tuple[Uid, TeamName] | None = None
        self._since = 0

    def look(self, entries: Iterable[QueueEntry], *, now: int) -> None:
        """Judge the first entry of each team, in the order of the queue; none of them once the queue is left alone."""
        first = self._startable(islice(entries, MOST_JUDGED))
        if first is None or first != self._first:
            self._first, self._since = first, now
        self.seconds = max(0, now - self._since)

    @property
    def problem(self) -> str:
        """Return that the queue stands still, "" if it does not."""
        if self._first is None or self.seconds < STALLED_SECONDS:
            return ""
        team, seconds = self._first[1], self.seconds
        return f"the first queued pod, of team {team}, may start now, and has not been released for {seconds} s"

    def _startable(self, entries: Iterable[QueueEntry]) -> tuple[Uid, TeamName] | None:
        """Return the first pod that starts next, with its team; None if one before it waits for room."""
        closed: set[Hashable] = set()
        for entry in entries:
            uid = entry.pods[0].uid
            waiting = self._world.waiting.get(uid)
            if waiting is None or self._world.is_assumed(uid) or not closed.isdisjoint(entry.limits):
                continue
            if entry.pods[0].gang is not None:
                return None  # as a whole it is judged by passes alone
            judged = judge_pod(waiting, self._world, BorrowedRoom(self._world))
            match judged.verdict:
                case Fits() if not judged.takes_back:
                    return uid, entry.team
                case OverLimit(limit):
                    closed.add(limit)
                case Never():
                    pass
                case _:
                    return None
        return None
