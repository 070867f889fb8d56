"""Room of one limit that is kept for pods that wait inside their teams' guaranteed shares.

Reclaim evicts pods that borrow under a limit for them. What comes back must not go to the next borrower, such as the
pod that the victim's controller creates again: pods that borrow are admitted as if the kept room were in use.
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

    Every decision asks first whether `teams` is empty.
    """

    __slots__ = ("teams",)

    def __init__(self) -> None:
        self.teams: dict[TeamName, TeamKeeps] = {}

    @property
    def total(self) -> Units:
        """The units that are kept."""
        return sum(kept.total for kept in self.teams.values())

    def set(self, team: TeamName, gpus: Units, *, share: Units, usage: ShareUsage) -> None:
        """Keep room for a team's waiting pods of so many units; 0: none."""
        if gpus:
            self.teams[team] = TeamKeeps(gpus, share, usage)
        else:
            self.teams.pop(team, None)
