"""What one viewer may read of the cluster: pods and Events of all namespaces or of some, and nodes."""

from dataclasses import dataclass
from typing import Final

_SERVICE_ACCOUNT: Final = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Viewer:
    """A person who looks at the page, and what they may list.

    `namespaces` are those whose pods they may list, `events` those whose Events; None is all. `nodes` is whether they
    may list nodes. `notes` say what is not shown, and which right would show it.
    """

    name: str = ""
    namespaces: frozenset[str] | None = frozenset()
    notes: tuple[str, ...] = ()
    nodes: bool = False
    events: frozenset[str] | None = frozenset()

    @property
    def person(self) -> str:
        """Who bounds on questions, streams and sessions count for."""
        return person_of(self.name)

    @property
    def sees_all(self) -> bool:
        """Whether the pods of every namespace and all nodes may be seen: all that a decision is made from."""
        return self.namespaces is None and self.nodes

    @property
    def sees_all_pods(self) -> bool:
        """Whether the pods of every namespace may be seen."""
        return self.namespaces is None

    @property
    def sees_nothing(self) -> bool:
        """Whether no pod may be seen."""
        return self.namespaces is not None and not self.namespaces

    def sees(self, namespace: str) -> bool:
        """Whether the pods of a namespace may be seen."""
        return self.namespaces is None or namespace in self.namespaces

    def sees_events(self, namespace: str) -> bool:
        """Whether the Events about pods of a namespace may be seen."""
        return self.sees(namespace) and (self.events is None or namespace in self.events)


def person_of(user: str) -> str:
    """Return who shares bounds with a user: a namespace's ServiceAccounts are one person, who can make any number."""
    namespace, colon, _ = user.removeprefix(_SERVICE_ACCOUNT).partition(":")
    return f"{_SERVICE_ACCOUNT}{namespace}" if colon and user.startswith(_SERVICE_ACCOUNT) else user


EVERYTHING: Final = Viewer(namespaces=None, nodes=True, events=None)
"""The viewer of a page that runs with the rights of its only user."""
