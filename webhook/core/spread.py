"""Where a pod keeps its like spread as it asks: kube-scheduler's own rule, over all that Fairgate knows of.

The rule is that of kube-scheduler 1.37, pkg/scheduler/framework/plugins/podtopologyspread, filtering.go: on a node that
carries the key, the pods that match in the node's domain, and the new pod if it matches, may outnumber those of the
emptiest domain by `maxSkew`. Counted are pods of the same namespace that do not terminate; domains are those of nodes
that carry the keys of all such constraints and that the two inclusion policies let in.

A list of nodes by name changes what kube-scheduler counts: by default it honors the pod's own affinity, and then knows
no domain outside of the list. So the skew is kept here, and a list is made such that what is left to judge there holds.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from webhook.core.fleet import Fleet
from webhook.core.names import Namespace
from webhook.core.selector import HELD, Constraints, Toleration
from webhook.core.siblings import Seated, Siblings
from webhook.core.topology import Domains, SpreadRule

_ANY_TAINT = (Toleration(exists=True), Toleration(key=HELD, exists=True))


class Asker(NamedTuple):
    """A pod that wants its like spread.

    `constraints` are all that it demands of a node, its pool's among them; `left_out` are pods that shall not
    count this time.
    """

    namespace: Namespace
    labels: Mapping[str, str]
    rules: tuple[SpreadRule, ...]
    constraints: Constraints
    left_out: tuple[Seated, ...] = ()


class Judged(NamedTuple):
    """One rule for one pod: the pods that count, by domain (none: left out), and the slots where it keeps the skew."""

    rule: SpreadRule
    domains: Domains
    counts: Mapping[str, int]
    allowed: int

    def beside(self, slot: int) -> int:
        """List the slots that may stand on a list behind this one: they bring nothing new to count, or to prefer.

        kube-scheduler counts within the list. In one domain nothing can become uneven; single nodes that keep the skew
        among all keep it among fewer, but by a soft rule those with fewer of the like would be preferred.
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


class Spread(NamedTuple):
    """What a pod's rules say of all nodes."""

    hard: tuple[Judged, ...]
    soft: tuple[Judged, ...]

    @property
    def allowed(self) -> int:
        """List the slots that keep every hard rule."""
        found = -1
        for each in self.hard:
            found &= each.allowed
        return found

    def narrowed(self, among: int, has_room: Callable[[int], int]) -> int:
        """Narrow slots to those that keep the hard rules, and each soft one for which some with room are left."""
        among &= self.allowed
        for each in self.soft:
            if has_room(kept := among & each.allowed):
                among = kept
        return among

    def beside(self, slot: int) -> int:
        """List the slots that may stand on a list behind this one."""
        found = -1
        for each in (*self.hard, *self.soft):
            found &= each.beside(slot)
        return found


NO_SPREAD = Spread((), ())


def spread_of(asker: Asker, fleet: Fleet, siblings: Siblings) -> Spread:
    """Hold a pod's rules against the pods that there are."""
    return Spread(
        _judged(asker, [rule for rule in asker.rules if rule.is_hard], fleet, siblings),
        _judged(asker, [rule for rule in asker.rules if not rule.is_hard], fleet, siblings),
    )


def _judged(asker: Asker, rules: list[SpreadRule], fleet: Fleet, siblings: Siblings) -> tuple[Judged, ...]:
    keyed = -1
    for rule in rules:
        keyed &= fleet.domains(rule.key).bits
    return tuple([_judge(asker, rule, keyed, fleet, siblings) for rule in rules])


def _judge(asker: Asker, rule: SpreadRule, keyed: int, fleet: Fleet, siblings: Siblings) -> Judged:
    domains = fleet.domains(rule.key)
    among = keyed & fleet.matching(_inclusion(asker.constraints, rule.honors_affinity, rule.honors_taints))
    counts = _counts(asker, rule, among, fleet, siblings)
    own = rule.selector is not None and rule.selector.matches(asker.labels)
    number = domains.number(among)
    least = min(counts.values()) if len(counts) == number >= max(1, rule.min_domains) else 0
    most = rule.max_skew - own + least
    full = 0
    for value, count in counts.items():
        if count > most:
            full |= domains.members[value]
    return Judged(rule, domains, counts, domains.bits & ~full)


def _counts(asker: Asker, rule: SpreadRule, among: int, fleet: Fleet, siblings: Siblings) -> dict[str, int]:
    counts: dict[str, int] = {}
    selector = rule.selector
    if selector is None or not selector.requirements:
        return counts  # selects no pod, or all of them, which kube-scheduler does not count
    left_out = Counter(node for pod, node in asker.left_out if selector.matches(pod.labels))
    for name, number in siblings.on_nodes(asker.namespace, selector).items():
        node = fleet.get(name)
        if node is None or not among & fleet.bit(name):
            continue
        if counted := number - left_out[name]:
            value = node.labels[rule.key]
            counts[value] = counts.get(value, 0) + counted
    return counts


@lru_cache(maxsize=1024)
def _inclusion(constraints: Constraints, honors_affinity: bool, honors_taints: bool) -> Constraints:
    """Make the constraints that say which nodes are counted."""
    tolerations = constraints.tolerations if honors_taints else _ANY_TAINT
    return replace(constraints, tolerations=tolerations) if honors_affinity else Constraints(tolerations=tolerations)
