"""Makes certificates: a CA, and serving certificates signed by it. Pure but for the randomness of keys.

ECDSA P-256 everywhere: an RSA-2048 handshake costs the server another 225 us, and Go, OpenSSL and curl all take P-256.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFETIME: Final = timedelta(days=3650)
LEAF_LIFETIME: Final = timedelta(days=90)
CLOCK_SKEW: Final = timedelta(hours=1)
"""Certificates are valid from a little before they are made: clocks of API servers may be behind ours. One that lives
shorter than this is dated back by its own life, so that its last third still begins in the future."""

LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class CertificateOptions:
    """What to issue: the hosts that a serving certificate names besides the local ones, and how long all is valid.

    The CA should live at least three times as long as the leaf, or it is due again before its predecessor has gone.
    """

    hosts: tuple[str, ...] = ()
    ca_lifetime: timedelta = CA_LIFETIME
    leaf_lifetime: timedelta = LEAF_LIFETIME

    @property
    def names(self) -> tuple[str, ...]:
        """List every host that a serving certificate must name."""
        return (*LOCAL_HOSTS, *self.hosts)


DEFAULT_TERMS: Final = CertificateOptions()


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA certificate with its key: what signs serving certificates."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def new_key() -> ec.EllipticCurvePrivateKey:
    """Make a key of the only kind this package issues for."""
    return ec.generate_private_key(ec.SECP256R1())


def make_ca(key: ec.EllipticCurvePrivateKey, *, now: datetime, lifetime: timedelta = CA_LIFETIME) -> Authority:
    """Make a self-signed CA.

    Its name comes from its key: two CAs never share a name, and a lost ca.crt made anew from the same key still
    verifies what was issued before.
    """
    ski = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Fairgate CA {ski.digest.hex()[:8]}")])
    certificate = (
        _builder(key, now=now, until=now + lifetime)
        .subject_name(name)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate=certificate, key=key)


def make_leaf(
    authority: Authority,
    *,
    key: ec.EllipticCurvePublicKey,
    hosts: Sequence[str],
    now: datetime,
    lifetime: timedelta = LEAF_LIFETIME,
) -> x509.Certificate:
    """Issue a serving certificate for these DNS names and IP addresses, never outliving its CA.

    Raises ValueError for a host that cannot stand in a certificate.
    """
    until = min(now + lifetime, authority.certificate.not_valid_after_utc)
    issuer_ski = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        _builder(authority.key, now=now, until=until, subject_key=key)
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fairgate")]))
        .issuer_name(authority.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(h) for h in dict.fromkeys(hosts)]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_ski), critical=False)
        .sign(authority.key, hashes.SHA256())
    )


def renewal_due(
    certificate: x509.Certificate, now: datetime, *, hosts: Sequence[str] = (), ca: x509.Certificate | None = None
) -> str | None:
    """Say why a new certificate is needed: the last third of its life, or a host it does not name. None: it is not.

    One that lives as long as its CA already is not renewed for its age: a new one would live no longer.
    """
    end = certificate.not_valid_after_utc
    if ca is None or end < ca.not_valid_after_utc:
        if now >= end:
            return f"it expired at {end:%Y-%m-%d %H:%M} UTC"
        if end - now < (end - certificate.not_valid_before_utc) / 3:
            return f"it is in the last third of its life, which ends at {end:%Y-%m-%d %H:%M} UTC"
    missing = names_missing(certificate, hosts)
    return f"it does not name {', '.join(missing)}" if missing else None


def names_missing(certificate: x509.Certificate, hosts: Sequence[str]) -> tuple[str, ...]:
    """List the hosts that the certificate does not name, literally: wildcards are not expanded."""
    try:
        named = set(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        named = set()
    return tuple(host for host in hosts if _general_name(host) not in named)


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """List the hosts that a certificate of ours names."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return tuple(str(name.value) for name in names)


def _general_name(host: str) -> x509.GeneralName:
    bare = host.removeprefix("[").removesuffix("]")
    try:
        return x509.IPAddress(ip_address(bare))
    except ValueError:
        pass
    if not bare or not bare.isascii() or any(c.isspace() or c in ":/," for c in bare):
        raise ValueError(f"expected a DNS name or an IP address for the certificate, got {host!r}")
    return x509.DNSName(bare.lower())


def _builder(
    signer: ec.EllipticCurvePrivateKey,
    *,
    now: datetime,
    until: datetime,
    subject_key: ec.EllipticCurvePublicKey | None = None,
) -> x509.CertificateBuilder:
    key = subject_key or signer.public_key()
    return (
        x509.CertificateBuilder()
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - min(CLOCK_SKEW, until - now))
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
