"""Copies of pods that Fairgate placed: they are placed like new ones, not where the first one was."""

import json
import time

import pytest

from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, make_nodes, wait_bound, wait_for
from tests.scenarios.evictor import node_of
from tests.scenarios.standing_fairgate import serve_fairgate
from tests.scenarios.test_gangs import started
from webhook.kube.admission.copied_pod import SAME_REQUEST_SECONDS
from webhook.kube.pod.pods import unix_seconds

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "1", "memory": "1Gi"}


def place_on_the_only_node_with_room(cluster, namespace):
    """A pod whose list of nodes is one node, and then another node is empty."""
    make_nodes(cluster, 2, gpus=8)
    create_pod(cluster, namespace, pod("holder", gpus=8, **SIZE))
    wait_bound(cluster, namespace, "holder")
    create_pod(cluster, namespace, pod("train", gpus=8, **SIZE))
    wait_bound(cluster, namespace, "train")
    full, empty = node_of(cluster, namespace, "train"), node_of(cluster, namespace, "holder")
    cluster.kubectl("delete", "pod", "holder", "-n", namespace, "--wait=true")
    return full, empty


def saved(cluster, namespace, name):
    """A pod as backups keep it: without what the API server and the scheduler set."""
    found = get_pod(cluster, namespace, name)
    kept = {key: found["metadata"].get(key, {}) for key in ("name", "labels", "annotations")}
    spec = {key: value for key, value in found["spec"].items() if key != "nodeName"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": spec}


@pytest.mark.parametrize("keeps", [(), ("--keep-annotations", "--keep-labels")], ids=["names alone", "all"])
def test_a_copy_for_debugging_goes_to_the_empty_node(cluster, keeps):
    with serve_fairgate(cluster, limit_a=40) as fairgate:
        _, empty = place_on_the_only_node_with_room(cluster, fairgate.team_a)
        copy = ("--copy-to=train-debug", "--set-image=*=registry.test/debug:1", "--attach=false", *keeps)
        cluster.kubectl("debug", "train", "-n", fairgate.team_a, *copy)
        wait_bound(cluster, fairgate.team_a, "train-debug")
        assert node_of(cluster, fairgate.team_a, "train-debug") == empty


def test_a_restored_pod_runs_though_its_node_is_gone_and_so_does_a_workload_made_from_it(cluster):
    with serve_fairgate(cluster, limit_a=40) as fairgate:
        full, empty = place_on_the_only_node_with_room(cluster, fairgate.team_a)
        backup = saved(cluster, fairgate.team_a, "train")
        assert full in str(backup["spec"]["affinity"])
        cluster.kubectl("delete", "pod", "train", "-n", fairgate.team_a, "--wait=true")
        cluster.kubectl("delete", "node", full)
        decided = unix_seconds(json.loads(backup["metadata"]["annotations"]["fairgate.dev/decision"])["at"])
        wait_for(cluster, lambda: time.time() > decided + SAME_REQUEST_SECONDS + 1, what="it is no second call")
        cluster.kubectl.apply([backup], "-n", fairgate.team_a)
        wait_bound(cluster, fairgate.team_a, "train")
        assert node_of(cluster, fairgate.team_a, "train") == empty
        cluster.kubectl("delete", "pod", "train", "-n", fairgate.team_a, "--wait=true")
        template = {"metadata": backup["metadata"] | {"labels": backup["metadata"]["labels"] | {"app": "made"}}}
        template |= {"spec": backup["spec"] | {"restartPolicy": "Always"}}
        del template["metadata"]["name"]
        made = {"replicas": 1, "selector": {"matchLabels": {"app": "made"}}, "template": template}
        workload = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "made"}, "spec": made}
        cluster.kubectl.apply([workload], "-n", fairgate.team_a)
        wait_for(cluster, lambda: len(started(cluster, fairgate.team_a, "made")) == 1, what="its pod runs")


def test_a_copy_of_a_pod_in_line_is_decided_on_its_own(cluster):
    policy = "defaults: {onLimit: queue, onNoRoom: queue}\n"
    with serve_fairgate(cluster, limit_a=20, limit_b=40, policy=policy) as fairgate:
        make_nodes(cluster, 3)
        for name in ("one", "two"):
            create_pod(cluster, fairgate.team_a, pod(name, gpus=10, **SIZE))
            wait_bound(cluster, fairgate.team_a, name)
        create_pod(cluster, fairgate.team_a, pod("waits", gpus=8, **SIZE))
        backup = saved(cluster, fairgate.team_a, "waits")
        assert backup["spec"]["schedulingGates"] == [{"name": "fairgate.dev/queue"}]
        cluster.kubectl.apply([backup], "-n", fairgate.team_b)
        wait_bound(cluster, fairgate.team_b, "waits")
        assert fairgate.charged("b") == 8
