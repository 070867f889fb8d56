"""Which borrowers give GPUs back first, by departments.

A share that a team leaves idle is borrowed in its department first, then by others, and comes back the same way round.
Seen from the team that takes its share back:

1. Borrowers go last whose department, just below the nearest that both have in common, holds no more than its own
   guaranteed share: the department is entitled to that, even where none of its teams is. The same holds further down.
2. Among the others, those go first that have the fewest departments in common with the beneficiary.

Without departments all borrowers are equal, and the other criteria decide.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from webhook.core.model.names import DepartmentName, TeamName
from webhook.core.model.policy import Department, Team
from webhook.core.quota.departments import DepartmentUsage

_STEP: Final = 1 << 48
"""How much more a GPU unit of the next class costs: no number of others outweighs it, a cluster has fewer."""

_NONE: Final[Mapping[TeamName, int]] = {}


class DepartmentOrder:
    """The cost of a GPU unit of each team, for beneficiaries of each department."""

    def __init__(self, teams: Iterable[Team] = (), usages: Iterable[DepartmentUsage] = ()) -> None:
        self._chains = {team.name: team.departments[::-1] for team in teams if team.departments}  # the highest first
        self._within = {
            each.department.name for each in usages if each.total - each.waiting <= each.department.gpus.guaranteed
        }
        self._costs: dict[DepartmentName | None, Mapping[TeamName, int]] = {}

    def home(self, team: TeamName) -> DepartmentName | None:
        """Return the department of a team: beneficiaries with the same one see the same costs."""
        chain = self._chains.get(team)
        return None if chain is None else chain[-1].name

    def costs(self, beneficiary: TeamName) -> Mapping[TeamName, int]:
        """Return what a GPU unit of each team costs; 0 for teams that are not named."""
        if not self._chains:
            return _NONE
        home = self.home(beneficiary)
        found = self._costs.get(home)
        if found is None:
            found = self._costs[home] = self._costs_for(self._chains.get(beneficiary, ()))
        return found

    def _costs_for(self, own: tuple[Department, ...]) -> Mapping[TeamName, int]:
        classes = {team: self._class(chain, own) for team, chain in self._chains.items()}
        ranks = {each: rank for rank, each in enumerate(sorted({((), 0), *classes.values()}))}
        return {team: _STEP ** (rank - 1) for team, each in classes.items() if (rank := ranks[each])}

    def _class(self, chain: tuple[Department, ...], own: tuple[Department, ...]) -> tuple[tuple[bool, ...], int]:
        """Return how late a team's borrowers go: by the departments on its side, then by those in common."""
        common = 0
        while common < min(len(chain), len(own)) and chain[common].name == own[common].name:
            common += 1
        within = [each.name in self._within for each in chain[common:]]
        while within and not within[-1]:
            within.pop()
        return tuple(within), common
