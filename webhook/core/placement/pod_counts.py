"""Counts of the pods on each node that a selector selects: computed on the first query, then updated by events.

Also the nodes with pods that have required inter-pod anti-affinity: few pods have it, so all are indexed.

Pods that no query selects cost one look-up of their namespace. Counted are pods on a node and pods with a chosen node,
on that node.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Final, NamedTuple, Protocol

from webhook.core.model.amounts import Namespace, NodeName, add_to
from webhook.core.model.policy import LabelSelector
from webhook.core.model.topology import EVERY_NAMESPACE, AffinityRule, TopologyRule

MAX_COUNTERS: Final = 512
"""Counters kept at a time, one per workload that spreads its pods; the oldest is computed again on the next query."""

MAX_FOREIGN_COUNTERS: Final = 64
"""Counters kept for queries about other namespaces than the pod's own: each change of a pod
of those namespaces costs time."""

MAX_ENTRIES: Final = 200_000
"""Nodes in all counters together, some 20 MB; above that the oldest counters are dropped."""

MAX_SCANNED_PODS: Final = 20_000
"""Pods that may be scanned for the rules of one pod, some 20 ms."""

MAX_SCANNED_NODES: Final = 40_000
"""Nodes with counted pods that may be scanned for the rules of one pod, for each rule; some 40 ms."""

MAX_EXPRESSIONS: Final = 8
"""Up to two rules, with no more expressions together than this, are counted in a namespace of any size."""
_ALWAYS_COUNTED: Final = 2

MAX_OWN_RULES: Final = 512
MAX_FOREIGN_RULES: Final = 32
MAX_FOREIGN_NODES: Final = 512
MAX_FOREIGN_NAMESPACES: Final = 4
"""Limits of the anti-affinity rules that apply to a pod: this many different ones of its own namespace; of another
namespace this many, with their pods on so many nodes; and the rules of so many other namespaces. Rules beyond that are
left to kube-scheduler: no tenant can make the pods of others cost more."""


class CountedPod(Protocol):
    """A pod that may be counted."""

    @property
    def namespace(self) -> Namespace:
        """Return its namespace: selectors select in one namespace."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Return its labels, which selectors match."""

    @property
    def anti_affinity_rules(self) -> tuple[AffinityRule, ...]:
        """Return its required anti-affinity rules."""


class PlacedPod(NamedTuple):
    """A counted pod and its node."""

    pod: CountedPod
    node: NodeName


Source = Callable[[Namespace], Iterable[PlacedPod]]

AntiAffinityKey = tuple[Namespace, AffinityRule]
"""A rule and the namespace of the pods that have it."""

_Counter = dict[NodeName, int]
_CounterKey = tuple[Namespace, LabelSelector]
_RulesByHome = dict[Namespace, dict[AffinityRule, _Counter]]
_NO_RULES: Final[Mapping[AffinityRule, _Counter]] = {}


class PodCounts:
    """The counters. Each index that places pods adds itself to `sources` and reports each change."""

    def __init__(self) -> None:
        self.sources: list[Source] = []
        self.namespace_labels: Callable[[Namespace], Mapping[str, str]] = lambda _: {}
        self._counters: dict[Namespace, dict[LabelSelector, _Counter]] = {}
        self._own_keys: dict[_CounterKey, None] = {}  # counters by age, those queried by pods of their own namespace
        self._foreign_keys: dict[_CounterKey, None] = {}
        # by the namespace that the rule applies to, then by the namespace of the pods that have it
        self._anti_affinity: dict[Namespace, _RulesByHome] = {}
        self._pods: dict[Namespace, int] = {}  # placed pods

    def on_nodes(
        self, namespace: Namespace, selector: LabelSelector, *, home: Namespace | None = None
    ) -> Mapping[NodeName, int]:
        """Return the number of selected pods on each node; nodes without any are left out.

        `home` is the namespace of the pod that queries, where that is another.
        """
        counter = self._counters.get(namespace, {}).get(selector)
        key = (namespace, selector)
        is_own = home in (None, namespace)
        kept, maximum = (self._own_keys, MAX_COUNTERS) if is_own else (self._foreign_keys, MAX_FOREIGN_COUNTERS)
        if counter is None:
            while len(kept) >= maximum:
                self._forget(next(iter(kept)))
            counter = self._count(namespace, selector)
            kept[key] = None
            self._drop_oldest()
        elif kept is self._own_keys and key in self._foreign_keys:
            del self._foreign_keys[key]
            kept[key] = None
        return counter

    def are_costly(self, namespace: Namespace, rules: Iterable[TopologyRule]) -> bool:
        """Whether a pod's rules would need more scanning than any real pod needs."""
        scanned = number = expressions = nodes = counted = 0
        for about, selector in _counter_keys(namespace, rules):
            counter = self._counters.get(about, {}).get(selector)
            if counter is None:
                scanned, number = scanned + self._pods.get(about, 0), number + 1
                expressions += len(selector.requirements)
            else:
                nodes, counted = nodes + len(counter), counted + 1
        if nodes > MAX_SCANNED_NODES and counted > _ALWAYS_COUNTED:
            return True
        return scanned > MAX_SCANNED_PODS and (number > _ALWAYS_COUNTED or expressions > MAX_EXPRESSIONS)

    def count_one(self, namespace: Namespace, rules: Iterable[TopologyRule]) -> None:
        """Compute a counter for one of a pod's rules: after enough pods of a template, all its rules are counted."""
        for about, selector in _counter_keys(namespace, rules):
            is_known = selector in self._counters.get(about, {})
            if not is_known and len(selector.requirements) <= MAX_EXPRESSIONS:
                self.on_nodes(about, selector, home=namespace)
                return

    def against(self, namespace: Namespace, labels: Mapping[str, str]) -> dict[AntiAffinityKey, Mapping[NodeName, int]]:
        """Return the anti-affinity rules against such a pod, with the number of pods that have them on each node."""
        found: dict[AntiAffinityKey, Mapping[NodeName, int]] = {}
        if not self._anti_affinity:
            return found
        for about in (namespace, *EVERY_NAMESPACE):
            if (by_home := self._anti_affinity.get(about)) is not None:
                found.update(_against(by_home, namespace, labels, self.namespace_labels(namespace)))
        return found

    def applies(self, rule: AffinityRule, namespace: Namespace, labels: Mapping[str, str], *, home: Namespace) -> bool:
        """Whether a rule of a pod of the namespace `home` applies to a pod."""
        return rule.applies_to(namespace, labels, home=home, about=self.namespace_labels(namespace))

    def placed(self, namespace: Namespace) -> Iterator[PlacedPod]:
        """Return the pods of a namespace that are counted, with their nodes."""
        return chain.from_iterable(source(namespace) for source in self.sources)

    def change(self, pod: CountedPod, node: NodeName, step: int) -> None:
        """Record that a pod is placed on a node (1), or no longer (-1)."""
        namespace = pod.namespace
        for rule in pod.anti_affinity_rules:
            for about in rule.namespaces or (namespace,):
                self._change_rule(about, namespace, rule, node, step)
        add_to(self._pods, namespace, step)
        counters = self._counters.get(namespace)
        if counters is None:
            return
        for selector, counter in counters.items():
            if selector.matches(pod.labels):
                add_to(counter, node, step)

    def _change_rule(self, about: Namespace, home: Namespace, rule: AffinityRule, node: NodeName, step: int) -> None:
        by_home = self._anti_affinity.setdefault(about, {})
        rules = by_home.setdefault(home, {})
        counter = rules.setdefault(rule, {})
        add_to(counter, node, step)
        if not counter:
            del rules[rule]
        if not rules:
            del by_home[home]
        if not by_home:
            del self._anti_affinity[about]

    def _count(self, namespace: Namespace, selector: LabelSelector) -> _Counter:
        counter: _Counter = {}
        known: dict[int, tuple[Mapping[str, str], bool]] = {}  # pods of one template share their labels
        for pod, node in self.placed(namespace):
            labels = pod.labels
            found = known.get(id(labels))
            if found is None:
                found = known[id(labels)] = labels, selector.matches(labels)
            if found[1]:
                counter[node] = counter.get(node, 0) + 1
        self._counters.setdefault(namespace, {})[selector] = counter
        return counter

    def _drop_oldest(self) -> None:
        """Forget the oldest counters while there are too many entries, those for other namespaces first."""
        entries = sum(len(counter) for counters in self._counters.values() for counter in counters.values())
        while entries > MAX_ENTRIES and len(self._own_keys) + len(self._foreign_keys) > 1:
            namespace, selector = next(iter(self._foreign_keys or self._own_keys))
            entries -= len(self._counters[namespace][selector])
            self._forget((namespace, selector))

    def _forget(self, key: _CounterKey) -> None:
        namespace, selector = key
        self._own_keys.pop(key, None)
        self._foreign_keys.pop(key, None)
        counters = self._counters[namespace]
        del counters[selector]
        if not counters:
            del self._counters[namespace]


def _counter_keys(namespace: Namespace, rules: Iterable[TopologyRule]) -> Iterator[_CounterKey]:
    """Return what must be counted for the rules of a pod of a namespace."""
    for rule in rules:
        if rule.selector is not None:
            for about in (isinstance(rule, AffinityRule) and rule.namespaces) or (namespace,):
                yield about, rule.selector


def _against(
    by_home: _RulesByHome, namespace: Namespace, labels: Mapping[str, str], about: Mapping[str, str]
) -> Iterator[tuple[AntiAffinityKey, _Counter]]:
    for rule, nodes in islice(by_home.get(namespace, _NO_RULES).items(), MAX_OWN_RULES):
        if rule.applies_to(namespace, labels, home=namespace, about=about):
            yield (namespace, rule), nodes
    for home, rules in islice(by_home.items(), MAX_FOREIGN_NAMESPACES + 1):
        nodes_left = MAX_FOREIGN_NODES
        for rule, nodes in islice(rules.items(), 0 if home == namespace else MAX_FOREIGN_RULES):
            nodes_left -= len(nodes)
            if nodes_left >= 0 and rule.applies_to(namespace, labels, home=home, about=about):
                yield (home, rule), nodes
