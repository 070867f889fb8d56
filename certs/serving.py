"""An SSLContext whose certificate is replaced while it is in use.

New handshakes use the new certificate; open connections stay open.
"""

import os
import ssl
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime

from certs.pair import Pair, why_unusable


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The server now uses another certificate; `is_renewed`: this process issued it."""

    not_after: datetime
    is_renewed: bool


@dataclass(frozen=True, slots=True)
class ReloadFailed:
    """The stored certificate is unusable or cannot be renewed: the one in use is kept. `why` says why."""

    why: str


Outcome = Reloaded | ReloadFailed


def utc_now() -> datetime:
    """Return the system time in UTC."""
    return datetime.now(UTC)


class Serving:
    """A server's SSLContext (TLS 1.2 and newer) and its pair, which only `load` changes."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        # client-go resumes no session (its tls.Config has no cache), and two tickets cost a fifth of a handshake
        self.context.num_tickets = 0
        _load(self.context, pair.pem)

    @property
    def not_after(self) -> datetime:
        """When the certificate in use expires."""
        return self.pair.certificate.not_valid_after_utc

    def why_unusable(self, now: datetime) -> str | None:
        """Return why the certificate in use is not usable now, or None."""
        return why_unusable(self.pair.certificate, now, name="the serving certificate")

    def load(self, pair: Pair) -> bool:
        """Use this pair from now on; return whether it differs from the current one."""
        if pair.pem == self.pair.pem:
            return False
        _load(self.context, pair.pem)
        self.pair = pair
        return True


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Load exactly these bytes.

    The ssl module only reads files. Reading the folder's files again could find a half-replaced pair, which would leave
    the context with a certificate and no key; so it reads a memory file.
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
