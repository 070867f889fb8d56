"""`fairgate review --cluster`: the world is listed once over real HTTP, and nothing is written."""

import asyncio
import json

import pytest
from click.testing import CliRunner

from tests.cli.review.sample import POLICY
from tests.cluster.support.fake_api import Answer, FakeApi
from tests.cluster.support.stores import write_kubeconfig
from webhook.cli.main import main

AMOUNTS = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "10", "pods": "110"}


def containers(gpus):
    return {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}]}


@pytest.fixture
async def api():
    async with FakeApi().serving() as server:
        server.put("/api/v1/nodes", "n0", spec={}, status={"allocatable": AMOUNTS})
        server.put("/api/v1/namespaces", "nlp")
        server.put("/api/v1/pods", "held", namespace="nlp", spec=containers(7) | {"nodeName": "n0"})
        yield server


@pytest.fixture
def review(api, tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY)
    config = write_kubeconfig(tmp_path / "kubeconfig", api.url)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new", "namespace": "nlp"}, "spec": containers(2)}
    words = ["review", "--policy", str(tmp_path / "policy.yaml"), "--cluster", "--kubeconfig", str(config), "-"]
    return lambda *more: asyncio.to_thread(CliRunner().invoke, main, [*words, *more], input=json.dumps(pod))


async def test_pods_of_the_cluster_count_and_nothing_is_written(api, review):
    printed = json.loads((await review("-o", "json")).stdout)
    assert printed["world"].items() >= {"source": "cluster", "ageSeconds": 0.0, "nodes": 1, "pods": 1}.items()
    [pods] = printed["workloads"][0]["pods"]
    assert "requested 2, limit 8, used 7" in pods["reasons"][0]["message"]
    assert {request.verb for request in api.asked} <= {"get", "list", "page", "stream", "watch"}


async def test_without_read_rights_the_review_fails_at_once_and_names_the_rights(api, review):
    api.always["list"] = Answer(403)
    result = await review()
    assert result.exit_code == 2
    assert "--clusterrole=fairgate-viewer" in result.stderr
    assert api.count("watch") == api.count("stream") == 0


async def test_a_cluster_that_does_not_answer_is_reported_with_the_reason(api, review):
    api.always["list"] = Answer(503)
    result = await review()
    assert result.exit_code == 2
    assert "cannot list" in result.stderr
    assert "503" in result.stderr
