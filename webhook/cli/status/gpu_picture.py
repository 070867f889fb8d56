"""Shows each GPU of a node as one or two characters: its team, tier and usage. Readable without color.

A GPU that one pod has is the letter of its team: upper case if the pod is guaranteed, lower case if it borrows. A
shared GPU is the letter of the team with the largest part, and a bar for its usage.
"""

from collections.abc import Iterable, Mapping
from string import ascii_lowercase
from typing import Final

from rich.text import Text

from webhook.core.explain.node_rows import DeviceGroup, DeviceRow, HeldPart
from webhook.core.model.names import TeamName
from webhook.core.model.tier import Tier

_COLORS: Final = ("cyan", "yellow", "green", "magenta", "blue", "red")
_BARS: Final = "▁▂▃▄▅▆▇█"
_DIGITS: Final = "12345678"
_OTHER: Final = "#"
"""The letter of all teams beyond the 26th."""


class GpuPicture:
    """Draws devices with a letter and a color per team. `is_plain`: for terminals that support only ASCII."""

    def __init__(self, teams: Iterable[TeamName], *, is_plain: bool = False) -> None:
        self._letters = _assign_letters(teams)
        self._free, self._bars = (".", _DIGITS) if is_plain else ("·", _BARS)

    @property
    def letters(self) -> Mapping[TeamName, str]:
        """The lower-case letter of each team."""
        return self._letters

    def group(self, group: DeviceGroup) -> Text:
        """Draw all devices of a group; shared ones are separated by spaces."""
        is_shared = any(device.pieces > 1 for device in group.devices)
        cells = [self._shared(device) if is_shared else self._whole(device) for device in group.devices]
        over = [Text(f"+{group.over} over", style="bold red")] if group.over else []
        drawn = Text(" " if is_shared else "").join(cells)
        return Text(" ").join([drawn, *over]) if over else drawn

    def legend(self) -> Text:
        """Explain the letters."""
        teams = Text(", ").join(
            Text.assemble((letter.upper(), self._style(team, Tier.GUARANTEED)), f" {team}")
            for team, letter in self._letters.items()
        )
        rest = f"upper case guaranteed, lower preemptible, {self._free} free"
        return Text.assemble(teams, "; ", rest)

    def _whole(self, device: DeviceRow) -> Text:
        if not device.allocations:
            return Text(self._free, style="dim")
        [allocation] = device.allocations
        return Text(self._letter(allocation), style=self._style(allocation.team, allocation.tier))

    def _shared(self, device: DeviceRow) -> Text:
        if not device.allocations:
            return Text(self._free * 2, style="dim")
        most = _largest(device.allocations)
        level = min(len(self._bars), -(-device.used * len(self._bars) // max(1, device.pieces)))
        bar = self._bars[level - 1]
        teams = {allocation.team for allocation in device.allocations}
        letter = self._letter(most) if len(teams) == 1 else "*"
        return Text.assemble((letter, self._style(most.team, most.tier)), (bar, self._color(most.team)))

    def _letter(self, allocation: HeldPart) -> str:
        letter = self._letters.get(allocation.team, _OTHER)
        return letter.upper() if allocation.tier is Tier.GUARANTEED else letter

    def _color(self, team: TeamName) -> str:
        numbers = {name: number for number, name in enumerate(self._letters)}
        return _COLORS[numbers.get(team, 0) % len(_COLORS)]

    def _style(self, team: TeamName, tier: Tier) -> str:
        """Guaranteed GPUs have the team's color as background, preemptible ones as foreground."""
        color = self._color(team)
        return f"black on {color}" if tier is Tier.GUARANTEED else color


def _largest(allocations: tuple[HeldPart, ...]) -> HeldPart:
    """Return an allocation of the team and tier with the largest part of a device."""
    sums: dict[tuple[TeamName, Tier], int] = {}
    for allocation in allocations:
        sums[allocation.team, allocation.tier] = sums.get((allocation.team, allocation.tier), 0) + allocation.pieces
    team, tier = max(sums, key=lambda key: (sums[key], key))
    return next(allocation for allocation in allocations if (allocation.team, allocation.tier) == (team, tier))


def _assign_letters(teams: Iterable[TeamName]) -> dict[TeamName, str]:
    """Return a letter per team: the first unused one of its name, otherwise any unused one."""
    left = dict.fromkeys(ascii_lowercase)
    found: dict[TeamName, str] = {}
    for team in teams:
        letter = next((each for each in (*team.lower(), *left) if each in left), _OTHER)
        left.pop(letter, None)
        found[team] = letter
    return found
