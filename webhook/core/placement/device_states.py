"""The distinct states of free devices under one demand mix, by number, with the results computed for them.

Classes come and go all the time, but they share states, and so do pod shapes that differ only in cpu and memory:
nothing here is computed twice. Numbers are faster to look up than states are.
"""

from typing import Final, NamedTuple

from webhook.core.model.shape import Shape
from webhook.core.placement.fragmentation import WHOLE, DeviceState, Fragmentation, after, useful

_MAX_RESULTS: Final = 65_536
"""About 10 MB; a cluster of many node types and 150 shapes needs a few thousand at a time."""


class Remainder(NamedTuple):
    """What remains of a state after a pod: the number of the new state, and its free thousandths."""

    state: int
    free: int


def free_of(state: DeviceState) -> int:
    """Return the sum of free devices, in thousandths."""
    return state.whole * WHOLE + sum(state.partly)


class DeviceStates:
    """All states by number."""

    __slots__ = ("_all", "_forecast", "_numbers", "_remainders", "_usefulness")

    def __init__(self, fragmentation: Fragmentation) -> None:
        self._forecast = fragmentation
        self._all: list[DeviceState] = []
        self._numbers: dict[DeviceState, int] = {}
        self._usefulness: dict[tuple[int, int, int], int] = {}
        self._remainders: dict[Shape, dict[int, Remainder | None]] = {}

    def number(self, state: DeviceState) -> int:
        """Return the number of a state."""
        known = self._numbers.get(state)
        if known is None:
            known = self._numbers[state] = len(self._all)
            self._all.append(state)
        return known

    def usefulness(self, number: int, cpu: int, memory: int) -> int:
        """Return how useful the free devices of a state are beside these numbers of steps of cpu and of memory."""
        key = (number, cpu, memory)
        known = self._usefulness.get(key)
        if known is None:
            if len(self._usefulness) >= _MAX_RESULTS:
                self._usefulness.clear()
            state = self._all[number]
            known = self._usefulness[key] = useful(state, self._forecast.profile(state.size, cpu, memory))
        return known

    def remainders(self, shape: Shape) -> dict[int, Remainder | None]:
        """Return the cached remainders of a shape, by number of the state, to read and to extend."""
        return self._remainders.setdefault(shape._replace(cpu=0, memory=0), {})

    def remainder(self, number: int, shape: Shape) -> Remainder | None:
        """Return what a shape leaves of a state; None where its devices do not fit."""
        state = after(self._all[number], shape)
        return None if state is None else Remainder(self.number(state), free_of(state))
