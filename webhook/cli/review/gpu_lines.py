"""Finds the lines of GPU requests in the manifest of one object."""

from collections.abc import Collection, Mapping
from typing import Any

from webhook.core.model.names import ResourceName
from webhook.kube.kinds.budget import Budget, BudgetSpentError
from webhook.kube.world_file.stream import Document


class GpuLines:
    """The lines of one object's GPU requests; `line` is that of the object, for requests that are not found.

    `counted` are the resources that count. What is searched through has a budget.
    """

    def __init__(
        self, document: Document, found: Mapping[str, Any], counted: Collection[ResourceName], *, line: int
    ) -> None:
        self._document = document
        self._object = found
        self._counted = counted
        self._line = line
        self._first: int | None = None
        self._budget = Budget()

    def of(self, template: Mapping[str, Any]) -> int:
        """Return the line of a template's request, else of the first one in the object."""
        found = self._below(template.get("spec"))
        return self.first() if found is None else found

    def first(self) -> int:
        """Return the line of the first request in the object."""
        if self._first is None:
            found = self._below(self._object)
            self._first = self._line if found is None else found
        return self._first

    def _below(self, value: object) -> int | None:
        """Search in the order of the manifest; the template's parts are the document's own objects."""
        stack = [value]
        try:
            while stack:
                value = stack.pop()
                if isinstance(value, dict):
                    self._budget.step(1 + len(value))
                    for key in value:
                        if key in self._counted and (line := self._document.line_of(value, key)) is not None:
                            return line
                    stack += reversed(value.values())
                elif isinstance(value, list):
                    self._budget.step(1 + len(value))
                    stack += reversed(value)
        except BudgetSpentError:
            return None
        return None
