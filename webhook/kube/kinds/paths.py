"""Reading of kinds that are described by paths: pod templates and counts."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import add, mul
from typing import Final, NamedTuple

from webhook.core.model.workload_rules import PodPath
from webhook.kube.kinds.budget import Budget
from webhook.kube.kinds.model import Json, mapping, shown, text

MAX_PODS: Final = 2**31 - 1
"""The largest number that the API server accepts."""

_LARGEST: Final = 2**63 - 1
_STEPS: Final = 20
"""The cost of reading the counts and the template of one entry."""


class ControllerKind(NamedTuple):
    """The kind of a pod's controller."""

    api_version: str
    kind: str


class Count(NamedTuple):
    """A number of pods, or the problem why it is unknown. No sum or product is more than 2^63-1."""

    number: int | None
    problem: str | None = None

    def plus(self, other: "Count") -> "Count":
        """Return the sum."""
        return self._with(other, add)

    def times(self, other: "Count") -> "Count":
        """Return the product."""
        return self._with(other, mul)

    def at_least(self, other: "Count") -> "Count":
        """Return the larger count."""
        return self._with(other, max)

    def at_most(self, other: "Count") -> "Count":
        """Return the smaller count."""
        return self._with(other, min)

    def without(self, number: int) -> "Count":
        """Return the count less this number, at least 0."""
        return self if self.number is None else Count(max(self.number - number, 0))

    def _with(self, other: "Count", operation: Callable[[int, int], int]) -> "Count":
        """Return the combined count, unknown if one of them is."""
        if self.number is None or other.number is None:
            return self if self.number is None else other
        return Count(min(operation(self.number, other.number), _LARGEST))


@dataclass(frozen=True, slots=True)
class Pods:
    """Equal pods in an object: `template` is a pod template or a pod spec, not yet a pod.

    `controller` is set if it differs from that of the kind's other pods.
    """

    role: str
    count: Count
    template: Json
    controller: ControllerKind | None = None


ONE: Final = Count(1)


def unknown_pods(problem: str, *, role: str = "") -> Pods:
    """Return pods of which nothing is known, and why."""
    return Pods(role, Count(None, problem), {})


def replicated(name: str, where: str, entry: object, *, default: int = 1) -> Pods:
    """Return the pods of an entry with `replicas` and `template`; `where` is its path for messages."""
    count = count_at(entry, "replicas", default=default, named=f"{where}replicas")
    return Pods(name, count, mapping(dig(entry, "template")))


def dig(value: object, path: str) -> object:
    """Return the value at a path of keys, or None."""
    for key in path.split(".") if path else ():
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def count_at(value: object, path: str, *, default: int | None, named: str = "") -> Count:
    """Return the number at a path; `named` is the full path for messages."""
    found = dig(value, path)
    named = named or path
    if found is None:
        return Count(default, None if default is not None else f"{named} is not set")
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= MAX_PODS:
        return Count(None, f"{named} is {shown(found)}; expected a whole number from 0 to {MAX_PODS:,}")
    return Count(found)


def pods_at(document: Json, rule: PodPath, budget: Budget) -> Iterator[Pods]:
    """Yield the pods that one rule finds, in the order of the manifest."""
    for name, where, entry in entries(document, rule.each, budget):
        count = ONE
        for path in rule.replicas:
            count = count.times(count_at(entry, path, default=rule.default, named=f"{where}{path}"))
        yield Pods(rule.role or name, count, mapping(dig(entry, rule.template)))


def entries(document: Json, each: str, budget: Budget) -> Iterator[tuple[str, str, object]]:
    """Yield name, path and value of each entry, or the document itself if `each` is empty."""
    if not each:
        yield "", "", document
        return
    found = dig(document, each)
    if isinstance(found, Mapping):
        for name, entry in found.items():
            budget.step(_STEPS)
            yield str(name), f"{each}.{name}.", entry
    elif isinstance(found, list):
        for index, entry in enumerate(found):
            budget.step(_STEPS)
            known = mapping(entry)
            yield text(known.get("name")) or text(known.get("groupName")) or str(index), f"{each}[{index}].", entry
