"""Room of one limit that is kept for pods that wait inside their teams' guaranteed shares.

Reclaim evicts pods that borrow under a limit for them. What comes back must not go to the next borrower, such as the
pod that the victim's controller creates again: pods that borrow are admitted as if the kept room were in use. The same
holds for what pods deleted by force leave, which no eviction ends: it is for the pods inside shares that wait in line.
"""

from collections import deque
from typing import Final, NamedTuple, Protocol

from webhook.core.model.amount import Units
from webhook.core.model.names import TeamName

ENDED_SECONDS: Final = 10
"""For how long the room of a charge that ended is kept for those in line: the leader looks at the line in a second."""


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

    def to_leave(self, lingered: Units = 0, *, apart: TeamName | None = None) -> Units:
        """Return the units that are kept where pods deleted by force hold so many, without those of one team."""
        marked = sum(each.total for team, each in self.teams.items() if team != apart)
        if not (lingered and self.lines):
            return marked
        return max(marked, min(lingered, sum(each.total for team, each in self.lines.items() if team != apart)))

    def set(self, team: TeamName, gpus: Units, *, line: Units = 0, share: Units, usage: ShareUsage) -> None:
        """Keep room for a team's waiting pods of so many units, and those of its `line` of so many; 0: none."""
        for kept, units in ((self.teams, gpus), (self.lines, line)):
            if units:
                kept[team] = TeamKeeps(units, share, usage)
            else:
                kept.pop(team, None)


class LingeringUsage(Protocol):
    """What pods deleted by force hold of limits."""

    def linger(self, gpus: Units) -> None:
        """Add so many units to what they hold."""


class EndedCharges:
    """Charges of pods deleted by force that ended a moment ago: their room still counts as theirs for what is kept.

    Otherwise the next pod that is deleted at once takes it before the line is looked at.
    """

    def __init__(self) -> None:
        self._ended: deque[tuple[int, LingeringUsage, Units]] = deque()

    def add(self, usage: LingeringUsage, gpus: Units, *, now: int) -> None:
        """Note that a charge of a usage ends now."""
        usage.linger(gpus)
        self._ended.append((now + ENDED_SECONDS, usage, gpus))

    def tick(self, now: int) -> None:
        """Forget those that ended long enough ago."""
        while self._ended and self._ended[0][0] <= now:
            _, usage, gpus = self._ended.popleft()
            usage.linger(-gpus)
