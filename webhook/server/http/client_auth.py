"""Client authentication of reviews: none, or a client certificate of certain CAs.

The certificate is requested in every handshake and required only for reviews: kubelets, which probe, and most
Prometheus servers have none. A certificate of other CAs ends the handshake.
"""

import asyncio
import ssl
from pathlib import Path

from webhook.server.http.http_error import HttpError
from webhook.server.settings import StartupError


def request_certificates(context: ssl.SSLContext, client_ca: Path) -> None:
    """Request a certificate of the CAs in a file from every client. Raises StartupError for a file without CAs."""
    try:
        context.load_verify_locations(client_ca)
    except (OSError, ssl.SSLError) as exc:
        why = exc.strerror if isinstance(exc, FileNotFoundError | PermissionError) else "no PEM certificates in it"
        raise StartupError(f"client CA {client_ca} cannot be used: {why}") from exc
    # Cluster CAs often lack the extensions that Python 3.13 requires by default, and no other server requires them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_mode = ssl.CERT_OPTIONAL


def check_caller(transport: asyncio.BaseTransport | None) -> None:
    """Raise HttpError for a request over a connection without a client certificate."""
    if transport is None or not transport.get_extra_info("peercert"):
        text = "send a client certificate of the CA in --client-ca; only the API server may send reviews"
        raise HttpError(403, "CertificateRequired", text)
