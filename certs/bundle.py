"""All certificates of one installation, stored in one Secret: decoding and encoding. Pure.

| key | value |
|---|---|
| `tls.crt`, `tls.key` | the serving certificate and key, the same for all replicas |
| `ca.crt` | every CA that callers should trust; the first one signs |
| `ca.key` | the key of the first CA |
| `next-ca.key` | while a CA is announced: its key; its certificate is already in `ca.crt` |
| `previous-tls.crt` | while a former CA is still trusted: the last serving certificate that it signed |

No value is a time or a counter, so a replica with a wrong clock cannot store a wrong value.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from certs.authority import Authority
from certs.pair import (
    CA,
    CA_KEY,
    CERTIFICATE,
    KEY,
    CertificateError,
    Pair,
    belongs_to,
    certificate_to_pem,
    is_issued_by,
    key_to_pem,
    read_authority,
    read_certificates,
    read_ec_key,
    read_pair,
)

NEXT_CA_KEY: Final = "next-ca.key"
PREVIOUS: Final = "previous-tls.crt"
KEYS: Final = (CERTIFICATE, KEY, CA, CA_KEY, NEXT_CA_KEY, PREVIOUS)


@dataclass(frozen=True, slots=True)
class Former:
    """A CA that no longer signs, with the last certificate that it signed, which may be in use until it expires."""

    ca: x509.Certificate
    last: x509.Certificate


@dataclass(frozen=True, slots=True)
class Bundle:
    """The serving certificate, the CA that signed it, and the next and the former CA.

    `announced` is trusted and does not sign yet; `former` is trusted and no longer signs.
    """

    signing: Authority
    leaf: x509.Certificate
    leaf_key: EllipticCurvePrivateKey
    announced: Authority | None = None
    former: Former | None = None

    @property
    def pair(self) -> Pair:
        """The certificate and key that a server loads."""
        return Pair(certificate=self.leaf, pem=certificate_to_pem(self.leaf) + key_to_pem(self.leaf_key))

    @property
    def cas(self) -> tuple[x509.Certificate, ...]:
        """All CAs of the bundle, the signing one first."""
        announced = (self.announced.certificate,) if self.announced else ()
        return (self.signing.certificate, *announced, *((self.former.ca,) if self.former else ()))


def read_bundle(files: Mapping[str, bytes]) -> Bundle | None:
    """Return the bundle in these files; None if all values are empty or missing.

    Raises CertificateError if the files are not a bundle, for example those of another program.
    """
    have = {name: files[name] for name in KEYS if files.get(name)}
    if not have:
        return None
    missing = [name for name in (CERTIFICATE, KEY, CA, CA_KEY) if name not in have]
    if missing:
        raise CertificateError(
            f"has {', '.join(have)} but no {' and no '.join(missing)}: Fairgate did not create it. Use another Secret, "
            "or mount this one and set --certs to its folder"
        )
    signing = read_authority(have[CA], have[CA_KEY])
    pair = read_pair(have[CERTIFICATE], have[KEY])
    if not is_issued_by(pair.certificate, signing.certificate):
        raise CertificateError(f"{CERTIFICATE} was not issued by the first certificate in {CA}")
    rest = read_certificates(have[CA], name=CA)[1:]
    announced = _announced(have, rest)
    return Bundle(
        signing=signing,
        leaf=pair.certificate,
        leaf_key=read_ec_key(have[KEY], name=KEY),
        announced=announced,
        former=_former(have, [ca for ca in rest if announced is None or ca != announced.certificate]),
    )


def _announced(have: Mapping[str, bytes], rest: list[x509.Certificate]) -> Authority | None:
    if NEXT_CA_KEY not in have:
        return None
    key = read_ec_key(have[NEXT_CA_KEY], name=NEXT_CA_KEY)
    for certificate in rest:
        if belongs_to(key, certificate):
            return Authority(certificate, key)
    raise CertificateError(f"{NEXT_CA_KEY} does not belong to a certificate in {CA}")


def _former(have: Mapping[str, bytes], rest: list[x509.Certificate]) -> Former | None:
    if PREVIOUS not in have:
        return None
    last = read_certificates(have[PREVIOUS], name=PREVIOUS)[0]
    for certificate in rest:
        if is_issued_by(last, certificate):
            return Former(certificate, last)
    raise CertificateError(f"{PREVIOUS} was not issued by a former CA in {CA}")


def bundle_files(bundle: Bundle) -> dict[str, bytes]:
    """Return a bundle as the files that `read_bundle` reads."""
    files = {
        CERTIFICATE: certificate_to_pem(bundle.leaf),
        KEY: key_to_pem(bundle.leaf_key),
        CA: b"".join(map(certificate_to_pem, bundle.cas)),
        CA_KEY: key_to_pem(bundle.signing.key),
    }
    if bundle.announced:
        files[NEXT_CA_KEY] = key_to_pem(bundle.announced.key)
    if bundle.former:
        files[PREVIOUS] = certificate_to_pem(bundle.former.last)
    return files
