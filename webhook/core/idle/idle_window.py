"""The recent readings of one pod or gang as bits, the latest first: which were seen, below the bound, or excused."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

GAP_PERCENT: Final = 10
"""Readings that may be missing, in percent: scrapes fail now and then. More is a gap, which is never idleness."""

_LATEST: Final = 0b11
"""The last two readings: a verdict ends where both are missing."""


class Reading(StrEnum):
    """What one reading says. EXCUSED: low for a reason that is not idleness. UNKNOWN: nothing."""

    USED = "used"
    LOW = "low"
    EXCUSED = "excused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class WindowBounds:
    """Of `readings` that count, `share_percent` must be low; up to `excuses` more may be excused meanwhile."""

    readings: int
    excuses: int
    share_percent: int

    @property
    def length(self) -> int:
        """How many readings are kept."""
        return self.readings + self.excuses


@dataclass(slots=True)
class IdleWindow:
    """The readings until `slot`, the number of the last one since the epoch.

    Excuses are bounded: a pod's owner can restart it, or write that it saved, without end. `first` is the slot before
    the first reading, and `since` is when the verdict began, 0 without one.
    """

    slot: int
    first: int
    seen: int = 0
    low: int = 0
    excused: int = 0
    since: int = 0

    @classmethod
    def full(cls, slot: int, bounds: WindowBounds, *, since: int) -> "IdleWindow":
        """Return the window of a pod whose verdict an earlier leader published."""
        ones = (1 << bounds.readings) - 1
        return cls(slot, slot - bounds.readings, ones, ones, since=since)

    def note(self, slot: int, reading: Reading, bounds: WindowBounds) -> Reading:
        """Note a reading; return what it counts as. One of a slot that has one, or is earlier, is dropped."""
        if slot <= self.slot:
            return Reading.UNKNOWN
        shift, mask = min(slot - self.slot, bounds.length), (1 << bounds.length) - 1
        self.seen, self.low, self.excused = (bits << shift & mask for bits in (self.seen, self.low, self.excused))
        self.slot = slot
        if reading is Reading.EXCUSED and self.excused.bit_count() >= bounds.excuses:
            reading = Reading.LOW
        match reading:
            case Reading.USED:
                self.seen |= 1
            case Reading.LOW:
                self.seen |= 1
                self.low |= 1
            case Reading.EXCUSED:
                self.excused |= 1
            case Reading.UNKNOWN:
                pass
        return reading

    def is_idle(self, bounds: WindowBounds) -> bool:
        """Whether it was low for long enough, and the latest reading that is known was."""
        if self.slot - self.first < bounds.readings + self.excused.bit_count():
            return False
        latest = self.seen & -self.seen
        if not latest & _LATEST or not self.low & latest:
            return False
        seen, low = self.seen.bit_count(), self.low.bit_count()
        return seen * 100 >= bounds.readings * (100 - GAP_PERCENT) and low * 100 >= seen * bounds.share_percent
