"""The certificate manager with a store and webhook configurations in memory."""

import asyncio

import pytest

from certs.authority import is_issued_by
from certs.manager import BundleChanged, CaBundlesPublished, CaBundlesUnpublished, CertificateManager
from certs.rotation import CA, CERTIFICATE, Change, bundle_files, new_bundle, read_bundle
from certs.serving import Reloaded, ReloadFailed
from tests.certs.make import SETTLE_SECONDS, START, TERMS, Cluster, MemoryCallers, MemoryStore, Replica, bundle_of

CA_DUE_SECONDS = 12 * 3600


@pytest.fixture
def cluster():
    made = Cluster()
    made.register()
    return made


def changes(*replicas):
    return [
        outcome.change for replica in replicas for outcome in replica.reported if isinstance(outcome, BundleChanged)
    ]


def test_replicas_that_start_together_create_one_bundle(cluster):
    replicas = [Replica(cluster) for _ in range(3)]
    for _ in range(20):
        for replica in replicas:
            replica.step()
    assert changes(*replicas) == [Change.CREATED]
    assert {replica.leaf for replica in replicas} == {bundle_of(cluster).leaf}
    for replica in replicas:
        replica.stop()


def test_each_change_is_reported_once(cluster):
    replica = Replica(cluster)
    replica.look()
    replica.look()
    created, reloaded, published = replica.reported
    assert created == BundleChanged(Change.CREATED, "Secret gpu/certs had none")
    assert reloaded == Reloaded(not_after=bundle_of(cluster).leaf.not_valid_after_utc, is_renewed=True)
    assert published == CaBundlesPublished(("mutating", "validating"))
    assert cluster.bundles["mutating"] == cluster.files[CA]
    assert (replica.manager.why_unusable(), replica.manager.why_unpublished()) == (None, None)


def test_an_empty_secret_is_filled_and_other_keys_are_kept(cluster):
    cluster.files = {CERTIFICATE: b"", "notes": b"mine"}
    Replica(cluster).look()
    assert cluster.files["notes"] == b"mine"
    assert bundle_of(cluster) is not None


def test_a_foreign_secret_is_never_changed(cluster):
    files = bundle_files(new_bundle(TERMS, START, why="").bundle)
    cluster.files = {name: files[name] for name in ("tls.crt", "tls.key", "ca.crt")}
    before = dict(cluster.files)
    replica = Replica(cluster)
    replica.look()
    (kept,) = replica.reported
    assert isinstance(kept, ReloadFailed)
    assert "certificates in Secret gpu/certs: has tls.crt, tls.key, ca.crt but no ca.key" in kept.why
    assert "not read from Secret gpu/certs yet" in replica.manager.why_unusable()
    assert cluster.files == before


def test_an_api_outage_is_reported_once_and_the_certificate_is_kept(cluster):
    replica = Replica(cluster)
    replica.look()
    leaf = replica.leaf
    replica.reported.clear()
    cluster.is_away = True
    replica.look()
    replica.look()
    assert replica.reported == [ReloadFailed("cannot get secrets: no API server")]
    assert (replica.leaf, replica.manager.why_unusable()) == (leaf, None)


def test_without_registered_callers_a_ca_is_announced_but_never_takes_over():
    cluster = Cluster()
    replica = Replica(cluster)
    replica.look()
    assert replica.reported[-1] == CaBundlesUnpublished(
        "there is no mutating and no validating: apply the output of `fairgate manifests`"
    )
    cluster.seconds = CA_DUE_SECONDS
    for _ in range(3):
        replica.look()
        cluster.seconds += SETTLE_SECONDS
    assert changes(replica)[1:] == [Change.ANNOUNCED, Change.RENEWED]
    cluster.register()
    replica.look()
    assert replica.manager.why_unpublished() is None
    cluster.seconds += SETTLE_SECONDS
    replica.look()
    assert changes(replica)[3:] == [Change.TAKEN_OVER]


def test_the_delay_restarts_when_a_ca_bundle_loses_the_new_ca(cluster):
    replica = Replica(cluster)
    replica.look()
    cluster.seconds = CA_DUE_SECONDS
    replica.look()
    cluster.seconds += SETTLE_SECONDS - 1
    cluster.set_bundle("validating", b"")  # old manifests were applied
    replica.look()
    cluster.seconds += SETTLE_SECONDS - 1
    replica.look()
    assert Change.TAKEN_OVER not in changes(replica)
    cluster.seconds += 1
    replica.look()
    assert changes(replica)[-1] is Change.TAKEN_OVER


def test_only_observed_time_counts_toward_the_delay(cluster):
    first, second = Replica(cluster), Replica(cluster)
    first.look()
    cluster.seconds = CA_DUE_SECONDS
    first.look()
    cluster.seconds += SETTLE_SECONDS - 1
    second.look()
    cluster.seconds += 1
    second.look()
    assert changes(second) == []
    first.look()
    assert changes(first)[-1] is Change.TAKEN_OVER


def test_a_foreign_bundle_is_served_after_the_delay(cluster):
    replica = Replica(cluster)
    replica.look()
    leaf = replica.leaf
    strange = new_bundle(TERMS, START, why="").bundle
    cluster.files = bundle_files(strange)
    replica.look()
    assert replica.leaf == leaf
    cluster.seconds += SETTLE_SECONDS
    replica.look()
    assert replica.leaf == strange.leaf


def test_a_deleted_secret_is_restored_and_its_ca_replaced(cluster):
    replica = Replica(cluster)
    replica.look()
    leaf, ca = replica.leaf, bundle_of(cluster).signing.certificate
    cluster.files = None
    replica.look()
    assert (replica.leaf, bundle_of(cluster).signing.certificate) == (leaf, ca)
    cluster.seconds += SETTLE_SECONDS
    replica.look()
    after = bundle_of(cluster)
    assert after.former.ca == ca
    assert is_issued_by(replica.leaf, after.signing.certificate)


def test_the_delay_is_shorter_than_a_short_ca_lifetime():
    cluster = Cluster()
    cluster.register()
    terms = type(TERMS)(ca_lifetime=TERMS.ca_lifetime / 600, leaf_lifetime=TERMS.leaf_lifetime / 600)
    replica = Replica(cluster, terms=terms)
    authorities = set()
    for _ in range(300):
        cluster.seconds += 3
        replica.look()
        authorities.add(bundle_of(cluster).signing.certificate)
    assert len(authorities) > 5


def test_an_invalid_host_is_refused_at_once():
    cluster = Cluster()
    with pytest.raises(ValueError, match="expected a DNS name or an IP address"):
        Replica(cluster, terms=type(TERMS)(("two words",)))


async def test_a_trigger_starts_a_reconciliation_before_the_resync(cluster):
    looked = asyncio.Event()

    class Callers(MemoryCallers):
        async def publish(self, merge):
            looked.set()
            return await super().publish(merge)

    def shortest(low, _high):
        return low

    manager = CertificateManager(
        MemoryStore(cluster), Callers(cluster), terms=TERMS, report=lambda _: None, uniform=shortest
    )
    running = asyncio.create_task(manager.run())
    await asyncio.sleep(0)
    assert not looked.is_set()
    manager.ring()
    async with asyncio.timeout(60):
        await looked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert read_bundle(cluster.files) is not None
