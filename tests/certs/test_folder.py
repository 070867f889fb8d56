import multiprocessing
import os
import stat
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from certs.authority import (
    LEAF_LIFETIME,
    CertificateError,
    CertificateOptions,
    certificate_to_pem,
    key_to_pem,
    make_ca,
    make_leaf,
    new_key,
    read_authority,
    read_pair,
)
from certs.serving import CertFolder

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SERVED = ("ca.crt", "tls.crt", "tls.key")


def contents(path):
    return {name: (path / name).read_bytes() for name in (*SERVED, "ca.key") if (path / name).exists()}


def foreign(path, *, now=NOW, key=None):
    """Files as a cert-manager mount has them: no ca.key."""
    ca, own = make_ca(new_key(), now=now), new_key()
    leaf = make_leaf(ca, key=own.public_key(), hosts=["a.svc"], now=now)
    path.mkdir(exist_ok=True)
    (path / "ca.crt").write_bytes(certificate_to_pem(ca.certificate))
    (path / "tls.crt").write_bytes(certificate_to_pem(leaf))
    (path / "tls.key").write_bytes(key_to_pem(key or own))
    return path


def test_a_missing_folder_is_created_with_all_files(tmp_path):
    path = tmp_path / "deep" / "certs"
    pair = CertFolder(path, terms=CertificateOptions(hosts=("fairgate.gpu.svc",))).prepare(NOW)
    names = pair.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == {"localhost", "fairgate.gpu.svc"}
    assert sorted(p.name for p in path.iterdir()) == [".lock", "ca.crt", "ca.key", "tls.crt", "tls.key"]


def test_keys_are_readable_by_the_owner_only(tmp_path):
    old = os.umask(0)
    try:
        CertFolder(tmp_path).prepare(NOW)
    finally:
        os.umask(old)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    assert modes == {".lock": 0o600, "ca.key": 0o600, "tls.key": 0o600, "ca.crt": 0o644, "tls.crt": 0o644}


def test_a_second_start_changes_nothing(tmp_path):
    CertFolder(tmp_path).prepare(NOW)
    before = contents(tmp_path)
    CertFolder(tmp_path).prepare(NOW + timedelta(days=1))
    assert contents(tmp_path) == before


def test_foreign_files_are_only_read(tmp_path):
    before = contents(foreign(tmp_path))
    pair = CertFolder(tmp_path, terms=CertificateOptions(hosts=("not.in.it",))).prepare(NOW + LEAF_LIFETIME * 0.9)
    assert certificate_to_pem(pair.certificate) == before["tls.crt"]
    assert sorted(os.listdir(tmp_path)) == sorted(SERVED)
    assert contents(tmp_path) == before


def test_a_renewal_keeps_ca_and_key_and_replaces_the_certificate(tmp_path):
    CertFolder(tmp_path).prepare(NOW)
    before = contents(tmp_path)
    later = NOW + LEAF_LIFETIME * 0.7
    assert CertFolder(tmp_path).renew(later)
    after = contents(tmp_path)
    assert {name for name in after if after[name] != before[name]} == {"tls.crt"}
    pair = read_pair(after["tls.crt"], after["tls.key"])
    assert pair.certificate.not_valid_after_utc == later + LEAF_LIFETIME
    assert not CertFolder(tmp_path).renew(later)


def test_an_expired_own_certificate_is_renewed_at_start(tmp_path):
    CertFolder(tmp_path).prepare(NOW)
    later = NOW + LEAF_LIFETIME * 2
    assert CertFolder(tmp_path).prepare(later).certificate.not_valid_after_utc == later + LEAF_LIFETIME


def test_servers_with_different_hosts_do_not_remove_each_others_names(tmp_path):
    one, two = (
        CertFolder(tmp_path, terms=CertificateOptions(hosts=("one.svc",))),
        CertFolder(tmp_path, terms=CertificateOptions(hosts=("two.svc",))),
    )
    one.prepare(NOW)
    two.prepare(NOW)
    assert not one.renew(NOW)
    assert not two.renew(NOW)


@pytest.mark.parametrize("lost", [("tls.crt",), ("tls.crt", "tls.key"), ("ca.crt", "tls.crt", "tls.key"), ("ca.crt",)])
def test_files_missing_after_a_crash_are_created_at_the_next_start(tmp_path, lost):
    CertFolder(tmp_path).prepare(NOW)
    key = (tmp_path / "ca.key").read_bytes()
    for name in lost:
        (tmp_path / name).unlink()
    CertFolder(tmp_path).prepare(NOW)
    files = contents(tmp_path)
    assert files["ca.key"] == key
    pair, ca = read_pair(files["tls.crt"], files["tls.key"]), read_authority(files["ca.crt"], key)
    pair.certificate.verify_directly_issued_by(ca.certificate)


@pytest.mark.parametrize(
    ("present", "want"),
    [
        (("ca.crt",), "has ca.crt but no tls.crt and no tls.key"),
        (("tls.crt", "tls.key"), "has tls.crt, tls.key but no ca.crt"),
        (("ca.crt", "tls.crt"), "has ca.crt, tls.crt but no tls.key"),
    ],
)
def test_incomplete_foreign_files_are_refused(tmp_path, present, want):
    foreign(tmp_path)
    for name in set(SERVED) - set(present):
        (tmp_path / name).unlink()
    with pytest.raises(CertificateError, match=f"certificates in {tmp_path}: {want}: provide all three files, or none"):
        CertFolder(tmp_path).prepare(NOW)
    assert sorted(os.listdir(tmp_path)) == sorted(present)


def rsa_pem():
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def encrypted_pem():
    return new_key().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    )


@pytest.mark.parametrize(
    ("name", "content", "want"),
    [
        pytest.param("tls.key", lambda: key_to_pem(new_key()), "tls.key does not belong to tls.crt", id="another key"),
        pytest.param("tls.key", rsa_pem, "tls.key does not belong to tls.crt", id="another kind of key"),
        pytest.param("tls.key", encrypted_pem, "encrypted with a passphrase", id="an encrypted key"),
        pytest.param("tls.key", lambda: b"x", "tls.key holds no readable PEM private key", id="no key"),
        pytest.param("tls.crt", lambda: b"", "tls.crt holds no readable PEM certificate", id="an empty certificate"),
        pytest.param("ca.crt", lambda: b"\0", "ca.crt holds no readable PEM certificate", id="a broken CA"),
    ],
)
def test_broken_foreign_files_are_refused(tmp_path, name, content, want):
    (foreign(tmp_path) / name).write_bytes(content())
    with pytest.raises(CertificateError, match=want):
        CertFolder(tmp_path).prepare(NOW)


@pytest.mark.parametrize(
    ("made", "want"),
    [
        (NOW - LEAF_LIFETIME, "tls.crt expired at 2026-03-01 12:00 UTC"),
        (NOW + timedelta(days=1), "tls.crt is not valid before 2026-03-02 11:00 UTC"),
        (NOW - timedelta(days=4000), "tls.crt expired at"),
    ],
)
def test_expired_and_future_foreign_certificates_are_refused(tmp_path, made, want):
    with pytest.raises(CertificateError, match=want):
        CertFolder(foreign(tmp_path, now=made)).prepare(NOW)


def test_an_expired_own_ca_is_refused_with_the_remedy(tmp_path):
    CertFolder(tmp_path).prepare(NOW)
    with pytest.raises(CertificateError, match=r"ca.crt expired at .*: remove all files to have a new CA created"):
        CertFolder(tmp_path).prepare(NOW + timedelta(days=4000))


def test_a_certificate_that_our_ca_did_not_issue_is_never_overwritten(tmp_path):
    CertFolder(tmp_path).prepare(NOW)
    own = foreign(tmp_path / "own")
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_bytes((own / name).read_bytes())
    with pytest.raises(CertificateError, match=r"tls.crt was not issued by ca.crt: remove"):
        CertFolder(tmp_path).prepare(NOW)


@pytest.mark.parametrize(
    ("name", "want"), [("ca.key", "ca.key does not belong to ca.crt"), ("tls.key", "tls.key does")]
)
def test_an_inconsistent_own_folder_is_refused(tmp_path, name, want):
    CertFolder(tmp_path).prepare(NOW)
    (tmp_path / name).write_bytes(key_to_pem(new_key()))
    with pytest.raises(CertificateError, match=want):
        CertFolder(tmp_path).prepare(NOW)


def test_an_unsupported_ca_key_is_refused(tmp_path):
    (tmp_path / "ca.key").write_bytes(rsa_pem())
    with pytest.raises(CertificateError, match="is not an ECDSA key"):
        CertFolder(tmp_path).prepare(NOW)


def test_an_invalid_host_is_refused(tmp_path):
    with pytest.raises(CertificateError, match="expected a DNS name or an IP address"):
        CertFolder(tmp_path, terms=CertificateOptions(hosts=("two words",))).prepare(NOW)


def test_a_path_to_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CertificateError, match=r"file: cannot read tls.crt: Not a directory"):
        CertFolder(tmp_path / "file").prepare(NOW)


def test_an_unwritable_folder_without_files_is_refused_with_the_remedy(tmp_path):
    (tmp_path / ".lock").mkdir()  # root may write anywhere; even root cannot open a folder as a file
    with pytest.raises(CertificateError, match=r"cannot write to it \(Is a directory\): make the folder writable, or"):
        CertFolder(tmp_path).prepare(NOW)


def test_an_unwritable_folder_with_a_usable_pair_is_served(tmp_path):
    CertFolder(tmp_path).prepare(NOW)
    (tmp_path / ".lock").unlink()
    (tmp_path / ".lock").mkdir()
    pair = CertFolder(tmp_path).prepare(NOW + LEAF_LIFETIME * 0.7)
    assert pair.certificate.not_valid_after_utc == NOW + LEAF_LIFETIME
    with pytest.raises(CertificateError, match="cannot write to it"):
        CertFolder(tmp_path).renew(NOW + LEAF_LIFETIME * 0.7)


def start(path, barrier, served):
    barrier.wait()
    pair = CertFolder(path).prepare(NOW)
    served.put((pair.pem, contents(path)))


@pytest.mark.slow
def test_processes_that_start_together_on_one_folder_serve_the_same_certificate(tmp_path):
    fork = multiprocessing.get_context("spawn")
    barrier, served = fork.Barrier(3), fork.Queue()
    workers = [fork.Process(target=start, args=(tmp_path / "certs", barrier, served)) for _ in range(3)]
    for worker in workers:
        worker.start()
    seen = [served.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert all(one == seen[0] for one in seen)
    assert sorted(seen[0][1]) == ["ca.crt", "ca.key", "tls.crt", "tls.key"]
