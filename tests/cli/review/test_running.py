"""Which pods of the world belong to an object of the stream, by the names that its controllers give."""

import pytest

from tests.core.support.make import resident
from webhook.cli.review.results import ExistingPods
from webhook.core.model.pod import Owner
from webhook.kube.kinds.model import PodSet, Workload


def workload(kind, name, maker, *roles):
    owners = [{"kind": maker, "controller": True}] if maker else None
    template = {"metadata": {"ownerReferences": owners}}
    return Workload("v1", kind, "team-a", name, tuple(PodSet(role, 1, template) for role in roles or ("",)))


@pytest.mark.parametrize(
    ("workload", "mine", "others"),
    [
        (workload("Pod", "solo", None), [(None, "solo")], [(None, "solo-2"), ("Job", "solo")]),
        (workload("Job", "train", "Job"), [("Job", "train")], [("Job", "train-29372910"), ("PyTorchJob", "train")]),
        (
            workload("Deployment", "web", "ReplicaSet"),
            [("ReplicaSet", "web-5d9f7c6b8"), ("ReplicaSet", "web-77f4d")],
            [("ReplicaSet", "web-2-5d9f7c6b8"), ("ReplicaSet", "we-5d9f7c6b8")],
        ),
        (workload("CronJob", "tidy", "Job"), [("Job", "tidy-29372910")], [("Job", "tidy-up-29372910")]),
        (
            workload("JobSet", "js", "Job", "leader", "workers"),
            [("Job", "js-leader-0"), ("Job", "js-workers-12")],
            [("Job", "js-others-0"), ("Job", "js-leader-0-1")],
        ),
        (
            workload("LeaderWorkerSet", "llm", "StatefulSet", "leader", "worker"),
            [("StatefulSet", "llm"), ("StatefulSet", "llm-0")],
            [("StatefulSet", "llm-x")],
        ),
        (workload("RayJob", "fit", "RayCluster", "head"), [("RayCluster", "fit-x7k2p")], [("RayCluster", "fitter")]),
    ],
    ids=lambda value: value.kind if isinstance(value, Workload) else "",
)
def test_only_the_workloads_own_pods_are_found(workload, mine, others):
    def pods(owners):
        return [
            resident(uid=f"{kind}/{name}", name=name, owner=None if kind is None else Owner(kind, name))
            for kind, name in owners
        ]

    elsewhere = resident(uid="elsewhere", namespace="team-b", name=mine[0][1], owner=pods(mine)[0].owner)
    running = ExistingPods([*pods(mine), *pods(others), elsewhere])
    assert running.take(workload) == [pod.uid for pod in pods(mine)]
    assert running.take(workload) == []
