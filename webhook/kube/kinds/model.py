"""A kind is a row: paths, counts, budget.

The budget of one expansion: steps and bytes, handed down to everything that takes part in it.

What an object expands to may be far larger than the object: a parameter that is inserted many times, templates that
call templates, defaults that are merged into each of them. Whatever a reader repeats or makes is taken from the budget
before it is done, so that an object of any shape takes a bounded time and memory.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import add, mul
from typing import Any, Final, NamedTuple

from webhook.core.model.policy import PodPath
from webhook.kube.objects.bounds import shortened

STEPS: Final = 130_000
"""Steps of an expansion: a value that is read, or work that takes about as long. All together take 30 ms. A workflow of
500 templates and 2,000 tasks takes three quarters of them, a JobSet of 32 jobs a fifth."""

BYTES: Final = 4 * 1024 * 1024
"""Bytes that an expansion makes: names, inserted parameters, pods as JSON. Pods that share no part of the object have
no more than the object itself, 1 MiB."""

DEPTH: Final = 100
"""Levels of lists and mappings in an object that is read: its readers call themselves once or twice for each. Those of
real objects have up to 30."""

TOO_LARGE: Final = "too large to be judged as a whole: its pods are judged one by one"


class BudgetSpentError(Exception):
    """An expansion takes more than its budget."""


class Budget:
    """What is left for one expansion."""

    __slots__ = ("bytes_left", "steps_left")

    def __init__(self, *, steps: int = STEPS, max_bytes: int = BYTES) -> None:
        self.steps_left = steps
        self.bytes_left = max_bytes

    def step(self, number: int = 1) -> None:
        """Take so many steps. Raises BudgetSpentError if fewer are left."""
        self.steps_left -= number
        if self.steps_left < 0:
            raise BudgetSpentError

    def write(self, length: int) -> None:
        """Take so many bytes. Raises BudgetSpentError if fewer are left."""
        self.bytes_left -= length
        if self.bytes_left < 0:
            raise BudgetSpentError

    def read(self, document: object) -> None:
        """Take a step for each value in a document; afterwards it may be read through without taking further ones.

        Raises BudgetSpentError if it has too many values, or too many levels.
        """
        level, depth = [document], 0
        while level:
            depth += 1
            if depth > DEPTH:
                raise BudgetSpentError
            below: list[object] = []
            for value in level:
                items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
                self.steps_left -= len(items)
                if self.steps_left < 0:
                    raise BudgetSpentError
                below += [item for item in items if isinstance(item, dict | list)]
            level = below


# Workloads: objects that create sets of equal pods, each with a count. No limits here.


Json = Mapping[str, Any]

_SHOWN: Final = 60
_LARGEST: Final = 2**63 - 1
_DIGITS: Final = 18

NOTHING: Final[Json] = {}


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of one role.

    `count` is their number at peak, None if the manifest does not determine it; `problem` then says why. `template` is
    a pod as its controller would create it, empty if it is unknown; `problem` then says why. `shared` are entries of
    its resourceClaims, by name and template, of which all of the pods have one claim: that of their PodGroup.
    """

    role: str
    count: int | None
    template: Json
    problem: str | None = None
    shared: frozenset[tuple[str, str]] = frozenset()


class Surge(NamedTuple):
    """Pods that an update of an object's template runs beside the old ones. `is_first`: no old one leaves before."""

    number: int
    is_first: bool


class EvictionEffect(NamedTuple):
    """A message for a workload that does not survive evictions; empty if it does.

    `without_rule` applies if Fairgate does not add a podFailurePolicy rule to Jobs.
    """

    always: str = ""
    without_rule: str = ""


SURVIVES: Final = EvictionEffect()


@dataclass(frozen=True, slots=True)
class Workload:
    """An object and all pods that it creates. `is_gang`: some of its pods cannot work without the others.

    `is_at_most`: its pods may run at different times, so that each is checked by itself. `deadline` is one
    that runs on while its pods wait in the queue, "" where there is none. `surge` is what a rolling update adds.
    `is_elsewhere`: another cluster runs it, and its pods have count 0.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    pod_sets: tuple[PodSet, ...]
    is_gang: bool = False
    warnings: tuple[str, ...] = ()
    is_at_most: bool = False
    evictions: EvictionEffect = SURVIVES
    deadline: str = ""
    surge: Surge | None = None
    is_elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """An object that may create pods, of an unknown kind or too large: it is reported, never counted as zero."""

    reason: str
    is_too_large: bool = False


def mapping(value: object) -> Json:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else NOTHING


def text(value: object) -> str:
    """Return the value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def listed(value: object) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def scalar(value: object) -> str | None:
    """Return a string, or a number of 64 bits or boolean as it is written; None for every other value."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) and abs(value) <= _LARGEST else None


def digits(value: object, *, most: int = _DIGITS) -> int | None:
    """Return the number that a value of at most so many decimal digits is; None for every other value."""
    written = scalar(value)
    if written is None or len(written) > most or not (written.isascii() and written.isdecimal()):
        return None
    return int(written)


def shown(value: object) -> str:
    """Return a value for a message, however large it is."""
    if isinstance(value, str):
        return repr(shortened(value, _SHOWN))
    if isinstance(value, Mapping | list) and value:
        return "a mapping" if isinstance(value, Mapping) else "a list"
    is_long = isinstance(value, int) and abs(value) > _LARGEST
    return "a number of too many digits" if is_long else repr(value)


# Reading of kinds that are described by paths: pod templates and counts.


MAX_PODS: Final = 2**31 - 1
"""The largest number that the API server accepts."""

OF_OBJECT: Final = "$."
"""What a path begins with that starts from the object, not from the entry of a list in it."""

_NAMES: Final = ("name", "groupName", "type")
_LESS_ONE: Final = "-1"
_SIDES: Final = ("limits", "requests")
_PLAIN: Final = ("cpu", "memory")
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

    `controller` is set if it differs from that of the kind's other pods. `shared` are entries of resourceClaims, by
    name and template, of which all of the pods have one claim.
    """

    role: str
    count: Count
    template: Json
    controller: ControllerKind | None = None
    shared: frozenset[tuple[str, str]] = frozenset()


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
        count = _count(document, entry, where, rule)
        template = _template(document, entry, rule, budget)
        if rule.is_optional and (count.number == 0 or not (template or _is_wanted(document, entry, rule))):
            continue
        if rule.resources and not template:
            count = Count(None, f"{where}{rule.resources} is not set")
        yield Pods(rule.role.replace("{name}", name) or name, count, template)


def _is_wanted(document: Json, entry: object, rule: PodPath) -> bool:
    """Whether an object says how many pods it wants of a rule, where it has no template for them."""
    if rule.resources or not rule.replicas:
        return False
    value, named, _ = _start(document, entry, "", rule.replicas[0].removesuffix(_LESS_ONE))
    return dig(value, named) is not None


def _count(document: Json, entry: object, where: str, rule: PodPath) -> Count:
    count = ONE
    for number, path in enumerate(rule.replicas):
        value, named, prefix = _start(document, entry, where, path.removesuffix(_LESS_ONE))
        each = count_at(value, named, default=rule.default, named=f"{prefix}{named}")
        if number == 0 and rule.maximum:
            each = _at_peak(document, entry, where, each, rule.maximum)
        count = count.times(each.without(1) if path.endswith(_LESS_ONE) else each)
    return count


def _at_peak(document: Json, entry: object, where: str, count: Count, path: str) -> Count:
    """Return the count at the autoscaler's maximum, where there is one that is not disabled beside it."""
    value, named, prefix = _start(document, entry, where, path)
    parent = mapping(dig(value, named.rpartition(".")[0]))
    if dig(value, named) is None or parent.get("enabled") is False:
        return count
    return count.at_least(count_at(value, named, default=None, named=f"{prefix}{named}"))


def _template(document: Json, entry: object, rule: PodPath, budget: Budget) -> Json:
    """Return the pod that a rule finds, with the fields of its spec that stand elsewhere; nothing if there is none."""
    if rule.resources:
        found = dig(entry, rule.resources)
        if found is None:
            return NOTHING
        made: Json = {"spec": {"containers": [{"name": "main", "resources": requested(found, rule.counted, budget)}]}}
    else:
        made = mapping(dig(entry, rule.template)) or (mapping(dig(entry, rule.fallback)) if rule.fallback else NOTHING)
    if not (made and rule.fields):
        return made
    given: dict[str, object] = {}
    for name, path in rule.fields:
        value, named, _ = _start(document, entry, "", path)
        if field := dig(value, named):
            given[name] = field
    spec = made if "containers" in made else mapping(made.get("spec"))
    budget.step(len(spec) + len(made))
    return {**({} if spec is made else made), "spec": {**given, **spec}}


def _start(document: Json, entry: object, where: str, path: str) -> tuple[object, str, str]:
    """Return where a path starts, the path from there, and what is before it in messages."""
    if path.startswith(OF_OBJECT):
        return document, path.removeprefix(OF_OBJECT), ""
    return entry, path, where


def requested(found: object, counted: str, budget: Budget) -> Json:
    """Return what a container requests, from what operators let people write.

    That is limits and requests, or one mapping for both, by the name of the resource or with `gpu`, whose resource is
    `gpuType`; or a number of `counted`.
    """
    if not isinstance(found, Mapping):
        found = {counted: found}
    sides = [mapping(found.get(side)) for side in _SIDES] if any(side in found for side in _SIDES) else [found, found]
    budget.step(_STEPS + sum(map(len, sides)))
    made = {side: dict(_amounts(written, counted)) for side, written in zip(_SIDES, sides, strict=True)}
    return {**made, **({"claims": found["claims"]} if found.get("claims") else {})}


def _amounts(written: Json, counted: str) -> Iterator[tuple[str, object]]:
    for name, amount in (*written.items(), *mapping(written.get("custom")).items()):
        if name == "gpu" and amount:
            yield text(written.get("gpuType")) or counted, amount
        elif (name in _PLAIN and amount) or "/" in str(name):
            yield str(name), amount


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
            named = next(filter(None, (text(known.get(key)) for key in _NAMES)), str(index))
            yield named, f"{each}[{index}].", entry
