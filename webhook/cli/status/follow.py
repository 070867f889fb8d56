"""What `fairgate status --watch` shows: the last world that could be read, and since when it is not up to date."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from webhook.cli.world_source import Origin, Source, View, origin_of
from webhook.input_error import InputError
from webhook.server.settings import FileWorld

_CHANGES: Final = "its file is being written"


@dataclass(frozen=True, slots=True)
class Reading:
    """A world, its origin, and why it is out of date, None while it is not."""

    view: View
    origin: Origin
    why_stale: str | None = None


class _Stamp(NamedTuple):
    """What changes with a file."""

    inode: int
    mtime: int
    size: int


class Follower:
    """Reads a source again and again; `read` returns its world, and raises InputError.

    A file is read when it has changed and was then left alone until the next look, so that one that is just being
    written is not taken for what it is to be. What cannot be read does not replace what could be.
    """

    def __init__(self, source: Source, read: Callable[[], View]) -> None:
        self._source = source
        self._read = read
        self._last: Reading | None = None
        self._read_at = 0.0
        self._taken: _Stamp | None = None
        self._seen: _Stamp | None = None

    def look(self) -> Reading:
        """Return the present reading. Raises InputError if nothing could ever be read."""
        stamp = _stamp(self._source.path) if isinstance(self._source, FileWorld) else None
        seen, self._seen = self._seen, stamp
        if self._last is not None and stamp is not None and stamp == self._taken:
            return self._shown(self._last, None)
        if self._last is not None and stamp is not None and (stamp != seen or stamp.size == 0):
            return self._shown(self._last, _CHANGES)
        try:
            found = Reading(self._read(), origin_of(self._source))
        except InputError as error:
            if self._last is None:
                raise
            return self._shown(self._last, str(error))
        self._last, self._read_at, self._taken = found, time.time(), stamp
        return found

    def _shown(self, last: Reading, why: str | None) -> Reading:
        """Return what was read last, older by the time since."""
        older = last.origin.age_seconds + time.time() - self._read_at
        return replace(last, origin=replace(last.origin, age_seconds=older), why_stale=why)


def _stamp(path: Path) -> _Stamp | None:
    """Return what changes with a file; None where it cannot be read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return _Stamp(found.st_ino, found.st_mtime_ns, found.st_size)
