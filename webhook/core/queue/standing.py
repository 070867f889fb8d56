"""Where a team stands among the others: how much it has of its guaranteed share, and of what is borrowed.

The order between teams follows from these numbers alone. They are integers and fractions, never floats.
"""

from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from webhook.core.model.amount import Units
from webhook.core.model.names import GpuModel, TeamName, User
from webhook.core.model.tier import Tier
from webhook.core.queue.queued_pod import Lot

_ONE: Final = 1 << 64
_NO_MODELS: Final[Mapping[GpuModel, "ModelShare"]] = MappingProxyType({})

NO_GUARANTEE: Final = 1_000
"""The class of entries for which no guarantee has room, whatever the depth of departments."""


class ModelShare(NamedTuple):
    """A guaranteed share of one GPU model, and how much of it is used."""

    guaranteed: int
    used: Units


class DepartmentStanding(NamedTuple):
    """A department above a team: the same numbers for all teams in it together. `weight` counts among its siblings."""

    guaranteed: int = 0
    used: Units = 0
    borrowed: Units = 0
    weight: Units = 1
    name: str = ""


class Standing(NamedTuple):
    """A team's shares in GPU units: `used` of the guaranteed share, `borrowed` beyond it, or by choice.

    `past` is what it borrowed on average before (`past_use.average`), 0 where past use does not count. `departments`
    are those above it, the nearest first.
    """

    team: TeamName
    guaranteed: int = 0
    used: Units = 0
    borrowed: Units = 0
    weight: Units = 1
    past: Units = 0
    models: Mapping[GpuModel, ModelShare] = _NO_MODELS
    departments: tuple[DepartmentStanding, ...] = ()

    def has_share_for(self, lot: Lot) -> bool:
        """Whether an entry fits inside the guaranteed share, and inside that of its model where there is one."""
        if lot.requested_tier is Tier.PREEMPTIBLE or self.used + lot.gpus > self.guaranteed:
            return False
        share = self.models.get(lot.model) if lot.model is not None else None
        return share is None or share.used + lot.gpus <= share.guaranteed

    def could_have_share_for(self, lot: Lot) -> bool:
        """Whether an entry would fit inside the guaranteed share if none of it were used."""
        models = {model: share._replace(used=0) for model, share in self.models.items()}
        return self._replace(used=0, models=models).has_share_for(lot)

    def has_guarantee_for(self, gpus: Units) -> bool:
        """Whether any guarantee has room for an entry of this size, the team's own or that of a department."""
        if self.used + gpus <= self.guaranteed:
            return True
        return any(level.used + gpus <= level.guaranteed for level in self.departments)

    def rank_class(self, lot: Lot) -> int:
        """Return how near the guarantee is that an entry uses: 0 its team's own, 1 its department's, and so on."""
        if self.has_share_for(lot):
            return 0
        for number, level in enumerate(self.departments, start=1):
            if level.used + lot.gpus <= level.guaranteed:
                return number
        return NO_GUARANTEE


Rank = tuple[int, tuple[int, ...]]
"""Teams by this, the smallest first: whose guarantee, and how much the team has for its share."""


def rank(standing: Standing, rank_class: int) -> Rank:
    """Return the place of a team among the others for its entries of one class.

    Inside a guarantee goes first who has used the smallest part of it. What no guarantee covers goes to who borrows
    least for its weight, compared from the highest department down to the team.
    """
    if rank_class == 0:
        return 0, (_ratio(standing.used, standing.guaranteed),)
    own = _ratio(standing.borrowed + standing.past, standing.weight)
    if rank_class != NO_GUARANTEE:
        level = standing.departments[rank_class - 1]
        return rank_class, (_ratio(level.used, level.guaranteed), own)
    above = (_ratio(level.borrowed, level.weight) for level in reversed(standing.departments))
    return NO_GUARANTEE, (*above, own)


def _ratio(part: Units, whole: Units) -> int:
    """Return a ratio in 2^-64ths: comparing fractions is slow, and no two shares of a cluster are so close."""
    return int(part * _ONE // whole)


class Version(NamedTuple):
    """Stands for a state: `own` of a team and its users, `above` of the departments above it."""

    own: Hashable
    above: int = 0


class Standings(Protocol):
    """What the order is made from: the standing of each team, and what each of its users holds."""

    def version(self, team: TeamName) -> Version:
        """Return what differs once the standing of a team, or what its users hold, has changed."""

    def of(self, team: TeamName) -> Standing:
        """Return a team's standing."""

    def held(self, team: TeamName, user: User | None) -> Units:
        """Return the GPU units of one user's pods in a team; for None, of pods whose user is not known."""
