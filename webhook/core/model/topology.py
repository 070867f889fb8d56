"""Topology domains, the nodes that carry one value of a label, and what pods demand of the other pods in them."""

from collections.abc import Mapping
from typing import NamedTuple

from webhook.core.model.names import Namespace
from webhook.core.model.policy import LabelSelector
from webhook.core.model.selector import integer


class SpreadRule(NamedTuple):
    """One topology spread constraint of a pod; what it does not say is as Kubernetes has it.

    `selector` is None where it selects no pod at all. The policies say which nodes are counted: those that the pod's
    selector and affinity admit, those whose taints it tolerates.
    """

    key: str
    max_skew: int
    is_hard: bool
    selector: LabelSelector | None
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False

    @property
    def needs_all_nodes(self) -> bool:
        """Tell whether a list of nodes by name would break it: kube-scheduler looks for its domains in the list."""
        return self.is_hard and self.honors_affinity and self.min_domains > 1


class AffinityRule(NamedTuple):
    """Inter-pod affinity: all required terms of a pod together, or one term that is preferred or of anti-affinity.

    The pods that it is about are in `namespaces`, () for the pod's own; `selector` is None where it selects none.
    `weight` is 0 where it is required.
    """

    keys: tuple[str, ...]
    is_anti: bool
    selector: LabelSelector | None
    namespaces: tuple[Namespace, ...] = ()
    weight: int = 0

    def is_about(self, namespace: Namespace, labels: Mapping[str, str], *, home: Namespace) -> bool:
        """Tell whether it is about a pod; `home` is the namespace of the pod whose rule it is."""
        return namespace in (self.namespaces or (home,)) and self.selector is not None and self.selector.matches(labels)

    @property
    def is_hard(self) -> bool:
        """Tell whether a pod rather waits than breaks it."""
        return not self.weight

    @property
    def needs_all_nodes(self) -> bool:
        """Tell whether a list of nodes by name would break it: kube-scheduler looks at all nodes."""
        return False


TopologyRule = SpreadRule | AffinityRule


def asked_labels(rules: tuple[TopologyRule, ...], labels: Mapping[str, str]) -> dict[str, str]:
    """Pick the labels that a pod's rules ask for: by those it is counted among its like."""
    asked = {each.key for rule in rules if rule.selector is not None for each in rule.selector.requirements}
    return {key: labels[key] for key in sorted(asked & labels.keys())}


def anti_affinity(rules: tuple[TopologyRule, ...]) -> tuple[AffinityRule, ...]:
    """Pick the rules by which a pod keeps others off."""
    return tuple([rule for rule in rules if isinstance(rule, AffinityRule) and rule.is_anti and rule.is_hard])


class Domains:
    """The nodes of each value of one label, as slots; true up to a position in the fleet's log of changed nodes."""

    def __init__(self) -> None:
        self.members: dict[str, int] = {}
        self.bits = 0  # all that carry the label
        self.position = 0
        self._values: dict[int, str] = {}
        self._numbers: tuple[str, ...] | None = None

    @property
    def are_single(self) -> bool:
        """Tell whether each domain is one node, as with hostnames."""
        return len(self.members) == len(self._values)

    @property
    def numbers(self) -> tuple[str, ...]:
        """List the values that are integers: the only ones that Gt and Lt compare."""
        if self._numbers is None:
            self._numbers = tuple([value for value in self.members if integer(value) is not None])
        return self._numbers

    def value(self, slot: int) -> str | None:
        """Tell which domain a node is in."""
        return self._values.get(slot)

    def number(self, among: int) -> int:
        """Count the domains that have a node in a set of slots."""
        if self.are_single:
            return (self.bits & among).bit_count()
        return sum(1 for members in self.members.values() if members & among)

    def set(self, slot: int, value: str | None) -> None:
        """Take in what a node says; None: it has no such label, or is gone."""
        before, bit = self._values.get(slot), 1 << slot
        if before == value:
            return
        self._numbers = None
        if before is not None:
            del self._values[slot]
            self.bits ^= bit
            left = self.members[before] ^ bit
            if left:
                self.members[before] = left
            else:
                del self.members[before]
        if value is not None:
            self._values[slot] = value
            self.bits |= bit
            self.members[value] = self.members.get(value, 0) | bit
