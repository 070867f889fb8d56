"""Pods of Jobs that never end because their node is lost: who is marked as failed, and who is left alone."""

import asyncio
import os

import pytest

from tests.cluster.support.fake_api import Answer
from tests.evictor.support.stage import NODES, PODS
from webhook.core.reclaim.reclaim_index import STUCK_SECONDS
from webhook.evictor import repair
from webhook.evictor.cluster_view import ClusterView
from webhook.evictor.repair import LostPods
from webhook.kube.nodes.holds import rfc3339
from webhook.observe.logs import LineWriter, LogFormat, Logs

JOBS = "/apis/batch/v1/jobs"
NOTE = {"fairgate.dev/pod-replacement-policy": "TerminatingOrFailed"}


def lose(stage, node):
    """Do what the node controller does where a kubelet does not report."""
    body = stage.api.objects[NODES][f"/{node}"]
    ready = [{"type": "Ready", "status": "Unknown"}]
    stage.api.keep(NODES, f"/{node}", body | {"status": body["status"] | {"conditions": ready}})


def job_pod(stage, name, *, annotations=None, deleted=0, kind="Job"):
    """A pod of a Job, deleted so many seconds ago with a grace period of 30 s; 0: not."""
    spec = {"podReplacementPolicy": "Failed"}
    job = stage.api.put(JOBS, name, namespace="team-a", metadata={"annotations": annotations or {}}, spec=spec)
    owner = {"apiVersion": "batch/v1", "kind": kind, "name": name, "uid": job["metadata"]["uid"], "controller": True}
    stage.borrower(name, on="n0", ownerReferences=[owner], status={"phase": "Running"})
    if deleted:
        body = stage.api.objects[PODS][f"team-a/{name}"]
        ends = rfc3339(int(stage.now()) - deleted + 30)
        body["metadata"] |= {"deletionTimestamp": ends, "deletionGracePeriodSeconds": 30}


class Looker:
    """Looks for lost pods on the stage's cluster."""

    def __init__(self, stage):
        self.view = ClusterView(stage.policy)
        self.feed = self.view.feed(stage.connection)
        self.logs = Logs(LineWriter(os.open(os.devnull, os.O_WRONLY)), log_format=LogFormat.JSON)
        self.lost = LostPods(stage.context(self.view, self.logs, why_stale=self.feed.readiness))
        self.stage = stage

    async def run(self, seconds):
        tasks = [asyncio.create_task(self.feed.run()), asyncio.create_task(self.lost.run())]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


JOB = "/apis/batch/v1/namespaces/team-a/jobs/train"


def reads_of_job(stage):
    return sum(asked.path == JOB for asked in stage.api.asked)


def phase(stage, name):
    return stage.api.objects[PODS][f"team-a/{name}"]["status"]["phase"]


async def test_a_pod_past_its_deadline_on_a_lost_node_is_marked_as_failed(stage):
    stage.node("n0")
    job_pod(stage, "train", annotations=NOTE, deleted=30)
    lose(stage, "n0")
    looker = Looker(stage)
    await looker.run(STUCK_SECONDS - 5)
    assert phase(stage, "train") == "Running"
    await looker.run(5 + 2 * repair.LOOK_SECONDS)
    assert phase(stage, "train") == "Failed"
    assert stage.reasons() == ["NodeLost"]


@pytest.mark.parametrize(
    "more",
    [
        {"deleted": 90},
        {"annotations": NOTE},
        {"annotations": NOTE, "deleted": 90, "kind": "ReplicaSet"},
    ],
    ids=["its Job waits for the end of its pods", "it is not deleted", "it is of no Job"],
)
async def test_other_pods_of_a_lost_node_stay_as_they_are(stage, more):
    stage.node("n0")
    job_pod(stage, "train", **more)
    lose(stage, "n0")
    await Looker(stage).run(60)
    assert (phase(stage, "train"), stage.reasons()) == ("Running", [])


async def test_a_pod_on_a_node_whose_kubelet_reports_is_left_to_it(stage):
    stage.node("n0")
    job_pod(stage, "train", annotations=NOTE, deleted=90)
    await Looker(stage).run(60)
    assert (phase(stage, "train"), reads_of_job(stage)) == ("Running", 0)


async def test_only_the_leader_marks_pods(stage):
    stage.node("n0")
    job_pod(stage, "train", annotations=NOTE, deleted=90)
    lose(stage, "n0")
    stage.is_leading = False
    await Looker(stage).run(60)
    assert phase(stage, "train") == "Running"


async def test_a_request_that_fails_is_repeated_after_a_pause(stage):
    stage.node("n0")
    job_pod(stage, "train", annotations=NOTE, deleted=90)
    lose(stage, "n0")
    stage.api.faults[f"get {JOB}"].append(Answer(500))
    await Looker(stage).run(repair.FAILED_SECONDS + 3 * repair.LOOK_SECONDS)
    assert phase(stage, "train") == "Failed"
    assert reads_of_job(stage) == 2


async def test_an_owner_whose_name_is_no_segment_of_a_path_is_not_read(stage):
    stage.node("n0")
    job_pod(stage, "train", annotations=NOTE, deleted=90)
    stage.api.objects[PODS]["team-a/train"]["metadata"]["ownerReferences"][0]["name"] = "train?watch=true"
    lose(stage, "n0")
    await Looker(stage).run(60)
    assert phase(stage, "train") == "Running"
    assert not [asked for asked in stage.api.asked if "/team-a/jobs" in asked.path]
