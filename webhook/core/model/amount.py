"""Amounts of GPU: exact integers, never floats.

The unit is 1/840,000 of a GPU. Thousandths (milli-GPU, what policies use) and every share from a half to an eighth (MIG
compute and memory slices) are then whole numbers: seven `1g` slices are exactly one GPU, not 0.994 or 1.001 of one. 840
is the least common multiple of 1 to 8. Where policy divides a GPU into other parts (`perGpu: 81920`), an amount is a
Fraction of units, which is exact as well.
"""

import re
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from typing import Final

ONE_GPU: Final = 840_000
MILLI_GPU: Final = ONE_GPU // 1000
_LARGEST_DENOMINATOR: Final = 16
_LONGEST_AMOUNT: Final = 100
_AMOUNT: Final = re.compile(r"[0-9]+(\.[0-9]+|/[1-9][0-9]*)?")


class Unlimited(Enum):
    """The limit that no amount exceeds."""

    UNLIMITED = "unlimited"


UNLIMITED: Final = Unlimited.UNLIMITED
Units = int | Fraction
"""An amount in GPU units."""
Limit = int | Unlimited
"""A hard cap in GPU units, or UNLIMITED."""


def parse_gpus(text: str | float) -> int:
    """Parse whole GPUs, a decimal ("2.5") or a fraction ("1/7") as GPU units.

    Raises ValueError for negative or non-numeric amounts and for those that are not exact (finer than 1/840,000).
    """
    try:
        exact = Fraction(str(text).strip())
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"expected GPUs such as 8, 2.5 or 1/7, got {text!r}") from None
    if exact < 0:
        raise ValueError(f"a number of GPUs cannot be negative, got {text}")
    units = exact * ONE_GPU
    if units.denominator != 1:
        raise ValueError(f"{text} GPUs cannot be counted exactly; use thousandths or shares from 1/2 to 1/8")
    return int(units)


def parse_amount(text: str) -> Units:
    """Parse the output of `format_gpus`, including parts of a GPU of any size. Raises ValueError for anything else."""
    if len(text) > _LONGEST_AMOUNT or not _AMOUNT.fullmatch(text):
        raise ValueError("not an amount of GPUs")
    return exact_units(Fraction(text) * ONE_GPU)


def exact_units(total: Units) -> Units:
    """Return a whole number of units as an int: sums of ints are fast."""
    return total if isinstance(total, int) or total.denominator != 1 else total.numerator


@lru_cache(maxsize=1024)  # a cluster has a few dozen amounts, and every decision formats one
def format_gpus(units: Units) -> str:
    """Format GPU units exactly: 8, 2.5, 0.125, 3/7."""
    whole, rest = divmod(units, ONE_GPU)
    if not rest:
        return str(whole)
    if rest % MILLI_GPU == 0:
        return f"{whole}.{rest * 1000 // ONE_GPU:03d}".rstrip("0")
    return str(Fraction(units, ONE_GPU))


@lru_cache(maxsize=1024)
def gpu_number(units: Units) -> int | float:
    """Return GPU units as a number for logs and metrics, to a millionth of a GPU; no decision depends on it."""
    whole, rest = divmod(units, ONE_GPU)
    return round(float(units / ONE_GPU), 6) if rest else int(whole)


def gpus_text(units: Units, *, rounded: str = "about ", tiny: str = "less than 0.001") -> str:
    """Format GPU units for messages: exact up to thousandths or a share up to 1/16, else `rounded`, or `tiny`."""
    if (units % MILLI_GPU) == 0 or (units < ONE_GPU and Fraction(units, ONE_GPU).denominator <= _LARGEST_DENOMINATOR):
        return format_gpus(units)
    if units < MILLI_GPU:
        return tiny
    digits = 3 if units < ONE_GPU // 10 else 2
    number = f"{round(float(units / ONE_GPU), digits):g}" if units < 10**4 * ONE_GPU else str(units // ONE_GPU)
    return f"{rounded}{number}"


def format_limit(limit: Limit) -> str:
    """Format a limit: GPUs, or the word unlimited."""
    return limit.value if isinstance(limit, Unlimited) else format_gpus(limit)


def exceeds(amount: Units, limit: Limit) -> bool:
    """Whether the amount is above the limit."""
    return not isinstance(limit, Unlimited) and amount > limit
