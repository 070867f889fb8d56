"""Which Host and Origin a request may name: against DNS rebinding, and against other sites' pages. Pure."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""The names of this machine; a page behind `kubectl port-forward` has one of them, with any port."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """The names under which the page is served. `port` is the only port of a loopback name, None for any."""

    names: frozenset[str] = frozenset()
    port: int | None = None

    def allows(self, host: str) -> bool:
        """Whether a Host header names the page."""
        name, _, port = _split(host)
        if name in self.names:
            return True
        return name in LOOPBACK and (self.port is None or port == str(self.port))

    def is_own(self, *, origin: str, site: str, host: str) -> bool:
        """Whether a request that asks for work came from a page of this host, by its Origin and Sec-Fetch-Site.

        A browser sends at least one of them with each POST; without both it is no browser, which needs a cookie anyway.
        """
        if site not in ("", "same-origin", "none"):
            return False
        return not origin or urlsplit(origin).netloc.lower() == host.lower()


def _split(host: str) -> tuple[str, str, str]:
    """Split a host and its port; an IPv6 address keeps its brackets."""
    if host.startswith("["):
        name, bracket, rest = host.partition("]")
        return (name + bracket).lower(), ":", rest.removeprefix(":")
    name, colon, port = host.partition(":")
    return name.lower(), colon, port
