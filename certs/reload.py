"""Serves the newest usable certificate of a folder. A pair that cannot serve never replaces one that can."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from certs.folder import CertFolder
from certs.pair import CertificateError, Pair
from certs.serving import Outcome, Reloaded, ReloadFailed, Serving, utc_now


class Reloader:
    """Holds the server's SSLContext (TLS 1.2 and newer) and keeps its certificate the folder's newest.

    Making one prepares the folder and raises CertificateError if it cannot serve. `clock` tells the time of day.
    """

    def __init__(self, folder: CertFolder, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._folder = folder
        self._clock = clock
        self._trouble: str | None = None
        self._serving = Serving(folder.prepare(clock()))

    @property
    def context(self) -> ssl.SSLContext:
        """What to serve with."""
        return self._serving.context

    @property
    def not_after(self) -> datetime:
        """When the certificate in use expires."""
        return self._serving.not_after

    @property
    def pair(self) -> Pair:
        """The certificate in use."""
        return self._serving.pair

    def why_unusable(self) -> str | None:
        """Say why the certificate in use cannot serve at this moment."""
        return self._serving.why_unusable(self._clock())

    async def check(self) -> Outcome | None:
        """Renew if due, load what changed, and say what happened; None: nothing, or the same trouble as last time."""
        outcome = await asyncio.to_thread(self._look)
        match outcome:
            case _Found(pair=pair, is_renewed=is_renewed, trouble=trouble):
                # Here, not in the thread: OpenSSL does not lock a context against handshakes that start meanwhile.
                if self._serving.load(pair):
                    self._trouble = None
                    return Reloaded(not_after=self.not_after, is_renewed=is_renewed)
                return self._told_once(trouble)
            case ReloadFailed(why=why):
                return self._told_once(why)

    async def run(self, *, report: Callable[[Outcome], None], every_seconds: float = 5.0) -> None:
        """Check for ever; a bug in one round ends the task, trouble with the files does not."""
        while True:
            await asyncio.sleep(every_seconds)
            outcome = await self.check()
            if outcome is not None:
                report(outcome)

    def _told_once(self, why: str | None) -> ReloadFailed | None:
        is_new, self._trouble = why != self._trouble, why
        return ReloadFailed(why) if why is not None and is_new else None

    def _look(self) -> "_Found | ReloadFailed":
        now = self._clock()
        is_renewed, trouble = False, None
        try:
            is_renewed = self._folder.renew(now)
        except CertificateError as exc:
            trouble = str(exc)  # the pair may still be good to serve
        try:
            return _Found(self._read(now), is_renewed=is_renewed, trouble=trouble)
        except CertificateError as exc:
            return ReloadFailed(str(exc))

    def _read(self, now: datetime) -> Pair:
        try:
            return self._folder.read(now)
        except CertificateError:
            # The two files may have been swapped between our two reads: look once more before calling them broken.
            return self._folder.read(now)


@dataclass(frozen=True, slots=True)
class _Found:
    pair: Pair
    is_renewed: bool
    trouble: str | None
