"""What an object says of the gang of its pods: where it is read, how few start together, which come later."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeGuard

from webhook.kube.kinds.model import Json, mapping


class Stage(NamedTuple):
    """When a role's pods are made: in a later `era` once others have completed, in a later `step` once others run."""

    era: int = 0
    step: int = 0


AT_ONCE: Final = Stage()


@dataclass(frozen=True, slots=True)
class Stages:
    """The stage of each role of which one is known. `is_one_by_one`: also the pods of one role follow one another.

    `led` are the roles whose pods come in groups of so many, of which all but one follow that one.
    """

    by_role: Mapping[str, Stage] = field(default_factory=dict)
    is_one_by_one: bool = False
    led: Mapping[str, int] = field(default_factory=dict)

    def of(self, role: str) -> Stage:
        """Return the stage of a role."""
        return self.by_role.get(role, AT_ONCE)

    def followers(self, role: str, number: int) -> int:
        """Return how many of so many pods of a role follow others of it."""
        return number - -(-number // self.led[role]) if self.led.get(role) else 0


Minimum = Callable[[Json, Json], Mapping[str, Any]]
"""From the spec and the status of an object to its spec with the fewest workers, and without completed pods."""


@dataclass(frozen=True, slots=True)
class GangRules:
    """How the leader finds the object of a pod's gang, and what it reads there.

    `marker` is the key of pods that names the object, or in `name_label` if the value of that is the name. Of several
    kinds with a marker, the one that makes the pod's controller (`makers`) is read. `of_controller`: pods without
    a marker may be a gang by annotation, and their controller is the object. `described_by`: another kind, which these
    objects make, says it. `least` is how many pods the object wants together, None where it wants all.
    `counts_all`: all pods count, also those without GPUs.
    """

    marker: str = ""
    name_label: str = ""
    makers: frozenset[str] = frozenset()
    of_controller: bool = False
    described_by: str = ""
    minimum: Minimum | None = None
    stages: Callable[[Json], Stages] | None = None
    least: Callable[[Json], int | None] | None = None
    counts_all: bool = False

    def at_minimum(self, document: Json) -> Json:
        """Return an object as it is at its smallest."""
        if self.minimum is None:
            return document
        return {**document, "spec": self.minimum(mapping(document.get("spec")), mapping(document.get("status")))}

    def stages_of(self, document: Json) -> Stages:
        """Return the order in which an object's pods are made."""
        return Stages() if self.stages is None else self.stages(document)

    def least_of(self, document: Json) -> int | None:
        """Return how many pods an object wants together; None where it wants all. Raises ValueError if it says none."""
        return None if self.least is None else self.least(document)


NO_GANG: Final = GangRules()


def less(entry: Json, done: object) -> Json:
    """Return an entry with so many replicas fewer: those that have completed."""
    replicas = entry.get("replicas", 1)
    if not (is_number(done) and done and is_number(replicas)):
        return entry
    return {**entry, "replicas": max(0, replicas - done)}


def is_number(value: object) -> TypeGuard[int]:
    """Whether a value is a whole number of at least 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
