"""What the keeper of one kind holds, by key: keeps it right whatever order things are told in, one object at a time."""

import logging
from collections.abc import Callable, Iterable
from typing import Final, Generic

from webhook.cluster.watch.watched_kind import T, WatchedKind

_log: Final = logging.getLogger("webhook.cluster.watch.watch")


class Mirror(Generic[T]):
    """Applies objects to the keeper of a kind. `rejected` counts those that could not be read or made no sense."""

    def __init__(self, kind: WatchedKind[T]) -> None:
        self.rejected = 0
        self._kind = kind
        self._held: dict[str, str] = {}  # key → handle; of what is known by its name alone, ""

    @property
    def keys(self) -> Iterable[str]:
        """List the keys of what the keeper holds, or knows by name."""
        return self._held

    def handle(self, key: str) -> str | None:
        """Tell what is held under a key: "" for an object that is only known to be there, None for none."""
        return self._held.get(key)

    def take(self, item: T) -> str:
        """Apply an object as it is now; give its key."""
        kind = self._kind
        key, handle = kind.key(item), kind.handle(item)
        before = self._held.get(key)
        try:
            if before and before != handle:
                self.forget(key)  # deleted and made again, and nobody told us
                before = None
            if not kind.apply(item):
                self._take_off(key, kind.remove)
                if kind.tracks_names:
                    self._held[key] = ""
            elif not before:  # else the equal handle stays: a new one would double the memory of a relist
                self._held[key] = handle
        except ValueError as error:
            self.reject(key, error, item)
        return key

    def drop(self, item: T) -> str:
        """Take off an object that was deleted; give its key."""
        key = self._kind.key(item)
        if self._held.get(key) in ("", self._kind.handle(item)):
            self.forget(key)
        return key

    def forget(self, key: str) -> None:
        """Take off what is held under a key, if anything is: it is gone."""
        self._take_off(key, self._kind.lose or self._kind.remove)

    def _take_off(self, key: str, remove: Callable[[str], None]) -> None:
        handle = self._held.pop(key, None)
        if handle:
            remove(handle)

    def reject(self, key: str, error: Exception, found: T | bytes = b"") -> None:
        """Take note of an object that cannot be read, or applied: its earlier state stays.

        If there is none, what can be salvaged of it is applied: it must not be missing from a sum.
        """
        self.rejected += 1
        is_kept = bool(self._held.get(key)) or (bool(found) and self._is_salvaged(key, found))
        counts = "it counts by what was, or can be, read of it" if is_kept else "it does not count"
        _log.error("object not understood, %s: %s %s: %s", counts, self._kind.name, key, error)

    def _is_salvaged(self, key: str, found: T | bytes) -> bool:
        item = self._kind.salvage(found) if self._kind.salvage is not None else None
        try:
            if item is None or not self._kind.apply(item):
                return False
        except ValueError:
            return False
        self._held[key] = self._kind.handle(item)
        return True
