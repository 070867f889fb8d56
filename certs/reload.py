"""Reloads the server's certificate from a folder. An unusable pair never replaces a usable one."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from certs.folder import CertFolder
from certs.pair import CertificateError, Pair
from certs.serving import Outcome, Reloaded, ReloadFailed, Serving, utc_now


class Reloader:
    """Updates the server's SSLContext (TLS 1.2 and newer) from the folder.

    The constructor prepares the folder and raises CertificateError if it has no usable pair.
    """

    def __init__(self, folder: CertFolder, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._folder = folder
        self._clock = clock
        self._problem: str | None = None
        self._serving = Serving(folder.prepare(clock()))

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the server."""
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
        """Return why the certificate in use is not usable now, or None."""
        return self._serving.why_unusable(self._clock())

    async def check(self) -> Outcome | None:
        """Renew if due, load a changed pair, and return what happened; None: nothing, or the same problem as before."""
        outcome = await asyncio.to_thread(self._renew_and_read)
        match outcome:
            case _Found(pair=pair, is_renewed=is_renewed, problem=problem):
                # Here, not in the thread: OpenSSL does not lock a context against handshakes that start meanwhile.
                if self._serving.load(pair):
                    self._problem = None
                    return Reloaded(not_after=self.not_after, is_renewed=is_renewed)
                return self._if_new(problem)
            case ReloadFailed(why=why):
                return self._if_new(why)

    async def run(self, *, report: Callable[[Outcome], None], every_seconds: float = 5.0) -> None:
        """Check forever; an unexpected exception ends the task, a problem with the files does not."""
        while True:
            await asyncio.sleep(every_seconds)
            outcome = await self.check()
            if outcome is not None:
                report(outcome)

    def _if_new(self, why: str | None) -> ReloadFailed | None:
        is_new, self._problem = why != self._problem, why
        return ReloadFailed(why) if why is not None and is_new else None

    def _renew_and_read(self) -> "_Found | ReloadFailed":
        now = self._clock()
        is_renewed, problem = False, None
        try:
            is_renewed = self._folder.renew(now)
        except CertificateError as exc:
            problem = str(exc)  # the pair may still be usable
        try:
            return _Found(self._read(now), is_renewed=is_renewed, problem=problem)
        except CertificateError as exc:
            return ReloadFailed(str(exc))

    def _read(self, now: datetime) -> Pair:
        try:
            return self._folder.read(now)
        except CertificateError:
            # The two files may have been replaced between the two reads: read again before reporting an error.
            return self._folder.read(now)


@dataclass(frozen=True, slots=True)
class _Found:
    pair: Pair
    is_renewed: bool
    problem: str | None
