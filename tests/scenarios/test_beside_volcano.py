"""Beside Volcano, which is built from its module: its pods are counted and limited, and their spec is never patched."""

import pytest

from tests.control_plane.api import ApiError
from tests.control_plane.kubectl import manifest
from tests.control_plane.objects import pod, pod_spec
from tests.control_plane.workbench import create_pod, get_pod, list_pods, make_nodes, wait_bound, wait_for
from tests.scenarios.standing_fairgate import TEAM, TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing, pytest.mark.usefixtures("volcano")]

SIZE = {"cpu": "1", "memory": "1Gi"}
VOLCANOS = {"schedulerName": "volcano", **SIZE}
BATCH = "batch.volcano.sh/v1alpha1"


def volcano_job(name, *, pods, gpus):
    """A Job of Volcano whose pods start together."""
    task = {"name": "worker", "replicas": pods, "minAvailable": pods}
    task["template"] = {"spec": pod_spec(gpus=gpus, restartPolicy="Never", **SIZE)}
    spec = {"schedulerName": "volcano", "queue": "default", "minAvailable": pods, "maxRetry": 3, "tasks": [task]}
    return {"apiVersion": BATCH, "kind": "Job", "metadata": {"name": name}, "spec": spec}


def create(cluster, namespace, made, *flags):
    """Create an object; returns what kubectl says besides that it is created."""
    done = cluster.kubectl.run("create", *flags, "-n", namespace, "-f", "-", stdin=manifest(made))
    assert done.returncode == 0, done.stderr
    return done.stderr


def bound(cluster, namespace, prefix):
    """The pods of a Job that are on a node."""
    pods = [each for each in list_pods(cluster, namespace) if each["metadata"]["name"].startswith(f"{prefix}-")]
    return [each for each in pods if each["spec"].get("nodeName")]


def assert_not_patched(found):
    """Nothing of Fairgate's is in a pod's spec: no node, no toleration besides the API server's, no gate."""
    spec = found["spec"]
    assert not {"affinity", "nodeSelector", "schedulingGates"} & spec.keys()
    assert {each["key"] for each in spec["tolerations"]} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }


def test_pods_of_volcano_are_counted_limited_and_never_patched(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster) as fairgate:
        mine = fairgate.team_a
        create_pod(cluster, mine, pod("one", gpus=5, **VOLCANOS))
        wait_bound(cluster, mine, "one")
        wait_for(cluster, lambda: TIER in get_pod(cluster, mine, "one")["metadata"]["labels"], what="it is adopted")
        found = get_pod(cluster, mine, "one")
        assert_not_patched(found)
        assert (found["metadata"]["labels"][TEAM], found["metadata"]["labels"][TIER]) == ("a", "guaranteed")
        assert fairgate.charged("a") == 5
        fairgate.wait_seen("a")
        with pytest.raises(ApiError, match=r"requested 16, limit 20, used 5.*\(TeamLimitExceeded\)"):
            create_pod(cluster, mine, pod("two", gpus=16, **VOLCANOS))
        assert fairgate.charged("a") == 5


def test_a_job_of_volcano_is_warned_of_and_its_pods_are_counted(cluster):
    """None of its pods is put in line, though policy says so."""
    make_nodes(cluster, 2, gpus=8)
    with serve_fairgate(cluster, policy="defaults: {onLimit: queue, onNoRoom: queue}") as fairgate:
        mine = fairgate.team_a
        wide = create(cluster, mine, volcano_job("wide", pods=6, gpus=4), "--dry-run=server")
        assert "Job wide: needs 24 GPUs, team a's limit is 20" in wide
        assert create(cluster, mine, volcano_job("fits", pods=3, gpus=4)) == ""
        wait_for(cluster, lambda: len(bound(cluster, mine, "fits")) == 3, what="three pods on nodes")
        for each in bound(cluster, mine, "fits"):
            assert_not_patched(each)
        wait_for(cluster, lambda: fairgate.charged("a") == 12, what="12 GPUs charged")


def test_a_gang_of_volcano_starts_whole(cluster):
    """While there is room for two of its three pods, none starts; one that is created later does."""
    make_nodes(cluster, 2, gpus=8)
    with serve_fairgate(cluster, limit_a=40) as fairgate:
        mine = fairgate.team_a
        create(cluster, mine, volcano_job("gang", pods=3, gpus=8))
        create(cluster, mine, volcano_job("later", pods=1, gpus=1))
        wait_for(cluster, lambda: len(bound(cluster, mine, "later")) == 1, what="the later one starts")
        assert bound(cluster, mine, "gang") == []
        make_nodes(cluster, 2, gpus=8, prefix="more")
        wait_for(cluster, lambda: len(bound(cluster, mine, "gang")) == 3, what="the gang starts")
        wait_for(cluster, lambda: fairgate.charged("a") == 25, what="25 GPUs charged")


def test_a_job_of_volcano_over_the_limit_ends_and_leaves_no_charge(cluster):
    """Five of its six pods are admitted and none starts; Volcano tries again, gives up, and deletes them."""
    make_nodes(cluster, 3, gpus=10)
    with serve_fairgate(cluster) as fairgate:
        mine = fairgate.team_a
        create(cluster, mine, volcano_job("wide", pods=6, gpus=4))
        path = f"/apis/{BATCH}/namespaces/{mine}/jobs/wide"

        def has_ended():
            assert bound(cluster, mine, "wide") == []
            return cluster.api.get(path).get("status", {}).get("state", {}).get("phase") == "Terminated"

        wait_for(cluster, has_ended, what="Volcano ends the Job")
        assert fairgate.refused("TeamLimitExceeded") > 0
        wait_for(cluster, lambda: list_pods(cluster, mine) == [], what="its pods are deleted")
        wait_for(cluster, lambda: fairgate.charged("a") == 0, what="nothing is charged")
