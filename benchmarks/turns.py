"""The order in which variants are measured, so that a machine's drift meets all of them alike."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

Variant = TypeVar("Variant")


def in_turn(variants: Sequence[Variant], rounds: int) -> Iterator[Variant]:
    """Yield every variant once a round; each round begins with the next one."""
    for number in range(rounds):
        first = number % len(variants)
        yield from (*variants[first:], *variants[:first])
