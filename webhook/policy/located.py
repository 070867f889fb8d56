"""A part of the policy with its place in a file."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from webhook.policy.document import Document
from webhook.policy.problems import Path, Problem

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Located(Generic[T]):
    """A part of the policy and its place in a file."""

    value: T
    document: Document
    path: Path

    @property
    def place(self) -> str:
        """FILE:LINE, for another problem's message."""
        return self.document.place(self.path)

    def problem(self, message: str, *below: str | int) -> Problem:
        """Return a problem of this part, or of a field below it."""
        return self.document.problem((*self.path, *below), message)
