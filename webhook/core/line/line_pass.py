"""Which entry starts next, in its turn or as back-fill.

A pass is a sequence of starts during which usage only grows: what did not fit once does not fit later in the same
pass. Whenever something else changed (a pod ended, a node came, an edit of the policy) a new pass begins.
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, assert_never

from webhook.core.line.entries import Fits, HoldBacks, Never, NoRoom, OverLimit, Paced, QueueEntry, Verdict, Way
from webhook.core.line.order import Order, Skipped, Turn, waits_for_share
from webhook.core.line.pod_queue import LaneKey, LotNumber, RowHead
from webhook.core.model.amounts import UNLIMITED, Limit, NodeName, TeamName, Units, Unlimited
from webhook.core.model.policy import QueueRules

MAX_PODS: Final = 64
"""Pods of one team in a pass for which it is judged whether there is a place for them, before they hold a limit."""

MAX_BLOCKED: Final = 256
"""Judgments of a pass that end in waiting, beyond one for each user and priority: a bound on what odd sizes cost."""

_NOWHERE: Final[frozenset[NodeName]] = frozenset()


class Judge(Protocol):
    """Judges an entry on the world as it is now."""

    def __call__(self, entry: QueueEntry, *, way: Way, kept: frozenset[NodeName]) -> Verdict:
        """Return whether the entry may start outside of `kept`. As back-fill it borrows, and gets free room only."""

    def has_place(self, entry: QueueEntry, limit: Hashable, *, is_owed: bool) -> bool:
        """Return whether an entry that a limit keeps out would find room once the limit has some.

        Room is free, or comes: for one inside its team's share (`is_owed`) borrowers are evicted, for another the pods
        that the limit counts have to end.
        """


class NextEntry(NamedTuple):
    """An entry that starts now. With `Way.BACKFILL` its pods run as preemptible, whatever share their team has left."""

    entry: QueueEntry
    way: Way


class QueuePass:
    """Finds the entries that may start, one after the other, in the order as it was looked at last.

    After `most_blocked` judgments that end in waiting no further entry is judged.
    """

    def __init__(
        self,
        order: Order,
        rules: QueueRules,
        *,
        now: int,
        hold_backs: HoldBacks | None = None,
        most_blocked: Limit = UNLIMITED,
    ) -> None:
        order.look_at_entries()
        self._order = order
        self._rules = rules
        self._now = now
        for entry in order.outside_shares():
            if self._is_strict_for(entry):
                order.presume_claim(entry)
        self._hold_backs = hold_backs or HoldBacks()
        self._no_room: dict[tuple[LotNumber, Way, frozenset[NodeName]], NoRoom | Paced] = {}
        self._never: set[Hashable] = set()
        self._least_over: dict[Hashable, Units] = {}
        """The smallest entry that a limit had no room for."""
        self._places: dict[tuple[LotNumber, Hashable, bool], bool] = {}
        self._placed: Counter[TeamName] = Counter()
        self._judged: set[LaneKey] = set()
        self._blocked = 0
        self._most_blocked = most_blocked

    def next(self, judge: Judge) -> NextEntry | None:
        """Return the entry that starts next; None if none may start.

        The caller charges it and removes it from the queue before it asks again, or only removes it if that failed.
        """
        walk = _Walk()
        for turn in self._order.walk(walk.skipped):
            entry = turn.head.entry
            if walk.over and (limit := self._closed_to(turn, walk, judge)) is not None:
                self._note_claim(turn, Way.IN_TURN, OverLimit(limit))
                continue
            way, verdict = self._judge(turn.head, walk, judge)
            is_passed_over = self._is_passed_over(turn, way, verdict, judge)
            self._note_claim(turn, way, verdict, is_passed_over=is_passed_over)
            match verdict:
                case Fits():
                    self._order.note_start(entry.team)
                    return NextEntry(entry, way)
                case OverLimit(limit):
                    self._wait_for_limit(limit, turn, walk, judge)
                case NoRoom() if is_passed_over:
                    walk.skipped.lots.add(turn.head.lot)
                case NoRoom(keep, reach):
                    walk.wait_for_room(turn.head, keep=keep if way is Way.IN_TURN else _NOWHERE, reach=reach)
                case Paced():
                    walk.skipped.lots.add(turn.head.lot)
                case Never():
                    pass
                case None:
                    walk.skipped.lanes.add(_lane(entry))
                case _:
                    assert_never(verdict)
        return None

    def _judge(self, head: RowHead, walk: "_Walk", judge: Judge) -> tuple[Way, Verdict | None]:
        """Return how an entry may start: in its turn, beside the entries ahead of it, or as back-fill.

        Beside those of other teams, on nodes that they can never use, it delays none of them.
        """
        entry = head.entry
        if not walk.is_ahead_of(entry):
            return Way.IN_TURN, self._verdict(head, Way.IN_TURN, _NOWHERE, judge)
        beside: Verdict | None = NoRoom()
        if walk.reach is not None and entry.team not in walk.teams:
            beside = self._verdict(head, Way.IN_TURN, walk.reach, judge)
        if not isinstance(beside, NoRoom):
            return Way.IN_TURN, beside
        if not entry.can_run_ahead:
            return Way.BACKFILL, beside
        return Way.BACKFILL, self._verdict(head, Way.BACKFILL, walk.kept, judge)

    def _note_claim(self, turn: Turn, way: Way, verdict: Verdict | None, *, is_passed_over: bool = False) -> None:
        """Note whether an entry outside of its team's share waits for long, for room or a limit on all of the team."""
        entry = turn.head.entry
        is_due = turn.rank[0] > 0 and self._is_strict_for(entry)
        is_denied = is_due and (is_passed_over or waits_for_share(verdict, turn.team.is_covered_by) is False)
        is_claim = is_due and not is_denied and not isinstance(verdict, Fits)
        if is_claim and way is Way.BACKFILL:  # others ahead hold it back: it is denied if it was
            self._order.presume_claim(entry)
        elif verdict is not None:
            self._order.note_claim(entry, is_claim=is_claim, is_denied=is_denied)

    def _is_passed_over(self, turn: Turn, way: Way, verdict: Verdict | None, judge: Judge) -> bool:
        """Whether an entry holds nothing for those behind it: it waited too long for room, or has no place.

        The place of one over a limit is looked for once it matters: here, if its team has a smaller entry, for the
        claim on the share; and where it would close the limit to another (`_holder`).
        """
        entry = turn.head.entry
        if isinstance(verdict, NoRoom):
            bound = self._rules.hold_back_seconds
            return way is Way.IN_TURN and self._hold_backs.is_over(
                entry.key, verdict, now=self._now, bound_seconds=bound
            )
        if not (isinstance(verdict, OverLimit) and turn.rank[0] and self._is_strict_for(entry)):
            return False
        limit = verdict.limit
        return (
            limit in entry.limits and not self._is_over_for_all(turn, limit) and not self._has_place(turn, limit, judge)
        )

    def _wait_for_limit(self, limit: Hashable, turn: Turn, walk: "_Walk", judge: Judge) -> None:
        """Note that an entry waits for a limit, and the rest of its team if the limit has no room for any of it.

        After it has waited for long, what comes free under the limit accumulates for it.
        """
        entry, team = turn.head.entry, turn.team
        if self._is_strict_for(entry):
            walk.over.setdefault(limit, []).append(turn)
        if self._is_over_for_all(turn, limit) or (
            team.is_covered_by(limit) and self._holder(limit, walk, judge) == team.team
        ):
            walk.skipped.teams.add(team.team)

    def _is_over_for_all(self, turn: Turn, limit: Hashable) -> bool:
        """Whether a limit that an entry is over has no room for any entry of its team."""
        team = turn.team
        return team.smallest >= self._least_over.get(limit, turn.head.entry.gpus) and team.is_covered_by(limit)

    def _closed_to(self, turn: Turn, walk: "_Walk", judge: Judge) -> Hashable | None:
        """Return a limit that is closed to an entry; None if none is.

        One inside its team's share waits for no other team: the shares under a limit fit in it together, so none
        of them needs what another one has left.
        """
        entry = turn.head.entry
        for limit in entry.limits:
            holder = self._holder(limit, walk, judge) if limit in walk.over else None
            if holder is not None and (turn.rank[0] or holder == entry.team):
                return limit
        return None

    def _holder(self, limit: Hashable, walk: "_Walk", judge: Judge) -> TeamName | None:
        """Return the team for whose entry a limit is closed to those behind: the first that has a place."""
        over = walk.over.get(limit)
        while over:
            if self._has_place(over[0], limit, judge):
                return over[0].team.team
            del over[0]
        return None

    def _has_place(self, turn: Turn, limit: Hashable, judge: Judge) -> bool:
        """Whether an entry would start if the limit had room; not if its team had enough entries judged for that."""
        (entry, lot), is_owed = turn.head, not turn.rank[0]
        found = self._places.get((lot, limit, is_owed))
        if found is None:
            self._placed[entry.team] += len(entry.lot.kind) if isinstance(entry.lot.kind, frozenset) else 1
            is_judged = self._placed[entry.team] <= MAX_PODS
            found = self._places[lot, limit, is_owed] = is_judged and judge.has_place(entry, limit, is_owed=is_owed)
        return found

    def _verdict(self, head: RowHead, way: Way, kept: frozenset[NodeName], judge: Judge) -> Verdict | None:
        """Return the verdict of this pass; None if it has judged enough."""
        entry = head.entry
        known = self._known(head, way, kept)
        if known is not None:
            return known
        lane = _lane(entry)
        is_enough = not isinstance(self._most_blocked, Unlimited) and self._blocked >= self._most_blocked
        if is_enough or (self._blocked >= MAX_BLOCKED and lane in self._judged):
            return None
        verdict = judge(entry, way=way, kept=kept)
        if isinstance(verdict, Fits):
            return verdict
        self._judged.add(lane)
        self._blocked += 1
        match verdict:
            case OverLimit(limit):
                self._least_over[limit] = min(entry.gpus, self._least_over.get(limit, entry.gpus))
            case NoRoom() | Paced():
                self._no_room[head.lot, way, kept] = verdict
            case Never():
                self._never.add(entry.key)
        return verdict

    def _known(self, head: RowHead, way: Way, kept: frozenset[NodeName]) -> Verdict | None:
        entry, lot = head
        for limit in entry.limits:
            least = self._least_over.get(limit)
            if least is not None and entry.gpus >= least:
                return OverLimit(limit)
        if entry.key in self._never:
            return Never()
        found = self._no_room.get((lot, Way.IN_TURN, _NOWHERE))
        return found if found is not None else self._no_room.get((lot, way, kept))

    def _is_strict_for(self, entry: QueueEntry) -> bool:
        return self._rules.is_strict_after(self._now - entry.age.created)


def _lane(entry: QueueEntry) -> LaneKey:
    return LaneKey(entry.team, entry.user, entry.priority)


@dataclass(slots=True)
class _Walk:
    """What one look through the order has found: who waits for room, and who for which limit."""

    skipped: Skipped = field(default_factory=Skipped)
    over: dict[Hashable, list[Turn]] = field(default_factory=dict)
    """The entries that have waited for long, by the limit that has no room for them."""
    teams: set[TeamName] = field(default_factory=set)
    kept: frozenset[NodeName] = _NOWHERE
    reach: frozenset[NodeName] | None = _NOWHERE
    _sites: set[Hashable] = field(default_factory=set)
    _is_everywhere: bool = False

    def is_ahead_of(self, entry: QueueEntry) -> bool:
        """Whether an entry before this one waits for room that this one might take."""
        sites = entry.lot.sites
        if self._is_everywhere:
            return True
        return bool(self._sites) if sites is None else not self._sites.isdisjoint(sites)

    def wait_for_room(
        self, head: RowHead, *, keep: frozenset[NodeName] = _NOWHERE, reach: frozenset[NodeName] | None = None
    ) -> None:
        """Note that an entry waits for room, with the nodes that are kept for it, and those that it may ever use."""
        self.skipped.lots.add(head.lot)
        self.teams.add(head.entry.team)
        self.kept |= keep
        self.reach = None if self.reach is None or reach is None else self.reach | reach
        sites = head.entry.lot.sites
        if sites is None:
            self._is_everywhere = True
        else:
            self._sites |= sites
