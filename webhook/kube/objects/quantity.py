"""Kubernetes quantities ("1500m", "8Gi", "1e3") as exact integers. No floats, no resource rules.

Grammar: k8s.io/apimachinery/pkg/api/resource/quantity.go. Kubernetes silently caps at 2^63-1; this module raises: an
amount that large is a typing error, and an error message finds it.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from webhook.core.model.names import CPU

Quantity = str | int | float
"""A quantity as decoded: the API server writes strings, hand-written YAML may have plain numbers."""

MAX_VALUE: Final = 2**63 - 1
_MAX_CHARACTERS: Final = 64
_MAX_EXPONENT: Final = 30

_PATTERN: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_SUFFIXES: Final = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}


def exact(quantity: Quantity) -> Fraction:
    """Parse a quantity without rounding.

    Raises ValueError, with a remedy, for text that is not a quantity and for amounts outside ±(2^63-1).
    """
    text = str(quantity)
    # ASCII only: \d and str.isdigit would accept digits of other scripts, which Kubernetes refuses
    found = _PATTERN.fullmatch(text) if len(text) <= _MAX_CHARACTERS else None
    if found is None or not (found["whole"] or found["part"]):
        shown = text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"
        raise ValueError(f"{shown!r} is not a quantity; write a number such as 2, 0.5, 500m, 16Gi or 1e3")
    part = found["part"] or ""
    value = Fraction(int((found["whole"] or "") + part or "0"), 10 ** len(part))
    if found["suffix"]:
        value *= _SUFFIXES[found["suffix"]]
    elif found["exponent"]:
        exponent = int(found["exponent"])
        if abs(exponent) > _MAX_EXPONENT:
            raise ValueError(f"{text!r} has an exponent beyond ±{_MAX_EXPONENT}; write the amount you mean")
        value *= Fraction(10) ** exponent
    if value > MAX_VALUE:
        raise ValueError(f"{text!r} is more than {MAX_VALUE}, the largest amount Kubernetes can hold; check the suffix")
    return -value if found["sign"] == "-" else value


@lru_cache(maxsize=8192)
def whole(quantity: Quantity) -> int:
    """Parse a quantity in whole units, rounded up as Kubernetes does: bytes of memory, numbers of devices."""
    return _ceil(exact(quantity))


@lru_cache(maxsize=8192)
def milli(quantity: Quantity) -> int:
    """Parse a quantity in thousandths, rounded up: milli-cores of cpu."""
    return _ceil(exact(quantity) * 1000)


def amount(resource: str, quantity: Quantity) -> int:
    """Parse a quantity in its resource's unit: cpu in milli-cores, everything else in whole units."""
    return milli(quantity) if resource == CPU else whole(quantity)


def _ceil(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)
