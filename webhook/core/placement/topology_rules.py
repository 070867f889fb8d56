"""Where a pod may go by its spread constraints and inter-pod affinity: kube-scheduler's rules, over all known pods.

The rules are those of kube-scheduler 1.37, pkg/scheduler/framework/plugins. podtopologyspread, filtering.go: on a node
that carries the key, the matching pods in the node's domain, plus the new pod if it matches, may outnumber those of the
emptiest domain by `maxSkew`. Counted are pods of the same namespace that do not terminate; domains are those of nodes
that carry the keys of all such constraints and that the two inclusion policies include. interpodaffinity, filtering.go:
a pod goes to domains with pods that match all its terms, or anywhere if there are none and it matches them itself; and
to no domain with pods that its anti-affinity, or theirs against it, excludes. Terminating pods do not count here: they
are gone soon.

A list of nodes by name changes what kube-scheduler counts: by default it honors the pod's own affinity, and then knows
no domain outside of the list. So the skew is enforced here, and a list is chosen such that every node on it passes
kube-scheduler's check.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from webhook.core.model.amounts import Namespace, NodeName
from webhook.core.model.constraints import ANY_HOLD, Constraints, Toleration
from webhook.core.model.policy import LabelSelector
from webhook.core.model.topology import AffinityRule, Domains, SpreadRule, TopologyRule
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.pod_counts import AntiAffinityKey, PlacedPod, PodCounts

_ANY_TAINT = (Toleration(exists=True), ANY_HOLD)


class TopologyRequest(NamedTuple):
    """A pod with topology rules.

    `constraints` are all its constraints on a node, its pool's included; `left_out` are pods to exclude from the
    counts, `joined` are pods to include besides.
    """

    namespace: Namespace
    labels: Mapping[str, str]
    rules: tuple[TopologyRule, ...]
    constraints: Constraints
    left_out: tuple[PlacedPod, ...] = ()
    joined: tuple[PlacedPod, ...] = ()


class SpreadResult(NamedTuple):
    """One spread rule for one pod: the counted pods by domain (absent: 0), and the slots where the skew holds."""

    rule: SpreadRule
    domains: Domains
    counts: Mapping[str, int]
    allowed: int

    def beside(self, slot: int) -> int:
        """Return the slots that may follow this one on a list: they add nothing to count, or to prefer.

        kube-scheduler counts within the list. In one domain nothing can become uneven; single nodes that keep the skew
        among all keep it among fewer, but by a soft rule those with fewer matching pods would be preferred.
        """
        domains, is_hard = self.domains, self.rule.is_hard
        value = domains.value(slot)
        if is_hard and (domains.are_single or not self.rule.honors_affinity):
            return -1
        if value is None:
            return ~domains.bits
        if not domains.are_single:
            return domains.members[value]
        here = self.counts.get(value, 0)
        if not here:
            return -1
        found = 0
        for other, count in self.counts.items():
            if count >= here:
                found |= domains.members[other]
        return found


class AffinityResult(NamedTuple):
    """One rule of required inter-pod affinity, the pod's own or another pod's: the slots where it holds."""

    rule: AffinityRule
    allowed: int
    is_own: bool = True


class PreferenceResult(NamedTuple):
    """One preferred term of inter-pod affinity for one pod: the matching pods by domain (absent: 0).

    `levels` are the slots of the domains by their number of matching pods.
    """

    rule: AffinityRule
    domains: Domains
    counts: Mapping[str, int]
    levels: Mapping[int, int]

    @property
    def allowed(self) -> int:
        """Return the slots where the preference is met."""
        near = self._with_more_than(0)
        return ~near if self.rule.is_anti else near

    def beside(self, slot: int) -> int:
        """Return the slots that kube-scheduler would not prefer to this one: it adds up the pods."""
        here = self.counts.get(self.domains.value(slot) or "", 0)
        return (self._with_more_than(here - 1) if here else -1) if self.rule.is_anti else ~self._with_more_than(here)

    def _with_more_than(self, number: int) -> int:
        found = 0
        for count, slots in self.levels.items():
            if count > number:
                found |= slots
        return found


class TopologyFilter(NamedTuple):
    """The effect of a pod's topology rules on all nodes; `wished` is sorted by weight, the largest first."""

    hard: tuple[SpreadResult, ...] = ()
    soft: tuple[SpreadResult, ...] = ()
    affine: tuple[AffinityResult, ...] = ()
    wished: tuple[PreferenceResult, ...] = ()

    @property
    def allowed(self) -> int:
        """Return the slots that meet every hard rule."""
        found = -1
        for result in self.hard:
            found &= result.allowed
        for each in self.affine:
            found &= each.allowed
        return found

    def narrowed(self, among: int, has_room: Callable[[int], int]) -> int:
        """Narrow slots to those that meet the hard rules, and each soft one for which some slots with room are left."""
        among &= self.allowed
        preferences: tuple[SpreadResult | PreferenceResult, ...] = (*self.soft, *self.wished)
        for each in preferences:
            if has_room(narrowed := among & each.allowed):
                among = narrowed
        return among

    def beside(self, slot: int) -> int:
        """Return the slots that may follow this one on a list."""
        found = -1
        rules: tuple[SpreadResult | PreferenceResult, ...] = (*self.hard, *self.soft, *self.wished)
        for each in rules:
            found &= each.beside(slot)
        return found


NO_SPREAD = TopologyFilter()


class Affinity(NamedTuple):
    """The part that does not depend on the pod's node constraints."""

    affine: tuple[AffinityResult, ...]
    wished: tuple[PreferenceResult, ...]


def evaluate_affinity(asker: TopologyRequest, fleet: Fleet, pod_counts: PodCounts) -> Affinity:
    """Evaluate a pod's inter-pod affinity, and that of the other pods, against the known pods."""
    affine = [rule for rule in asker.rules if isinstance(rule, AffinityRule)]
    wished = sorted([rule for rule in affine if not rule.is_hard], key=lambda rule: -rule.weight)
    return Affinity(
        (
            *(_evaluate_affinity(asker, rule, fleet, pod_counts) for rule in affine if rule.is_hard),
            *_evaluate_others(asker, fleet, pod_counts),
        ),
        tuple([_evaluate_preference(asker, rule, fleet, pod_counts) for rule in wished]),
    )


def evaluate_topology(
    asker: TopologyRequest, fleet: Fleet, pod_counts: PodCounts, affinity: Affinity | None = None
) -> TopologyFilter:
    """Evaluate a pod's topology rules against the known pods; `affinity` is the part already evaluated."""
    spreading = [rule for rule in asker.rules if isinstance(rule, SpreadRule)]
    affine, wished = affinity or evaluate_affinity(asker, fleet, pod_counts)
    return TopologyFilter(
        _spread_results(asker, [rule for rule in spreading if rule.is_hard], fleet, pod_counts),
        _spread_results(asker, [rule for rule in spreading if not rule.is_hard], fleet, pod_counts),
        affine,
        wished,
    )


def _spread_results(
    asker: TopologyRequest, rules: list[SpreadRule], fleet: Fleet, pod_counts: PodCounts
) -> tuple[SpreadResult, ...]:
    keyed = -1
    for rule in rules:
        keyed &= fleet.domains(rule.key).bits
    return tuple([_evaluate_spread(asker, rule, keyed, fleet, pod_counts) for rule in rules])


def _evaluate_spread(
    asker: TopologyRequest, rule: SpreadRule, keyed: int, fleet: Fleet, pod_counts: PodCounts
) -> SpreadResult:
    domains = fleet.domains(rule.key)
    among = keyed & fleet.matching(_inclusion(asker.constraints, rule.honors_affinity, rule.honors_taints))
    counts = _counts(asker, rule, among, fleet, pod_counts)
    own = rule.selector is not None and rule.selector.matches(asker.labels)
    number = domains.number(among)
    least = min(counts.values()) if len(counts) == number >= max(1, rule.min_domains) else 0
    most = rule.max_skew - own + least
    full = 0
    for value, count in counts.items():
        if count > most:
            full |= domains.members[value]
    return SpreadResult(rule, domains, counts, domains.bits & ~full)


def _counts(
    asker: TopologyRequest, rule: SpreadRule, among: int, fleet: Fleet, pod_counts: PodCounts
) -> dict[str, int]:
    selector = rule.selector
    if selector is None or not selector.requirements:
        return {}  # selects no pod, or all pods, which kube-scheduler does not count
    found = _on_nodes(asker, selector, (asker.namespace,), pod_counts)
    return _by_domain(found, fleet.domains(rule.key), among, fleet)


def _by_domain(found: Iterable[tuple[NodeName, int]], domains: Domains, among: int, fleet: Fleet) -> dict[str, int]:
    """Sum the counts of nodes by domain, for nodes in these slots."""
    counts: dict[str, int] = {}
    for name, number in found:
        if bit := fleet.bit(name) & among:
            value = domains.value(bit.bit_length() - 1)
            if value is not None:
                counts[value] = counts.get(value, 0) + number
    return counts


def _evaluate_affinity(
    asker: TopologyRequest, rule: AffinityRule, fleet: Fleet, pod_counts: PodCounts
) -> AffinityResult:
    namespaces = rule.namespaces or (asker.namespace,)
    selector = rule.selector
    found = () if selector is None else [name for name, _ in _on_nodes(asker, selector, namespaces, pod_counts)]
    domains = [fleet.domains(key) for key in rule.keys]
    beside = [domains_of(found, each, fleet) for each in domains]
    allowed = -1
    if rule.is_anti:
        for near in beside:
            allowed &= ~near
        return AffinityResult(rule, allowed)
    is_first = selector is not None and asker.namespace in namespaces and selector.matches(asker.labels)
    for each, near in zip(domains, beside, strict=True):
        allowed &= each.bits if is_first and not any(beside) else near
    return AffinityResult(rule, allowed)


def _evaluate_preference(
    asker: TopologyRequest, rule: AffinityRule, fleet: Fleet, pod_counts: PodCounts
) -> PreferenceResult:
    domains, selector, namespaces = fleet.domains(rule.keys[0]), rule.selector, rule.namespaces or (asker.namespace,)
    found = () if selector is None else _on_nodes(asker, selector, namespaces, pod_counts)
    counts = _by_domain(found, domains, -1, fleet)
    levels: dict[int, int] = {}
    for value, count in counts.items():
        levels[count] = levels.get(count, 0) | domains.members[value]
    return PreferenceResult(rule, domains, counts, levels)


def _evaluate_others(asker: TopologyRequest, fleet: Fleet, pod_counts: PodCounts) -> Iterator[AffinityResult]:
    """Evaluate the anti-affinity of other pods against the pod."""
    found: dict[AntiAffinityKey, Mapping[NodeName, int]] = pod_counts.against(asker.namespace, asker.labels)
    for pods, step in ((asker.left_out, -1), (asker.joined, 1)):
        for pod, node in pods:
            for rule in pod.anti_affinity_rules:
                if pod_counts.applies(rule, asker.namespace, asker.labels, home=pod.namespace):
                    counts = found[pod.namespace, rule] = Counter(found.get((pod.namespace, rule), {}))
                    counts[node] += step
    for (_, rule), nodes in found.items():
        near = domains_of([name for name, count in nodes.items() if count > 0], fleet.domains(rule.keys[0]), fleet)
        yield AffinityResult(rule, ~near, is_own=False)


def domains_of(nodes: Iterable[NodeName], domains: Domains, fleet: Fleet) -> int:
    """Return the slots in the domains of these nodes."""
    found = 0
    for name in nodes:
        if bit := fleet.bit(name):
            value = domains.value(bit.bit_length() - 1)
            found |= 0 if value is None else domains.members[value]
    return found


def _on_nodes(
    asker: TopologyRequest, selector: LabelSelector, namespaces: tuple[Namespace, ...], pod_counts: PodCounts
) -> Iterable[tuple[NodeName, int]]:
    """Return the selected pods by node."""
    if len(namespaces) == 1 and not asker.left_out and not asker.joined:
        return pod_counts.on_nodes(namespaces[0], selector, home=asker.namespace).items()
    counts: Counter[NodeName] = Counter()
    for namespace in namespaces:
        counts.update(pod_counts.on_nodes(namespace, selector, home=asker.namespace))
    for pods, step in ((asker.left_out, -1), (asker.joined, 1)):
        for pod, node in pods:
            if pod.namespace in namespaces and selector.matches(pod.labels):
                counts[node] += step
    return [(node, count) for node, count in counts.items() if count > 0]


def _inclusion(constraints: Constraints, honors_affinity: bool, honors_taints: bool) -> Constraints:
    """Return the constraints of the nodes that are counted."""
    if not honors_affinity:
        constraints = Constraints(tolerations=constraints.tolerations)
    return (_cached_inclusion if constraints.is_small else _included)(constraints, honors_taints)


def _included(constraints: Constraints, honors_taints: bool) -> Constraints:
    tolerations = constraints.tolerations if honors_taints else _ANY_TAINT
    return replace(constraints, tolerations=tolerations, volumes=())


_cached_inclusion = lru_cache(maxsize=1024)(_included)
