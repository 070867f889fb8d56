"""Settings of `fairgate serve`: parsed once from the command line, then passed in."""

from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from certs.authority import CA_LIFETIME, LEAF_LIFETIME, CertificateOptions
from webhook.core.model.policy import Enforcement
from webhook.http.connections import Bounds
from webhook.observe.logs import LogFormat

MAX_BODY_BYTES: Final = 8 * 1024 * 1024
"""The API server accepts objects of 3 MiB, and an UPDATE review contains two of them."""

MAX_BODIES_BYTES: Final = 24 * 1024 * 1024
"""Total of the large bodies that are read at the same time; others wait. Each is briefly in memory twice."""

BOUNDS: Final = Bounds(connections=4096, of_address=2048, idle_seconds=300.0)
"""An API server has one connection per concurrent call, and serves 600 requests at a time. It closes idle connections
after 90 s, and the server must not close first: a POST then becomes a 500."""

BACKLOG: Final = 1024
"""Connections that may wait to be accepted: a burst of pods makes API servers open many at once."""

BODY_SECONDS: Final = 10.0
"""Timeout for a whole body: the API server sends it at once, and its own timeout is 30 s at most."""

FINISH_SECONDS: Final = 30.0
"""Timeout for requests in flight after the drain: the longest timeout of a webhook."""

DRAIN_SECONDS: Final = 15.0
"""How long to serve after SIGTERM: kube-proxy and API servers use a terminating pod for some more seconds."""


MAX_PORT: Final = 65_535


class StartupError(Exception):
    """The server cannot start; the text is one line for the user."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address to listen on: an empty host means every interface, port 0 lets the system choose."""

    host: str
    port: int

    @property
    def is_wildcard(self) -> bool:
        """Whether this is no host that a client could connect to."""
        return self.host in ("", "0.0.0.0", "::")  # noqa: S104 (compared, not bound)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class FileWorld:
    """The world is read from a file, then changes in memory."""

    path: Path


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """The world is a cluster; without a kubeconfig, the cluster of this process's pod."""

    kubeconfig: Path | None = None


@dataclass(frozen=True, slots=True)
class CertSecret:
    """Certificates are in a Secret that all replicas share, in the namespace of the settings."""

    name: str


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings of `fairgate serve`.

    `certs` is a folder, or a Secret. `cert_hosts` are the names in a self-signed certificate besides localhost and the
    listen address. `client_ca` is a file: with it only clients with a certificate of these CAs may send reviews.
    `namespace` contains the shared objects of all replicas; None: the pod's own, or that of the kubeconfig.
    `lease_seconds` is how long the leader's Lease must stay unchanged before another replica takes over. `enforce`
    overrides the policy's. `is_static`: API servers have the webhooks from files. Sections of
    the policy that are `unread` are a problem of it.
    """

    policy: Path
    world: FileWorld | LiveCluster
    listen: Address
    certs: Path | CertSecret
    cert_hosts: tuple[str, ...] = ()
    cert_lifetime: timedelta = LEAF_LIFETIME
    ca_lifetime: timedelta = CA_LIFETIME
    client_ca: Path | None = None
    namespace: str | None = None
    log_format: LogFormat = LogFormat.JSON
    drain_seconds: float = DRAIN_SECONDS
    lease_seconds: int = 15
    enforce: Enforcement | None = None
    is_static: bool = False
    unread: frozenset[str] = frozenset()

    @property
    def certificate_terms(self) -> CertificateOptions:
        """The hosts and lifetimes of certificates that the server issues."""
        hosts = self.cert_hosts if self.listen.is_wildcard else (*self.cert_hosts, self.listen.host)
        return CertificateOptions(hosts, ca_lifetime=self.ca_lifetime, leaf_lifetime=self.cert_lifetime)


def parse_address(text: str) -> Address:
    """Return the address of HOST:PORT, [IPV6]:PORT or :PORT. Raises ValueError with the expected forms."""
    host, colon, port_text = text.rpartition(":")
    if not colon or not (port_text.isascii() and port_text.isdigit()) or int(port_text) > MAX_PORT:
        raise ValueError(f"expected HOST:PORT such as 127.0.0.1:8443, [::1]:8443 or :8443, got {text!r}")
    if ":" in host:
        if not (host.startswith("[") and host.endswith("]")) or not _is_ipv6(host[1:-1]):
            raise ValueError(f"an IPv6 address goes in brackets, such as [::1]:8443, got {text!r}")
        host = host[1:-1]
    return Address(host=host, port=int(port_text))


def _is_ipv6(text: str) -> bool:
    try:
        return ip_address(text).version == 6  # noqa: PLR2004 (the version's name is a number)
    except ValueError:
        return False
