"""The states of free devices that came up under one forecast, by number, and what was worked out about them.

Classes come up and go all the time, but they share states, and so do the shapes of pods that differ in cpu and memory
alone: nothing here is worked out twice. Numbers are shorter to look up than states are.
"""

from typing import Final, NamedTuple

from webhook.core.model.shape import Shape
from webhook.core.placement.fragmentation import WHOLE, Fragmentation, State, after, useful

_KEPT_WORTHS: Final = 65_536
"""About 10 MB; a fleet of many kinds and 150 shapes needs a few thousand at a time."""


class Left(NamedTuple):
    """What a pod leaves of a state: the number of the state that it becomes, and how many thousandths are free then."""

    state: int
    free: int


def free_of(state: State) -> int:
    """Add up free devices, in thousandths."""
    return state.whole * WHOLE + sum(state.partly)


class DeviceStates:
    """All states by number."""

    __slots__ = ("_all", "_forecast", "_lefts", "_numbers", "_worths")

    def __init__(self, fragmentation: Fragmentation) -> None:
        self._forecast = fragmentation
        self._all: list[State] = []
        self._numbers: dict[State, int] = {}
        self._worths: dict[tuple[int, int, int], int] = {}
        self._lefts: dict[Shape, dict[int, Left | None]] = {}

    def number(self, state: State) -> int:
        """Give the number of a state."""
        known = self._numbers.get(state)
        if known is None:
            known = self._numbers[state] = len(self._all)
            self._all.append(state)
        return known

    def worth(self, number: int, cpu: int, memory: int) -> int:
        """Weigh the free devices of a state beside so many steps of cpu and of memory, as `useful` does."""
        key = (number, cpu, memory)
        known = self._worths.get(key)
        if known is None:
            if len(self._worths) >= _KEPT_WORTHS:
                self._worths.clear()
            state = self._all[number]
            known = self._worths[key] = useful(state, self._forecast.profile(state.size, cpu, memory))
        return known

    def lefts(self, shape: Shape) -> dict[int, Left | None]:
        """Give what is known of what a shape leaves, by number of the state, to look up and to add to."""
        return self._lefts.setdefault(shape._replace(cpu=0, memory=0), {})

    def left(self, number: int, shape: Shape) -> Left | None:
        """Tell what a shape leaves of a state; None where its devices do not fit."""
        state = after(self._all[number], shape)
        return None if state is None else Left(self.number(state), free_of(state))
