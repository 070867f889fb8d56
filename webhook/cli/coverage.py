"""What part of a cluster a command could read, and notes on the rest, with the rights that would show it."""

from collections.abc import Iterable
from dataclasses import dataclass

import click

from webhook.cluster.reads.permitted_read import ReadScope
from webhook.kube.objects import keys

_CAPACITY = frozenset({"nodes", "pods"})
_RECENT_SECONDS = 30
"""A younger world needs no mention of its age: it is renewed every ten seconds."""

ASK = f"ask an admin for `kubectl create clusterrolebinding fairgate-NAME --clusterrole={keys.VIEWER} --user=NAME`"
"""What a person does who lacks the right to read what Fairgate publishes."""

_RARE = frozenset(
    {
        *("podgroups", "resourceclaimtemplates", "resourceclaims", "deviceclasses", "resourceslices"),
        *("horizontalpodautoscalers", "devicetaintrules", "poddisruptionbudgets", "limitranges", "persistentvolumes"),
    }
)
"""Kinds that few pods depend on: notes name them only if no other kind is missing."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was read of a live cluster. A file is always read completely.

    `has_totals`: the usage of all teams was read, if it was needed. `room_age` is how old the anonymous world is that
    stands for nodes and pods which were not read, in seconds; None if there is none, and `why_no_room` says why.
    `has_charges`: the TeamLedgers were read, which list the charges that no pod shows yet.
    """

    extents: tuple[ReadScope, ...] = ()
    has_totals: bool = True
    room_age: float | None = None
    why_no_room: str = ""
    has_charges: bool = True

    @property
    def missing(self) -> tuple[ReadScope, ...]:
        """The kinds that were not read completely."""
        return tuple(extent for extent in self.extents if not extent.is_all)

    @property
    def has_names(self) -> bool:
        """Whether all nodes and all pods were read, each with its name."""
        return not any(extent.resource in _CAPACITY for extent in self.missing)

    @property
    def is_room_known(self) -> bool:
        """Whether free capacity is known: of all nodes and pods, or of the anonymous world."""
        return self.has_names or self.room_age is not None

    def is_partial(self, resource: str) -> bool:
        """Whether a kind was not read completely."""
        return any(extent.resource == resource for extent in self.missing)

    def covers(self, resource: str, namespace: str) -> bool:
        """Whether a kind was read in a namespace."""
        return not any(e.resource == resource and namespace not in e.namespaces for e in self.missing)

    def notes(self) -> list[str]:
        """Return what is missing, and what would show it."""
        charges = [] if self.has_charges else [f"charges of pods that are still to start are unknown: {ASK}"]
        return [*charges, *self._of_kinds()]

    def _of_kinds(self) -> list[str]:
        if not self.missing:
            return []
        if self.room_age is not None and not self.has_names:
            old = f", as of {self.room_age:.0f} s ago" if self.room_age >= _RECENT_SECONDS else ""
            return [f"of other namespaces pods are counted and not named{old}"]
        none = [extent.resource for extent in self.missing if not extent.namespaces]
        some = [extent for extent in self.missing if extent.namespaces]
        parts = [_all_of(none)] if none else []
        parts += (
            [f"{_all_of([e.resource for e in some])} outside of namespace {_names(some[0].namespaces)}"] if some else []
        )
        notes = [f"you may not list {'; '.join(parts)}"]
        if self.is_partial("pods") and not self.has_totals:
            notes.append("usage counts only the pods shown, and may be higher")
        if not self.is_room_known:
            notes.append(f"free room is unknown: {self.why_no_room or ASK}")
        return notes

    def print_note(self) -> None:
        """Print one line on standard error: the most important of the notes."""
        if notes := self.notes():
            click.echo(f"fairgate: {notes[-1]}", err=True)


COMPLETE = Coverage()
"""Nothing is missing."""


def _all_of(resources: list[str]) -> str:
    shown = [name for name in resources if name not in _RARE] or resources
    return _names(shown)


def _names(names: Iterable[str]) -> str:
    listed = list(dict.fromkeys(names))
    return ", ".join(listed[:-1]) + f" and {listed[-1]}" if len(listed) > 1 else "".join(listed)
