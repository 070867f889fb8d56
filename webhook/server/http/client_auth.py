"""Who may send reviews: anybody, or only clients that show a certificate of certain CAs.

The certificate is asked for in every handshake and demanded only where it matters: kubelets, which probe, and most
Prometheus servers have none to show. A certificate that is shown and is not of these CAs ends the handshake.
"""

import ssl
from pathlib import Path

from aiohttp import web

from webhook.server.http.http_error import RefusedError
from webhook.server.settings import StartupError


def ask_for_certificates(context: ssl.SSLContext, client_ca: Path) -> None:
    """Ask every client for a certificate of the CAs in a file. Raises StartupError for a file that holds none."""
    try:
        context.load_verify_locations(client_ca)
    except (OSError, ssl.SSLError) as exc:
        why = exc.strerror if isinstance(exc, FileNotFoundError | PermissionError) else "no PEM certificates in it"
        raise StartupError(f"client CA {client_ca} cannot be used: {why}") from exc
    # Cluster CAs often lack the extensions that Python 3.13 asks for by default, and no other server asks for them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_mode = ssl.CERT_OPTIONAL


def check_caller(request: web.BaseRequest) -> None:
    """Raise RefusedError for a request over a connection without a client certificate."""
    if not request.get_extra_info("peercert"):
        text = "show a client certificate of the CA that --client-ca names; only the API server may send reviews"
        raise RefusedError(403, "CertificateRequired", text)
