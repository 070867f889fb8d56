"""What an object that makes pods comes down to: sets of equal pods, each with a count. No opinion on limits."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

Json = Mapping[str, Any]

NOTHING: Final[Json] = {}


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of one role.

    `count` is how many there are at peak, None where the manifest leaves that open or nobody can read it; `problem`
    then says why. `template` is a pod as its controller would create it; it is empty where `problem` is that nobody
    knows it.
    """

    role: str
    count: int | None
    template: Json
    problem: str | None = None


class Evictions(NamedTuple):
    """What evictions do to a workload that does not survive them, in words; empty where it does.

    `without_rule` holds where Fairgate adds no podFailurePolicy rule to Jobs.
    """

    always: str = ""
    without_rule: str = ""


SURVIVES: Final = Evictions()


@dataclass(frozen=True, slots=True)
class Workload:
    """An object and all pods that it makes. `is_gang`: some of its pods are of no use without the others.

    `later` are pods that run at other times than those of `pod_sets`: they are judged, and not added to them.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    pod_sets: tuple[PodSet, ...]
    is_gang: bool = False
    warnings: tuple[str, ...] = ()
    later: tuple[PodSet, ...] = ()
    evictions: Evictions = SURVIVES


@dataclass(frozen=True, slots=True)
class Unknown:
    """An object that may make pods, in a way that nobody described: never a silent zero."""

    reason: str


def mapping(value: object) -> Json:
    """Take a mapping as it is, anything else for an empty one."""
    return value if isinstance(value, Mapping) else NOTHING


def text(value: object) -> str:
    """Take text as it is, anything else for none."""
    return value if isinstance(value, str) else ""


def listed(value: object) -> list[Any]:
    """Take a list as it is, anything else for an empty one."""
    return value if isinstance(value, list) else []
