from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509

from certs.authority import (
    LEAF_LIFETIME,
    LOCAL_HOSTS,
    is_issued_by,
    make_ca,
    make_leaf,
    names_missing,
    new_key,
    renewal_due,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def leaf_for(*hosts, now=NOW):
    return make_leaf(make_ca(new_key(), now=NOW), key=new_key().public_key(), hosts=hosts, now=now)


def test_a_leaf_names_every_host_with_its_type():
    names = leaf_for(*LOCAL_HOSTS, "fairgate.gpu.svc").extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.value.get_values_for_type(x509.IPAddress) == [ip_address("127.0.0.1"), ip_address("::1")]
    assert names.value.get_values_for_type(x509.DNSName) == [
        "localhost",
        "fairgate.gpu.svc",
    ]


def test_leaf_is_issued_by_its_ca_and_no_other():
    ca, other = make_ca(new_key(), now=NOW), make_ca(new_key(), now=NOW)
    leaf = make_leaf(ca, key=new_key().public_key(), hosts=["a.svc"], now=NOW)
    assert is_issued_by(leaf, ca.certificate)
    assert not is_issued_by(leaf, other.certificate)
    assert ca.certificate.subject != other.certificate.subject


def test_a_ca_reissued_from_its_key_verifies_old_leaves():
    key = new_key()
    leaf = make_leaf(make_ca(key, now=NOW), key=new_key().public_key(), hosts=["a.svc"], now=NOW)
    assert is_issued_by(leaf, make_ca(key, now=NOW + timedelta(days=30)).certificate)


def test_a_leaf_expires_no_later_than_its_ca():
    ca = make_ca(new_key(), now=NOW)
    late = ca.certificate.not_valid_after_utc - timedelta(days=5)
    leaf = make_leaf(ca, key=new_key().public_key(), hosts=["a.svc"], now=late)
    assert leaf.not_valid_after_utc == ca.certificate.not_valid_after_utc


@pytest.mark.parametrize(
    ("later", "hosts", "want"),
    [
        pytest.param(timedelta(), ["a.svc"], None, id="fresh"),
        pytest.param(LEAF_LIFETIME * 0.6, ["a.svc"], None, id="in the second third of its lifetime"),
        pytest.param(LEAF_LIFETIME * 0.7, ["a.svc"], "last third", id="in the last third of its lifetime"),
        pytest.param(LEAF_LIFETIME, ["a.svc"], "expired", id="expired"),
        pytest.param(timedelta(), ["a.svc", "10.0.0.7"], "does not name 10.0.0.7", id="a host is missing"),
        pytest.param(timedelta(), ["A.SVC"], None, id="names are compared without case"),
    ],
)
def test_renewal_due_says_why(later, hosts, want):
    why = renewal_due(leaf_for("a.svc"), NOW + later, hosts=hosts)
    assert why is None if want is None else want in why


def test_a_certificate_that_ends_later_than_a_new_one_would_is_replaced():
    leaf, ca = leaf_for("a.svc"), make_ca(new_key(), now=NOW).certificate
    ends = leaf.not_valid_after_utc - NOW
    assert renewal_due(leaf, NOW, ca=ca, lifetime=ends) is None
    assert renewal_due(leaf, NOW, ca=ca, lifetime=ends + timedelta(days=30)) is None
    assert "a new one is to end 7 days, 0:00:00 after it is issued" in renewal_due(
        leaf, NOW, ca=ca, lifetime=timedelta(days=7)
    )
    again = make_leaf(
        make_ca(new_key(), now=NOW), key=new_key().public_key(), hosts=["a"], now=NOW, lifetime=timedelta(1)
    )
    assert renewal_due(again, NOW - timedelta(minutes=5), lifetime=timedelta(1)) is None, "clocks differ"


def test_every_name_is_missing_from_a_certificate_without_names():
    ca = make_ca(new_key(), now=NOW).certificate
    assert names_missing(ca, ["a.svc"]) == ("a.svc",)


@pytest.mark.parametrize("host", ["", "two words", "host:8443", "a/b", "müller.svc"])
def test_invalid_hosts_are_refused(host):
    with pytest.raises(ValueError, match="expected a DNS name or an IP address"):
        leaf_for(host)
