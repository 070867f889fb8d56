"""Sizes that are read, quantities, selectors.

Size limits for objects that tenants write, checked before a decision, and caches whose size tenants cannot control.

Each limit is far above what real workloads use; docs/concepts/security.md lists them. An object over a limit is refused
if it requests GPUs and is otherwise left to kube-scheduler: Fairgate never processes it. Counts are checked when a part
is parsed for the first time, so that pods of a cached template cost nothing.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Final, Generic, TypeVar

import msgspec

from webhook.core.model.amounts import CPU
from webhook.core.model.constraints import Operator, Requirement
from webhook.core.model.policy import LabelSelector

K = TypeVar("K")
V = TypeVar("V")

LARGE_BYTES: Final = 256 * 1024
"""The size of a larger object is checked before it is decoded. Up to this size, any object decodes in milliseconds."""

POD_BYTES: Final = 1024 * 1024
"""Size of a pod or workload as JSON. Real ones have up to 50 KiB; all annotations together may have 256 KiB."""

GPU_POD_BYTES: Final = 512 * 1024
"""Size of a new pod with GPUs, with the names of its fields once more for each manager that may apply it (APPLIED).

etcd takes 1.5 MiB, and what is added later must fit, too. A pod with 1,000 variables has 100 KiB, and 90 KiB of names.
"""

EVICTABLE_BYTES: Final = 1280 * 1024
"""Size of a pod as JSON above which etcd may refuse what its eviction writes."""

GROWTH_BYTES: Final = 128 * 1024
APPLIED: Final = 3
"""What may be added to a pod with GPUs later: bytes of its metadata, and bytes of what of its spec may change, as the
guard of sizes counts them; managers that apply it."""

POD_VALUES: Final = 50_000
"""Number of its JSON values, counted by commas and opening brackets, in strings too. A pod of 50 KiB has 4,000, a
workflow of 500 templates and 2,000 tasks 35,000."""

CONTAINERS: Final = 1024
RESOURCES: Final = 32
RESOURCE_NAME: Final = 317
"""Containers of a pod, init containers included; distinct resources that it requests; characters of a resource name."""

CLAIMS: Final = 64
CLAIM_NAMES: Final = 1024
"""Entries of spec.resourceClaims, and the characters of all their names: a team's ledger lists them until the pod is
seen."""

HOST_PORTS: Final = 16
"""Host ports of a pod that are counted: kube-scheduler checks the others."""

VOLUME_CLAIMS: Final = 16
"""Claims of a pod's volumes that are looked up: kube-scheduler checks the others."""

LABELS: Final = 256
LABEL_BYTES: Final = 64 * 1024
"""Number of a pod's labels, and their total length."""

DECISION_BYTES: Final = 16 * 1024
"""The decision annotation: 32 nodes with names of 253 characters, as in pods of older versions, have 9 KiB."""

REQUEST_BYTES: Final = 4096
"""Each of the annotations fairgate.dev/requires and fairgate.dev/pool."""

SELECTOR_TERMS: Final = 64
"""Entries of spec.nodeSelector."""

AFFINITY_BYTES: Final = 64 * 1024
NODE_TERMS: Final = 64
"""Length of spec.affinity as the user writes it, and number of its required node terms."""

DECIDED_AFFINITY_BYTES: Final = 256 * 1024
DECIDED_NODE_TERMS: Final = 1024
"""The same for a pod with a decision: each of the user's terms was multiplied by the chosen nodes."""

POD_TERMS: Final = 16
"""Terms of pod affinity and anti-affinity, required and preferred; a term counts once per namespace that it names."""

LABEL_SELECTOR_PARTS: Final = 64
LABEL_SELECTOR_BYTES: Final = 4096
"""Number of expressions and values of one label selector, and their total length."""

TOLERATIONS: Final = 64
TOLERATION_BYTES: Final = 64 * 1024

SPREADS: Final = 8
SPREAD_BYTES: Final = 64 * 1024
"""Topology spread constraints."""

POD_SETS: Final = 32
"""Groups of equal pods that one workload creates, such as the replicated jobs of a JobSet."""

PROBLEMS: Final = 10
TEXT: Final = 300
"""Problems of one pod that are reported, and characters of each."""

CACHED_BYTES: Final = 16 * 1024
"""Longer inputs are not cached."""

CACHE_BYTES: Final = 1024 * 1024
"""Total length of a cache's inputs. A parsed value takes up to ten times as much memory; a template has 1 KiB."""


def excess(what: str, number: int, maximum: int) -> tuple[str, ...]:
    """Return a message if `number` exceeds `maximum`."""
    if number <= maximum:
        return ()
    return (f"{what} {number:,} is more than the maximum of {maximum:,} that Fairgate reads; reduce it",)


def shortened(text: str, maximum: int = TEXT) -> str:
    """Return a tenant's text, truncated for display."""
    return text if len(text) <= maximum else f"{text[: maximum - 1]}…"


class ByteCache(Generic[K, V]):
    """Caches parsed values by their input, limited by the total size of the inputs; the oldest are dropped first.

    Look values up in `known`.
    """

    __slots__ = ("_bytes", "_sizes", "known")

    def __init__(self) -> None:
        self.known: dict[K, V] = {}
        self._sizes: OrderedDict[K, int] = OrderedDict()  # the first of a dict is found slowly after many deletions
        self._bytes = 0

    def keep(self, key: K, value: V, size: int) -> None:
        """Cache a value parsed from `size` bytes, unless that is too large."""
        if size > CACHED_BYTES or key in self.known:
            return
        self.known[key] = value
        self._sizes[key] = size + _ENTRY_BYTES
        self._bytes += size + _ENTRY_BYTES
        while self._bytes > CACHE_BYTES:
            oldest, bytes_ = self._sizes.popitem(last=False)
            del self.known[oldest]
            self._bytes -= bytes_


_ENTRY_BYTES: Final = 64
"""The cost of an entry with an empty input."""


# From label selectors of the API to core selectors.


_OPERATORS: Final = {
    each.value: each for each in (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)
}


class _Expression(msgspec.Struct, frozen=True, gc=False):
    key: str
    operator: str
    values: tuple[str, ...] | None = None


class Selector(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A LabelSelector of the API."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[_Expression, ...] | None = None


def to_selector(written: Selector) -> LabelSelector | None:
    """Translate a selector of a tenant; None if it is too long or has an unknown operator."""
    is_long = _is_long(written.match_expressions or (), written.match_labels or {})
    return None if is_long else whole_selector(written)


def whole_selector(written: Selector) -> LabelSelector | None:
    """Translate a selector that only admins write, however long it is; None if it has an unknown operator."""
    expressions, labelled = written.match_expressions or (), written.match_labels or {}
    if any(each.operator not in _OPERATORS for each in expressions):
        return None
    labels = [Requirement(key, Operator.IN, (value,)) for key, value in labelled.items()]
    return selector_of((*labels, *(Requirement(e.key, _OPERATORS[e.operator], e.values or ()) for e in expressions)))


def _is_long(expressions: tuple[_Expression, ...], labels: Mapping[str, str]) -> bool:
    """Whether a selector is too long to evaluate against every pod of a namespace."""
    parts = len(labels) + len(expressions) + sum(len(each.values or ()) for each in expressions)
    if parts > LABEL_SELECTOR_PARTS:
        return True
    text = sum(len(each.key) + sum(map(len, each.values or ())) for each in expressions)
    return text + sum(len(key) + len(value) for key, value in labels.items()) > LABEL_SELECTOR_BYTES


def selector_of(requirements: tuple[Requirement, ...]) -> LabelSelector:
    """Return a selector in canonical order: equal selectors share one count of pods."""
    return LabelSelector(tuple(sorted(set(requirements), key=repr)))


# Kubernetes quantities ("1500m", "8Gi", "1e3") as exact integers. No floats, no resource rules.
#
# Grammar: k8s.io/apimachinery/pkg/api/resource/quantity.go. Kubernetes silently caps at 2^63-1; this module raises: an
# amount that large is a typing error, and an error message finds it.


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
