"""Pods on the real scheduler and on nodes that KWOK simulates."""

import time

import pytest

from tests.control_plane.api import ApiError
from tests.control_plane.cleanup import Snapshot
from tests.control_plane.objects import GPU, job, pod
from tests.control_plane.workbench import (
    create_pod,
    get_pod,
    gpus_by_node,
    list_pods,
    make_namespace,
    make_nodes,
    wait_bound,
    wait_for,
    wait_phase,
    wait_unschedulable,
)

pytestmark = pytest.mark.cluster

TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def test_nodes_have_the_requested_resources(cluster):
    names = make_nodes(cluster, 2, prefix="a100", gpus=4, labels={"pool": "a100"}, taints=[TAINT])
    assert names == ["a100-0", "a100-1"]
    for node in cluster.api.list("/api/v1/nodes", labelSelector="pool=a100"):
        assert node["status"]["allocatable"] == {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "4"}
        assert node["spec"]["taints"] == [TAINT]


def test_a_gpu_pod_is_bound_and_runs(cluster, namespace):
    make_nodes(cluster, 2)
    create_pod(cluster, namespace, pod("train", gpus=3))
    node = wait_bound(cluster, namespace, "train")
    running = wait_phase(cluster, namespace, "train", "Running")
    assert all(status["ready"] for status in running["status"]["containerStatuses"])
    assert gpus_by_node(cluster)[node] == 3


def test_a_pod_that_asks_for_too_many_gpus_stays_pending(cluster, namespace):
    make_nodes(cluster, 2, gpus=4)
    create_pod(cluster, namespace, pod("greedy", gpus=5))
    message = wait_unschedulable(cluster, namespace, "greedy")
    assert "2 Insufficient nvidia.com/gpu" in message
    assert get_pod(cluster, namespace, "greedy")["status"]["phase"] == "Pending"


def test_pods_of_a_job_hold_their_gpus_until_a_test_completes_them(cluster, namespace):
    make_nodes(cluster, 1)
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    cluster.api.create(jobs, job("train", pods=2, gpus=4))
    wait_for(cluster, lambda: gpus_by_node(cluster) == {"node-0": 8}, what="both pods on the node")
    create_pod(cluster, namespace, pod("done", labels={"fairgate.test/completes": "true"}, restartPolicy="Never"))
    wait_phase(cluster, namespace, "done", "Succeeded")  # what completes does so at once
    assert gpus_by_node(cluster) == {"node-0": 8}
    cluster.kubectl("label", "pods", "-n", namespace, "-l", "job-name=train", "fairgate.test/completes=true")
    wait_for(cluster, lambda: cluster.api.get(f"{jobs}/train")["status"].get("succeeded") == 2, what="the Job done")
    assert gpus_by_node(cluster) == {"node-0": 0}


def test_a_job_can_run_for_a_while_and_end_by_itself(cluster, namespace):
    make_nodes(cluster, 1)
    labels, annotations = {"fairgate.test/completes": "true"}, {"fairgate.test/runs-for": "1s"}
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    cluster.api.create(jobs, job("short", gpus=1, labels=labels, annotations=annotations))
    wait_for(cluster, lambda: gpus_by_node(cluster) == {"node-0": 1}, what="the pod on the node")
    wait_for(cluster, lambda: cluster.api.get(f"{jobs}/short")["status"].get("succeeded") == 1, what="the Job done")


def test_a_test_can_make_a_pod_fail(cluster, namespace):
    make_nodes(cluster, 1)
    create_pod(cluster, namespace, pod("crash", gpus=1, labels={"fairgate.test/fails": "true"}, restartPolicy="Never"))
    failed = wait_phase(cluster, namespace, "crash", "Failed")
    assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 1


def test_a_pod_can_start_slowly(cluster, namespace):
    make_nodes(cluster, 1)
    create_pod(cluster, namespace, pod("slow", annotations={"fairgate.test/starts-after": "1s"}))
    wait_bound(cluster, namespace, "slow")
    assert get_pod(cluster, namespace, "slow")["status"]["phase"] == "Pending"
    wait_phase(cluster, namespace, "slow", "Running")


def test_a_deleted_pod_is_gone_at_once(cluster, namespace):
    make_nodes(cluster, 1)
    create_pod(cluster, namespace, pod("polite"))
    wait_phase(cluster, namespace, "polite", "Running")
    cluster.api.delete(f"/api/v1/namespaces/{namespace}/pods/polite")
    wait_for(cluster, lambda: not list_pods(cluster, namespace), what="the pod gone", timeout=60)


def test_a_pod_that_ignores_sigterm_stays_for_its_grace_period(cluster, namespace):
    make_nodes(cluster, 1)
    stubborn = pod("stubborn", annotations={"fairgate.test/ignores-sigterm": "true"}, terminationGracePeriodSeconds=2)
    create_pod(cluster, namespace, stubborn)
    wait_phase(cluster, namespace, "stubborn", "Running")
    deleted = time.monotonic()
    cluster.api.delete(f"/api/v1/namespaces/{namespace}/pods/stubborn")
    assert get_pod(cluster, namespace, "stubborn")["metadata"]["deletionTimestamp"]
    wait_for(cluster, lambda: not list_pods(cluster, namespace), what="the pod gone", timeout=60)
    assert time.monotonic() - deleted > 0.9  # deletionTimestamp has whole seconds


def test_objects_of_a_test_are_gone_after_it(control_plane):
    before = Snapshot.take(control_plane)
    namespace = make_namespace(control_plane)
    make_nodes(control_plane, 1)
    stubborn = {"fairgate.test/ignores-sigterm": "true"}
    control_plane.api.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", job("train", gpus=1, annotations=stubborn))
    wait_for(control_plane, lambda: list_pods(control_plane, namespace), what="the Job's pod")
    control_plane.kubectl("create", "priorityclass", "precious", "--value=10")
    before.restore(control_plane)
    assert control_plane.api.list("/api/v1/pods") == []
    assert control_plane.api.list("/api/v1/nodes") == []
    assert not control_plane.api.exists("/apis/scheduling.k8s.io/v1/priorityclasses/precious")
    with pytest.raises(ApiError, match=r"being terminated|not found"):
        create_pod(control_plane, namespace, pod("late"))


class Kept:
    """What a test leaves running, with one object that belongs to it."""

    kept = frozenset({"/apis/scheduling.k8s.io/v1/priorityclasses/kept"})

    def __init__(self, control_plane):
        self.control_plane = control_plane
        control_plane.kubectl("create", "priorityclass", "kept", "--value=1")

    def leave(self):
        """Delete its object."""
        self.control_plane.kubectl("delete", "priorityclass", "kept")


def test_kept_objects_stay_until_a_test_removes_them_and_their_names_are_free_afterwards(cluster):
    path = next(iter(Kept.kept))
    cluster.standing = Kept(cluster)
    Snapshot.take(cluster).restore(cluster)
    assert cluster.api.exists(path)

    before = Snapshot.take(cluster)
    cluster.vacate()
    cluster.kubectl("create", "priorityclass", "kept", "--value=2")
    before.restore(cluster)
    assert not cluster.api.exists(path)


def test_an_evicted_pod_of_a_job_ends_as_failed_with_its_condition(cluster, namespace):
    """As kubelet ends it. A Job that ignores disruptions waits for that, and then counts no failure."""
    make_nodes(cluster, 1)
    made = job("kept", pods=2, gpus=1)
    patterns = [{"type": "DisruptionTarget", "status": "True"}]
    made["spec"]["podFailurePolicy"] = {"rules": [{"action": "Ignore", "onPodConditions": patterns}]}
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    cluster.api.create(path, made)
    names = [each["metadata"]["name"] for each in wait_for(cluster, lambda: list_pods(cluster, namespace), what="pods")]
    wait_phase(cluster, namespace, names[0], "Running")
    cluster.api.patch(f"/api/v1/namespaces/{namespace}/pods/{names[0]}", {"metadata": {"finalizers": ["test/look"]}})
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": names[0]}}
    cluster.api.create(f"/api/v1/namespaces/{namespace}/pods/{names[0]}/eviction", eviction)
    ended = wait_phase(cluster, namespace, names[0], "Failed")
    assert ("DisruptionTarget", "True") in {(each["type"], each["status"]) for each in ended["status"]["conditions"]}
    cluster.api.patch(f"/api/v1/namespaces/{namespace}/pods/{names[0]}", {"metadata": {"finalizers": None}})

    def is_accounted() -> bool:
        status = cluster.api.get(f"{path}/kept")["status"]
        is_there = names[0] in {each["metadata"]["name"] for each in list_pods(cluster, namespace)}
        return not (is_there or status.get("terminating") or any(status.get("uncountedTerminatedPods", {}).values()))

    wait_for(cluster, is_accounted, what="the Job has taken note")
    assert cluster.api.get(f"{path}/kept")["status"].get("failed", 0) == 0
