"""When to renew, overlapping CAs.

All certificates of one installation, stored in one Secret: decoding and encoding. Pure.

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
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from certs.authority import (
    CA,
    CA_KEY,
    CERTIFICATE,
    CLOCK_SKEW,
    KEY,
    Authority,
    CertificateError,
    CertificateOptions,
    Pair,
    belongs_to,
    certificate_to_pem,
    is_issued_by,
    key_to_pem,
    make_ca,
    make_leaf,
    names_of,
    new_key,
    read_authority,
    read_certificates,
    read_ec_key,
    read_pair,
    renewal_due,
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


# Decides the next step of a bundle, so that every caller can always verify the serving certificate. Pure.
#
# A CA is replaced in four steps, each one write. A new CA is *announced* (trusted, does not sign). When every caller
# had time to trust it, it *takes over* (signs the serving certificate; the key of the former CA is deleted). When the
# last certificate of the former CA has expired, that CA is *withdrawn* from callers; then the bundle *forgets* it.


class Change(StrEnum):
    """The kind of a write to the bundle."""

    CREATED = "created"
    RENEWED = "renewed"
    ANNOUNCED = "announced"
    TAKEN_OVER = "taken_over"
    FORGOTTEN = "forgotten"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class Step:
    """The next bundle to write, and why."""

    change: Change
    bundle: Bundle
    why: str


@dataclass(frozen=True, slots=True)
class Trust:
    """The CAs to add to and to remove from a caBundle. A CA in neither is not changed."""

    wanted: tuple[x509.Certificate, ...]
    withdrawn: tuple[x509.Certificate, ...] = ()


def trust_of(bundle: Bundle, now: datetime) -> Trust:
    """Return which CAs callers should trust.

    A former CA is wanted until its last certificate has expired, and withdrawn some time after that. In between it is
    not changed: replicas whose clocks differ must not alternately add and remove it.
    """
    if bundle.former is None:
        return Trust(bundle.cas)
    last, others = bundle.former.last, tuple(ca for ca in bundle.cas if ca != bundle.former.ca)
    end = last.not_valid_after_utc
    if now < end:
        return Trust(bundle.cas)
    margin = min(CLOCK_SKEW, (end - last.not_valid_before_utc) / 2)
    return Trust(others, withdrawn=(bundle.former.ca,) if now >= end + margin else ())


def new_bundle(terms: CertificateOptions, now: datetime, *, why: str) -> Step:
    """Return a step that creates a bundle. Raises ValueError for a host that is not valid in a certificate."""
    authority = make_ca(new_key(), now=now, lifetime=terms.ca_lifetime)
    return Step(Change.CREATED, _signed(authority, terms, now), why)


def restored(bundle: Bundle, terms: CertificateOptions, now: datetime) -> Step:
    """Return a step that restores a deleted bundle in use and announces a new CA, as the deletion requests."""
    announced = bundle.announced or make_ca(new_key(), now=now, lifetime=terms.ca_lifetime)
    why = "the Secret was deleted: its CA stays in use until a new CA takes over"
    return Step(Change.CREATED, replace(bundle, announced=announced), why)


def next_step(
    bundle: Bundle, terms: CertificateOptions, now: datetime, *, is_settled: bool, is_withdrawn: bool
) -> Step | None:
    """Return the next step, or None.

    `is_settled`: every caller had time to trust all wanted CAs. `is_withdrawn`: no registered webhook trusts the
    former CA any more. Neither depends on the wall clock.
    """
    if step := _step_of_ca(bundle, terms, now, is_settled=is_settled):
        return step
    ca, lifetime = bundle.signing.certificate, terms.leaf_lifetime
    why = renewal_due(bundle.leaf, now, hosts=terms.names, ca=ca, lifetime=lifetime)
    if why is not None:
        renewed = _signed(bundle.signing, terms, now, names_of(bundle.leaf))
        after = replace(bundle, leaf=renewed.leaf, leaf_key=renewed.leaf_key)
        return Step(Change.RENEWED, after, f"of the serving certificate: {why}")
    if bundle.former is not None and is_withdrawn:
        return Step(Change.FORGOTTEN, replace(bundle, former=None), "no webhook trusts the former CA")
    return None


def _step_of_ca(bundle: Bundle, terms: CertificateOptions, now: datetime, *, is_settled: bool) -> Step | None:
    end = bundle.signing.certificate.not_valid_after_utc
    if now >= end:
        authority = bundle.announced
        if authority is None or renewal_due(authority.certificate, now):
            authority = make_ca(new_key(), now=now, lifetime=terms.ca_lifetime)
        why = f"the CA expired at {end:%Y-%m-%d %H:%M} UTC: callers no longer accept its certificates"
        return Step(Change.REPLACED, _signed(authority, terms, now, names_of(bundle.leaf)), why)
    if bundle.former is not None:
        return None  # one replacement at a time: a caller never has to trust more than two CAs
    if bundle.announced is not None:
        if not is_settled:
            return None
        over = _signed(bundle.announced, terms, now, names_of(bundle.leaf))
        over = replace(over, former=Former(bundle.signing.certificate, bundle.leaf))
        return Step(Change.TAKEN_OVER, over, "every caller had time to trust the new CA")
    why_due = renewal_due(bundle.signing.certificate, now)
    if why_due is None:
        return None
    announced = make_ca(new_key(), now=now, lifetime=terms.ca_lifetime)
    return Step(Change.ANNOUNCED, replace(bundle, announced=announced), f"of the CA: {why_due}")


def _signed(authority: Authority, terms: CertificateOptions, now: datetime, old_names: tuple[str, ...] = ()) -> Bundle:
    # Names are only added: two replicas with different hosts must not alternately remove each other's names.
    key = new_key()
    hosts = (*terms.names, *old_names)
    leaf = make_leaf(authority, key=key.public_key(), hosts=hosts, now=now, lifetime=terms.leaf_lifetime)
    return Bundle(authority, leaf, key)


# Merges CAs into a webhook's caBundle. Pure.


def merged(pem: bytes, trust: Trust) -> bytes:
    """Return a caBundle with the wanted CAs and without the withdrawn ones; the same bytes if nothing changes.

    All other CAs stay, in their order: they belong to other programs or to a previous installation. Text that is not
    certificates, such as the newline that some charts write as a placeholder, is replaced.
    """
    try:
        present = read_certificates(pem, name="caBundle")
    except CertificateError:
        present = []
    stay = [ca for ca in present if ca not in trust.withdrawn]
    new = [ca for ca in trust.wanted if ca not in present]
    return b"".join(map(certificate_to_pem, [*stay, *new])) if new or len(stay) < len(present) else pem
