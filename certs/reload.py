"""Serves the newest usable certificate: one SSLContext whose pair is replaced while it is in use.

New handshakes get the new certificate, open connections stay. A pair that cannot serve never replaces one that can.
"""

import asyncio
import os
import ssl
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from certs.folder import CertFolder
from certs.pair import CertificateError, Pair, why_unusable


@dataclass(frozen=True, slots=True)
class Reloaded:
    """Another certificate is served from now on; `is_renewed`: this process issued it."""

    not_after: datetime
    is_renewed: bool


@dataclass(frozen=True, slots=True)
class Kept:
    """What lies on disk cannot serve or could not be renewed: the certificate in use stays. `why` says why."""

    why: str


Outcome = Reloaded | Kept


def _now() -> datetime:
    return datetime.now(UTC)


class Reloader:
    """Holds the server's SSLContext (TLS 1.2 and newer) and keeps its certificate the folder's newest.

    Making one prepares the folder and raises CertificateError if it cannot serve. `clock` tells the time of day.
    """

    def __init__(self, folder: CertFolder, *, clock: Callable[[], datetime] = _now) -> None:
        self._folder = folder
        self._clock = clock
        self._trouble: str | None = None
        self._pair = folder.prepare(clock())
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        _load(self.context, self._pair.pem)

    @property
    def not_after(self) -> datetime:
        """When the certificate in use expires."""
        return self._pair.certificate.not_valid_after_utc

    def why_unusable(self) -> str | None:
        """Say why the certificate in use cannot serve at this moment."""
        return why_unusable(self._pair.certificate, self._clock(), name="the serving certificate")

    async def check(self) -> Outcome | None:
        """Renew if due, load what changed, and say what happened; None: nothing, or the same trouble as last time."""
        outcome = await asyncio.to_thread(self._look)
        match outcome:
            case _Found(pair=pair, is_renewed=is_renewed, trouble=trouble):
                # Here, not in the thread: OpenSSL does not lock a context against handshakes that start meanwhile.
                if pair.pem != self._pair.pem:
                    _load(self.context, pair.pem)
                    self._pair, self._trouble = pair, None
                    return Reloaded(not_after=self.not_after, is_renewed=is_renewed)
                return self._told_once(trouble)
            case Kept(why=why):
                return self._told_once(why)

    async def run(self, *, report: Callable[[Outcome], None], every_seconds: float = 5.0) -> None:
        """Check for ever; a bug in one round ends the task, trouble with the files does not."""
        while True:
            await asyncio.sleep(every_seconds)
            outcome = await self.check()
            if outcome is not None:
                report(outcome)

    def _told_once(self, why: str | None) -> Kept | None:
        is_new, self._trouble = why != self._trouble, why
        return Kept(why) if why is not None and is_new else None

    def _look(self) -> "_Found | Kept":
        now = self._clock()
        is_renewed, trouble = False, None
        try:
            is_renewed = self._folder.renew(now)
        except CertificateError as exc:
            trouble = str(exc)  # the pair may still be good to serve
        try:
            return _Found(self._read(now), is_renewed=is_renewed, trouble=trouble)
        except CertificateError as exc:
            return Kept(str(exc))

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


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Load exactly these bytes.

    The ssl module reads files only. Reading the folder's files again could meet a half-swapped pair, which would leave
    the context in use with a certificate and no key; so it reads memory under a file's name.
    """
    if sys.platform == "linux":
        memory = os.memfd_create("fairgate-tls", os.MFD_CLOEXEC)
        try:
            with os.fdopen(memory, "wb", closefd=False) as file:
                file.write(pem)
            context.load_cert_chain(f"/proc/self/fd/{memory}")
        finally:
            os.close(memory)
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(pem)
            file.flush()
            context.load_cert_chain(file.name)
