"""Keeps the state of the page equal to a world file: it is read again after each change."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn

from webhook.cli.world_source import WorldError
from webhook.input_error import InputError
from webhook.page.live.cluster_state import ClusterState, Reading, is_fresh

LOOK_SECONDS: Final = 2.0
"""Between two looks at the file. It is read once two looks find the same: then it is completely written."""

_Version = tuple[int, int, int]
_GONE: Final[_Version] = (0, 0, 0)


class FollowedFile:
    """A world file, and the `state` that the page shows of it. `read` reads it. Both raise InputError at first."""

    def __init__(self, path: Path, read: Callable[[], Reading], *, domain: str) -> None:
        self._path = path
        self._read = read
        self._shown = self._seen = self._version()
        reading = read()
        self.state = ClusterState(reading, f"world file {path}", domain)
        self._show(reading)

    async def run(self) -> NoReturn:
        """Follow the file until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Read the file again where it changed and is no longer written; what was read stays where that fails."""
        try:
            before, self._seen = self._seen, self._version()
        except InputError as error:
            self._shown = self._seen = _GONE
            self._say_old(str(error))
            return
        if self._seen == self._shown or self._seen != before:
            return
        self._shown = self._seen
        try:
            reading = await asyncio.to_thread(self._read)
        except InputError as error:
            self._say_old(str(error))
            return
        if len(reading.objects):
            self._show(reading)
        else:
            self._say_old(f"{self._path}: there is no object in it")

    def _say_old(self, why: str) -> None:
        at = datetime.fromtimestamp(time.time(), UTC).strftime("%H:%M:%S UTC")
        self.state.why_stale = lambda: f"{why} (at {at}). What was read before is shown."

    def _show(self, reading: Reading) -> None:
        self.state.saved = self._shown[0] // 1_000_000_000
        self.state.why_stale = is_fresh
        self.state.replace(reading)

    def _version(self) -> _Version:
        try:
            found = self._path.stat()
        except OSError as error:
            raise WorldError(f"{self._path}: cannot be read: {error.strerror or error}") from error
        return found.st_mtime_ns, found.st_size, found.st_ino
