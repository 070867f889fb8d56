"""Which failed pods say that their node rejects pods, and which pods say that it does not."""

import msgspec
import pytest

from tests import builders as b
from tests.kube.support.created import struct
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.core.placement.rejecting_nodes import Rejection, Start
from webhook.kube.objects import objects
from webhook.kube.pod.outcomes import is_acknowledged, is_fault_of_node, to_rejection, to_start

AT = "2026-01-01T00:00:10Z"
SECONDS = 1_767_225_610
ONE_GPU = (("nvidia.com/gpu", 1),)


def failed(reason, **more):
    made = b.pod(uid="u-1", node="node-1", **more)
    made["status"] = {"phase": "Failed", "reason": reason, "startTime": AT}
    return made


def rejection(manifest):
    return to_rejection(struct(manifest), BUILT_IN_RESOURCES)


def test_what_is_read_of_a_rejection():
    want = Rejection("node-1", "vision", "u-1", SECONDS, "UnexpectedAdmissionError", ONE_GPU)
    assert rejection(failed("UnexpectedAdmissionError")) == want


@pytest.mark.parametrize(
    ("reason", "want"),
    [
        ("UnexpectedAdmissionError", ONE_GPU),
        ("TopologyAffinityError", b.demand().requests),
        ("InvalidNodeInfo", ()),
    ],
)
def test_what_a_rejection_depends_on(reason, want):
    found = rejection(failed(reason))
    assert found is not None
    assert found.shape == want


@pytest.mark.parametrize(
    ("reason", "want"),
    [
        pytest.param("UnexpectedAdmissionError", True, id="a device plugin does not allocate"),
        pytest.param("TopologyAffinityError", True, id="no devices that are aligned"),
        pytest.param("InvalidNodeInfo", True, id="kubelet cannot read its node"),
        pytest.param("OutOfnvidia.com/gpu", True, id="fewer devices than the node offers"),
        pytest.param("OutOfcpu", False, id="a race for cpu"),
        pytest.param("OutOfmemory", False, id="a race for memory"),
        pytest.param("OutOfpods", False, id="a race for pods"),
        pytest.param("OutOfephemeral-storage", False, id="a race for storage"),
        pytest.param("NodeAffinity", False, id="sent there by nodeName against its own selector"),
        pytest.param("NodePorts", False, id="its host port is taken"),
        pytest.param("SMTAlignmentError", False, id="a number of cpus that no such node takes"),
        pytest.param("SysctlForbidden", False, id="a sysctl"),
        pytest.param("Evicted", False, id="the node has a pressure, and a taint that says so"),
        pytest.param("NodeShutdown", False, id="the node is not ready soon"),
        pytest.param("Error", False, id="its image fails"),
        pytest.param("", False, id="it failed by itself"),
    ],
)
def test_only_faults_of_the_node_count(reason, want):
    assert (rejection(failed(reason)) is not None) == want
    assert is_fault_of_node("Failed", reason) == want


def test_a_pod_without_gpus_says_nothing():
    assert rejection(failed("UnexpectedAdmissionError", gpus=None)) is None


def test_a_pod_that_is_not_over_is_no_rejection():
    running = b.pod(node="node-1", phase="Running")
    running["status"]["reason"] = "UnexpectedAdmissionError"
    assert rejection(running) is None
    assert not is_fault_of_node("Running", "UnexpectedAdmissionError")


def test_without_its_start_it_counts_from_its_creation():
    made = failed("UnexpectedAdmissionError")
    del made["status"]["startTime"]
    made["metadata"]["creationTimestamp"] = AT
    found = rejection(made)
    assert found is not None
    assert found.at == SECONDS


@pytest.mark.parametrize(
    ("phase", "gpus", "node", "want"),
    [
        pytest.param("Running", 1, "node-1", Start("node-1", "vision", SECONDS, AT, b.demand().requests), id="it runs"),
        pytest.param(
            "Succeeded", 1, "node-1", Start("node-1", "vision", SECONDS, AT, b.demand().requests), id="it has run"
        ),
        pytest.param("Pending", 1, "node-1", None, id="not admitted yet, as far as one sees"),
        pytest.param("Failed", 1, "node-1", None, id="rejected, perhaps"),
        pytest.param("Running", None, "node-1", None, id="it needs no device"),
    ],
)
def test_a_start(phase, gpus, node, want):
    made = b.pod(node=node, gpus=gpus, phase=phase)
    made["status"]["startTime"] = AT
    assert to_start(struct(made), BUILT_IN_RESOURCES) == want


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param(None, False, id="none"),
        pytest.param({"phase": "Pending", "conditions": [{"type": "PodScheduled"}]}, False, id="bound"),
        pytest.param({"phase": "Pending", "startTime": "2026-01-01T00:00:00Z"}, True, id="begun"),
        pytest.param({"phase": "Pending", "initContainerStatuses": [{"name": "c"}]}, True, id="an init container"),
        pytest.param({"phase": "Running", "containerStatuses": [{"name": "c"}]}, True, id="a container"),
    ],
)
def test_whether_a_kubelet_has_reported_a_pod(status, want):
    manifest = {"metadata": {"name": "p"}, "spec": {"containers": [], "nodeName": "n"}, "status": status}
    assert is_acknowledged(msgspec.json.decode(msgspec.json.encode(manifest), type=objects.Pod).status) is want
