"""Pods that are resized in place count as in kube-scheduler: the most of spec, allocated and actual."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders as b
from tests.kube.support.created import resident, resources
from webhook.core.model.demand import Container
from webhook.kube.objects import objects
from webhook.kube.pod.demands import reported_amounts, reported_parts

GPUS = {b.GPU: "2"}
INFEASIBLE = ({"type": "PodResizePending", "status": "True", "reason": "Infeasible"},)
DEFERRED = ({"type": "PodResizePending", "status": "True", "reason": "Deferred"},)
IN_PROGRESS = ({"type": "PodResizeInProgress", "status": "True"},)


def amounts(cpu, gib=16):
    return {"cpu": str(cpu), "memory": f"{gib}Gi", **GPUS}


def container(cpu, name="train", **more):
    return {"name": name, "resources": resources(amounts(cpu), GPUS), **more}


def status(allocated, actual, name="train"):
    """The status of a container; None is absent."""
    listed = {"name": name, "state": {"running": {"startedAt": "2026-11-25T08:00:00Z"}}}
    if allocated is not None:
        listed["allocatedResources"] = amounts(allocated)
    return listed if actual is None else listed | {"resources": resources(amounts(actual), GPUS)}


def pod(containers, statuses, conditions=(), *, init=(), init_statuses=(), of_pod=None, **spec):
    made = b.pod(node="gpu-0", phase="Running", containers=list(containers), initContainers=list(init), **spec)
    made["status"] |= {
        "containerStatuses": list(statuses),
        "initContainerStatuses": list(init_statuses),
        "conditions": [{"type": "Ready", "status": "True"}, *conditions],
        **(of_pod or {}),
    }
    return made


def cpu(manifest):
    return dict(resident(manifest).demand.requests).get("cpu", 0) / 1000


@pytest.mark.parametrize(
    ("asked", "allocated", "actual", "conditions", "want"),
    [
        (4, 4, 4, (), 4),
        (4, 60, 60, (), 60),
        (4, 4, 60, IN_PROGRESS, 60),
        (60, 60, 4, IN_PROGRESS, 60),
        (60, 4, 4, DEFERRED, 60),
        (60, 4, 4, INFEASIBLE, 4),
        (60, 4, 8, INFEASIBLE, 8),
        (60, 8, None, INFEASIBLE, 8),
        (60, None, None, INFEASIBLE, 60),
        (4, None, None, (), 4),
        (4, 60, None, (), 60),
    ],
    ids=[
        "as asked",
        "smaller is asked for, and kubelet has not seen it",
        "smaller is allocated, and the cgroup is as before",
        "larger is allocated, and the cgroup is as before",
        "larger is asked for, and waits for room",
        "larger is asked for than the node can ever grant",
        "infeasible in the middle of another resize",
        "infeasible, and the container is not running",
        "nothing is reported: the spec is all there is",
        "not started yet",
        "allocated, and the container is not running",
    ],
)
def test_cpu_is_the_most_of_asked_allocated_and_actual(asked, allocated, actual, conditions, want):
    assert cpu(pod([container(asked)], [status(allocated, actual)], conditions)) == want


def test_a_resize_never_changes_the_gpus_of_a_pod():
    """Status may come from a node that reports too little: the charge is by the spec."""
    made = pod([container(4)], [status(60, 60)], INFEASIBLE)
    made["status"]["containerStatuses"][0]["allocatedResources"][b.GPU] = "1"
    made["status"]["containerStatuses"][0]["resources"]["requests"][b.GPU] = "1"
    found = resident(made)
    assert (found.demand.devices, dict(found.demand.requests)[b.GPU]) == (((b.GPU, 2),), 2)


def test_memory_counts_as_cpu_does():
    made = pod([container(4)], [status(4, 4)])
    made["status"]["containerStatuses"][0]["allocatedResources"]["memory"] = "96Gi"
    assert dict(resident(made).demand.requests)["memory"] == 96 * 2**30


def test_a_container_of_a_resized_pod_that_has_no_status_counts_its_spec_unless_the_resize_is_infeasible():
    both = [container(4), container(2, "log")]
    assert cpu(pod(both, [status(60, 60)])) == 62
    assert cpu(pod(both, [status(60, 60)], INFEASIBLE)) == 60


def test_each_of_asked_allocated_and_actual_is_summed_over_the_containers_first():
    """As in kube-scheduler: not the sum of each container's largest."""
    both = [container(8), container(1, "log")]
    assert cpu(pod(both, [status(2, 2), status(5, 5, "log")])) == 9


def test_sidecars_are_resized_too():
    sidecar = container(1, "proxy", restartPolicy="Always")
    made = pod([container(4)], [status(4, 4)], init=[sidecar], init_statuses=[status(10, 10, "proxy")])
    assert cpu(made) == 14


def test_the_amounts_of_the_whole_pod_replace_the_sum_of_its_containers():
    of_pod = {"allocatedResources": amounts(9), "resources": {"requests": amounts(12)}}
    assert cpu(pod([container(4)], [status(4, 4)], of_pod=of_pod)) == 12


def test_the_amounts_of_the_whole_pod_are_read_without_those_of_its_containers():
    of_pod = {"allocatedResources": amounts(9), "resources": {"requests": amounts(12)}}
    found = msgspec.json.decode(written({"containerStatuses": [status(30, 60)], **of_pod}), type=objects.PodStatus)
    parts = reported_parts([("train", b"{}", False)], (), found)
    assert (parts.containers, parts.init) == ((), ())
    assert reported_amounts(parts, [Container({})], init=()).containers["cpu"] == 12_000


def test_without_actual_amounts_of_the_whole_pod_those_of_its_containers_count():
    of_pod = {"allocatedResources": amounts(9), "resources": {"requests": None}}
    assert cpu(pod([container(4)], [status(30, 60)], of_pod=of_pod)) == 60


@pytest.mark.parametrize(
    ("conditions", "want"), [(DEFERRED, 40), (INFEASIBLE, 12)], ids=["waits for room", "can never be granted"]
)
def test_pod_level_requests_are_resized_too(conditions, want):
    of_pod = {"allocatedResources": amounts(9), "resources": {"requests": amounts(12)}}
    made = pod([container(4)], [status(4, 4)], conditions, of_pod=of_pod, resources=resources({"cpu": "40"}))
    assert cpu(made) == want


def test_overhead_is_added_to_what_is_reported():
    assert cpu(pod([container(4)], [status(60, 60)], overhead={"cpu": "1"})) == 61


def test_a_pod_without_a_node_counts_its_spec():
    made = pod([container(60)], [status(4, 4)], INFEASIBLE)
    del made["spec"]["nodeName"]
    assert cpu(made) == 60


def written(listed):
    """As the API server writes it: the parts of a struct in order, without spaces."""
    return json.dumps(listed, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("allocated", "actual", "is_parsed"),
    [(4, 4, False), (None, 4, False), (8, 4, True), (4, 8, True), (None, None, True)],
    ids=["as asked", "as asked, before 1.33", "allocated otherwise", "actual otherwise", "nothing is reported"],
)
def test_only_what_differs_from_the_spec_is_parsed(allocated, actual, is_parsed):
    spec = {"limits": GPUS, "requests": amounts(4)}
    found = objects.ContainerStatus(
        "train",
        msgspec.Raw(written(amounts(allocated)) if allocated else b""),
        msgspec.Raw(written({"limits": GPUS, "requests": amounts(actual)}) if actual else b""),
    )
    parts = reported_parts([("train", written(spec), False)], (), objects.PodStatus(container_statuses=[found]))
    assert (parts is not None) is (is_parsed and (allocated or actual) is not None)


def test_limits_are_not_taken_for_what_is_allocated():
    """Guaranteed pods have equal requests and limits: a lowered request leaves the old amount in the limits."""
    made = pod([{"name": "train", "resources": {"limits": amounts(60), "requests": amounts(4)}}], [status(60, None)])
    made["status"]["containerStatuses"][0]["resources"] = made["spec"]["containers"][0]["resources"]
    assert cpu(made) == 60


@given(st.integers(0, 64), st.integers(0, 64), st.integers(0, 64), st.sampled_from([(), DEFERRED, INFEASIBLE]))
def test_a_node_is_never_counted_with_less_than_its_kubelet_has_given(asked, allocated, actual, conditions):
    found = cpu(pod([container(asked)], [status(allocated, actual)], conditions))
    assert found >= max(allocated, actual)
    assert found == (max(allocated, actual) if conditions is INFEASIBLE else max(asked, allocated, actual))


def test_an_amount_that_cannot_be_parsed_names_its_place():
    made = pod([container(4)], [status(4, 4)])
    made["status"]["containerStatuses"][0]["allocatedResources"]["cpu"] = "four"
    with pytest.raises(ValueError, match=r"^status: .*four"):
        resident(made)
