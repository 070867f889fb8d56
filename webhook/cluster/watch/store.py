"""The objects of one kind that its sink holds, by key; correct for changes in any order, one object at a time."""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Generic

from webhook.cluster.watch.watched_kind import T, WatchedKind

_log: Final = logging.getLogger("webhook.cluster.watch.watch")


class ObjectStore(Generic[T]):
    """Applies objects to the sink of a kind. `rejected` counts those that could not be decoded or were invalid."""

    def __init__(self, kind: WatchedKind[T]) -> None:
        self.rejected = 0
        self._kind = kind
        self._handles: dict[str, str] = {}  # key → handle; "" for an object of which only the name is known

    @property
    def keys(self) -> Iterable[str]:
        """The keys of all objects that are stored, or known by name."""
        return self._handles

    def handle(self, key: str) -> str | None:
        """Return the handle of a key: "" if only the name is known, None if there is no such object."""
        return self._handles.get(key)

    def apply(self, item: T) -> str:
        """Apply the current version of an object and return its key."""
        kind = self._kind
        key, handle = kind.key(item), kind.handle(item)
        before = self._handles.get(key)
        try:
            if before and before != handle:
                self.forget(key)  # deleted and created again, and the deletion was missed
                before = None
            if not kind.apply(item):
                self._remove(key, kind.remove)
                if kind.tracks_names:
                    self._handles[key] = ""
            elif not before:  # else keep the equal handle: a new string would double the memory of a relist
                self._handles[key] = handle
        except ValueError as error:
            self.reject(key, error, item)
        return key

    def delete(self, item: T) -> str:
        """Remove an object that was deleted and return its key."""
        key = self._kind.key(item)
        if self._handles.get(key) in ("", self._kind.handle(item)):
            self.forget(key, is_watched=True)
        return key

    def forget(self, key: str, *, is_watched: bool = False) -> None:
        """Remove the object of a key, if there is one: it was deleted."""
        lose = self._kind.lose
        self._remove(key, self._kind.remove if lose is None else partial(lose, is_watched=is_watched))

    def _remove(self, key: str, remove: Callable[[str], None]) -> None:
        handle = self._handles.pop(key, None)
        if handle:
            remove(handle)

    def reject(self, key: str, error: Exception, found: T | bytes = b"") -> None:
        """Count and log an object that cannot be decoded or applied: its earlier state stays.

        If there is none, its readable part is applied, so that it is not missing from a sum.
        """
        self.rejected += 1
        is_counted = bool(self._handles.get(key)) or (bool(found) and self._apply_partly(key, found))
        effect = "it counts by its earlier or its readable part" if is_counted else "it does not count"
        _log.error("object not understood, %s: %s %s: %s", effect, self._kind.name, key, error)

    def _apply_partly(self, key: str, found: T | bytes) -> bool:
        item = self._kind.salvage(found) if self._kind.salvage is not None else None
        try:
            if item is None or not self._kind.apply(item):
                return False
        except ValueError:
            return False
        self._handles[key] = self._kind.handle(item)
        return True
