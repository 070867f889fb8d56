"""The check of pods: whether the API server could still evict each of them."""

from typing import Final

from webhook.cli.doctor.findings import Check, Finding, ok, skipped, wrong
from webhook.cluster.reads.installation import ReadForbidden, ReadResult
from webhook.kube.objects.bounds import EVICTABLE_BYTES

_SHOWN: Final = 10
_REMEDY: Final = "have its owner remove what pads it: owner references, finalizers, labels, managers that apply it"


def check_pods(large: ReadResult[list[str]]) -> list[Finding]:
    """Report pods that are so large that etcd may refuse what their eviction writes."""
    if isinstance(large, ReadForbidden):
        return skipped(Check.PODS, f"for admins: you lack the right to {large.right} of all namespaces")
    names = large.value or []
    if not names:
        return ok(Check.PODS, "none is too large to be evicted")
    more = [f"{len(names) - _SHOWN:,} more pods are as large"] if len(names) > _SHOWN else []
    found = [
        f"pod {name} has more than {EVICTABLE_BYTES:,} bytes: it may be too large to be evicted or deleted"
        for name in names[:_SHOWN]
    ]
    return wrong(Check.PODS, [*found, *more], _REMEDY)
