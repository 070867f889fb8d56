"""What a pod is a replica of, by its controller and labels, and whether it is ready."""

import json

import msgspec
import pytest

from webhook.kube.objects import objects
from webhook.kube.pod.gangs import is_ready, replica_of
from webhook.kube.pod.pods import controller_reference


def read(kind="ReplicaSet", name="web-5d", *, labels=None, minimum=None, api="apps/v1", annotations=None, group=None):
    owner = {"apiVersion": api, "kind": kind, "name": name, "uid": "u", "controller": True}
    metadata = {"name": "p", "namespace": "a", "labels": labels or {}, "ownerReferences": [owner] if kind else []}
    if minimum is not None:
        annotations = {"fairgate.dev/minimum": minimum}
    metadata["annotations"] = annotations
    found = msgspec.json.decode(json.dumps(metadata), type=objects.ObjectMeta)
    return replica_of(found, controller_reference(found), "a", objects.SchedulingGroup(group))


@pytest.mark.parametrize(
    ("more", "want"),
    [
        ({"labels": {"pod-template-hash": "5d"}}, "a/Deployment/web"),
        ({"labels": {"rollouts-pod-template-hash": "5d"}}, "a/Rollout/web"),
        ({"labels": {"pod-template-hash": "other"}}, "a/ReplicaSet/web-5d"),
        ({"kind": "StatefulSet", "name": "db"}, "a/StatefulSet/db"),
        ({"kind": "RayCluster", "name": "r", "labels": {"ray.io/group": "gpu"}}, "a/RayCluster/r/gpu"),
        (
            {"kind": "PyTorchJob", "name": "t", "labels": {"training.kubeflow.org/replica-type": "worker"}},
            "a/PyTorchJob/t/worker",
        ),
        ({"kind": ""}, ""),
        ({"labels": {"jobset.sigs.k8s.io/jobset-name": "s"}}, ""),
        ({"labels": {"leaderworkerset.sigs.k8s.io/group-key": "g"}}, ""),
        ({"kind": "Job", "name": "n" * 300}, ""),
    ],
)
def test_the_workload_is_what_a_person_scales(more, want):
    assert read(**more).workload == want


@pytest.mark.parametrize("kind", ["Job", ""])
def test_pods_of_a_pod_group_are_one_workload_whatever_made_them(kind):
    found = read(kind=kind, labels={"jobset.sigs.k8s.io/jobset-name": "s"}, minimum="2", group="g")
    assert (found.workload, found.minimum, found.problem) == ("a/PodGroup/g", 2, "")


@pytest.mark.parametrize(("text", "want"), [("2", 2), ("two", None), ("", None)])
def test_a_gang_of_koordinator_states_its_minimum(text, want):
    found = read(kind="Job", name="j", annotations={"gang.scheduling.koordinator.sh/min-available": text})
    assert (found.workload, found.minimum, found.problem) == ("a/Job/j", want, "")


@pytest.mark.parametrize("text", ["0", "2", "10000", "99999"])
def test_a_number_is_a_minimum(text):
    assert read(minimum=text)[1:] == (int(text), "")


@pytest.mark.parametrize("text", ["-1", "two", "", "1.5", "100000", "\u0661", "9" * 5000, "50%", " 2"])
def test_anything_else_is_ignored_and_said(text):
    found = read(minimum=text)
    assert found.minimum is None
    assert "is ignored: write a number of replicas, of at most 99999" in found.problem
    assert len(found.problem) < 130


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"kind": ""}, "the pod has no controller"),
        ({"labels": {"jobset.sigs.k8s.io/jobset-name": "s"}}, "the pods of its group go together"),
    ],
)
def test_a_minimum_of_what_is_no_replica_is_ignored(more, why):
    found = read(minimum="2", **more)
    assert (found.minimum, found.problem) == (None, f"annotation fairgate.dev/minimum '2' is ignored: {why}")


@pytest.mark.parametrize(
    ("status", "want"),
    [
        ({"phase": "Running"}, True),
        ({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}, True),
        ({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}, False),
        ({"phase": "Running", "conditions": [{"type": "ContainersReady", "status": "False"}]}, True),
        ({"phase": "Running", "conditions": [{"type": 5, "reason": "Ready"}, {"x": "Ready"}]}, True),
        ({"phase": "Pending", "conditions": [{"type": "Ready", "status": "True"}]}, False),
    ],
)
def test_a_pod_is_ready_while_it_runs_and_no_condition_denies_it(status, want):
    assert is_ready(msgspec.json.decode(json.dumps(status), type=objects.PodStatus)) is want
    assert is_ready(None) is False
