"""Room of one limit that is kept for pods that wait inside their teams' guaranteed shares.

Reclaim evicts pods that borrow under a limit for them. What comes back must not go to the next borrower, such as the
pod that the victim's controller creates again: pods that borrow are admitted as if the kept room were in use. The same
holds for what pods deleted by force leave, which no eviction ends: it is for the pods inside shares that wait in line.
"""

from typing import NamedTuple, Protocol

from webhook.core.model.amount import Units
from webhook.core.model.names import TeamName


class ShareUsage(Protocol):
    """How much of its guaranteed share a team uses."""

    guaranteed: Units


class TeamKeeps(NamedTuple):
    """What one team keeps: no more than its share has left."""

    gpus: Units
    share: Units
    usage: ShareUsage

    @property
    def total(self) -> Units:
        """The units that are kept."""
        return min(self.gpus, max(0, self.share - self.usage.guaranteed))


class KeptRoom:
    """What is kept of one limit, by team. No team keeps more than it has left of its guaranteed share.

    `lines` is what the pods in line of each team have left of its share. Every decision asks first whether `teams` and
    `lines` are empty.
    """

    __slots__ = ("lines", "teams")

    def __init__(self) -> None:
        self.teams: dict[TeamName, TeamKeeps] = {}
        self.lines: dict[TeamName, TeamKeeps] = {}

    @property
    def total(self) -> Units:
        """The units that are kept."""
        return sum(kept.total for kept in self.teams.values())

    def total_beside(self, lingering: Units) -> Units:
        """Return the units that are kept where pods deleted by force still hold so many under the limit."""
        if not (lingering and self.lines):
            return self.total
        return max(self.total, min(lingering, sum(each.total for each in self.lines.values())))

    def set(self, team: TeamName, gpus: Units, *, line: Units = 0, share: Units, usage: ShareUsage) -> None:
        """Keep room for a team's waiting pods of so many units, and those of its `line` of so many; 0: none."""
        for kept, units in ((self.teams, gpus), (self.lines, line)):
            if units:
                kept[team] = TeamKeeps(units, share, usage)
            else:
                kept.pop(team, None)
