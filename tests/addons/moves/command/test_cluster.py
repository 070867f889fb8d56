"""`fairgate defragment` on a cluster: disruption budgets, Jobs that count failures, and what may not be read."""

import asyncio
import json

import pytest
from click.testing import CliRunner

from tests.addons.moves.command.test_defragment import POLICY, moves, pending, scattered, stays
from tests.cluster.support.fake_api import Answer, FakeApi
from tests.cluster.support.stores import write_kubeconfig
from webhook.cli.main import main

PODS, NODES, NAMESPACES = "/api/v1/pods", "/api/v1/nodes", "/api/v1/namespaces"
BUDGETS, JOBS = "/apis/policy/v1/poddisruptionbudgets", "/apis/batch/v1/jobs"


class Cluster:
    """The scattered pods and one that waits."""

    def __init__(self, api, folder):
        self.api, self.folder = api, folder
        for name in ("vision", "nlp"):
            api.put(NAMESPACES, name)
        for each in [*scattered(), pending("train", 4)]:
            metadata, path = each["metadata"], PODS if each["kind"] == "Pod" else NODES
            more = {"namespace": metadata["namespace"]} if path == PODS else {}
            api.put(path, metadata["name"], metadata=metadata, spec=each["spec"], status=each["status"], **more)
        (folder / "policy.yaml").write_text(POLICY)

    async def run(self, *words):
        options = ["--policy", str(self.folder / "policy.yaml"), "--kubeconfig", str(self.folder / "k")]
        result = await asyncio.to_thread(CliRunner().invoke, main, ["defragment", "--dry-run", *options, *words])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    async def report(self):
        return json.loads((await self.run("-o", "json")).stdout)


@pytest.fixture
async def cluster(tmp_path):
    async with FakeApi().serving() as api:
        write_kubeconfig(tmp_path / "k", api.url)
        yield Cluster(api, tmp_path)


@pytest.mark.parametrize(("allowed", "want"), [(0, "nlp/a"), (1, "nlp/b")])
async def test_disruption_budgets_are_respected(cluster, allowed, want):
    spec = {"selector": {"matchLabels": {"app": "b"}}}
    cluster.api.put(BUDGETS, "guard", namespace="nlp", spec=spec, status={"disruptionsAllowed": allowed})
    report = await cluster.report()
    assert [pod for pod, *_ in moves(report)[0]] == [want]
    assert stays(report).get("DisruptionBudget", 0) == 1 - allowed
    assert report["leftOut"] == []


@pytest.mark.parametrize("counts", [True, False], ids=["counts evictions", "ignores evictions"])
async def test_a_pod_of_a_job_that_counts_evictions_as_failures_stays(cluster, counts):
    ignores = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    spec = {"backoffLimit": 3} | ({} if counts else {"podFailurePolicy": {"rules": [ignores]}})
    uid = cluster.api.put(JOBS, "job", namespace="nlp", spec=spec)["metadata"]["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": uid, "controller": True}
    pod = cluster.api.objects[PODS]["nlp/b"]
    metadata = pod["metadata"] | {"ownerReferences": [owner]}
    cluster.api.put(PODS, "b", namespace="nlp", metadata=metadata, spec=pod["spec"], status=pod["status"])
    report = await cluster.report()
    assert stays(report) == ({"WorkloadFails": 1} if counts else {})
    assert [name for name, *_ in moves(report)[0]] == ["nlp/a" if counts else "nlp/b"]


async def test_what_may_not_be_read_besides_is_noted(cluster):
    cluster.api.faults[f"list {BUDGETS}"].append(Answer(403))
    cluster.api.faults[f"list {JOBS}"].append(Answer(403))
    result = await cluster.run()
    assert result.exit_code == 0
    assert "PodDisruptionBudgets are not looked at" in result.stderr
    assert "jobs are not looked at" in result.stderr


async def test_without_all_pods_nothing_is_planned(cluster):
    cluster.api.faults[f"list {PODS}"].append(Answer(403))
    result = await cluster.run()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "moves are planned from all nodes and pods" in result.stderr
