"""Topology domains, the nodes with one value of a label, and the rules of pods about other pods in them."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from webhook.core.model.amounts import Namespace
from webhook.core.model.constraints import integer
from webhook.core.model.policy import LabelSelector


class SpreadRule(NamedTuple):
    """One topology spread constraint of a pod, with the defaults of Kubernetes.

    `selector` is None where it selects no pod at all. The inclusion policies decide which nodes are counted: those that
    the pod's selector and affinity allow, those whose taints it tolerates.
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
        """Whether a list of nodes by name would break it: kube-scheduler looks for its domains within the list."""
        return self.is_hard and self.honors_affinity and self.min_domains > 1


EVERY_NAMESPACE: Final = (Namespace("*"),)
"""The namespaces of a rule about all of them: no namespace has this name."""


class AffinityRule(NamedTuple):
    """Inter-pod affinity: all required terms of a pod together, or one preferred or anti-affinity term.

    The pods it applies to are in `namespaces`, () for the pod's own; of EVERY_NAMESPACE those are meant whose labels
    `where` selects, None for all. `selector` is None where it selects none. `weight` is 0 where it is required.
    """

    keys: tuple[str, ...]
    is_anti: bool
    selector: LabelSelector | None
    namespaces: tuple[Namespace, ...] = ()
    weight: int = 0
    where: LabelSelector | None = None

    def applies_to(
        self, namespace: Namespace, labels: Mapping[str, str], *, home: Namespace, about: Mapping[str, str]
    ) -> bool:
        """Whether it applies to a pod of another namespace, whose labels are `about`; `home` is that of the rule."""
        if namespace not in (self.namespaces or (home,)) and not (
            EVERY_NAMESPACE[0] in self.namespaces and (self.where is None or self.where.matches(about))
        ):
            return False
        return self.selector is not None and self.selector.matches(labels)

    @property
    def is_hard(self) -> bool:
        """Whether a pod waits rather than break it."""
        return not self.weight

    @property
    def needs_all_nodes(self) -> bool:
        """Whether a list of nodes by name would break it: kube-scheduler evaluates it over all nodes."""
        return False


TopologyRule = SpreadRule | AffinityRule


def asked_labels(rules: tuple[TopologyRule, ...], labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that the selectors of a pod's own rules read."""
    keys = {each.key for rule in rules if rule.selector is not None for each in rule.selector.requirements}
    return {key: labels[key] for key in sorted(keys & labels.keys())}


def anti_affinity(rules: tuple[TopologyRule, ...]) -> tuple[AffinityRule, ...]:
    """Return the required anti-affinity rules."""
    return tuple([rule for rule in rules if isinstance(rule, AffinityRule) and rule.is_anti and rule.is_hard])


class Domains:
    """The nodes of each value of one label, as slots; valid up to a position in the fleet's log of changed nodes."""

    def __init__(self) -> None:
        self.members: dict[str, int] = {}
        self.bits = 0  # all slots with the label
        self.position = 0
        self._values: dict[int, str] = {}
        self._numbers: tuple[str, ...] | None = None

    @property
    def are_single(self) -> bool:
        """Whether each domain is one node, as with hostnames."""
        return len(self.members) == len(self._values)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Return the values that are integers: the only ones that Gt and Lt compare."""
        if self._numbers is None:
            self._numbers = tuple([value for value in self.members if integer(value) is not None])
        return self._numbers

    def value(self, slot: int) -> str | None:
        """Return the domain of a node."""
        return self._values.get(slot)

    def number(self, among: int) -> int:
        """Return the number of domains with a node in a set of slots."""
        if self.are_single:
            return (self.bits & among).bit_count()
        return sum(1 for members in self.members.values() if members & among)

    def set(self, slot: int, value: str | None) -> None:
        """Set the label value of a node; None: it has no such label, or is gone."""
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
