"""Which ledger takes a team's charges, whether this replica may judge them now, and the moves that are missing.

Pure: it amends the sessions, the caller writes their objects. Policy says where a team belongs, the records say where
it is (webhook/core/quota/usage.py): a replica with an older policy follows the records. A replica joins teams to
a department before it charges any of them. Only the leader moves teams out of one, and if to no other, only after a
while: otherwise replicas would move teams back and forth while an edit of policy reaches one after the other.
"""

from collections.abc import Callable, Iterator
from typing import Final

from webhook.core.model.amounts import DepartmentName, TeamName, Uid
from webhook.core.model.policy import Policy
from webhook.core.quota.charges import LedgerRecord
from webhook.core.quota.usage import Moves, department_ledger, department_of
from webhook.core.world.ledger_session import LedgerSession, with_moves
from webhook.core.world.world import World

OUT_SECONDS: Final = 120.0
"""How long a leader waits before it gives a team without a department its own ledger back: an edit of policy reaches
all replicas within two minutes."""

_MISSING_SECONDS: Final = 10.0
"""How long the object of a department must be missing before it counts as deleted by hand."""


class LedgerHomes:
    """The sessions of all ledgers, and where each team's charges are written.

    `reached` returns the resourceVersion up to which this replica has seen all pods.
    """

    def __init__(self, world: World, reached: Callable[[], int]) -> None:
        self._world = world
        self._reached = reached
        self._sessions: dict[TeamName, LedgerSession] = {}
        self._shared: set[TeamName] = set()  # the ledgers of departments among them
        self._policy: Policy | None = None
        self._wanted: dict[TeamName, TeamName] = {}
        self._below: dict[TeamName, list[TeamName]] = {}
        self._seen: dict[tuple[TeamName, int], float] = {}

    def session(self, ledger: TeamName) -> LedgerSession:
        """Return the session of a ledger."""
        session = self._sessions.get(ledger)
        if session is None:
            session = LedgerSession(self._world, is_held_by_another=lambda uid: self._is_held_by_another(ledger, uid))
            self._sessions[ledger] = session
            if department_of(ledger) is not None:
                self._shared.add(ledger)
        return session

    def drop(self, ledger: TeamName) -> None:
        """Forget a ledger whose object is gone for good."""
        self._sessions.pop(ledger, None)
        self._shared.discard(ledger)

    def is_needed(self, ledger: TeamName) -> bool:
        """Whether policy or a team's record refers to a ledger, so that its object must stay."""
        department = department_of(ledger)
        if department is None:
            moves = self._moves(ledger)
            return moves.is_away or bool(moves.left)
        records = [self._sessions[name].record.moves for name in self._sessions]
        is_named = any(each.home == department or department in each.left for each in records)
        return is_named or bool(self._teams_below(ledger))

    def wanted(self) -> Iterator[TeamName]:
        """Yield the ledgers of departments that policy needs."""
        self._read_policy()
        yield from self._below

    # -- where

    def ledger_of(self, team: TeamName) -> TeamName:
        """Return the ledger that takes a team's charges, or will once its moves are done."""
        return self._home_by_record(team) or self._home_by_policy(team) or team

    def takes(self, ledger: TeamName, team: TeamName) -> bool:
        """Whether a ledger that is ready takes charges of this team."""
        is_open = ledger == team or (ledger in self._shared and self._sessions[ledger].record.moves.is_open_for(team))
        return is_open and self.ledger_of(team) == ledger

    def holders(self, team: TeamName) -> Iterator[TeamName]:
        """Yield the ledgers that may list charges of a team."""
        moves = self._moves(team)
        yield team
        for department in dict.fromkeys((*((moves.home,) if moves.home is not None else ()), *moves.left)):
            yield department_ledger(department)

    # -- whether

    def is_ready(self, ledger: TeamName) -> bool:
        """Whether charges may be judged for a ledger, as far as other ledgers matter.

        All its teams are in it, and every object that may still hold charges of them is in view.
        """
        if ledger not in self._shared:
            is_own = self._home_by_record(ledger) is None
            return is_own and (not self._moves(ledger).epoch or self._is_in_view(ledger, at=None))
        return all(self._is_in_view(team, at=department_of(ledger)) for team in self._teams_of(ledger))

    def _is_in_view(self, team: TeamName, *, at: DepartmentName | None) -> bool:
        """Whether a team is where its charges are judged, and all objects that may hold others are in view.

        A team that the leader has still to move here from another department counts by the view of that one.
        """
        own, reached = self.session(team), self._reached()
        epoch, home, left, _ = own.record.moves
        if not own.is_safe(reached) or (home is None and at is not None) or (home is not None and at is None):
            return False
        if home is not None:
            session = self.session(department_ledger(home))
            if session.record.moves.members.get(team, 0) != epoch or not (home == at or session.is_safe(reached)):
                return False
        return not left or all(self._has_closed(name, team, closed, reached) for name, closed in left.items())

    def _has_closed(self, department: DepartmentName, team: TeamName, epoch: int, reached: int) -> bool:
        session = self.session(department_ledger(department))
        return session.is_safe(reached) and session.record.moves.members.get(team, 0) >= epoch

    # -- moves

    def prepare(self, ledger: TeamName) -> set[TeamName]:
        """Amend what keeps a department's ledger from being ready, one step per team; return the ledgers to write."""
        return {each for team in self._teams_of(ledger) for each in self._step(team, into=ledger)}

    def prepare_team(self, team: TeamName) -> set[TeamName]:
        """Amend what keeps a team's charges waiting; return the ledgers to write."""
        return set(self._step(team, into=self._home_by_policy(team)))

    def tidy(self, now: float) -> set[TeamName]:
        """Finish every move, start those out of departments, and settle old ledgers; return the ledgers to write.

        For the leader. `now` is in seconds of any clock.
        """
        found: set[TeamName] = set()
        for team in [name for name in self._sessions if department_of(name) is None]:
            found |= self.prepare_team(team)
            found.update(self._move_out(team, now))
            found.update(self._settle(team, now))
        return found

    def _step(self, team: TeamName, *, into: TeamName | None) -> Iterator[TeamName]:
        """Make the next step of a team's move: finish one that was begun, or begin one into a department."""
        own = self.session(team)
        moves = own.record.moves
        if moves.is_away and moves.home is not None:
            ledger = department_ledger(moves.home)
            reached = self.session(ledger).record.moves.members.get(team, 0)
            if reached < moves.epoch:
                yield from self._amend(ledger, "join", team, lambda of: of.joined(team, epoch=moves.epoch))
            elif reached > moves.epoch:
                yield from self._amend(team, "return", team, lambda of: of.returned(epoch=reached))
            return
        open_in = self._home_by_record(team)
        target = open_in or into
        if target is not None and (department := department_of(target)) is not None:
            epoch = max(moves.epoch, self.session(target).record.moves.members.get(team, 0) + (open_in is None))
            epoch += 1 - epoch % 2
            yield from self._amend(team, "send", team, lambda of: of.sent(department, epoch=epoch))

    def _move_out(self, team: TeamName, now: float) -> Iterator[TeamName]:
        moves, wanted = self._moves(team), self._home_by_policy(team)
        if not moves.is_away or moves.home is None or wanted == department_ledger(moves.home):
            return
        if wanted is not None or self._is_late((team, moves.epoch), now, OUT_SECONDS):
            epoch = moves.epoch
            yield from self._amend(
                department_ledger(moves.home), "close", team, lambda of: of.closed(team, epoch=epoch)
            )

    def _settle(self, team: TeamName, now: float) -> Iterator[TeamName]:
        """Forget departments that hold no more charges of a team; what they folded, its own record has folded now."""
        for department, epoch in self._moves(team).left.items():
            ledger = department_ledger(department)
            session = self.session(ledger)
            record = session.record
            is_closed = record.moves.members.get(team, 0) >= epoch and not session.is_stale
            is_gone = not session.version and self._is_late((ledger, epoch), now, _MISSING_SECONDS)
            if is_gone or (is_closed and all(each.charge.team != team for each in record.flights.values())):
                self.session(team).amend(("settle", department), _settled(department, epoch, record.folded))
                yield team

    def _is_late(self, what: tuple[TeamName, int], now: float, seconds: float) -> bool:
        """Whether something has been so for that long, counted from the first question."""
        return now - self._seen.setdefault(what, now) >= seconds

    def _amend(
        self, ledger: TeamName, what: str, team: TeamName, change: Callable[[Moves], Moves]
    ) -> Iterator[TeamName]:
        self.session(ledger).amend((what, team), lambda record: with_moves(record, change(record.moves)))
        yield ledger

    # -- policy and records

    def _home_by_record(self, team: TeamName) -> TeamName | None:
        """Return the department's ledger that has a team by its own record; None where it has its own.

        Or by that of the department, if it is later: the team's own record was deleted by hand.
        """
        moves = self._moves(team)
        if moves.is_away and moves.home is not None:
            return department_ledger(moves.home)
        for ledger in self._shared:
            members = self._sessions[ledger].record.moves.members
            if members.get(team, 0) > moves.epoch and members[team] % 2:
                return ledger
        return None

    def _teams_of(self, ledger: TeamName) -> list[TeamName]:
        """Return the teams that policy puts into a department's ledger, and those that are in it by their records."""
        below = self._teams_below(ledger)
        session = self._sessions.get(ledger)
        members = () if session is None else session.record.moves.members
        others = [team for team in members if session is not None and session.record.moves.is_open_for(team)]
        return list(dict.fromkeys((*below, *others)))

    def _teams_below(self, ledger: TeamName) -> list[TeamName]:
        self._read_policy()
        return self._below.get(ledger, [])

    def _home_by_policy(self, team: TeamName) -> TeamName | None:
        if not self._world.policy.departments:
            return None
        self._read_policy()
        return self._wanted.get(team)

    def _read_policy(self) -> None:
        if self._policy is self._world.policy:
            return
        self._policy = self._world.policy
        self._wanted, self._below = {}, {}
        for team in self._policy.teams:
            if (department := team.highest_limited) is not None:
                ledger = department_ledger(department.name)
                self._wanted[team.name] = ledger
                self._below.setdefault(ledger, []).append(team.name)

    def _moves(self, team: TeamName) -> Moves:
        return self.session(team).record.moves

    def _is_held_by_another(self, ledger: TeamName, uid: Uid) -> bool:
        """Whether another ledger lists a charge: after a repeated request, the old and the new home of a team may."""
        if not self._shared or (charge := self._world.charge_of(uid)) is None:
            return False
        others = [self._sessions.get(each) for each in self.holders(charge.team) if each != ledger]
        return any(each.lists(uid) for each in others if each is not None)


def _settled(department: DepartmentName, epoch: int, folded: int) -> Callable[[LedgerRecord], LedgerRecord]:
    def settle(record: LedgerRecord) -> LedgerRecord:
        moves = record.moves.settled(department, epoch=epoch)
        return record if moves is record.moves else with_moves(record, moves, folded=folded)

    return settle
