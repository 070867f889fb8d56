"""Pods in line for which reclaim makes room: `onNoRoom: queue` with an evictor."""

import json
import signal
import time

import pytest

from tests.control_plane.objects import job, pod
from tests.control_plane.workbench import create_pod, get_pod, list_pods, make_nodes, wait_bound, wait_for
from tests.scenarios.evictor import HELD, evictor, fill, held_nodes
from tests.scenarios.standing_fairgate import TIER, serve_fairgate
from tests.scenarios.test_queue import QUEUES, SIZE, cluster_knows, line_of, waits

pytestmark = [pytest.mark.cluster, pytest.mark.standing]


@pytest.mark.promise
def test_a_pod_in_line_keeps_its_gate_until_its_room_is_taken_back(cluster):
    make_nodes(cluster, 4)
    policy = f"{QUEUES}reclaim: {{notice: 15s}}\n"
    names = [f"asks-{number}" for number in range(6)]
    with serve_fairgate(cluster, limit_a=40, limit_b=40, policy=policy) as fairgate, evictor(fairgate) as running:
        fill(cluster, fairgate.team_a, 40)
        for name in names:
            create_pod(cluster, fairgate.team_b, pod(name, gpus=2, **SIZE))
        wait_for(cluster, lambda: all(tolerates_hold(cluster, fairgate, name) for name in names), what="room is kept")
        assert all(waits(cluster, fairgate.team_b, name) for name in names)
        assert fairgate.charged("b") == 12, "they count from now on"
        in_line = {each["name"]: each["cause"] for each in line_of(fairgate, pods=6)["pods"]}
        assert set(in_line) == set(names)
        assert all("borrowed GPUs are reclaimed for it" in text for text in in_line.values()), in_line
        tried = cluster.api.list(f"/api/v1/namespaces/{fairgate.team_b}/events")
        assert not [event for event in tried if event["reason"] == "FailedScheduling"], "it does not know them yet"
        for name in names:
            wait_bound(cluster, fairgate.team_b, name)
        wait_for(cluster, lambda: not held_nodes(cluster), what="no node keeps room any more")
        assert len(running.said("evicted")) == 12
        for name in names:
            found = get_pod(cluster, fairgate.team_b, name)
            assert found["metadata"]["labels"][TIER] == "guaranteed"
            assert f'["{found["spec"]["nodeName"]}"]' in json.dumps(found["spec"]["affinity"]), "bound by the webhook"


def test_a_gang_keeps_its_gates_until_the_room_of_all_its_pods_is_taken_back_and_so_do_the_next_leaders(cluster):
    """One of its ten pods may have room already. The server and the evictor are killed meanwhile."""
    make_nodes(cluster, 4)
    policy = f"{QUEUES}reclaim: {{notice: 20s}}\n"
    with serve_fairgate(cluster, limit_a=40, limit_b=20, policy=policy) as fairgate, evictor(fairgate) as running:
        fill(cluster, fairgate.team_a, 38)
        train = job("train", pods=10, gpus=2, annotations={"fairgate.dev/gang": "true"}, **SIZE)
        cluster.kubectl.apply([train], "-n", fairgate.team_b)

        def names():
            return [each["metadata"]["name"] for each in list_pods(cluster, fairgate.team_b)]

        def held():
            return sum(tolerates_hold(cluster, fairgate, name) for name in names())

        wait_for(cluster, lambda: held() >= 9, what="nodes keep room")
        assert fairgate.charged("b") == 20, "all count from now on"
        causes = {each["cause"] for each in line_of(fairgate, pods=10)["pods"]}
        assert causes == {"borrowed GPUs are reclaimed for its gang, which starts once all of them are free"}
        fairgate.stop(signal.SIGKILL)
        fairgate.start()
        running.stop(signal.SIGKILL)
        running.start()
        assert not bound(cluster, fairgate.team_b)
        wait_for(cluster, lambda: len(bound(cluster, fairgate.team_b)) == 10, what="it runs whole", timeout=120)
        assert len(running.said("evicted")) == 18
        tried = cluster.api.list(f"/api/v1/namespaces/{fairgate.team_b}/events")
        assert not [event for event in tried if event["reason"] == "FailedScheduling"], "room was there for each"
        wait_for(cluster, lambda: not held_nodes(cluster), what="no node keeps room any more")


def tolerates_hold(cluster, fairgate, name):
    found = get_pod(cluster, fairgate.team_b, name)
    return any(each.get("key") == HELD for each in found["spec"].get("tolerations", ()))


def test_a_borrower_that_is_created_again_at_once_gets_no_room_that_was_made_for_a_pod_in_line(cluster):
    """Nor does a pod that tolerates every taint, though the pod that the room is for has its gate meanwhile."""
    make_nodes(cluster, 2, gpus=4)
    with serve_fairgate(cluster, policy=QUEUES) as fairgate, evictor(fairgate):
        teams = [
            {"name": "a", "namespaces": [fairgate.team_a], "gpus": {"guaranteed": 0}, "onNoRoom": "wait"},
            {"name": "b", "namespaces": [fairgate.team_b], "gpus": {"guaranteed": 8}},
        ]
        head = "apiVersion: fairgate.dev/v1alpha1\nkind: Policy\n"
        (fairgate.policy / "teams.yaml").write_text(
            f"{head}teams: {json.dumps(teams)}\ndefaults: {{onNoRoom: queue}}\n"
        )
        wait_for(cluster, lambda: cluster_knows(fairgate, "b"), what="the teams are known")
        time.sleep(2)  # an edit reaches the evictor within two seconds
        tolerant = {"tolerations": [{"operator": "Exists"}], "terminationGracePeriodSeconds": 1}
        cluster.api.create(
            f"/apis/batch/v1/namespaces/{fairgate.team_a}/jobs", job("borrows", pods=8, gpus=1, **tolerant, **SIZE)
        )
        wait_for(cluster, lambda: len(bound(cluster, fairgate.team_a)) == 8, what="all GPUs are borrowed")
        for number in range(3):
            create_pod(cluster, fairgate.team_b, pod(f"asks-{number}", gpus=2, **SIZE))
        for number in range(3):
            wait_bound(cluster, fairgate.team_b, f"asks-{number}")
        wait_for(cluster, lambda: len(bound(cluster, fairgate.team_a)) == 2, what="two are left")


def bound(cluster, namespace):
    return [found for found in list_pods(cluster, namespace) if found["spec"].get("nodeName") and is_alive(found)]


def is_alive(found):
    return "deletionTimestamp" not in found["metadata"] and found["status"].get("phase") == "Running"
