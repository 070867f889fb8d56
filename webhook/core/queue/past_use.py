"""Past use: GPU-seconds that fade, half of them within each half-life.

Every replica and every platform must come to the same numbers, so all of it is integer arithmetic: powers of two come
from a table of square roots, and the natural logarithm of two is a ratio.
"""

from collections.abc import Mapping
from math import isqrt
from typing import Final, NamedTuple

from webhook.core.model.amount import Units
from webhook.core.model.names import TeamName

_BITS: Final = 40  # of the part of a half-life: a short interval needs many of them
_SCALE: Final = 1 << 64
_LN2_NUMERATOR: Final = 693_147_180_560
_LN2_DENOMINATOR: Final = 1_000_000_000_000


class PastUse(NamedTuple):
    """GPU units times seconds, faded up to the time `at` (Unix seconds)."""

    unit_seconds: int = 0
    at: int = 0


def accrue(use: PastUse, gpus: Units, *, now: int, half_life: int) -> PastUse:
    """Return the use after `gpus` units were held from `use.at` until now; a clock that went back adds nothing.

    What was held within the interval fades too, so it makes no difference into how many intervals a time is cut.
    """
    seconds = now - use.at
    if seconds <= 0:
        return use
    if not half_life:
        return PastUse(0, now)
    left = _remainder(seconds, half_life)
    # The integral of 2^(-t/h) over the interval is h/ln 2 * (1 - 2^(-seconds/h)).
    added = int(gpus * half_life * (_SCALE - left)) * _LN2_DENOMINATOR // (_LN2_NUMERATOR * _SCALE)
    return PastUse((use.unit_seconds * left >> 64) + added, now)


def average(use: PastUse, *, now: int, half_life: int) -> int:
    """Return the GPU units that were held on average, where recent time counts more: what is held forever, as it is."""
    if not half_life:
        return 0
    faded = use.unit_seconds * _remainder(max(0, now - use.at), half_life) >> 64
    return faded * _LN2_NUMERATOR // (half_life * _LN2_DENOMINATOR)


class PastUses:
    """What each team borrowed, from the first `note` on: it is not stored, so a new leader starts from nothing."""

    def __init__(self) -> None:
        self._uses: dict[TeamName, PastUse] = {}
        self._borrowed: dict[TeamName, Units] = {}
        self._averages: dict[TeamName, int] = {}

    def note(self, borrowed: Mapping[TeamName, Units], *, now: int, half_life: int) -> None:
        """Record what the teams borrow from now on; call it at each change, and from time to time."""
        for team in {**self._uses, **borrowed}:
            use = self._uses.get(team, PastUse(0, now))
            self._uses[team] = accrue(use, self._borrowed.get(team, 0), now=now, half_life=half_life)
        self._uses = {team: use for team, use in self._uses.items() if use.unit_seconds or borrowed.get(team)}
        self._borrowed = {team: gpus for team, gpus in borrowed.items() if gpus}
        self._averages = {team: average(use, now=now, half_life=half_life) for team, use in self._uses.items()}

    def average(self, team: TeamName) -> Units:
        """Return what a team borrowed on average, as of the last `note`."""
        return self._averages.get(team, 0)


def _remainder(seconds: int, half_life: int) -> int:
    """Return 2^(-seconds/half_life), of _SCALE."""
    whole, rest = divmod(seconds, half_life)
    left = _SCALE >> min(whole, 64)
    part = (rest << _BITS) // half_life
    for bit, root in enumerate(_ROOTS, start=1):
        if part >> (_BITS - bit) & 1:
            left = left * root >> 64
    return left


def _roots() -> tuple[int, ...]:
    """Return 2^(-1/2), 2^(-1/4), 2^(-1/8) and so on, of _SCALE."""
    found, power = [], _SCALE >> 1
    for _ in range(_BITS):
        power = isqrt(power * _SCALE)
        found.append(power)
    return tuple(found)


_ROOTS: Final = _roots()
