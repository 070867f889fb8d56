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
        with pytest.raises(ApiError, match=r"requested 16, limit 20, used 5.*\(TeamLimitExceeded\)"):
            create_pod(cluster, mine, pod("two", gpus=16, **VOLCANOS))
        assert fairgate.charged("a") == 5


def test_a_job_of_volcano_is_warned_of_and_its_pods_are_counted(cluster):
    """Volcano starts it whole, as always; Fairgate puts no pod of it in line."""
    make_nodes(cluster, 2, gpus=8)
    task = {"name": "worker", "template": {"spec": pod_spec(gpus=4, restartPolicy="Never", **SIZE)}}

    def made(name, replicas):
        spec = {"schedulerName": "volcano", "queue": "default", "minAvailable": replicas, "maxRetry": 3}
        spec["tasks"] = [{**task, "replicas": replicas, "minAvailable": replicas}]
        return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name}, "spec": spec}

    policy = "defaults: {onLimit: queue, onNoRoom: queue}"
    with serve_fairgate(cluster, policy=policy) as fairgate:
        mine = fairgate.team_a
        assert "Job wide: needs 24 GPUs, team a's limit is 20" in warning(cluster, mine, made("wide", 6))
        assert warning(cluster, mine, made("fits", 3)) == ""

        def all_bound():
            found = list_pods(cluster, mine)
            assert [bool(each["spec"].get("nodeName")) for each in found] == [True] * 3
            return found

        for each in wait_for(cluster, all_bound, what="three pods on nodes"):
            assert_not_patched(each)
        wait_for(cluster, lambda: fairgate.charged("a") == 12, what="12 GPUs charged")


def warning(cluster, namespace, made):
    """What kubectl says of a new object besides that it is created; one that is too large is a dry run."""
    dry = ("--dry-run=server",) if made["metadata"]["name"] == "wide" else ()
    done = cluster.kubectl.run("create", *dry, "-n", namespace, "-f", "-", stdin=manifest(made))
    assert done.returncode == 0, done.stderr
    return done.stderr
