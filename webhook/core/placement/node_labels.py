"""Nodes by labels and groups.

Nodes grouped by the values of some labels, kept up to date: which group each slot is in, without reading labels.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from webhook.core.model.amounts import NodeName
from webhook.core.model.constraints import NODE_NAME_FIELD, Constraints, Effect, NodeTerm, Operator, Requirement, Taint
from webhook.core.model.node import Node
from webhook.core.model.topology import Domains

Path = tuple[str | None, ...]
"""The values of the labels by which a group is known; the first is never None."""

NO_GROUP: Final = -1
_SPARE: Final = 64


class NodeGroups:
    """The groups by `keys`; nodes without the first label are in none. Valid up to a position in a log of changes."""

    __slots__ = ("_keys", "_numbers", "bits", "ids", "paths", "position")

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._keys = keys
        self._numbers: dict[Path, int] = {}
        self.paths: list[Path] = []  # by group; some may be empty
        self.ids: list[int] = []  # the group by slot
        self.bits = 0  # the slots that are in a group
        self.position = 0

    @property
    def is_worn(self) -> bool:
        """Whether most groups are empty: nodes were labelled again and again."""
        return len(self.paths) > 2 * len(self.ids) + _SPARE

    def update(self, slots: Iterable[int], nodes: Sequence[Node | None]) -> None:
        """Read the labels of the nodes in these slots."""
        self.ids += [NO_GROUP] * (len(nodes) - len(self.ids))
        first, *others = self._keys
        for slot in slots:
            node = nodes[slot]
            value = None if node is None else node.labels.get(first)
            if node is None or value is None:
                self.ids[slot] = NO_GROUP
                self.bits &= ~(1 << slot)
                continue
            path = (value, *[node.labels.get(key) for key in others])
            number = self._numbers.get(path)
            if number is None:
                number = self._numbers[path] = len(self.paths)
                self.paths.append(path)
            self.ids[slot] = number
            self.bits |= 1 << slot


# The slots of each node label and taint, and which nodes meet a pod's constraints.
#
# Every expression is evaluated for all nodes at once, from the nodes of each value of its label: a pod with a thousand
# terms costs a thousand unions of bitmaps, not a thousand scans of the nodes.


_MAX_DOMAINS: Final = 512
"""Label keys remembered. Only keys that a node carries are: pods may name any number of others."""

_MAX_GROUPS: Final = 32
"""Lists of keys by which the groups of nodes are remembered: a policy has eight at most, gangs may name others."""

_MAX_MASKS: Final = 512
"""Constraint sets remembered, small ones only: one per pod template and pool in use."""

_MAX_CHANGES: Final = 10_000
"""Length of the log of changed nodes after which the caches are cleared instead of updated."""

_NO_NODES: Final = Domains()
_PREFER: Final = Effect.PREFER_NO_SCHEDULE  # access to an enum member costs 0.1 us


@dataclass(slots=True)
class _Mask:
    """The slots that meet one set of constraints, valid up to a position in the log of changed nodes."""

    bits: int
    position: int


class NodeLabelIndex:
    """The nodes by label and taint. The fleet shares its nodes and slots, and reports each change."""

    def __init__(self, nodes: list[Node | None], slots: Mapping[NodeName, int]) -> None:
        self._nodes = nodes
        self._slots = slots
        self._all = 0
        self._carried: dict[str, int] = {}  # label key -> nodes that carry it
        self._by_taints: dict[tuple[Taint, ...], int] = {}
        self.preferences: set[tuple[Taint, ...]] = set()  # those of them that only ask pods to go elsewhere
        self.volumes: dict[str, tuple[str, tuple[NodeTerm, ...]]] = {}  # by claim: its volume, and where that is usable
        self.claims: dict[str, str] = {}  # by volume
        self._masks: dict[Constraints, _Mask] = {}
        self._domains: dict[str, Domains] = {}
        self._groups: dict[tuple[str, ...], NodeGroups] = {}
        self._changed: list[int] = []  # slots whose name, labels or taints changed, in order

    def change(self, slot: int, before: Node | None, now: Node | None) -> None:
        """Update a slot; `now` is None where the node is gone."""
        bit = 1 << slot
        self._all = self._all & ~bit if now is None else self._all | bit
        for key in before.labels if before is not None else ():
            self._carried[key] -= 1
            if not self._carried[key]:
                del self._carried[key]
        for key in now.labels if now is not None else ():
            self._carried[key] = self._carried.get(key, 0) + 1
        if before is not None:
            left = self._by_taints[before.taints] & ~bit
            if left:
                self._by_taints[before.taints] = left
            else:
                del self._by_taints[before.taints]
                self.preferences.discard(before.taints)
        if now is not None:
            self._by_taints[now.taints] = self._by_taints.get(now.taints, 0) | bit
            if now.taints and any(taint.effect is _PREFER for taint in now.taints):
                self.preferences.add(now.taints)
        self._note(slot)

    def matching(self, constraints: Constraints) -> int:
        """Return the slots whose labels, taints and name meet the constraints."""
        mask = self._masks.get(constraints)
        position = len(self._changed)
        if mask is None:
            bits = self._meeting(constraints)
            if constraints.is_small:
                if len(self._masks) >= _MAX_MASKS:
                    del self._masks[next(iter(self._masks))]
                self._masks[constraints] = _Mask(bits, position)
            return bits
        if mask.position < position:
            mask.bits, mask.position = self._meeting(constraints), position
        return mask.bits

    def discouraged(self, constraints: Constraints) -> int:
        """Return the slots with a taint that asks the pod to go elsewhere, and that it does not tolerate."""
        found = 0
        for taints in self.preferences:
            soft = (taint for taint in taints if taint.effect is _PREFER)
            if not all(any(t.tolerates(taint) for t in constraints.tolerations) for taint in soft):
                found |= self._by_taints[taints]
        return found

    def set_volume(self, volume: str, claim: str, terms: tuple[NodeTerm, ...]) -> None:
        """Set the nodes on which a volume, and so its claim, is usable: those that meet one of the terms."""
        if self.volumes.get(claim) != (volume, terms):
            self.remove_volume(volume)
            self.volumes[claim] = (volume, terms)
            self.claims[volume] = claim
            self._forget_masks(claim)

    def remove_volume(self, volume: str) -> None:
        """Remove a volume; a later one of its claim stays."""
        claim = self.claims.pop(volume, "")
        if self.volumes.get(claim, ("", ()))[0] == volume:
            del self.volumes[claim]
            self._forget_masks(claim)

    def reached(self, constraints: Constraints) -> int:
        """Return the slots on which all bound volumes of a pod are usable, as far as they are known."""
        bits = self._all
        for claim in constraints.volumes:
            if (known := self.volumes.get(claim)) is not None:
                found = 0
                for term in known[1]:
                    found |= self._in_term(term, bits & ~found)
                bits = found
        return bits

    def _forget_masks(self, claim: str) -> None:
        for constraints in [each for each in self._masks if claim in each.volumes]:
            del self._masks[constraints]

    def tainted(self, key: str) -> Iterator[tuple[str, int]]:
        """Yield the values of the taints with a key, each with its slots."""
        for taints, bits in self._by_taints.items():
            yield from ((taint.value, bits) for taint in taints if taint.key == key)

    def meeting(self, requirements: tuple[Requirement, ...]) -> int:
        """Return the slots whose labels meet all of these requirements."""
        return self._in_term(NodeTerm(requirements), self._all)

    def domains(self, key: str) -> Domains:
        """Return the nodes by the value of a label."""
        found = self._domains.get(key)
        slots: Iterable[int]
        if found is None:
            if key not in self._carried:
                return _NO_NODES
            if len(self._domains) >= _MAX_DOMAINS:
                del self._domains[next(iter(self._domains))]
            found, slots = Domains(), self._slots.values()
            self._domains[key] = found
        else:
            slots = set(self._changed[found.position :])
        for slot in slots:
            node = self._nodes[slot]
            found.set(slot, None if node is None else node.labels.get(key))
        found.position = len(self._changed)
        return found

    def groups(self, keys: tuple[str, ...]) -> NodeGroups:
        """Return the nodes grouped by the values of some labels; the first key says which nodes are in a group."""
        found = self._groups.get(keys)
        slots: Iterable[int]
        if found is None or found.is_worn:
            if keys[0] not in self._carried:
                return NodeGroups(keys)
            if found is None and len(self._groups) >= _MAX_GROUPS:
                del self._groups[next(iter(self._groups))]
            found, slots = NodeGroups(keys), self._slots.values()
            self._groups[keys] = found
        else:
            slots = set(self._changed[found.position :])
        found.update(slots, self._nodes)
        found.position = len(self._changed)
        return found

    def _note(self, slot: int) -> None:
        if len(self._changed) >= _MAX_CHANGES:
            self._groups.clear()
            self._changed.clear()
            self._masks.clear()
            self._domains.clear()
        self._changed.append(slot)

    def _meeting(self, constraints: Constraints) -> int:
        bits = self._tolerated(constraints)
        if constraints.volumes:
            bits &= self.reached(constraints)
        for key, value in constraints.node_selector:
            bits &= self.domains(key).members.get(value, 0)
        if constraints.terms is None or not bits:
            return bits
        found = 0
        for term in constraints.terms:
            found |= self._in_term(term, bits & ~found)
        return found

    def _tolerated(self, constraints: Constraints) -> int:
        found = 0
        for taints, bits in self._by_taints.items():
            if all(
                taint.effect is _PREFER or any(t.tolerates(taint) for t in constraints.tolerations) for taint in taints
            ):
                found |= bits
        return found

    def _in_term(self, term: NodeTerm, among: int) -> int:
        if not term.labels and not term.fields:
            return 0
        for requirement in term.fields:
            among &= self._by_field(requirement)
        for requirement in term.labels:
            if not among:
                return 0
            among &= self._by_label(requirement)
        return among

    def _by_label(self, requirement: Requirement) -> int:
        domains = self.domains(requirement.key)
        if requirement.operator in (Operator.GT, Operator.LT):
            return _union(domains.members[value] for value in domains.numbers if requirement.compares(value))
        return self._by_values(requirement, lambda value: domains.members.get(value, 0), domains.bits)

    def _by_field(self, requirement: Requirement) -> int:
        """Match by name, the only supported field; any other is treated as a label without nodes."""
        if requirement.key != NODE_NAME_FIELD:
            return self._by_values(requirement, lambda _: 0, 0)
        return self._by_values(requirement, self._named, self._all)

    def _named(self, name: str) -> int:
        slot = self._slots.get(NodeName(name))
        return 0 if slot is None else 1 << slot

    def _by_values(self, requirement: Requirement, having: Callable[[str], int], carrying: int) -> int:
        match requirement.operator:
            case Operator.IN:
                return _union(map(having, requirement.values))
            case Operator.NOT_IN:
                return self._all & ~_union(map(having, requirement.values))
            case Operator.EXISTS:
                return carrying
            case Operator.DOES_NOT_EXIST:
                return self._all & ~carrying
            case Operator.GT | Operator.LT:
                return 0


def _union(several: Iterable[int]) -> int:
    found = 0
    for bits in several:
        found |= bits
    return found
