"""Lets pods go without a decision: what `fairgate uninstall` finds on pods, and the patch that removes it."""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from webhook.core.model.names import Namespace, Uid
from webhook.kube.objects import keys, objects
from webhook.kube.pod.pods import is_queued

_MARKS: Final = (keys.EVICT_AT, keys.EVICT_FOR, keys.IDLE_SINCE)


class MarkedPod(NamedTuple):
    """A pod that waits in line, whose eviction is announced, or that is marked as not using its GPUs."""

    namespace: Namespace
    name: str
    uid: Uid
    created: str

    @property
    def text(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


class _Pod(msgspec.Struct, frozen=True, gc=False):
    metadata: objects.ObjectMeta
    spec: objects.PodGates = objects.PodGates()


_decoder: Final = msgspec.json.Decoder(_Pod)


def in_line(raw: bytes) -> MarkedPod | None:
    """Return a pod that has Fairgate's gate; None for another one. Raises ValueError if it is no pod."""
    pod = _decoder.decode(raw)
    return _marked(pod) if is_queued(pod.spec) else None


def with_notice(raw: bytes) -> MarkedPod | None:
    """Return a pod that the evictor wrote a notice or a mark on; None for another one.

    Raises ValueError if it is no pod.
    """
    pod = _decoder.decode(raw)
    return _marked(pod) if any(key in (pod.metadata.annotations or {}) for key in _MARKS) else None


def unmark_patch(pod: MarkedPod) -> bytes:
    """Return a merge patch that removes what the evictor wrote on a pod."""
    return msgspec.json.encode({"metadata": {"uid": pod.uid, "annotations": dict.fromkeys(_MARKS)}})


def by_turns(pods: Iterable[MarkedPod]) -> list[MarkedPod]:
    """Return pods in the order in which they are let go: the oldest of each namespace, then the next of each.

    So a namespace with any number of pods delays no other.
    """
    taken: Counter[Namespace] = Counter()
    turns: dict[MarkedPod, int] = {}
    oldest_first = sorted(pods, key=lambda each: (each.created, each.text))
    for pod in oldest_first:
        taken[pod.namespace] += 1
        turns[pod] = taken[pod.namespace]
    return sorted(oldest_first, key=turns.__getitem__)


def let_go_patch(pod: MarkedPod) -> bytes:
    """Return a strategic merge patch that removes the gate, and what Fairgate wrote about the wait.

    It changes only the pod with this UID. Other gates stay.
    """
    metadata = {"uid": pod.uid, "annotations": dict.fromkeys(keys.LINE_ANNOTATIONS)}
    gate = {"$patch": "delete", "name": keys.QUEUE_GATE}
    return msgspec.json.encode({"metadata": metadata, "spec": {"schedulingGates": [gate]}})


def _marked(pod: _Pod) -> MarkedPod:
    metadata = pod.metadata
    return MarkedPod(metadata.namespace, metadata.name, metadata.uid, metadata.creation_timestamp or "")
