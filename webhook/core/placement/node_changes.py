"""When something last changed on each node that a scheduler would try a waiting pod again for.

That is the node itself (labels, taints, what it offers), or a pod that left it: one that came makes no room.
"""

from collections.abc import Iterator
from typing import Final

from webhook.core.model.names import NodeName

_REMEMBERED_SECONDS: Final = 3600
"""How long a change is kept: schedulers have tried the pods again long before."""


class NodeChanges:
    """The times, in seconds of Unix time, by the clock that `tick` is called with.

    Events come without a time. Each gets that of the first tick after it, so that it never seems to be earlier.
    """

    def __init__(self) -> None:
        self._at: dict[NodeName, int] = {}  # the earliest first
        self._new: set[NodeName] = set()

    def note(self, node: NodeName) -> None:
        """Note that a node changed just now, or that a pod left it."""
        self._new.add(node)

    def tick(self, now: int) -> None:
        """Set the time."""
        for node in self._new:
            self._at.pop(node, None)
            self._at[node] = now
        self._new.clear()
        while self._at and self._at[node := next(iter(self._at))] + _REMEMBERED_SECONDS < now:
            del self._at[node]

    def latest(self) -> Iterator[tuple[NodeName, int]]:
        """Yield the nodes that changed and when, the latest first."""
        for node in reversed(self._at):
            yield node, self._at[node]
