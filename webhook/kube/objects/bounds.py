"""How large what a tenant writes may be, before anything is judged, and caches that no tenant can fill.

Each number is far above what real workloads use; docs/security.md lists them. What is over a bound is refused where
the pod asks for GPUs, and otherwise left to kube-scheduler: it never becomes work. Counts are looked at where a reading
is made for the first time, so that a pod of a known template pays nothing.
"""

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

LARGE_BYTES: Final = 256 * 1024
"""A larger object is read in two steps: its size first. Up to here every shape is read within milliseconds."""

POD_BYTES: Final = 1024 * 1024
"""A pod, or an object that makes pods, as JSON. Real ones have up to 50 KiB; annotations may have 256 KiB together."""

POD_VALUES: Final = 20_000
"""Its values, by their commas. A pod of 50 KiB has 2,000."""

CONTAINERS: Final = 1024
RESOURCES: Final = 32
RESOURCE_NAME: Final = 317
"""Containers of a pod, init containers included; different resources that it asks for, and the name of one."""

CLAIMS: Final = 64
"""Entries of spec.resourceClaims."""

LABELS: Final = 256
LABEL_BYTES: Final = 64 * 1024
"""Labels of a pod, and all of their text."""

MARK_BYTES: Final = 16 * 1024
"""The decision annotation: 32 nodes with names of 253 characters have 9 KiB."""

ASKED_BYTES: Final = 4096
"""Each of the annotations fairgate.dev/requires and fairgate.dev/pool."""

SELECTOR_TERMS: Final = 64
"""Entries of spec.nodeSelector."""

AFFINITY_BYTES: Final = 64 * 1024
NODE_TERMS: Final = 64
"""spec.affinity as its user writes it, and its required node terms."""

MARKED_AFFINITY_BYTES: Final = 256 * 1024
MARKED_NODE_TERMS: Final = 1024
"""The same of a pod that carries a decision: each of its user's terms was multiplied by the nodes that were chosen."""

POD_TERMS: Final = 16
"""Terms of pod affinity and anti-affinity, required and preferred; one about several namespaces counts for each."""

LABEL_SELECTOR_PARTS: Final = 64
LABEL_SELECTOR_BYTES: Final = 4096
"""Expressions and values of one label selector, and their text."""

TOLERATIONS: Final = 64
TOLERATION_BYTES: Final = 64 * 1024

SPREADS: Final = 8
SPREAD_BYTES: Final = 64 * 1024
"""Topology spread constraints."""

POD_SETS: Final = 32
"""Groups of equal pods that one object makes, such as the replicated jobs of a JobSet."""

PROBLEMS: Final = 10
TEXT: Final = 300
"""Problems of one pod that are told, and characters of each."""

CACHED_BYTES: Final = 16 * 1024
"""A longer reading is made again each time."""

CACHE_BYTES: Final = 1024 * 1024
"""All texts that one cache keeps readings of. A reading takes up to ten times as much memory; a template has 1 KiB."""


def excess(what: str, number: int, most: int) -> Iterator[str]:
    """Say what there is too much of; nothing where the bound is kept."""
    if number > most:
        yield f"{what} {number:,} is more than {most:,}, the most that Fairgate reads; write less"


def shortened(text: str, most: int = TEXT) -> str:
    """Cut a tenant's text for people to read."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


class ByteCache(Generic[K, V]):
    """Remembers readings by what was read, up to so many bytes of that; the oldest are forgotten.

    `known` is there to be looked up in.
    """

    __slots__ = ("_bytes", "_sizes", "known")

    def __init__(self) -> None:
        self.known: dict[K, V] = {}
        self._sizes: dict[K, int] = {}
        self._bytes = 0

    def keep(self, key: K, value: V, size: int) -> None:
        """Remember a reading of so many bytes, if it is small enough."""
        if size > CACHED_BYTES or key in self.known:
            return
        self.known[key] = value
        self._sizes[key] = size + _ENTRY_BYTES
        self._bytes += size + _ENTRY_BYTES
        while self._bytes > CACHE_BYTES:
            oldest = next(iter(self.known))
            del self.known[oldest]
            self._bytes -= self._sizes.pop(oldest)


_ENTRY_BYTES: Final = 64
"""What even an empty reading costs."""
