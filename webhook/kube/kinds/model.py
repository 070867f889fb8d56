"""Workloads: objects that create sets of equal pods, each with a count. No limits here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from webhook.kube.objects.bounds import shortened

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

    `later` are pods that run at other times than those of `pod_sets`: they are checked separately. `deadline` is one
    that runs on while its pods wait in line, "" where there is none. `surge` is what a rolling update adds.
    `is_elsewhere`: another cluster runs it, and its pods have count 0.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    pod_sets: tuple[PodSet, ...]
    is_gang: bool = False
    warnings: tuple[str, ...] = ()
    later: tuple[PodSet, ...] = ()
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
    if isinstance(value, dict):  # the usual one, found faster
        return value
    return value if value is not None and isinstance(value, Mapping) else NOTHING


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
