"""How many pods that a selector selects sit on each node: counted when somebody asks first, and kept from then on.

And which nodes have pods that keep others off by required inter-pod anti-affinity: few do, so all are kept.

Pods that nobody asks about cost one look at their namespace. Counted are pods on a node and those that were sent to
one, on the node that they were sent to.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from webhook.core.names import Namespace, NodeName
from webhook.core.policy import LabelSelector
from webhook.core.topology import AffinityRule

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

    @property
    def keeps_off(self) -> tuple[AffinityRule, ...]:
        """Which other pods it does not bear near it."""


class Seated(NamedTuple):
    """A pod that counts, and where."""

    pod: Labelled
    node: NodeName


Source = Callable[[Namespace], Iterable[Seated]]

Keepers = tuple[Namespace, AffinityRule]
"""Pods of a namespace that all have this rule."""

_Counter = dict[NodeName, int]


class Siblings:
    """The counters. Whoever seats pods adds itself to `sources` and reports each change."""

    def __init__(self) -> None:
        self.sources: list[Source] = []
        self._asked: dict[Namespace, dict[LabelSelector, _Counter]] = {}
        self._order: dict[tuple[Namespace, LabelSelector], None] = {}
        self._keepers: dict[Namespace, dict[Keepers, _Counter]] = {}  # by the namespaces that they are about

    def on_nodes(self, namespace: Namespace, selector: LabelSelector) -> Mapping[NodeName, int]:
        """Tell how many of the selected pods are on each node; nodes without any are left out."""
        counter = self._asked.get(namespace, {}).get(selector)
        return self._count(namespace, selector) if counter is None else counter

    def against(self, namespace: Namespace, labels: Mapping[str, str]) -> dict[Keepers, Mapping[NodeName, int]]:
        """List the pods that keep such a pod off, with how many of them are on each node."""
        return {
            (home, rule): nodes
            for (home, rule), nodes in self._keepers.get(namespace, {}).items()
            if rule.is_about(namespace, labels, home=home)
        }

    def change(self, pod: Labelled, node: NodeName, step: int) -> None:
        """Take in a pod that sits there from now on (1), or no longer (-1)."""
        for rule in pod.keeps_off:
            for about in rule.namespaces or (pod.namespace,):
                keepers = self._keepers.setdefault(about, {})
                counter = keepers.setdefault((pod.namespace, rule), {})
                _add(counter, node, step)
                if not counter:
                    del keepers[pod.namespace, rule]
                if not keepers:
                    del self._keepers[about]
        counters = self._asked.get(pod.namespace)
        if counters is None:
            return
        for selector, counter in counters.items():
            if selector.matches(pod.labels):
                _add(counter, node, step)

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


def _add(counter: _Counter, node: NodeName, step: int) -> None:
    left = counter.get(node, 0) + step
    if left:
        counter[node] = left
    else:
        del counter[node]
