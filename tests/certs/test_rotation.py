"""Each rule of the rotation."""

from dataclasses import replace
from datetime import timedelta

import pytest

from certs.authority import (
    CLOCK_SKEW,
    CertificateError,
    certificate_to_pem,
    is_issued_by,
    key_to_pem,
    make_ca,
    names_of,
    new_key,
)
from certs.rotation import (
    CA,
    CA_KEY,
    CERTIFICATE,
    KEY,
    NEXT_CA_KEY,
    PREVIOUS,
    Change,
    Trust,
    bundle_files,
    merged,
    new_bundle,
    next_step,
    read_bundle,
    restored,
    trust_of,
)
from tests.certs.make import START, TERMS

CA_DUE = timedelta(hours=12)


def fresh():
    return new_bundle(TERMS, START, why="none").bundle


def step(bundle, *, at, is_settled=False, is_withdrawn=False, terms=TERMS):
    return next_step(bundle, terms, START + at, is_settled=is_settled, is_withdrawn=is_withdrawn)


def announced(bundle=None):
    return step(bundle or fresh(), at=CA_DUE).bundle


def taken_over():
    renewed = step(announced(), at=CA_DUE).bundle
    return step(renewed, at=CA_DUE, is_settled=True).bundle


def test_a_new_bundle_has_no_next_step():
    bundle = fresh()
    assert step(bundle, at=timedelta(), is_settled=True, is_withdrawn=True) is None
    assert set(names_of(bundle.leaf)) == {"localhost", "127.0.0.1", "::1", "fairgate.gpu.svc"}


def test_a_leaf_is_renewed_in_its_last_third_by_the_same_ca_with_a_new_key():
    bundle = fresh()
    assert step(bundle, at=timedelta(hours=3)) is None
    renewed = step(bundle, at=timedelta(hours=4))
    assert renewed.change is Change.RENEWED
    assert is_issued_by(renewed.bundle.leaf, bundle.signing.certificate)
    assert renewed.bundle.leaf.public_key() != bundle.leaf.public_key()
    assert renewed.bundle.cas == bundle.cas


def test_a_renewed_leaf_adds_missing_hosts_and_keeps_the_others():
    other = replace(TERMS, hosts=("other.svc",))
    renewed = step(fresh(), at=timedelta(), terms=other).bundle
    assert {"fairgate.gpu.svc", "other.svc"} <= set(names_of(renewed.leaf))
    assert step(renewed, at=timedelta(), terms=other) is None
    assert step(renewed, at=timedelta()) is None


def test_a_leaf_that_expires_with_its_ca_is_not_renewed_repeatedly():
    bundle = replace(announced(), announced=None)
    end = bundle.signing.certificate.not_valid_after_utc - START
    late = step(bundle, at=end - timedelta(minutes=30)).bundle  # announces; the leaf is next
    late = step(late, at=end - timedelta(minutes=30)).bundle
    assert late.leaf.not_valid_after_utc == late.signing.certificate.not_valid_after_utc
    assert step(late, at=end - timedelta(seconds=1)) is None


def test_a_new_ca_is_announced_and_signs_after_the_delay():
    begun = step(fresh(), at=CA_DUE)
    assert begun.change is Change.ANNOUNCED
    assert trust_of(begun.bundle, START + CA_DUE).wanted == begun.bundle.cas
    renewed = step(begun.bundle, at=CA_DUE)
    assert renewed.change is Change.RENEWED
    assert is_issued_by(renewed.bundle.leaf, begun.bundle.signing.certificate)
    assert step(renewed.bundle, at=CA_DUE) is None
    over = step(renewed.bundle, at=CA_DUE, is_settled=True)
    assert over.change is Change.TAKEN_OVER
    assert over.bundle.signing == renewed.bundle.announced
    assert is_issued_by(over.bundle.leaf, over.bundle.signing.certificate)
    assert (over.bundle.former.ca, over.bundle.former.last) == (
        renewed.bundle.signing.certificate,
        renewed.bundle.leaf,
    )


def test_a_former_ca_is_trusted_until_its_last_leaf_expired_then_withdrawn():
    bundle = taken_over()
    end = bundle.former.last.not_valid_after_utc
    second = timedelta(seconds=1)
    others = (bundle.signing.certificate,)
    assert trust_of(bundle, end - second) == Trust(bundle.cas)
    assert trust_of(bundle, end) == Trust(others)
    assert trust_of(bundle, end + CLOCK_SKEW - second) == Trust(others)
    assert trust_of(bundle, end + CLOCK_SKEW) == Trust(others, withdrawn=(bundle.former.ca,))


def test_a_former_ca_is_forgotten_once_no_webhook_trusts_it():
    bundle = taken_over()
    assert step(bundle, at=CA_DUE) is None
    gone = step(bundle, at=CA_DUE, is_withdrawn=True)
    assert gone.change is Change.FORGOTTEN
    assert gone.bundle.cas == (bundle.signing.certificate,)


def test_only_one_ca_is_replaced_at_a_time():
    bundle = replace(taken_over(), announced=make_ca(new_key(), now=START + CA_DUE))
    assert step(bundle, at=CA_DUE, is_settled=True) is None
    without = step(bundle, at=CA_DUE, is_settled=True, is_withdrawn=True).bundle
    assert step(without, at=CA_DUE, is_settled=True).change is Change.TAKEN_OVER


@pytest.mark.parametrize(
    ("bundle", "late", "is_known"),
    [
        pytest.param(fresh(), timedelta(hours=1), False, id="none was announced"),
        pytest.param(announced(), timedelta(hours=1), True, id="one was announced"),
        pytest.param(announced(), timedelta(days=9), False, id="the announced one expired too"),
    ],
)
def test_an_expired_ca_is_replaced_at_once(bundle, late, is_known):
    replaced = step(bundle, at=TERMS.ca_lifetime + late)
    assert replaced.change is Change.REPLACED
    assert len(replaced.bundle.cas) == 1
    assert is_issued_by(replaced.bundle.leaf, replaced.bundle.signing.certificate)
    assert (replaced.bundle.signing == bundle.announced) is is_known


def test_a_deleted_bundle_is_restored_with_a_new_ca_announced():
    bundle = fresh()
    back = restored(bundle, TERMS, START).bundle
    assert (back.leaf, back.signing) == (bundle.leaf, bundle.signing)
    assert back.announced is not None
    assert restored(back, TERMS, START).bundle == back


@pytest.mark.parametrize("make", [fresh, announced, taken_over, lambda: announced(fresh())])
def test_a_bundle_is_read_as_it_was_written(make):
    files = bundle_files(make())
    assert bundle_files(read_bundle(files)) == files


def test_an_announced_and_a_former_ca_are_distinguished():
    bundle = replace(taken_over(), announced=make_ca(new_key(), now=START))
    read = read_bundle(bundle_files(bundle))
    assert (read.former, read.announced.certificate) == (bundle.former, bundle.announced.certificate)


@pytest.mark.parametrize("files", [{}, {CERTIFICATE: b"", KEY: b""}, {"other": b"x"}])
def test_empty_files_are_no_bundle(files):
    assert read_bundle(files) is None


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({CA_KEY: b""}, "has tls.crt, tls.key, ca.crt but no ca.key: Fairgate did not create it"),
        ({CA_KEY: key_to_pem(new_key())}, "ca.key does not belong to ca.crt"),
        ({KEY: key_to_pem(new_key())}, "tls.key does not belong to tls.crt"),
        ({NEXT_CA_KEY: key_to_pem(new_key())}, "next-ca.key does not belong to a certificate in ca.crt"),
        ({CA: b"x"}, "ca.crt holds no readable PEM certificate"),
        ({PREVIOUS: certificate_to_pem(fresh().leaf)}, "previous-tls.crt was not issued by a former CA in ca.crt"),
    ],
)
def test_inconsistent_files_are_refused(change, want):
    with pytest.raises(CertificateError, match=want):
        read_bundle(bundle_files(fresh()) | change)


def test_a_leaf_of_another_ca_is_refused():
    other = fresh()
    pair = {CERTIFICATE: certificate_to_pem(other.leaf), KEY: key_to_pem(other.leaf_key)}
    with pytest.raises(CertificateError, match=r"tls\.crt was not issued by the first certificate"):
        read_bundle(bundle_files(fresh()) | pair)


def pem(*cas):
    return b"".join(map(certificate_to_pem, cas))


def test_cas_are_added_and_withdrawn_and_foreign_ones_are_kept():
    foreign, old, new = (make_ca(new_key(), now=START).certificate for _ in range(3))
    before = pem(foreign, old)
    assert merged(before, Trust((old, new))) == pem(foreign, old, new)
    assert merged(pem(foreign, old, new), Trust((new,))) == pem(foreign, old, new)
    assert merged(pem(foreign, old, new), Trust((new,), withdrawn=(old,))) == pem(foreign, new)


@pytest.mark.parametrize("before", [b"", b"\n", b"no certificate"])
def test_malformed_ca_bundles_are_replaced(before):
    ca = make_ca(new_key(), now=START).certificate
    assert merged(before, Trust((ca,))) == pem(ca)


def test_a_correct_ca_bundle_stays_unchanged():
    ca = make_ca(new_key(), now=START).certificate
    written = b"# the CA of Fairgate\n" + pem(ca) + b"\n\n"
    assert merged(written, Trust((ca,))) is written
