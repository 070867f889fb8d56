"""CA and leaf, pure.

Issues certificates: a CA, and serving certificates signed by it. Pure except for the randomness of keys.

ECDSA P-256 everywhere: an RSA-2048 handshake takes the server 225 us longer, and Go, OpenSSL and curl support P-256.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFETIME: Final = timedelta(days=3650)
LEAF_LIFETIME: Final = timedelta(days=90)
CLOCK_SKEW: Final = timedelta(hours=1)
"""Certificates are valid from this long before they are issued: clocks of API servers may be behind ours. One with a
shorter lifetime is backdated by its own lifetime, so that its last third still begins in the future."""

LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class CertificateOptions:
    """What to issue: the hosts in a serving certificate besides the local ones, and the lifetimes.

    The CA's lifetime should be at least three times that of the leaf: otherwise its renewal is due before its
    predecessor is removed.
    """

    hosts: tuple[str, ...] = ()
    ca_lifetime: timedelta = CA_LIFETIME
    leaf_lifetime: timedelta = LEAF_LIFETIME

    @property
    def names(self) -> tuple[str, ...]:
        """All hosts that a serving certificate must name."""
        return (*LOCAL_HOSTS, *self.hosts)


DEFAULT_TERMS: Final = CertificateOptions()


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA certificate with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new ECDSA P-256 key, the only kind that this package issues certificates for."""
    return ec.generate_private_key(ec.SECP256R1())


def make_ca(key: ec.EllipticCurvePrivateKey, *, now: datetime, lifetime: timedelta = CA_LIFETIME) -> Authority:
    """Return a self-signed CA.

    Its name is derived from its key: two CAs never share a name, and if ca.crt is lost, one issued again from the same
    key verifies the existing certificates.
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
    """Return a serving certificate for these DNS names and IP addresses, which expires no later than its CA.

    Raises ValueError for a host that is not valid in a certificate.
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
    certificate: x509.Certificate,
    now: datetime,
    *,
    hosts: Sequence[str] = (),
    ca: x509.Certificate | None = None,
    lifetime: timedelta | None = None,
) -> str | None:
    """Return why a certificate must be renewed, or None: its age, a missing host, or a shorter `lifetime` by now.

    A certificate that expires with its CA is not renewed for its age: a new one would expire at the same time.
    """
    end = certificate.not_valid_after_utc
    if lifetime is not None and end - now > lifetime + min(CLOCK_SKEW, lifetime):
        return f"it ends at {end:%Y-%m-%d %H:%M} UTC, and a new one is to end {lifetime} after it is issued"
    if ca is None or end < ca.not_valid_after_utc:
        if now >= end:
            return f"it expired at {end:%Y-%m-%d %H:%M} UTC"
        if end - now < (end - certificate.not_valid_before_utc) / 3:
            return f"it is in the last third of its lifetime, which ends at {end:%Y-%m-%d %H:%M} UTC"
    missing = names_missing(certificate, hosts)
    return f"it does not name {', '.join(missing)}" if missing else None


def names_missing(certificate: x509.Certificate, hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts that the certificate does not name; wildcards are not expanded."""
    try:
        named = set(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        named = set()
    return tuple(host for host in hosts if _general_name(host) not in named)


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the hosts that a certificate issued by this package names."""
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


# Parsing and validation of the PEM files of a TLS server. Pure.


CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
CA: Final = "ca.crt"
CA_KEY: Final = "ca.key"
LATE_SHARE: Final = 6
"""Certificates are renewed in the last third of their lifetime: in the last sixth, renewal has failed."""


class CertificateError(Exception):
    """A certificate or key is not usable; the text says which file, why, and what to do."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A serving certificate with the key that belongs to it.

    `pem` has the chain and the key together: loaded from one file, they always match.
    """

    certificate: x509.Certificate
    pem: bytes

    @property
    def shown(self) -> str:
        """The certificate and its intermediates as PEM, without the key."""
        chain = read_certificates(self.pem, name=CERTIFICATE)
        return b"".join(map(certificate_to_pem, chain)).decode()


def read_pair(certificate_pem: bytes, key_pem: bytes) -> Pair:
    """Parse tls.crt (leaf first, intermediates after it) and tls.key, and check that they belong together."""
    chain = read_certificates(certificate_pem, name=CERTIFICATE)
    key = _read_private_key(key_pem, name=KEY)
    if not belongs_to(key, chain[0]):
        raise CertificateError("tls.key does not belong to tls.crt: their public keys differ")
    return Pair(certificate=chain[0], pem=certificate_pem.rstrip() + b"\n" + key_pem)


def read_certificates(pem: bytes, *, name: str) -> list[x509.Certificate]:
    """Parse a PEM file of one or more certificates."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as exc:
        raise CertificateError(f"{name} holds no readable PEM certificate: {exc}") from exc


def read_authority(certificate_pem: bytes, key_pem: bytes) -> Authority:
    """Parse ca.crt and ca.key, and check that they belong together."""
    certificate = read_certificates(certificate_pem, name=CA)[0]
    key = read_ec_key(key_pem, name=CA_KEY)
    if not belongs_to(key, certificate):
        raise CertificateError("ca.key does not belong to ca.crt: their public keys differ")
    return Authority(certificate=certificate, key=key)


def read_ec_key(pem: bytes, *, name: str) -> ec.EllipticCurvePrivateKey:
    """Parse an ECDSA private key: the only kind that Fairgate issues from."""
    key = _read_private_key(pem, name=name)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"{name} is not an ECDSA key; Fairgate renews certificates with ECDSA keys only")
    return key


def why_unusable(certificate: x509.Certificate, now: datetime, *, name: str) -> str | None:
    """Return why a certificate is not usable now, or None."""
    if now >= certificate.not_valid_after_utc:
        return f"{name} expired at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    if now < certificate.not_valid_before_utc:
        return f"{name} is not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
    return None


def why_not_renewed(certificate: x509.Certificate, now: datetime, *, name: str) -> str | None:
    """Return why a certificate needs attention: it is not usable, or should have been renewed; None if neither."""
    left = certificate.not_valid_after_utc - now
    if left < (certificate.not_valid_after_utc - certificate.not_valid_before_utc) / LATE_SHARE:
        late = f"{name} was not renewed and expires at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
        return why_unusable(certificate, now, name=name) or late
    return why_unusable(certificate, now, name=name)


def belongs_to(key: PrivateKeyTypes, certificate: x509.Certificate) -> bool:
    """Whether this is the certificate's key."""
    return _spki(key.public_key()) == _spki(certificate.public_key())


def is_issued_by(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    """Whether the CA signed this certificate directly, without an intermediate."""
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def key_to_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as unencrypted PKCS #8."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def certificate_to_pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def _read_private_key(pem: bytes, *, name: str) -> PrivateKeyTypes:
    try:
        return serialization.load_pem_private_key(pem, password=None)
    except TypeError as exc:
        raise CertificateError(f"{name} is encrypted with a passphrase; a server needs it unencrypted") from exc
    except (ValueError, UnsupportedAlgorithm) as exc:
        raise CertificateError(f"{name} holds no readable PEM private key") from exc


def _spki(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
