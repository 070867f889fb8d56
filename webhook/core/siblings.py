"""How many pods that a selector selects sit on each node: counted when somebody asks first, and kept from then on.

Pods that nobody asks about cost one look at their namespace. Counted are pods on a node and those that were sent to
one, on the node that they were sent to.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from webhook.core.names import Namespace, NodeName
from webhook.core.policy import LabelSelector

KEPT: Final = 512
"""Counters kept at a time, one per workload that spreads its pods; the oldest is counted anew when it is asked for."""


class Labelled(Protocol):
    """A pod, as far as it may be counted."""

    @property
    def namespace(self) -> Namespace:
        """Selectors select in one namespace."""

    @property
    def labels(self) -> Mapping[str, str]:
        """What selectors are about."""


class Seated(NamedTuple):
    """A pod that counts, and where."""

    pod: Labelled
    node: NodeName


Source = Callable[[Namespace], Iterable[Seated]]

_Counter = dict[NodeName, int]


class Siblings:
    """The counters. Whoever seats pods adds itself to `sources` and reports each change."""

    def __init__(self) -> None:
        self.sources: list[Source] = []
        self._asked: dict[Namespace, dict[LabelSelector, _Counter]] = {}
        self._order: dict[tuple[Namespace, LabelSelector], None] = {}

    def on_nodes(self, namespace: Namespace, selector: LabelSelector) -> Mapping[NodeName, int]:
        """Tell how many of the selected pods are on each node; nodes without any are left out."""
        counter = self._asked.get(namespace, {}).get(selector)
        return self._count(namespace, selector) if counter is None else counter

    def change(self, pod: Labelled, node: NodeName, step: int) -> None:
        """Take in a pod that sits there from now on (1), or no longer (-1)."""
        counters = self._asked.get(pod.namespace)
        if counters is None:
            return
        for selector, counter in counters.items():
            if selector.matches(pod.labels):
                left = counter.get(node, 0) + step
                if left:
                    counter[node] = left
                else:
                    del counter[node]

    def _count(self, namespace: Namespace, selector: LabelSelector) -> _Counter:
        if len(self._order) >= KEPT:
            self._forget(*next(iter(self._order)))
        counter: _Counter = {}
        for source in self.sources:
            for pod, node in source(namespace):
                if selector.matches(pod.labels):
                    counter[node] = counter.get(node, 0) + 1
        self._asked.setdefault(namespace, {})[selector] = counter
        self._order[namespace, selector] = None
        return counter

    def _forget(self, namespace: Namespace, selector: LabelSelector) -> None:
        del self._order[namespace, selector]
        counters = self._asked[namespace]
        del counters[selector]
        if not counters:
            del self._asked[namespace]
