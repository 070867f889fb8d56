"""What the keeper of one kind holds, by key: keeps it right whatever order things are told in, one object at a time."""

import logging
from collections.abc import Iterable
from typing import Final, Generic

from webhook.cluster.kind import Kind, T

_log: Final = logging.getLogger("webhook.cluster.watch")


class Mirror(Generic[T]):
    """Applies objects to the keeper of a kind. `rejected` counts those that could not be read or made no sense."""

    def __init__(self, kind: Kind[T]) -> None:
        self.rejected = 0
        self._kind = kind
        self._held: dict[str, str] = {}  # key → handle

    @property
    def keys(self) -> Iterable[str]:
        """List the keys of what the keeper holds."""
        return self._held

    def take(self, item: T) -> str:
        """Apply an object as it is now; give its key."""
        kind = self._kind
        key, handle = kind.key(item), kind.handle(item)
        before = self._held.get(key)
        try:
            if before is not None and before != handle:
                self.forget(key)  # deleted and made again, and nobody told us
                before = None
            if not kind.apply(item):
                self.forget(key)
            elif before is None:  # else the equal handle stays: a new one would double the memory of a relist
                self._held[key] = handle
        except ValueError as error:
            self.reject(key, error)
        return key

    def drop(self, item: T) -> str:
        """Take off an object that was deleted; give its key."""
        key = self._kind.key(item)
        if self._held.get(key) == self._kind.handle(item):
            self.forget(key)
        return key

    def forget(self, key: str) -> None:
        """Take off what is held under a key, if anything is."""
        handle = self._held.pop(key, None)
        if handle is not None:
            self._kind.remove(handle)

    def reject(self, key: str, error: Exception) -> None:
        """Take note of an object that cannot be applied: its earlier state stays."""
        self.rejected += 1
        _log.warning("object skipped: %s %s: %s", self._kind.name, key, error)
