"""What one viewer may see: pods of all namespaces, or of some."""

from collections.abc import Container
from dataclasses import dataclass
from typing import Final

_SERVICE_ACCOUNT: Final = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Viewer:
    """A person who looks at the page. `namespaces` is None where all may be seen.

    `notes` say what is not shown, and which right would show it.
    """

    name: str = ""
    namespaces: frozenset[str] | None = None
    notes: tuple[str, ...] = ()

    @property
    def person(self) -> str:
        """Who bounds on questions, streams and sessions count for."""
        return person_of(self.name)

    @property
    def sees_all(self) -> bool:
        """Whether the pods of every namespace may be seen."""
        return self.namespaces is None

    @property
    def sees_nothing(self) -> bool:
        """Whether no pod may be seen."""
        return self.namespaces is not None and not self.namespaces

    def sees(self, namespace: str) -> bool:
        """Whether the pods of a namespace may be seen."""
        return self.namespaces is None or namespace in self.namespaces

    def sees_any(self, namespaces: Container[str]) -> bool:
        """Whether pods of at least one of these namespaces may be seen."""
        return self.namespaces is None or any(each in namespaces for each in self.namespaces)


def person_of(user: str) -> str:
    """Return who shares bounds with a user: a namespace's ServiceAccounts are one person, who can make any number."""
    namespace, colon, _ = user.removeprefix(_SERVICE_ACCOUNT).partition(":")
    return f"{_SERVICE_ACCOUNT}{namespace}" if colon and user.startswith(_SERVICE_ACCOUNT) else user


EVERYTHING: Final = Viewer()
"""The viewer of a page that runs with the rights of its only user."""
