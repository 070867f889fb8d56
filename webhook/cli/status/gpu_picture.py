"""The GPUs of a node as a few characters each: whose, on what terms, how full. Readable without colour.

A GPU that goes to one pod as a whole is a letter: the team's, a capital where the pod is guaranteed, small where it
borrows. A GPU that is shared is the letter of who has most of it and a bar that says how full it is.
"""

from collections.abc import Iterable, Mapping
from string import ascii_lowercase
from typing import Final

from rich.text import Text

from webhook.cli.status.board import Bank, Device, Hold
from webhook.core.model.names import TeamName
from webhook.core.model.tier import Tier

_COLOURS: Final = ("cyan", "yellow", "green", "magenta", "blue", "red")
_BARS: Final = "▁▂▃▄▅▆▇█"
_DIGITS: Final = "12345678"
_ANYBODY: Final = "#"
"""The letter of teams beyond the alphabet."""


class Pen:
    """Draws devices; gives every team a letter and a colour. `is_plain`: for terminals that know ASCII only."""

    def __init__(self, teams: Iterable[TeamName], *, is_plain: bool = False) -> None:
        self._letters = _lettered(teams)
        self._free, self._bars = (".", _DIGITS) if is_plain else ("·", _BARS)

    @property
    def letters(self) -> Mapping[TeamName, str]:
        """The letter of each team, small."""
        return self._letters

    def bank(self, bank: Bank) -> Text:
        """Draw all devices of a bank; shared ones are set apart from each other."""
        is_shared = any(device.pieces > 1 for device in bank.devices)
        cells = [self._shared(device) if is_shared else self._whole(device) for device in bank.devices]
        over = [Text(f"+{bank.over} over", style="bold red")] if bank.over else []
        drawn = Text(" " if is_shared else "").join(cells)
        return Text(" ").join([drawn, *over]) if over else drawn

    def legend(self) -> Text:
        """Say what the letters mean."""
        teams = Text(", ").join(
            Text.assemble((letter.upper(), self._style(team, Tier.GUARANTEED)), f" {team}")
            for team, letter in self._letters.items()
        )
        rest = f"capital guaranteed, small borrowed, {self._free} free"
        return Text.assemble(teams, "; ", rest)

    def _whole(self, device: Device) -> Text:
        if not device.holds:
            return Text(self._free, style="dim")
        [hold] = device.holds
        return Text(self._letter(hold), style=self._style(hold.team, hold.tier))

    def _shared(self, device: Device) -> Text:
        if not device.holds:
            return Text(self._free * 2, style="dim")
        most = _largest(device.holds)
        level = min(len(self._bars), -(-device.used * len(self._bars) // max(1, device.pieces)))
        bar = self._bars[level - 1]
        teams = {hold.team for hold in device.holds}
        letter = self._letter(most) if len(teams) == 1 else "*"
        return Text.assemble((letter, self._style(most.team, most.tier)), (bar, self._colour(most.team)))

    def _letter(self, hold: Hold) -> str:
        letter = self._letters.get(hold.team, _ANYBODY)
        return letter.upper() if hold.tier is Tier.GUARANTEED else letter

    def _colour(self, team: TeamName) -> str:
        numbers = {name: number for number, name in enumerate(self._letters)}
        return _COLOURS[numbers.get(team, 0) % len(_COLOURS)]

    def _style(self, team: TeamName, tier: Tier) -> str:
        """Guaranteed GPUs are filled with the team's colour, borrowed ones written in it."""
        colour = self._colour(team)
        return f"black on {colour}" if tier is Tier.GUARANTEED else colour


def _largest(holds: tuple[Hold, ...]) -> Hold:
    """Find who has most of a device, all pods of a team and tier together."""
    sums: dict[tuple[TeamName, Tier], int] = {}
    for hold in holds:
        sums[hold.team, hold.tier] = sums.get((hold.team, hold.tier), 0) + hold.pieces
    team, tier = max(sums, key=lambda key: (sums[key], key))
    return next(hold for hold in holds if (hold.team, hold.tier) == (team, tier))


def _lettered(teams: Iterable[TeamName]) -> dict[TeamName, str]:
    """Give each team a letter of its name that nobody has yet, else any that is left."""
    left = dict.fromkeys(ascii_lowercase)
    found: dict[TeamName, str] = {}
    for team in teams:
        letter = next((each for each in (*team.lower(), *left) if each in left), _ANYBODY)
        left.pop(letter, None)
        found[team] = letter
    return found
