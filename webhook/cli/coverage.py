"""How much of a cluster a command could read, and what to say of the rest: once, with the rights that would show it."""

from collections.abc import Iterable
from dataclasses import dataclass

import click

from webhook.cluster.reads.permitted_read import ReadScope
from webhook.kube.objects import keys

_ROOM = frozenset({"nodes", "pods"})
_QUIET = frozenset({"podgroups", "resourceclaimtemplates", "resourceclaims", "deviceclasses", "resourceslices"})
"""Kinds that few clusters use: they are named where something else is left out, too."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was read of a live cluster. Of a file everything is read."""

    extents: tuple[ReadScope, ...] = ()
    has_totals: bool = True
    """Whether the sums of all teams were read, if they were needed."""

    @property
    def missing(self) -> tuple[ReadScope, ...]:
        """What was not read whole."""
        return tuple(extent for extent in self.extents if not extent.is_all)

    @property
    def is_room_known(self) -> bool:
        """Tell whether all nodes and all pods were read: without either, nothing can be said about free room."""
        return not any(extent.resource in _ROOM for extent in self.missing)

    def lacks(self, resource: str) -> bool:
        """Tell whether a kind was not read whole."""
        return any(extent.resource == resource for extent in self.missing)

    def shows(self, resource: str, namespace: str) -> bool:
        """Tell whether a kind was read in one namespace."""
        return not any(e.resource == resource and namespace not in e.namespaces for e in self.missing)

    def notes(self) -> list[str]:
        """Say what is left out, and which right would show it."""
        if not self.missing:
            return []
        none = [extent.resource for extent in self.missing if not extent.namespaces]
        some = [extent for extent in self.missing if extent.namespaces]
        parts = [_all_of(none)] if none else []
        parts += (
            [f"{_names(e.resource for e in some)} outside of namespace {_names(some[0].namespaces)}"] if some else []
        )
        notes = [f"not shown, for lack of rights: {'; '.join(parts)}"]
        if self.lacks("pods"):
            notes.append(
                "what all teams hold is taken from their TeamLedgers; limits by GPU model and by user count only the "
                "pods that are shown"
                if self.has_totals
                else "what teams hold is counted from the pods that are shown, and may be more; an admin can show the "
                f"sums of all teams: bind the ClusterRole {keys.VIEWER} to you"
            )
        if not self.is_room_known:
            notes.append("free room is not known")
        needed = _all_of(sorted(extent.resource for extent in self.missing))
        notes.append(f"the rest takes the right to list {needed} in the whole cluster")
        return notes

    def tell(self) -> None:
        """Write the notes to standard error."""
        if notes := self.notes():
            click.echo(
                f"fairgate: {notes[0]}.{''.join(f' {note[:1].upper()}{note[1:]}.' for note in notes[1:])}", err=True
            )


COMPLETE = Coverage()
"""Nothing is left out."""


def _all_of(resources: list[str]) -> str:
    shown = [name for name in resources if name not in _QUIET] or resources
    return _names(shown)


def _names(names: Iterable[str]) -> str:
    listed = list(dict.fromkeys(names))
    return ", ".join(listed[:-1]) + f" and {listed[-1]}" if len(listed) > 1 else "".join(listed)
