"""Size limits for objects that tenants write, checked before a decision, and caches whose size tenants cannot control.

Each limit is far above what real workloads use; docs/security.md lists them. An object over a limit is refused if it
requests GPUs and is otherwise left to kube-scheduler: Fairgate never processes it. Counts are checked when a part is
parsed for the first time, so that pods of a cached template cost nothing.
"""

from collections import OrderedDict
from typing import Final, Generic, TypeVar

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
