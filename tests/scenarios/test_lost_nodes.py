"""Jobs whose pods are on a node that is lost: kubelet never reports their end."""

from contextlib import contextmanager

import pytest

from tests.control_plane.api import STRATEGIC_PATCH
from tests.control_plane.objects import job
from tests.control_plane.workbench import list_pods, make_nodes, wait_for
from tests.scenarios.evictor import evictor
from tests.scenarios.standing_fairgate import serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

HOSTNAME = "kubernetes.io/hostname"
UNREACHABLE = "node.kubernetes.io/unreachable"
QUICKLY = [
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    for key in (UNREACHABLE, "node.kubernetes.io/not-ready")
]
NOTE = "fairgate.dev/pod-replacement-policy"
BOUND = 60
"""Seconds from the deletion of a pod of the lost node, with a grace period of 1 s, to its replacement."""


def jobs(namespace, name=""):
    return f"/apis/batch/v1/namespaces/{namespace}/jobs" + (f"/{name}" if name else "")


def start(cluster, namespace, name, **spec):
    """Create a Job of one pod and wait until it runs."""
    made = job(name, gpus=1, tolerations=QUICKLY, terminationGracePeriodSeconds=1, nodeSelector={HOSTNAME: "node-0"})
    made["metadata"].setdefault("annotations", {}).update(spec.pop("annotations", {}))
    made["spec"] |= spec
    cluster.api.create(jobs(namespace), made)
    wait_for(
        cluster,
        lambda: [each["status"]["phase"] for each in pods(cluster, namespace, name)] == ["Running"],
        what=f"{name} runs",
    )


def pods(cluster, namespace, name):
    return list_pods(cluster, namespace, labelSelector=f"job-name={name}")


def terminating(cluster, namespace, name):
    return [each for each in pods(cluster, namespace, name) if "deletionTimestamp" in each["metadata"]]


def replaced(cluster, namespace, name):
    return [each for each in pods(cluster, namespace, name) if "deletionTimestamp" not in each["metadata"]]


@contextmanager
def lost(cluster, node):
    """A node whose kubelet does not report: KWOK stops, and the node controller taints it."""
    cluster.stop("kwok")
    try:
        ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        cluster.api.patch(
            f"/api/v1/nodes/{node}/status", {"status": {"conditions": [ready]}}, content_type=STRATEGIC_PATCH
        )
        yield
    finally:
        cluster.start("kwok")


def test_a_job_on_a_lost_node_gets_its_replacement_as_without_fairgates_rule(cluster):
    """The pods of the three Jobs are deleted after a second; kubelet never ends them."""
    make_nodes(cluster, 3)  # where all nodes are lost, kube-controller-manager deletes no pods
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate, evictor(fairgate) as running:
        mine = fairgate.team_a
        own = {"rules": [{"action": "Count", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
        start(cluster, mine, "ruled")
        start(cluster, mine, "left", annotations={"fairgate.dev/job-evictions": "count"})
        start(cluster, mine, "own", podFailurePolicy=own)
        found = cluster.api.get(jobs(mine, "ruled"))
        assert found["spec"]["podReplacementPolicy"] == "Failed"
        assert found["metadata"]["annotations"][NOTE] == "TerminatingOrFailed"
        with lost(cluster, "node-0"):
            for name in ("ruled", "left", "own"):
                wait_for(
                    cluster, lambda name=name: terminating(cluster, mine, name), what=f"the pod of {name} is deleted"
                )
            wait_for(cluster, lambda: replaced(cluster, mine, "left"), what="Kubernetes replaces a pod that terminates")
            assert not replaced(cluster, mine, "ruled")
            wait_for(cluster, lambda: replaced(cluster, mine, "ruled"), what="the evictor ends the pod", timeout=BOUND)
            assert [line["name"].rpartition("-")[0] for line in running.said("lost pod replaced")] == ["ruled"]
            assert cluster.api.get(jobs(mine, "ruled"))["status"].get("failed", 0) == 0, "the rule ignores it"
            assert not replaced(cluster, mine, "own"), "its owner wants pods replaced that ended"
            assert len(terminating(cluster, mine, "own")) == 1
