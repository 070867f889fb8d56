"""A node whose kubelet rejects what it gets: its pods go elsewhere, the node says why, and it is used again."""

from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from tests.control_plane.objects import pod
from tests.control_plane.workbench import (
    create_pod,
    get_pod,
    list_pods,
    make_nodes,
    wait_bound,
    wait_for,
    wait_second_after,
)
from tests.scenarios.standing_fairgate import serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

REASON = "UnexpectedAdmissionError"


def settled_nodes(cluster, count):
    """Make nodes of eight GPUs, and wait for a later second than that of their creation, in which nothing counts."""
    names = make_nodes(cluster, count, gpus=8)
    created = max(each["metadata"]["creationTimestamp"] for each in cluster.api.list("/api/v1/nodes"))
    wait_second_after(cluster, created)
    return names


@contextmanager
def replicas(cluster, namespace, name, count, *, rejected_by=""):
    """Run a ReplicaSet of pods with one GPU, which a node rejects; afterwards none of its pods is left or comes."""
    template = pod(name, gpus=1, annotations={"fairgate.test/rejected-by": rejected_by} if rejected_by else None)
    metadata = {"labels": {"app": name}, "annotations": template["metadata"]["annotations"]}
    spec = {
        "replicas": count,
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": metadata, "spec": template["spec"]},
    }
    path = f"/apis/apps/v1/namespaces/{namespace}/replicasets"
    cluster.api.create(path, {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": spec})
    yield
    cluster.api.delete(f"{path}/{name}", propagationPolicy="Background")
    wait_for(
        cluster,
        lambda: not list_pods(cluster, namespace, labelSelector=f"app={name}"),
        what=f"the pods of {name} are gone",
    )


def in_phase(cluster, namespace, phase, *, app=""):
    """The nodes of the pods in a phase, by the names of the pods."""
    found = [each for each in list_pods(cluster, namespace) if each["status"].get("phase") == phase]
    return {
        each["metadata"]["name"]: each["spec"].get("nodeName", "")
        for each in found
        if not app or each["metadata"].get("labels", {}).get("app") == app
    }


def wait_running(cluster, namespace, count, *, app):
    return wait_for(
        cluster,
        lambda: len(running := in_phase(cluster, namespace, "Running", app=app)) == count and running,
        what=f"{count} pods of {app} run",
    )


def wait_started(cluster, namespace, name):
    """When a pod started, as its kubelet says."""
    return wait_for(
        cluster, lambda: get_pod(cluster, namespace, name)["status"]["startTime"], what=f"{name} has a start time"
    )


def node_events(cluster, node):
    events = cluster.api.list("/api/v1/namespaces/default/events")
    return [
        each for each in events if each["involvedObject"] == each["involvedObject"] | {"kind": "Node", "name": node}
    ]


def last_rejection(cluster, namespace):
    """When the latest pod was rejected."""
    found = [each["status"] for each in list_pods(cluster, namespace) if each["status"].get("phase") == "Failed"]
    return max(each["startTime"] for each in found)


def test_a_replica_set_loses_a_few_pods_to_it_and_runs_elsewhere(cluster):
    nodes = settled_nodes(cluster, 2)
    with serve_fairgate(cluster) as fairgate:
        ours = fairgate.team_a
        create_pod(cluster, ours, pod("first", gpus=1))
        bad = wait_bound(cluster, ours, "first")  # packing fills the node in use
        wait_second_after(cluster, wait_started(cluster, ours, "first"))  # in which no rejection counts
        [good] = set(nodes) - {bad}
        with replicas(cluster, ours, "web", 6, rejected_by=bad):
            assert set(wait_running(cluster, ours, 6, app="web").values()) == {good}
            failed = in_phase(cluster, ours, "Failed", app="web")
            assert set(failed.values()) == {bad}
            assert 3 <= len(failed) <= 12, failed
            said = (
                f"rejected pods of team a with nvidia.com/gpu 1 or more at their admission ({REASON}): Fairgate places "
                f"no more of them here until "
            )
            wait_for(
                cluster,
                lambda: [each for each in node_events(cluster, bad) if each["message"].startswith(said)],
                what="an Event on the node",
            )
            assert fairgate.metric("fairgate_node_rejecting_teams", node=bad) == 1
            assert "RejectsPods" in cluster.kubectl("describe", "node", bad)

            # another team takes it last, and is never kept off
            with replicas(cluster, fairgate.team_b, "other", 4):
                others = wait_running(cluster, fairgate.team_b, 4, app="other").values()
                assert sorted(others) == sorted([bad, bad, good, good])


def test_pods_that_only_it_has_room_for_wait_until_the_node_is_replaced(cluster):
    (bad,) = settled_nodes(cluster, 1)
    with serve_fairgate(cluster) as fairgate:
        ours = fairgate.team_a
        with replicas(cluster, ours, "web", 2, rejected_by=bad):

            def waiting():
                pods = [each for each in list_pods(cluster, ours) if each["status"].get("phase") == "Pending"]
                texts = [each["metadata"].get("annotations", {}).get("fairgate.dev/waiting", "") for each in pods]
                return len(texts) == 2 and all(f"node {bad} rejected the last" in text for text in texts)

            wait_for(cluster, waiting, what="both pods are queued")
            failed = in_phase(cluster, ours, "Failed")
            assert 3 <= len(failed) <= 8, failed
            create_pod(cluster, fairgate.team_b, pod("of-another-team", gpus=1))
            assert wait_bound(cluster, fairgate.team_b, "of-another-team") == bad

            found = cluster.api.get(f"/api/v1/nodes/{bad}")
            cluster.api.delete(f"/api/v1/nodes/{bad}")
            wait_for(cluster, lambda: fairgate.metric("fairgate_node_rejecting_teams") == 0, what="it is forgotten")
            renewed = {key: found["metadata"][key] for key in ("name", "labels")}
            cluster.api.create("/api/v1/nodes", {**found, "metadata": renewed})
            wait_for(
                cluster,
                lambda: in_phase(cluster, ours, "Failed").keys() - failed.keys(),
                what="the new node is tried, with the same pods",
            )


def test_it_is_used_again_once_a_pod_of_the_team_starts_there(cluster):
    (bad,) = settled_nodes(cluster, 1)
    with serve_fairgate(cluster) as fairgate:
        ours = fairgate.team_a
        with replicas(cluster, ours, "web", 3, rejected_by=bad):
            wait_for(cluster, lambda: fairgate.metric("fairgate_node_rejecting_teams", node=bad) == 1, what="closed")
            create_pod(cluster, ours, pod("waits", gpus=1))
            assert get_pod(cluster, ours, "waits")["spec"]["schedulingGates"] == [{"name": "fairgate.dev/queue"}]
            rejected = last_rejection(cluster, ours)
        wait_for(cluster, lambda: f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}" > rejected, what="a later second")
        create_pod(cluster, ours, pod("sent-there", gpus=1, nodeName=bad))
        assert wait_bound(cluster, ours, "waits") == bad


def test_pods_that_are_too_large_for_it_keep_no_smaller_pod_off(cluster):
    """As a topology manager rejects six GPUs that are not aligned, and admits one."""
    (bad,) = settled_nodes(cluster, 1)
    with serve_fairgate(cluster) as fairgate:
        ours = fairgate.team_a
        for number in range(3):
            name = f"wide-{number}"
            create_pod(cluster, ours, pod(name, gpus=6, annotations={"fairgate.test/rejected-by": bad}))
            wait_for(
                cluster,
                lambda name=name: get_pod(cluster, ours, name)["status"].get("phase") == "Failed",
                what=f"{name} is rejected",
            )
        wait_for(
            cluster,
            lambda: fairgate.metric("fairgate_node_rejecting_teams", node=bad) == 1,
            what="the node is closed to pods of six GPUs",
        )
        create_pod(cluster, ours, pod("wide-next", gpus=6))
        wait_for(
            cluster,
            lambda: (
                "rejected the last 3 pods"
                in get_pod(cluster, ours, "wide-next")["metadata"]["annotations"].get("fairgate.dev/waiting", "")
            ),
            what="a pod of six GPUs is queued",
        )
        create_pod(cluster, ours, pod("small", gpus=1))
        assert wait_bound(cluster, ours, "small") == bad
