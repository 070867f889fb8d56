"""The version of the API server over real HTTP: read again until it is known, and refused if it is too old."""

import pytest

from tests.cluster.support.fake_api import Answer
from webhook.cluster.api.client import ClusterError
from webhook.cluster.reads import listing


@pytest.mark.parametrize(
    ("version", "minor"), [(("1", "30+", "v1.30.1-gke"), 30), (("1", "99", "v1.99.0"), 99), (("", "", "other"), None)]
)
async def test_a_new_or_unknown_version_passes(api, connection, version, minor):
    api.kubernetes = version
    await listing.refuse_too_old(connection)
    found = await listing.read_version(connection)
    assert (found and found.minor) == minor


async def test_an_old_version_is_refused(api, connection):
    api.kubernetes = ("1", "29", "v1.29.9")
    with pytest.raises(ClusterError, match=r"Kubernetes 1.29 \(v1.29.9\); Fairgate needs Kubernetes 1.30 or newer"):
        await listing.refuse_too_old(connection)


@pytest.mark.parametrize("status", [403, 404])
async def test_a_version_that_may_not_be_read_is_unknown(api, connection, status):
    api.faults["get /version"].append(Answer(status))
    assert await listing.read_version(connection) is None


async def test_a_server_that_is_not_there_yet_is_asked_again(api, connection, monkeypatch):
    monkeypatch.setattr(listing, "_RETRY_SECONDS", 0.001)
    api.faults["get /version"].extend([Answer(503), Answer(500)])
    api.kubernetes = ("1", "29", "v1.29.9")
    with pytest.raises(ClusterError, match="Fairgate needs Kubernetes"):
        await listing.refuse_too_old(connection)
