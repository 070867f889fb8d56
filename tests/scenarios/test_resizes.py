"""Pods that are resized in place: kube-scheduler finds free beside them what Fairgate does, and their GPUs stay."""

import json
from typing import Any

import pytest

from tests.control_plane.api import STRATEGIC_PATCH, ApiError
from tests.control_plane.minors import at_least, needs
from tests.control_plane.objects import GPU, pod
from tests.control_plane.workbench import create_pod, get_pod, make_nodes, wait_bound, wait_phase, wait_unschedulable
from webhook.core.model.amounts import CPU, NodeName
from webhook.core.model.policy import Policy
from webhook.core.world.world import World
from webhook.kube.watched.kept_fields import kept_fields
from webhook.kube.world_file.world_file import fill_world

pytestmark = [pytest.mark.cluster, needs("1.33", "before, no pod is resized in place")]

NODE_CPU = 64_000
INFEASIBLE = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
DEFERRED = [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]
IN_PROGRESS = [{"type": "PodResizeInProgress", "status": "True"}]


def requests(cpu):
    return {"cpu": str(cpu), "memory": "8Gi", GPU: "1"}


def running(cluster, namespace, name, **spec):
    """A running pod of one GPU and 8 CPUs whose kubelet reports so; it is on the node of its own name."""
    create_pod(cluster, namespace, pod(name, gpus=1, cpu="8", nodeSelector={"kubernetes.io/hostname": name}, **spec))
    wait_phase(cluster, namespace, name, "Running")
    report(cluster, namespace, name, allocated=8, actual=8)


def report(cluster, namespace, name, *, allocated, actual, conditions=(), of_pod: Any = None):
    """Write what kubelet would report of every container."""
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    status = cluster.api.get(path)["status"]
    for listed in ("containerStatuses", "initContainerStatuses"):
        for each in status.get(listed, ()):
            each["allocatedResources"] = requests(allocated)
            each["resources"] = {"requests": requests(actual), "limits": {GPU: "1"}}
    changed = {key: status[key] for key in ("containerStatuses", "initContainerStatuses") if key in status}
    kept = [each for each in status["conditions"] if not each["type"].startswith("PodResize")]
    cluster.api.patch(f"{path}/status", {"status": {**changed, "conditions": [*kept, *conditions], **(of_pod or {})}})


def resize(cluster, namespace, name, *, cpu, **spec):
    change = {"containers": [{"name": "main", "resources": {"requests": {"cpu": str(cpu)}}}], **spec}
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/resize"
    return cluster.api.patch(path, {"spec": change}, content_type=STRATEGIC_PATCH)


def free_cpu(cluster, node):
    """What is free on a node by Fairgate, in milli-cores, by the fields that a world file keeps."""
    found = [(kind, each) for kind in ("Node", "Pod") for each in cluster.api.list(f"/api/v1/{kind.lower()}s")]
    items = [kept_fields({"apiVersion": "v1", "kind": kind, **each}, annotations=frozenset()) for kind, each in found]
    world = World(Policy())
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    fill_world(world, listed, name="cluster")
    return world.fleet.free(NodeName(node), CPU)


def assert_scheduler_finds(cluster, namespace, node, free):
    """kube-scheduler finds exactly this much free: a pod of that size is bound, and one that is larger is not."""
    for name, milli in ((f"fits-{node}", free), (f"too-large-{node}", free + 1)):
        probe = pod(name, cpu=f"{milli}m", memory="1Gi", nodeSelector={"kubernetes.io/hostname": node})
        created = create_pod(cluster, namespace, probe)
        if milli == free:
            assert wait_bound(cluster, namespace, name) == node
            options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
            cluster.api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", options)
        else:
            assert "Insufficient cpu" in wait_unschedulable(cluster, namespace, name), created["spec"]


CASES = {
    "shrinks": ({"cpu": 4}, {"allocated": 60, "actual": 60}, 4_000),
    "grows": ({"cpu": 50}, {"allocated": 50, "actual": 8, "conditions": IN_PROGRESS}, 14_000),
    "deferred": ({"cpu": 50}, {"allocated": 8, "actual": 8, "conditions": DEFERRED}, 14_000),
    "infeasible": ({"cpu": 60}, {"allocated": 8, "actual": 8, "conditions": INFEASIBLE}, 56_000),
    "between": ({"cpu": 60}, {"allocated": 8, "actual": 20, "conditions": INFEASIBLE}, 44_000),
    "whole": (
        {"cpu": 10},
        {"allocated": 8, "actual": 8}
        | {"of_pod": {"allocatedResources": requests(30), "resources": {"requests": requests(12)}}},
        34_000,
    ),
}
if not at_least("1.37"):  # before, kube-scheduler does not count the sums of a whole pod in its status
    del CASES["whole"]


def test_what_is_free_beside_a_resized_pod_is_what_kube_scheduler_finds(cluster, namespace):
    for name in CASES:
        make_nodes(cluster, 1, prefix=name, cpu="64")
    for name, (asked, reported, want) in CASES.items():
        node = f"{name}-0"
        running(cluster, namespace, node)
        resize(cluster, namespace, node, **asked)
        report(cluster, namespace, node, **reported)
        assert free_cpu(cluster, node) == want, name
        assert_scheduler_finds(cluster, namespace, node, want)


@needs("1.36", "before, pod-level resources are not resized")
def test_sidecars_and_pod_level_requests_are_resized_as_kube_scheduler_counts_them(cluster, namespace):
    make_nodes(cluster, 1, prefix="sidecar")
    make_nodes(cluster, 1, prefix="level")
    features = ["InPlacePodLevelResourcesVerticalScaling"]
    cluster.api.patch("/api/v1/nodes/level-0/status", {"status": {"declaredFeatures": features}})
    sidecar = {"name": "proxy", "image": "example.invalid/proxy:1", "restartPolicy": "Always"}
    running(cluster, namespace, "sidecar-0", initContainers=[sidecar | {"resources": {"requests": {"cpu": "2"}}}])
    report(cluster, namespace, "sidecar-0", allocated=20, actual=20)
    level = {"requests": {"cpu": "16", "memory": "8Gi"}}
    running(cluster, namespace, "level-0", resources=level)
    resize(cluster, namespace, "level-0", cpu=8, resources={"requests": {"cpu": "50"}})
    of_pod = {"allocatedResources": requests(16), "resources": {"requests": requests(24)}}
    report(cluster, namespace, "level-0", allocated=8, actual=8, conditions=INFEASIBLE, of_pod=of_pod)
    for node, want in (("sidecar-0", NODE_CPU - 40_000), ("level-0", NODE_CPU - 24_000)):
        assert free_cpu(cluster, node) == want
        assert_scheduler_finds(cluster, namespace, node, want)


@pytest.mark.parametrize("change", [{GPU: "2"}, {GPU: "0"}], ids=["more", "none"])
def test_the_gpus_of_a_pod_cannot_be_resized(cluster, namespace, change):
    """Charges are by the spec: if this ever passes, they must follow the status as well."""
    (node,) = make_nodes(cluster, 1, prefix="fixed")
    running(cluster, namespace, node)
    path = f"/api/v1/namespaces/{namespace}/pods/{node}/resize"
    resources = {"requests": change, "limits": change}
    with pytest.raises(ApiError, match="only cpu and memory resources are mutable"):
        cluster.api.patch(
            path,
            {"spec": {"containers": [{"name": "main", "resources": resources}]}},
            content_type=STRATEGIC_PATCH,
        )
    assert get_pod(cluster, namespace, node)["spec"]["containers"][0]["resources"]["limits"] == {GPU: "1"}
