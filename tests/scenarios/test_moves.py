"""The moves that `fairgate defragment --dry-run` shows of a real cluster, and that they make the room they promise."""

import json
import subprocess
from datetime import UTC, datetime

import pytest

from tests.control_plane.objects import job, pod
from tests.control_plane.workbench import create_pod, get_pod, list_pods, make_nodes, wait_bound, wait_for, wait_phase
from tests.scenarios.person import Person
from tests.scenarios.serving import FAIRGATE
from tests.scenarios.standing_fairgate import TIER, serve_fairgate
from tests.scenarios.test_reclaim_care import budget

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "1", "memory": "1Gi"}
BORROWS = {TIER: "preemptible"}
SAVED = "fairgate.dev/checkpointed-at"


def shown(fairgate, *args):
    command = [*FAIRGATE, "defragment", "--dry-run", "--policy", fairgate.policy, "-o", "json", *args]
    command += ["--kubeconfig", fairgate.cluster.kubeconfig]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def scatter(cluster, namespace, nodes):
    """Run one pod of a Job on each node, beside three free GPUs; return the pods by their nodes."""
    for node in nodes:
        filler = pod(f"filler-{node}", gpus=3, nodeSelector={"kubernetes.io/hostname": node}, **SIZE)
        create_pod(cluster, namespace, filler)
        wait_phase(cluster, namespace, f"filler-{node}", "Running")
    jobs = [job(f"job-{node}", gpus=1, labels=BORROWS | {"app": f"job-{n}"}, **SIZE) for n, node in enumerate(nodes)]
    cluster.kubectl.apply(jobs, "-n", namespace)
    wait_for(cluster, lambda: len(running(cluster, namespace)) == 2 * len(nodes), what="all pods run")
    for node in nodes:
        cluster.kubectl("delete", "pod", f"filler-{node}", "-n", namespace, "--grace-period=0", "--force")
    wait_for(cluster, lambda: len(list_pods(cluster, namespace)) == len(nodes), what="the fillers are gone")
    return running(cluster, namespace)


def running(cluster, namespace):
    found = [each for each in list_pods(cluster, namespace) if each["status"].get("phase") == "Running"]
    return {each["metadata"]["name"]: each["spec"]["nodeName"] for each in found}


def evict(cluster, namespace, name):
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    uid = cluster.api.get(path)["metadata"]["uid"]
    options = {"preconditions": {"uid": uid}, "gracePeriodSeconds": 0}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}
    cluster.api.create(f"{path}/eviction", body)


def test_the_moves_that_are_shown_make_room_for_the_pod_that_waits(cluster):
    nodes = make_nodes(cluster, 3, gpus=4)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate:
        a, b = fairgate.team_a, fairgate.team_b
        there = scatter(cluster, b, nodes)
        app = {name: get_pod(cluster, b, name)["metadata"]["labels"]["app"] for name in there}
        guarded, saved, _ = sorted(there)
        budget(cluster, b, "keep", {"app": app[guarded]})
        for name in (guarded, saved):
            at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            cluster.kubectl("annotate", "pod", name, f"{SAVED}={at}", "-n", b)
        create_pod(cluster, a, pod("wide", gpus=4, **SIZE))
        wait_for(cluster, lambda: shown(fairgate)["rooms"], what="kube-scheduler finds no room")
        [room] = shown(fairgate)["rooms"]
        [move] = room["moves"]
        assert (move["pod"], move["from"]) == (f"{b}/{saved}", there[saved])
        assert [(each["pod"], each["node"]) for each in room["places"]] == [(f"{a}/wide", there[saved])]
        evict(cluster, b, saved)
        assert wait_bound(cluster, a, "wide") == there[saved]
        wait_for(cluster, lambda: len(running(cluster, b)) == 3, what="its Job runs it again")
        again = running(cluster, b)
        assert set(again) & set(there) == set(there) - {saved}
        assert there[saved] not in [node for name, node in again.items() if name not in there]
        found = shown(fairgate)
        assert (found["rooms"], found["refused"]) == ([], [])


def test_without_the_right_to_list_all_pods_nothing_is_shown(cluster):
    make_nodes(cluster, 1, gpus=4)
    with serve_fairgate(cluster) as fairgate:
        person = Person(cluster, f"jane-{fairgate.team_a}", fairgate.team_a)
        done = person.fairgate("defragment", "--dry-run", "--policy", fairgate.policy)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "moves are planned from all nodes and pods: you may not list" in done.stderr
