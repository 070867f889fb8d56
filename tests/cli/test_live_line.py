"""What a live cluster says of its line: earlier waits, by the leader, and whether an evictor leads."""

import asyncio
import time
from datetime import UTC, datetime
from http import HTTPStatus

import pytest

from tests.cluster.support.fake_api import Answer
from tests.cluster.support.stores import write_kubeconfig
from webhook.cli.queue.rows import published_waits, why_no_evictor
from webhook.core.explain.line_rows import EarlierWaits, TeamWaits
from webhook.core.model.amounts import ONE_GPU
from webhook.kube.ledger import reports
from webhook.server.settings import FileWorld, LiveCluster

LEASES = "/apis/coordination.k8s.io/v1/leases"
LEASE = "get /apis/coordination.k8s.io/v1/namespaces/fairgate-system/leases/fairgate-evictor"
FORBIDDEN = Answer(HTTPStatus.FORBIDDEN)
NONE, UNKNOWN = "no evictor leads", "no evictor is known to lead"


@pytest.fixture
def config(api, tmp_path):
    return write_kubeconfig(tmp_path / "k", api.url)


def lease(api, holder="evictor-0"):
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": now}
    api.put(LEASES, "fairgate-evictor", namespace="fairgate-system", spec=spec)


def report(api, *, leading, at=0.0):
    entry = reports.ReplicaReport("evictor", reports.written_at(time.time() - at), "v", "p", "enforce", leading=leading)
    api.put(reports.PATH, reports.REPLICAS, **reports.replica_patch("evictor-0", entry) | {"metadata": {}})


async def why(config):
    return await asyncio.to_thread(why_no_evictor, LiveCluster(config))


async def test_the_lease_says_whether_an_evictor_leads(api, config):
    assert await why(config) == NONE
    lease(api)
    assert await why(config) == ""
    lease(api, holder="")
    assert await why(config) == NONE


async def test_where_the_lease_may_not_be_read_the_report_of_the_evictor_says_it(api, config):
    for leading, at, want in ((True, 0, ""), (False, 0, NONE), (True, 120, NONE)):
        api.faults[LEASE].append(FORBIDDEN)
        report(api, leading=leading, at=at)
        assert await why(config) == want


async def test_where_neither_may_be_read_no_eviction_is_counted_on(api, config):
    lease(api)
    api.always["get"] = FORBIDDEN
    assert await why(config) == UNKNOWN


async def test_waits_are_those_that_the_leader_published(api, config):
    cluster = LiveCluster(config)
    assert list(await asyncio.to_thread(published_waits, cluster)) == []
    waits = EarlierWaits([TeamWaits("vision", ONE_GPU // 2, (60, 120))])
    api.put(reports.PATH, reports.STARTS, **reports.starts_patch(waits) | {"metadata": {}})
    found = await asyncio.to_thread(published_waits, cluster)
    assert found.of("vision", ONE_GPU // 2) == (2, 60, 120)
    api.always["get"] = FORBIDDEN
    assert list(await asyncio.to_thread(published_waits, cluster)) == []


def test_a_file_says_nothing_of_either(tmp_path):
    source = FileWorld(tmp_path / "world.yaml")
    assert (list(published_waits(source)), why_no_evictor(source)) == ([], "")
