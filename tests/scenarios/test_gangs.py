"""Gangs start whole: their pods wait with a scheduling gate until all of them may start together."""

import json
import signal

import pytest

from tests.control_plane.objects import job, pod
from tests.control_plane.workbench import create_pod, list_pods, make_namespace, make_nodes, wait_bound, wait_for
from tests.scenarios.standing_fairgate import serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "1", "memory": "1Gi"}
QUEUES = "defaults: {onLimit: queue, onNoRoom: queue}\n"
WAITING = "fairgate.dev/waiting"


def member(name, gang, *, size, gpus=4):
    return pod(
        name,
        gpus=gpus,
        labels={"kueue.x-k8s.io/pod-group-name": gang},
        annotations={"kueue.x-k8s.io/pod-group-total-count": str(size)},
        **SIZE,
    )


def started(cluster, namespace, prefix=""):
    """The names of the pods on a node."""
    pods = [each for each in list_pods(cluster, namespace) if each["metadata"]["name"].startswith(prefix)]
    return sorted(each["metadata"]["name"] for each in pods if each["spec"].get("nodeName"))


def texts(cluster, namespace):
    return [each["metadata"]["annotations"].get(WAITING, "") for each in list_pods(cluster, namespace)]


@pytest.mark.promise
def test_two_interleaved_gangs_never_end_with_both_half_started(cluster):
    make_nodes(cluster, 2)  # two pods of 4 GPUs on each: room for four of the six
    stock = make_namespace(cluster, labels={"fairgate.dev/exempt": "true"})
    with serve_fairgate(cluster, policy=QUEUES) as fairgate:
        for number in range(3):
            for gang in ("one", "two"):
                create_pod(cluster, stock, member(f"{gang}-{number}", gang, size=3))
        wait_for(cluster, lambda: len(started(cluster, stock)) == 4, what="stock: four pods started")
        assert {len(started(cluster, stock, gang)) for gang in ("one", "two")} <= {1, 2, 3}
        cluster.kubectl("delete", "pods", "--all", "-n", stock, "--wait=true")

        for number in range(3):
            for gang, namespace in (("one", fairgate.team_a), ("two", fairgate.team_b)):
                create_pod(cluster, namespace, member(f"{gang}-{number}", gang, size=3))
                assert started(cluster, namespace) == [] or number == 2
        both = (fairgate.team_a, fairgate.team_b)

        def counts():
            return sorted(len(started(cluster, namespace)) for namespace in both)

        wait_for(cluster, lambda: counts() == [0, 3], what="one gang whole, nothing of the other")
        first, second = sorted(both, key=lambda namespace: -len(started(cluster, namespace)))
        wait_for(cluster, lambda: all("starts whole" in text for text in texts(cluster, second)), what="the reason")
        assert counts() == [0, 3]
        cluster.kubectl("delete", "pods", "--all", "-n", first, "--wait=true")
        wait_for(cluster, lambda: len(started(cluster, second)) == 3, what="the other gang whole")


def test_a_job_with_the_annotation_on_its_pods_starts_whole(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster) as fairgate:  # no team has a queue
        create_pod(cluster, fairgate.team_a, pod("holder", gpus=8, **SIZE))
        wait_bound(cluster, fairgate.team_a, "holder")
        train = job("train", pods=3, gpus=4, annotations={"fairgate.dev/gang": "true"}, **SIZE)
        cluster.kubectl.apply([train], "-n", fairgate.team_a)
        wait_for(
            cluster,
            lambda: sum("gang Job train starts whole" in text for text in texts(cluster, fairgate.team_a)) == 3,
            what="all three wait for room",
        )
        assert started(cluster, fairgate.team_a) == ["holder"]
        assert fairgate.charged("a") == 8
        cluster.kubectl("delete", "pod", "holder", "-n", fairgate.team_a, "--wait=true")
        wait_for(cluster, lambda: len(started(cluster, fairgate.team_a)) == 3, what="the Job starts whole")
        wait_for(cluster, lambda: fairgate.charged("a") == 12, what="12 GPUs charged")


def test_a_job_whose_pods_cannot_all_be_created_holds_nothing(cluster):
    """Its size is read from the Job: two of its three pods are not taken for the gang."""
    make_nodes(cluster, 2)
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "two"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "8"}},
    }
    with serve_fairgate(cluster) as fairgate:
        cluster.kubectl.apply([quota], "-n", fairgate.team_a)
        wait_for(
            cluster,
            lambda: "hard" in cluster.kubectl.json("get", "resourcequota", "two", "-n", fairgate.team_a)["status"],
            what="the quota in force",
        )
        train = job("train", pods=3, gpus=4, annotations={"fairgate.dev/gang": "true"}, **SIZE)
        cluster.kubectl.apply([train], "-n", fairgate.team_a)
        wait_for(
            cluster,
            lambda: texts(cluster, fairgate.team_a) == ["waits: 2 of 3 members of gang Job train have come"] * 2,
            what="two of three wait",
        )
        assert started(cluster, fairgate.team_a) == []
        assert fairgate.charged("a") == 0


@pytest.mark.promise
def test_a_gang_above_the_limit_is_refused_with_its_sum(cluster):
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, policy=QUEUES) as fairgate:
        for number in range(5):
            create_pod(cluster, fairgate.team_a, member(f"large-{number}", "large", size=6))
        last = json.dumps(member("large-5", "large", size=6))
        wait_for(
            cluster,
            lambda: (
                "gang large needs 24 GPUs together, and the limit of team a is 20"
                in cluster.kubectl.run(
                    "create", "--dry-run=server", "-f", "-", "-n", fairgate.team_a, stdin=last
                ).stderr
            ),
            what="the refusal",
        )
        assert started(cluster, fairgate.team_a) == []
        assert fairgate.charged("a") == 0


def test_a_leader_that_is_killed_while_it_releases_a_gang_leaves_no_part_of_it(cluster):
    make_nodes(cluster, 4)
    count = 20
    with serve_fairgate(cluster, policy=QUEUES, is_own=True) as fairgate:
        for number in range(count):
            create_pod(cluster, fairgate.team_a, member(f"m-{number:02}", "g", size=count, gpus=1))
        wait_for(
            cluster,
            lambda: any(not each["spec"].get("schedulingGates") for each in list_pods(cluster, fairgate.team_a)),
            what="the first gate is gone",
        )
        fairgate.stop(signal.SIGKILL)
        fairgate.start()
        wait_for(cluster, lambda: len(started(cluster, fairgate.team_a)) == count, what="all started", timeout=90)
        wait_for(cluster, lambda: fairgate.charged("a") == count, what="all charged")
