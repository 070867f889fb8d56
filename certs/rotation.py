"""Decides the next step of a bundle, so that every caller can always verify the serving certificate. Pure.

A CA is replaced in four steps, each one write. A new CA is *announced* (trusted, does not sign). When every caller had
time to trust it, it *takes over* (signs the serving certificate; the key of the former CA is deleted). When the last
certificate of the former CA has expired, that CA is *withdrawn* from callers; then the bundle *forgets* it.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from cryptography import x509

from certs.authority import (
    CLOCK_SKEW,
    Authority,
    CertificateOptions,
    make_ca,
    make_leaf,
    names_of,
    new_key,
    renewal_due,
)
from certs.bundle import Bundle, Former


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
    why = renewal_due(bundle.leaf, now, hosts=terms.names, ca=bundle.signing.certificate)
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
