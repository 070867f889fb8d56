"""What protects the page in a browser: headers of every response, and the cookie of a session."""

from typing import Final

from aiohttp import web

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without any, browsers send the Origin of a form as null
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "fairgate",
}
"""No inline script or style, no other host, no frame, nothing in a cache."""

_COOKIE: Final = "fairgate-page"


async def add_headers(_request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Add the headers to a response that is about to be sent."""
    for name, value in HEADERS.items():
        response.headers[name] = value


def cookie_name(host: str) -> str:
    """Return the name of the cookie: cookies of one host are sent to all of its ports."""
    port = host.rpartition(":")[2]
    return f"{_COOKIE}-{port}" if port.isdecimal() else _COOKIE


def set_cookie(request: web.Request, response: web.StreamResponse, cookie: str) -> None:
    """Give the browser the cookie of a session, for this site's own requests only."""
    is_secure = request.headers.get("X-Forwarded-Proto", request.scheme) == "https"
    response.set_cookie(cookie_name(request.host), cookie, httponly=True, samesite="Strict", path="/", secure=is_secure)
