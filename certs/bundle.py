"""All certificates of one installation, as they lie together in one Secret: read, written, nothing decided. Pure.

| key | is |
|---|---|
| `tls.crt`, `tls.key` | the serving pair, of all replicas alike |
| `ca.crt` | every CA that callers should trust; the first one signs |
| `ca.key` | the key of that first one |
| `next-ca.key` | while a CA is announced: its key; its certificate is in `ca.crt` already |
| `previous-tls.crt` | while a former CA is still trusted: the last serving certificate that it signed |

Nothing here is a time or a counter: a replica whose clock is wrong has nothing to write down wrongly.
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
    """A CA that signs no more, with the last certificate that it signed: until that has expired it may be in use."""

    ca: x509.Certificate
    last: x509.Certificate


@dataclass(frozen=True, slots=True)
class Bundle:
    """The serving certificate, the CA that signed it, and what goes before and after that CA.

    `announced` is trusted and signs nothing yet; `former` is trusted and signs nothing more.
    """

    signing: Authority
    leaf: x509.Certificate
    leaf_key: EllipticCurvePrivateKey
    announced: Authority | None = None
    former: Former | None = None

    @property
    def pair(self) -> Pair:
        """What a server loads."""
        return Pair(certificate=self.leaf, pem=certificate_to_pem(self.leaf) + key_to_pem(self.leaf_key))

    @property
    def cas(self) -> tuple[x509.Certificate, ...]:
        """Every CA of the bundle, the signing one first."""
        announced = (self.announced.certificate,) if self.announced else ()
        return (self.signing.certificate, *announced, *((self.former.ca,) if self.former else ()))


def read_bundle(files: Mapping[str, bytes]) -> Bundle | None:
    """Read a bundle; None: there is none yet, only empty values at most.

    Raises CertificateError for files that make no bundle, those of somebody else among them.
    """
    have = {name: files[name] for name in KEYS if files.get(name)}
    if not have:
        return None
    missing = [name for name in (CERTIFICATE, KEY, CA, CA_KEY) if name not in have]
    if missing:
        raise CertificateError(
            f"has {', '.join(have)} but no {' and no '.join(missing)}: Fairgate did not make it. Name another Secret, "
            "or mount this one and give its folder as --certs"
        )
    signing = read_authority(have[CA], have[CA_KEY])
    pair = read_pair(have[CERTIFICATE], have[KEY])
    if not is_issued_by(pair.certificate, signing.certificate):
        raise CertificateError(f"{CERTIFICATE} was not issued by the first certificate of {CA}")
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
    raise CertificateError(f"{NEXT_CA_KEY} belongs to no certificate of {CA}")


def _former(have: Mapping[str, bytes], rest: list[x509.Certificate]) -> Former | None:
    if PREVIOUS not in have:
        return None
    last = read_certificates(have[PREVIOUS], name=PREVIOUS)[0]
    for certificate in rest:
        if is_issued_by(last, certificate):
            return Former(certificate, last)
    raise CertificateError(f"{PREVIOUS} was issued by no certificate of {CA} that signs no more")


def bundle_files(bundle: Bundle) -> dict[str, bytes]:
    """Write a bundle as files: exactly those that `read_bundle` reads."""
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
