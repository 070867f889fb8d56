"""What part of a cluster a command could read, and notes on the rest, with the rights that would show it."""

from collections.abc import Iterable
from dataclasses import dataclass

import click

from webhook.cluster.reads.permitted_read import ReadScope
from webhook.kube.objects import keys

_CAPACITY = frozenset({"nodes", "pods"})
_RARE = frozenset({"podgroups", "resourceclaimtemplates", "resourceclaims", "deviceclasses", "resourceslices"})
"""Kinds that few clusters use: notes name them only if no other kind is missing."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was read of a live cluster. A file is always read completely."""

    extents: tuple[ReadScope, ...] = ()
    has_totals: bool = True
    """Whether the usage of all teams was read, if it was needed."""

    @property
    def missing(self) -> tuple[ReadScope, ...]:
        """The kinds that were not read completely."""
        return tuple(extent for extent in self.extents if not extent.is_all)

    @property
    def is_room_known(self) -> bool:
        """Whether all nodes and all pods were read, without which free capacity is unknown."""
        return not any(extent.resource in _CAPACITY for extent in self.missing)

    def is_partial(self, resource: str) -> bool:
        """Whether a kind was not read completely."""
        return any(extent.resource == resource for extent in self.missing)

    def covers(self, resource: str, namespace: str) -> bool:
        """Whether a kind was read in a namespace."""
        return not any(e.resource == resource and namespace not in e.namespaces for e in self.missing)

    def notes(self) -> list[str]:
        """Return what is missing, and which right would show it."""
        if not self.missing:
            return []
        none = [extent.resource for extent in self.missing if not extent.namespaces]
        some = [extent for extent in self.missing if extent.namespaces]
        parts = [_all_of(none)] if none else []
        parts += (
            [f"{_names(e.resource for e in some)} outside of namespace {_names(some[0].namespaces)}"] if some else []
        )
        notes = [f"not shown, because you may not list them: {'; '.join(parts)}"]
        if self.is_partial("pods"):
            notes.append(
                "the usage of teams is that of their TeamLedgers; limits by GPU model and by user count only the pods "
                "shown"
                if self.has_totals
                else "the usage of teams counts only the pods shown, and may be higher; to see the usage of all teams, "
                f"you need the ClusterRole {keys.VIEWER}"
            )
        if not self.is_room_known:
            notes.append("free capacity is unknown")
        needed = _all_of(sorted(extent.resource for extent in self.missing))
        notes.append(f"to see the rest, you need the right to list {needed} in the whole cluster")
        return notes

    def print_notes(self) -> None:
        """Print the notes to standard error."""
        if notes := self.notes():
            click.echo(
                f"fairgate: {notes[0]}.{''.join(f' {note[:1].upper()}{note[1:]}.' for note in notes[1:])}", err=True
            )


COMPLETE = Coverage()
"""Nothing is missing."""


def _all_of(resources: list[str]) -> str:
    shown = [name for name in resources if name not in _RARE] or resources
    return _names(shown)


def _names(names: Iterable[str]) -> str:
    listed = list(dict.fromkeys(names))
    return ", ".join(listed[:-1]) + f" and {listed[-1]}" if len(listed) > 1 else "".join(listed)
