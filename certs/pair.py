"""Parsing and validation of the PEM files of a TLS server. Pure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes

from certs.authority import Authority

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
