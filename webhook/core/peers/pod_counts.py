"""How many pods that a selector selects sit on each node: counted when somebody asks first, and kept from then on.

And which nodes have pods that keep others off by required inter-pod anti-affinity: few do, so all are kept.

Pods that nobody asks about cost one look at their namespace. Counted are pods on a node and those that were sent to
one, on the node that they were sent to.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple, Protocol

from webhook.core.model.names import Namespace, NodeName
from webhook.core.model.policy import LabelSelector
from webhook.core.model.topology import AffinityRule, TopologyRule

KEPT: Final = 512
"""Counters kept at a time, one per workload that spreads its pods; the oldest is counted again when it is asked for."""

KEPT_FOREIGN: Final = 64
"""Counters kept of what pods ask about other namespaces than their own: whose pods those are pays for each change."""

MOST_ENTRIES: Final = 200_000
"""Nodes in all counters together, some 20 MB; over that the oldest counters go."""

MOST_LOOKS: Final = 20_000
"""Pods that may be looked at for the rules of one pod, some 20 ms."""

MOST_NODES: Final = 40_000
"""Nodes with counted pods that may be looked at for the rules of one pod, for each rule; some 40 ms."""

MOST_EXPRESSIONS: Final = 8
"""Rules with no more expressions together, and no more of them than two, are counted in a namespace of any size."""
_ALWAYS: Final = 2

MOST_OWN_RULES: Final = 512
MOST_RULES: Final = 32
MOST_SEATS: Final = 512
MOST_FOREIGN: Final = 4
"""Of the rules that keep a pod off, so many different ones of its own namespace count; of another namespace so many,
with their pods on so many nodes; and the rules of so many namespaces. The rest is left to kube-scheduler: nobody can
make the pods of others cost more than that."""


class Labelled(Protocol):
    """A pod, as far as it may be counted."""

    @property
    def namespace(self) -> Namespace:
        """Selectors select in one namespace."""

    @property
    def labels(self) -> Mapping[str, str]:
        """What selectors are about."""

    @property
    def anti_affinity_rules(self) -> tuple[AffinityRule, ...]:
        """Which other pods it does not bear near it."""


class PlacedPod(NamedTuple):
    """A pod that counts, and where."""

    pod: Labelled
    node: NodeName


Source = Callable[[Namespace], Iterable[PlacedPod]]

Keepers = tuple[Namespace, AffinityRule]
"""Pods of a namespace that all have this rule."""

_Counter = dict[NodeName, int]
_Asked = tuple[Namespace, LabelSelector]
_NO_RULES: Final[Mapping[AffinityRule, _Counter]] = {}


class PodCounts:
    """The counters. Whoever seats pods adds itself to `sources` and reports each change."""

    def __init__(self) -> None:
        self.sources: list[Source] = []
        self._asked: dict[Namespace, dict[LabelSelector, _Counter]] = {}
        self._own: dict[_Asked, None] = {}  # counters by age, those that pods of their own namespace asked for
        self._foreign: dict[_Asked, None] = {}
        self._keepers: dict[Namespace, dict[Namespace, dict[AffinityRule, _Counter]]] = {}  # by whom they are about
        self._seated: dict[Namespace, int] = {}  # how many pods sit somewhere

    def on_nodes(
        self, namespace: Namespace, selector: LabelSelector, *, home: Namespace | None = None
    ) -> Mapping[NodeName, int]:
        """Tell how many of the selected pods are on each node; nodes without any are left out.

        `home` is the namespace of the pod that asks, where that is another.
        """
        counter = self._asked.get(namespace, {}).get(selector)
        asked = (namespace, selector)
        kept, most = (self._own, KEPT) if home in (None, namespace) else (self._foreign, KEPT_FOREIGN)
        if counter is None:
            while len(kept) >= most:
                self._forget(next(iter(kept)))
            counter = self._count(namespace, selector)
            kept[asked] = None
            self._make_room()
        elif kept is self._own and asked in self._foreign:
            del self._foreign[asked]
            kept[asked] = None
        return counter

    def are_costly(self, namespace: Namespace, rules: Iterable[TopologyRule]) -> bool:
        """Tell whether more would have to be looked at for a pod's rules than any real pod needs."""
        looks = number = expressions = nodes = counted = 0
        for about, selector in _asked_by(namespace, rules):
            counter = self._asked.get(about, {}).get(selector)
            if counter is None:
                looks, number = looks + self._seated.get(about, 0), number + 1
                expressions += len(selector.requirements)
            else:
                nodes, counted = nodes + len(counter), counted + 1
        if nodes > MOST_NODES and counted > _ALWAYS:
            return True
        return looks > MOST_LOOKS and (number > _ALWAYS or expressions > MOST_EXPRESSIONS)

    def count_one(self, namespace: Namespace, rules: Iterable[TopologyRule]) -> None:
        """Count for one of a pod's rules: those of a template are all counted once enough of its pods came."""
        for about, selector in _asked_by(namespace, rules):
            is_known = selector in self._asked.get(about, {})
            if not is_known and len(selector.requirements) <= MOST_EXPRESSIONS:
                self.on_nodes(about, selector, home=namespace)
                return

    def against(self, namespace: Namespace, labels: Mapping[str, str]) -> dict[Keepers, Mapping[NodeName, int]]:
        """List the pods that keep such a pod off, with how many of them are on each node."""
        by_home = self._keepers.get(namespace)
        if by_home is None:
            return {}
        found: dict[Keepers, Mapping[NodeName, int]] = {}
        for rule, nodes in islice(by_home.get(namespace, _NO_RULES).items(), MOST_OWN_RULES):
            if rule.is_about(namespace, labels, home=namespace):
                found[namespace, rule] = nodes
        for home, rules in islice(by_home.items(), MOST_FOREIGN + 1):
            seats = MOST_SEATS
            for rule, nodes in islice(rules.items(), 0 if home == namespace else MOST_RULES):
                seats -= len(nodes)
                if seats >= 0 and rule.is_about(namespace, labels, home=home):
                    found[home, rule] = nodes
        return found

    def change(self, pod: Labelled, node: NodeName, step: int) -> None:
        """Take in a pod that sits there from now on (1), or no longer (-1)."""
        namespace = pod.namespace
        for rule in pod.anti_affinity_rules:
            for about in rule.namespaces or (namespace,):
                self._change_keeper(about, namespace, rule, node, step)
        seated = self._seated.get(namespace, 0) + step
        if seated:
            self._seated[namespace] = seated
        else:
            del self._seated[namespace]
        counters = self._asked.get(namespace)
        if counters is None:
            return
        for selector, counter in counters.items():
            if selector.matches(pod.labels):
                _add(counter, node, step)

    def _change_keeper(self, about: Namespace, home: Namespace, rule: AffinityRule, node: NodeName, step: int) -> None:
        by_home = self._keepers.setdefault(about, {})
        rules = by_home.setdefault(home, {})
        counter = rules.setdefault(rule, {})
        _add(counter, node, step)
        if not counter:
            del rules[rule]
        if not rules:
            del by_home[home]
        if not by_home:
            del self._keepers[about]

    def _count(self, namespace: Namespace, selector: LabelSelector) -> _Counter:
        counter: _Counter = {}
        known: dict[int, tuple[Mapping[str, str], bool]] = {}  # pods of one template share their labels
        for source in self.sources:
            for pod, node in source(namespace):
                labels = pod.labels
                found = known.get(id(labels))
                if found is None:
                    found = known[id(labels)] = labels, selector.matches(labels)
                if found[1]:
                    counter[node] = counter.get(node, 0) + 1
        self._asked.setdefault(namespace, {})[selector] = counter
        return counter

    def _make_room(self) -> None:
        """Forget the oldest counters while there are too many entries, those for other namespaces first."""
        entries = sum(len(counter) for counters in self._asked.values() for counter in counters.values())
        while entries > MOST_ENTRIES and len(self._own) + len(self._foreign) > 1:
            namespace, selector = next(iter(self._foreign or self._own))
            entries -= len(self._asked[namespace][selector])
            self._forget((namespace, selector))

    def _forget(self, asked: _Asked) -> None:
        namespace, selector = asked
        self._own.pop(asked, None)
        self._foreign.pop(asked, None)
        counters = self._asked[namespace]
        del counters[selector]
        if not counters:
            del self._asked[namespace]


def _asked_by(namespace: Namespace, rules: Iterable[TopologyRule]) -> Iterator[_Asked]:
    """List what is to be counted for the rules of a pod of a namespace."""
    for rule in rules:
        if rule.selector is not None:
            for about in (isinstance(rule, AffinityRule) and rule.namespaces) or (namespace,):
                yield about, rule.selector


def _add(counter: _Counter, node: NodeName, step: int) -> None:
    left = counter.get(node, 0) + step
    if left:
        counter[node] = left
    else:
        del counter[node]
