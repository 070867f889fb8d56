"""Pods that were refused for now, and that their controllers create again once GPUs came back.

Equal pods are tried in the order in which they came, and no further once one of them is refused again.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from itertools import chain
from typing import Final

from webhook.simulation.cluster import PodOf

MAX_KINDS: Final = 256
"""Kinds of pods that are tried after one change, those that waited longest first."""


class RefusedPods:
    """The refused pods by kind."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, deque[PodOf]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[PodOf]:
        return chain.from_iterable(self._kinds.values())

    def add(self, pod_of: PodOf) -> None:
        """Add a pod that was refused."""
        pod = pod_of.pod
        kind = (pod.namespace, pod.demand, pod.constraints, pod.tier_label, pod.gang, pod_of.record.task.user)
        self._kinds.setdefault(kind, deque()).append(pod_of)
        self._size += 1

    def retry(self, decide: Callable[[PodOf], bool]) -> bool:
        """Create pods again, and return whether any was not refused; `decide` returns that of one pod."""
        before = self._size
        oldest = sorted(self._kinds.items(), key=lambda kind: _age(kind[1][0]))
        for kind, pods in oldest[:MAX_KINDS]:
            while pods and decide(pods[0]):
                pods.popleft()
                self._size -= 1
            if not pods:
                del self._kinds[kind]
        return self._size < before


def _age(pod_of: PodOf) -> tuple[int, str]:
    return pod_of.record.task.created, pod_of.uid
