"""Sizes of pods, as the demand mix weighs them."""

from typing import Final, NamedTuple


class Shape(NamedTuple):
    """A size of pod: `number` devices with `amount` of each (as in PerDevice), plus cpu and memory.

    Devices that are only counted have an amount of 1 in 1 part: whole pieces.
    """

    number: int
    amount: int = 1
    parts: int = 1
    cpu: int = 0
    memory: int = 0


Prior = tuple[tuple[Shape, int], ...]

DEFAULT_PRIOR: Final[Prior] = ((Shape(1), 50), (Shape(2), 20), (Shape(4), 15), (Shape(8), 15))
"""Powers of two, small ones more often: the usual sizes of training and serving jobs, until this cluster shows
others."""
