"""Reads a kind that paths describe: templates and counts, wherever the object keeps them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import add, mul
from typing import Final, NamedTuple

from webhook.core.model.policy import PodPath
from webhook.kube.workloads.model import Json, mapping, text

MOST_PODS: Final = 2**31 - 1
"""The API server takes no larger number."""


class Maker(NamedTuple):
    """The kind of object that pods name as their controller."""

    api_version: str
    kind: str


class Count(NamedTuple):
    """How many, or why nobody knows."""

    number: int | None
    problem: str | None = None

    def plus(self, other: "Count") -> "Count":
        """Add."""
        return self._with(other, add)

    def times(self, other: "Count") -> "Count":
        """Multiply."""
        return self._with(other, mul)

    def at_least(self, other: "Count") -> "Count":
        """Take the larger."""
        return self._with(other, max)

    def at_most(self, other: "Count") -> "Count":
        """Take the smaller."""
        return self._with(other, min)

    def _with(self, other: "Count", operation: Callable[[int, int], int]) -> "Count":
        """Combine two; where nobody knows one of them, nobody knows the result."""
        if self.number is None or other.number is None:
            return self if self.number is None else other
        return Count(operation(self.number, other.number))


@dataclass(frozen=True, slots=True)
class Pods:
    """Equal pods as an object describes them: `template` is a pod template or a bare pod spec, not yet a pod.

    `maker` is their controller where it is not that of the kind's other pods.
    """

    role: str
    count: Count
    template: Json
    maker: Maker | None = None


ONE: Final = Count(1)


def dig(value: object, path: str) -> object:
    """Follow a path of keys; None where it leads nowhere."""
    for key in path.split(".") if path else ():
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def count_at(value: object, path: str, *, default: int | None, named: str = "") -> Count:
    """Read a number; `named` is the path as the reader of the manifest knows it."""
    found = dig(value, path)
    named = named or path
    if found is None:
        return Count(default, None if default is not None else f"{named} is not set")
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= MOST_PODS:
        return Count(None, f"{named} is {found!r}; expected a whole number from 0 to {MOST_PODS:,}")
    return Count(found)


def pods_at(document: Json, rule: PodPath) -> Iterator[Pods]:
    """Yield the pods that one rule finds, in the order of the manifest."""
    for name, where, entry in entries(document, rule.each):
        count = ONE
        for path in rule.replicas:
            count = count.times(count_at(entry, path, default=rule.default, named=f"{where}{path}"))
        yield Pods(rule.role or name, count, mapping(dig(entry, rule.template)))


def entries(document: Json, each: str) -> Iterator[tuple[str, str, object]]:
    """Yield name, place and value of every entry; the document itself where the rule knows no entries."""
    if not each:
        yield "", "", document
        return
    found = dig(document, each)
    if isinstance(found, Mapping):
        for name, entry in found.items():
            yield str(name), f"{each}.{name}.", entry
    elif isinstance(found, list):
        for index, entry in enumerate(found):
            known = mapping(entry)
            yield text(known.get("name")) or text(known.get("groupName")) or str(index), f"{each}[{index}].", entry
