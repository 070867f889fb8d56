"""Selectors, tolerations, topology, domains.

Compact labels of many pods: one shared string, parsed on access.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from itertools import chain
from sys import intern
from typing import Final, NamedTuple

from webhook.core.model.amounts import GangId, Labels

_MAX_CACHED_CHARACTERS: Final = 1024
"""Longer labels are parsed each time: those of a template have some 200 characters."""


def pack(labels: Mapping[str, str]) -> Labels:
    """Return labels as one string; pods of one template share it."""
    return Labels(intern("\0".join(chain.from_iterable(labels.items()))))


def unpack(packed: Labels) -> Mapping[str, str]:
    """Return the labels of a packed string."""
    return _cached(packed) if len(packed) <= _MAX_CACHED_CHARACTERS else _read(packed)


def _read(packed: Labels) -> Mapping[str, str]:
    parts = packed.split("\0")
    return dict(zip(parts[::2], parts[1::2], strict=False))


_cached = lru_cache(maxsize=4096)(_read)


# Which nodes a pod or a pool may use: selectors, terms, taints and tolerations, as in kube-scheduler.
#
# The parts are named tuples: a decided pod has one term for each of its nodes, and a frozen dataclass takes three times
# as long to make and ten times as long to hash.


HELD: Final = "fairgate.dev/held"
"""Key of the taint on a node whose room the evictor reserves for certain pods."""
AMD_PARTITIONING: Final = "amd-dcm"
"""Key of the taint on a node while AMD's device config manager partitions its GPUs."""

NODE_NAME_FIELD: Final = "metadata.name"
"""The only field that terms may match."""

_MAX_INTEGER_DIGITS: Final = 20
_SMALL_BYTES: Final = 8192
_PART_BYTES: Final = 80
_ANY: Final[frozenset[str]] = frozenset()


class Operator(StrEnum):
    """Operators of a nodeSelectorTerm requirement."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


class Effect(StrEnum):
    """The effect of a taint on pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


def integer(text: str) -> int | None:
    """Parse a 64-bit integer as Kubernetes does; None for anything else, at any length."""
    digits = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    if len(digits) >= _MAX_INTEGER_DIGITS or not (digits.isascii() and digits.isdecimal()):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


class Requirement(NamedTuple):
    """One expression on a label or field. Gt and Lt compare integers; a non-integer value matches nothing."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet the requirement (a missing key meets NotIn and DoesNotExist)."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return value is not None and value in self.values
            case Operator.NOT_IN:
                return value is None or value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.GT | Operator.LT:
                return value is not None and self.compares(value)

    def compares(self, value: str) -> bool:
        """Whether a value is on the side of the bound that Gt or Lt requires."""
        have, want = integer(value), integer(self.values[0]) if self.values else None
        if have is None or want is None:
            return False
        return have > want if self.operator is Operator.GT else have < want


class NodeTerm(NamedTuple):
    """One nodeSelectorTerm: all of its label and field requirements hold. An empty term matches no node."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it has no requirement, and so matches no node."""
        return not (self.labels or self.fields)

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the node with this name and these labels meets the term."""
        if not self.labels and not self.fields:
            return False
        return all(r.matches(labels) for r in self.labels) and all(
            r.matches({NODE_NAME_FIELD: name}) for r in self.fields
        )

    @property
    def named_node(self) -> str | None:
        """Return the only node that the fields name."""
        wanted = (each.values for each in self.fields if each.operator is Operator.IN)
        return next((values[0] for values in wanted if len(values) == 1), None)

    def demanded(self, label: str) -> str | None:
        """Return the only value that this term requires of a label."""
        wanted = (r.values for r in self.labels if r.key == label and r.operator is Operator.IN)
        return next((values[0] for values in wanted if len(values) == 1), None)

    def possible(self, label: str) -> frozenset[str]:
        """Return the values of a node label that this term allows; none where it allows any."""
        if not self.labels:
            return _ANY
        wanted = (each.values for each in self.labels if each.key == label and each.operator is Operator.IN)
        return frozenset(next(wanted, ()))

    def without_choice(self, chosen: frozenset[str]) -> "NodeTerm":
        """Return the term without fields that name only chosen nodes."""
        kept = [each for each in self.fields if each.operator is not Operator.IN or not chosen.issuperset(each.values)]
        return NodeTerm(self.labels, tuple(kept))


class Taint(NamedTuple):
    """A taint of a node."""

    key: str
    effect: Effect
    value: str = ""


class Toleration(NamedTuple):
    """A toleration: an empty key tolerates every key, an empty effect every effect.

    `bound` is Gt or Lt where it tolerates numbers beyond its value (TaintTolerationComparisonOperators).
    """

    key: str = ""
    exists: bool = False
    value: str = ""
    effect: Effect | None = None
    bound: Operator | None = None

    def tolerates(self, taint: Taint) -> bool:
        """Whether the taint is tolerated.

        A toleration of everything does not cover room that is reserved for other pods: kube-scheduler would place such
        a pod there, so it is sent to other nodes.
        """
        if taint.key == HELD and self.key != HELD:
            return False
        if self.effect is not None and self.effect is not taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.bound is not None:
            return Requirement(self.key, self.bound, (self.value,)).compares(taint.value)
        return self.exists or (bool(self.key) and self.value == taint.value)


ANY_HOLD: Final = Toleration(HELD, exists=True)
"""Tolerates the taint of nodes whose room is held."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """The constraints of a pod on its node. Hashable: pods from one template share the same constraints.

    `volumes` are the claims of its volumes (namespace/name): a bound volume may be usable on some nodes only, which the
    index of nodes knows. The hash is cached: it is the key of every look-up of a decision.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeTerm, ...] | None = None  # None: no required node affinity
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[str, ...] = ()
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.node_selector, self.terms, self.tolerations, self.volumes)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def is_small(self) -> bool:
        """Whether a cache may keep them: text of any length that a tenant writes must not fill the memory."""
        return self._bytes() <= _SMALL_BYTES

    @property
    def holds(self) -> tuple[str, ...]:
        """The values of the taint of held nodes that the pod tolerates."""
        return tuple([each.value for each in self.tolerations if each.key == HELD])

    def joined(
        self,
        *,
        node_selector: tuple[tuple[str, str], ...] = (),
        requirements: tuple[Requirement, ...] = (),
        tolerations: tuple[Toleration, ...] = (),
    ) -> "Constraints":
        """Add a pool's conditions: its selector and requirements must hold too, its tolerations are added."""
        selector = tuple(dict.fromkeys(self.node_selector + node_selector))
        terms = self.terms
        if requirements:
            terms = tuple(
                NodeTerm(term.labels + requirements, term.fields) for term in self.terms or () if not term.is_empty
            )
            if self.terms is None:
                terms = (NodeTerm(requirements),)
        return Constraints(selector, terms, tuple(dict.fromkeys(self.tolerations + tolerations)), self.volumes)

    def excluding(self, nodes: Iterable[str]) -> "Constraints":
        """Add that the pod must not run on these nodes."""
        return self._with_name(Requirement(NODE_NAME_FIELD, Operator.NOT_IN, tuple(sorted(nodes))))

    def on_node(self, node: str) -> "Constraints":
        """Add that the pod must run on this node."""
        return self._with_name(Requirement(NODE_NAME_FIELD, Operator.IN, (node,)))

    def _with_name(self, required: Requirement) -> "Constraints":
        terms = [term for term in self.terms or () if term != NodeTerm()] if self.terms is not None else [NodeTerm()]
        narrowed = tuple(NodeTerm(term.labels, (*term.fields, required)) for term in terms)
        return Constraints(self.node_selector, narrowed, self.tolerations, self.volumes)

    @property
    def named_node(self) -> str | None:
        """Return the only node that every term of the affinity names by its field."""
        found = {term.named_node for term in self.terms or ()}
        return found.pop() if len(found) == 1 else None

    @property
    def named_nodes(self) -> tuple[str, ...]:
        """Return the nodes that terms of the affinity name by their field, in the order of the terms."""
        return tuple(dict.fromkeys([name for term in self.terms or () if (name := term.named_node) is not None]))

    def demanded(self, label: str) -> str | None:
        """Return the only value that these conditions require of a node label."""
        if (value := dict(self.node_selector).get(label)) is not None:
            return value
        found = {term.demanded(label) for term in self.terms or ()}
        return found.pop() if len(found) == 1 else None

    def possible(self, label: str) -> frozenset[str]:
        """Return the values of a node label that these conditions allow; none where they allow any."""
        if (value := dict(self.node_selector).get(label)) is not None:
            return frozenset((value,))
        found: set[str] = set()
        for term in self.terms or ():
            if not term.is_empty:
                values = term.possible(label)
                if not values:
                    return values
                found |= values
        return frozenset(found)

    def without_choice(self, chosen: Collection[str]) -> "Constraints":
        """Return the constraints without the webhook's node selection; what the user wrote stays."""
        if self.terms is None:
            return self
        names = frozenset(chosen)
        terms = tuple(dict.fromkeys(term.without_choice(names) for term in self.terms))
        return replace(self, terms=None if NodeTerm() in terms else terms)

    def _bytes(self) -> int:
        """Estimate the memory of these constraints: objects by number, text by length."""
        listed = [each for term in self.terms or () for each in (*term.labels, *term.fields)]
        text = sum(len(key) + len(value) for key, value in self.node_selector)
        text += sum(len(each.key) + sum(map(len, each.values)) for each in listed)
        text += sum(len(each.key) + len(each.value) for each in self.tolerations) + sum(map(len, self.volumes))
        values = sum(len(each.values) for each in listed)
        parts = len(self.node_selector) + len(self.terms or ()) + len(listed) + values + len(self.tolerations)
        parts += len(self.volumes)
        return text + _PART_BYTES * parts

    def admits(self, name: str, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> bool:
        """Whether a node meets selector, required affinity and taints."""
        if any(labels.get(key) != value for key, value in self.node_selector):
            return False
        if self.terms is not None and not any(term.matches(name, labels) for term in self.terms):
            return False
        return all(
            taint.effect is Effect.PREFER_NO_SCHEDULE or any(t.tolerates(taint) for t in self.tolerations)
            for taint in taints
        )


NO_CONSTRAINTS = Constraints()


# Requests of gangs for one domain: the nodes with one value of a node label, such as one rack.
#
# Policy lists levels of domains from large to small (zone, block, rack, host). A domain of a level is identified by the
# labels of the larger levels too: rack 1 of zone a is not rack 1 of zone b.


MAX_LEVELS: Final = 8
"""Most levels in a policy: each costs a pass over the nodes for a gang."""


class DomainRequest(NamedTuple):
    """What a gang asks for: one domain of the label `key`. Unless `is_required`, larger ones do as well.

    Without a key it asks for none, whatever levels policy lists.
    """

    key: str
    is_required: bool = False


ANYWHERE: Final = DomainRequest("")


class DomainLevel(NamedTuple):
    """One level of domains: the key of its label, and those of the larger levels that it lies in, the largest first."""

    key: str
    above: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that tell its domains apart, its own first."""
        return (self.key, *self.above)


class DomainPlace(NamedTuple):
    """The domain that the members of a gang are placed in, and why. `requirements` are what its nodes meet."""

    name: str
    requirements: tuple[Requirement, ...]
    is_required: bool = False
    why: str = ""


def levels_to_try(request: DomainRequest | None, policy_levels: tuple[str, ...]) -> tuple[DomainLevel, ...]:
    """Return the levels in which a gang may be placed, the smallest first.

    Policy's smaller levels come before the one that is asked for: a gang in one rack is in one zone. Larger ones follow
    if the request is a preference. Without a request every level of policy is preferred.
    """
    every = all_levels(policy_levels)
    if request is None:
        return every[::-1]
    position = _position(request, every)
    smaller = () if position is None else every[:position:-1]
    return smaller + asked_levels(request, policy_levels)


def asked_levels(request: DomainRequest | None, policy_levels: tuple[str, ...]) -> tuple[DomainLevel, ...]:
    """Return the level that is asked for and, for a preference, the larger ones after it; none without a request.

    Where others are evicted for the room, no smaller domain is sought than the one that is asked for.
    """
    if request is None or not request.key:
        return ()
    every = all_levels(policy_levels)
    position = _position(request, every)
    if position is None:
        return (DomainLevel(request.key),)
    return every[position : position + 1] if request.is_required else every[position::-1]


def all_levels(policy_levels: tuple[str, ...]) -> tuple[DomainLevel, ...]:
    """Return the levels of a policy, the largest first."""
    return tuple([DomainLevel(key, policy_levels[:number]) for number, key in enumerate(policy_levels)])


def _position(request: DomainRequest, every: tuple[DomainLevel, ...]) -> int | None:
    return next((number for number, level in enumerate(every) if level.key == request.key), None)


# A gang: pods that are of no use without each other, and start together or not at all.


MAX_MEMBERS: Final = 500
"""Most members that start together: their charges fit into one write of the ledger."""


class Gang(NamedTuple):
    """The gang of a pod, as the pod names it.

    `name` is for messages. `size` is the number of pods that it declares, 0 where it declares none. `is_requested`: by
    annotation, whatever the team's policy. `is_ordered`: some of its pods may be made only once others of them run,
    whatever size it declares. `is_described`: an object in the API says more than its pods do. `domain` is the domain
    that it asks for, None without a request. `is_pod_group`: it is a PodGroup of Kubernetes, whose pods kube-scheduler
    places together.
    """

    id: GangId
    name: str
    size: int = 0
    is_requested: bool = False
    is_ordered: bool = False
    is_described: bool = False
    domain: DomainRequest | None = None
    is_pod_group: bool = False


# On what terms a pod runs. Never "QoS class": Kubernetes uses that word for something else.


class Tier(StrEnum):
    """Guaranteed pods are inside their team's share; preemptible ones borrow GPUs that would idle."""

    GUARANTEED = "guaranteed"
    PREEMPTIBLE = "preemptible"


TIERS: Final[Mapping[str, Tier]] = {tier.value: tier for tier in Tier}
"""Tiers by the text of their label."""
