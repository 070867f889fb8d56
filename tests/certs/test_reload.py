import asyncio
import ssl
from datetime import UTC, datetime, timedelta

import pytest

from certs.authority import LEAF_LIFETIME, certificate_to_pem, key_to_pem, make_ca, make_leaf, new_key
from certs.serving import CertFolder, Reloaded, Reloader, ReloadFailed

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Clock:
    now = NOW

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def issue(path, *, ca, serial=0):
    key = new_key()
    leaf = make_leaf(ca, key=key.public_key(), hosts=["localhost"], now=NOW + timedelta(minutes=serial))
    path.mkdir(exist_ok=True)
    (path / "ca.crt").write_bytes(certificate_to_pem(ca.certificate))
    (path / "tls.key").write_bytes(key_to_pem(key))
    (path / "tls.crt").write_bytes(certificate_to_pem(leaf))
    return leaf


@pytest.fixture
def ca():
    return make_ca(new_key(), now=NOW)


async def test_no_change_reports_nothing(tmp_path, clock):
    reloader = Reloader(CertFolder(tmp_path), clock=clock)
    assert await reloader.check() is None
    assert reloader.why_unusable() is None


async def test_a_new_pair_is_loaded(tmp_path, clock, ca):
    issue(tmp_path, ca=ca)
    reloader = Reloader(CertFolder(tmp_path), clock=clock)
    leaf = issue(tmp_path, ca=ca, serial=1)
    assert await reloader.check() == Reloaded(not_after=leaf.not_valid_after_utc, is_renewed=False)
    assert reloader.not_after == leaf.not_valid_after_utc


async def test_swapped_symlinks_of_a_secret_mount_are_followed(tmp_path, clock, ca):
    issue(tmp_path / "one", ca=ca)
    leaf = issue(tmp_path / "two", ca=ca, serial=1)
    mount = tmp_path / "mount"
    mount.mkdir()
    (mount / "..data").symlink_to(tmp_path / "one")
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (mount / name).symlink_to(f"..data/{name}")
    reloader = Reloader(CertFolder(mount), clock=clock)
    (mount / "..new").symlink_to(tmp_path / "two")
    (mount / "..new").rename(mount / "..data")
    assert await reloader.check() == Reloaded(not_after=leaf.not_valid_after_utc, is_renewed=False)


@pytest.mark.parametrize(
    ("damage", "want"),
    [
        (lambda path: (path / "tls.crt").write_bytes(b"half a certifi"), "tls.crt holds no readable PEM certificate"),
        (lambda path: (path / "tls.key").unlink(), "has no tls.key"),
        (lambda path: (path / "tls.key").write_bytes(key_to_pem(new_key())), "tls.key does not belong to tls.crt"),
    ],
    ids=["garbage", "a file is gone", "another key"],
)
async def test_a_broken_pair_is_not_loaded_and_reported_once(tmp_path, clock, ca, damage, want):
    issue(tmp_path, ca=ca)
    reloader = Reloader(CertFolder(tmp_path), clock=clock)
    before = reloader.not_after
    damage(tmp_path)
    outcome = await reloader.check()
    assert isinstance(outcome, ReloadFailed)
    assert want in outcome.why
    assert await reloader.check() is None
    assert (reloader.not_after, reloader.why_unusable()) == (before, None)
    leaf = issue(tmp_path, ca=ca, serial=2)
    assert await reloader.check() == Reloaded(not_after=leaf.not_valid_after_utc, is_renewed=False)


async def test_an_own_certificate_is_renewed_before_it_expires(tmp_path, clock):
    reloader = Reloader(CertFolder(tmp_path), clock=clock)
    clock.now = NOW + LEAF_LIFETIME * 0.7
    assert await reloader.check() == Reloaded(not_after=clock.now + LEAF_LIFETIME, is_renewed=True)
    assert await reloader.check() is None


async def test_a_failed_renewal_is_reported_and_the_old_certificate_is_used_until_it_expires(tmp_path, clock):
    reloader = Reloader(CertFolder(tmp_path), clock=clock)
    (tmp_path / ".lock").unlink()
    (tmp_path / ".lock").mkdir()
    clock.now = NOW + LEAF_LIFETIME * 0.7
    outcome = await reloader.check()
    assert isinstance(outcome, ReloadFailed)
    assert "cannot write to it" in outcome.why
    assert reloader.why_unusable() is None
    clock.now = NOW + LEAF_LIFETIME
    assert reloader.why_unusable() == "the serving certificate expired at 2026-05-30 12:00 UTC"


async def test_run_reports_outcomes(tmp_path, clock, ca):
    issue(tmp_path, ca=ca)
    reloader = Reloader(CertFolder(tmp_path), clock=clock)
    reports = asyncio.Queue()
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(reloader.run(report=reports.put_nowait, every_seconds=0.01))
        leaf = issue(tmp_path, ca=ca, serial=1)
        # Between the writes above a mixed pair may be read, which may be reported too.
        while not isinstance(outcome := await reports.get(), Reloaded):
            pass
        watching.cancel()
    assert outcome.not_after == leaf.not_valid_after_utc


def test_the_context_requires_tls_1_2(tmp_path, clock):
    context = Reloader(CertFolder(tmp_path), clock=clock).context
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
