"""In which ledger object the charges of a team are written: the team's own, or that of a department.

All teams below a department with a limit share one object, so that one compare-and-swap guards every limit. A change of
policy moves a team from one object to another while replicas charge pods, some of them by the older policy. At any time
at most one object is open for charges of a team:

- The team's own record has the `epoch` of its last move, odd while the charges go to the department `home`. Its own
  object is open while the epoch is even.
- The record of a department has the epoch of each of its `members`; it is open for those whose epoch is odd.

A team moves in by two writes: its own record closes with the next odd epoch, then the department admits that epoch. It
moves out by two: the department closes the epoch, by the next even one, then the team's own record opens with that.
An epoch that was closed is never opened again, so a replica that acts late changes nothing. Any replica may do the
second write. Charges of earlier objects stay there until they end or are seen: `left` names these objects, so that
a replica charges nothing before its view of them is recent enough.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from webhook.core.model.names import DepartmentName, TeamName

_NO_MEMBERS: Final[Mapping[TeamName, int]] = {}
_NONE_LEFT: Final[Mapping[DepartmentName, int]] = {}
_PREFIX: Final = "department "


class Moves(NamedTuple):
    """The moves in one record: `home`, `epoch` and `left` in a team's own, `members` in a department's.

    `left` has the closing epoch in the objects of departments that may still hold charges of the team.
    """

    epoch: int = 0
    home: DepartmentName | None = None
    left: Mapping[DepartmentName, int] = _NONE_LEFT
    members: Mapping[TeamName, int] = _NO_MEMBERS

    @property
    def is_away(self) -> bool:
        """Whether the team's charges go to a department's object."""
        return self.epoch % 2 == 1

    def is_open_for(self, team: TeamName) -> bool:
        """Whether the department's object takes charges of a team."""
        return self.members.get(team, 0) % 2 == 1

    def sent(self, home: DepartmentName, *, epoch: int) -> "Moves":
        """Close a team's own record: its charges go to a department from now on."""
        return self if self.is_away or epoch <= self.epoch else self._replace(epoch=epoch, home=home)

    def joined(self, team: TeamName, *, epoch: int) -> "Moves":
        """Open a department's record for a team, unless this or a later epoch was opened or closed before."""
        return self if self.members.get(team, 0) >= epoch else self._with_member(team, epoch)

    def closed(self, team: TeamName, *, epoch: int) -> "Moves":
        """Close a department's record for a team, if that epoch is still open."""
        is_open = self.is_open_for(team) and self.members[team] == epoch
        return self._with_member(team, epoch + 1) if is_open else self

    def returned(self, *, epoch: int) -> "Moves":
        """Open a team's own record once the department closed it with this epoch."""
        if not self.is_away or self.home is None or epoch <= self.epoch:
            return self
        return self._replace(epoch=epoch, home=None, left={**self.left, self.home: epoch})

    def settled(self, department: DepartmentName, *, epoch: int) -> "Moves":
        """Forget a department that no longer holds charges of the team."""
        if self.left.get(department) != epoch:
            return self
        return self._replace(left={name: each for name, each in self.left.items() if name != department})

    def after(self, before: "Moves") -> "Moves":
        """Return the later state of each part: an object that was deleted by hand must not open an epoch again."""
        late = {team: epoch for team, epoch in before.members.items() if epoch > self.members.get(team, 0)}
        own = before if before.epoch > self.epoch else self
        return self if own is self and not late else own._replace(members={**self.members, **late})

    def _with_member(self, team: TeamName, epoch: int) -> "Moves":
        return self._replace(members={**self.members, team: epoch})


NO_MOVES: Final = Moves()


def department_ledger(name: DepartmentName) -> TeamName:
    """Return the name of a department's ledger among those of teams: a space keeps it apart from every team."""
    return TeamName(_PREFIX + name)


def department_of(ledger: TeamName) -> DepartmentName | None:
    """Return the department of a ledger; None for a team's own."""
    return DepartmentName(ledger.removeprefix(_PREFIX)) if ledger.startswith(_PREFIX) else None
