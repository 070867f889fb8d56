"""Workloads: objects that create sets of equal pods, each with a count. No limits here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

Json = Mapping[str, Any]

NOTHING: Final[Json] = {}


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of one role.

    `count` is their number at peak, None if the manifest does not determine it; `problem` then says why. `template` is
    a pod as its controller would create it, empty if it is unknown; `problem` then says why.
    """

    role: str
    count: int | None
    template: Json
    problem: str | None = None


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
    that runs on while its pods wait in line, "" where there is none.
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


@dataclass(frozen=True, slots=True)
class Unknown:
    """An object of an unknown kind that may create pods: it is reported, never counted as zero."""

    reason: str


def mapping(value: object) -> Json:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else NOTHING


def text(value: object) -> str:
    """Return the value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def listed(value: object) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []
