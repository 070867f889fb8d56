"""Gangs by the objects that make them: room for pods that follow, and what happens where they do not come."""

import signal

import pytest

from tests.control_plane.objects import definition, pod, pod_spec
from tests.control_plane.workbench import create_pod, list_pods, make_nodes, wait_bound, wait_for
from tests.scenarios.standing_fairgate import serve_fairgate
from tests.scenarios.test_gangs import member, started, texts
from tests.scenarios.test_queue import create_all, in_line, waits

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "1", "memory": "1Gi"}
QUEUES = "defaults: {onLimit: queue, onNoRoom: queue}\nqueue: {gangTimeout: 10s}\n"
GANG = {"fairgate.dev/gang": "true"}


def workload(kind, name, *, replicas, **spec):
    """A workload of the group apps with the annotation on itself alone."""
    template = {"metadata": {"labels": {"app": name}}, "spec": pod_spec(gpus=4, **SIZE)}
    made = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "annotations": GANG}, "spec": made}


def warnings(cluster, namespace, reason):
    found = cluster.kubectl.json("get", "events", "-n", namespace)["items"]
    return [each["message"] for each in found if (each["type"], each["reason"]) == ("Warning", reason)]


def test_pods_of_a_deployment_with_the_annotation_start_whole(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster) as fairgate:  # no team has a queue
        create_pod(cluster, fairgate.team_b, pod("holder", gpus=8, **SIZE))
        wait_bound(cluster, fairgate.team_b, "holder")
        cluster.kubectl.apply([workload("Deployment", "serve", replicas=3)], "-n", fairgate.team_a)
        wait_for(
            cluster,
            lambda: sum("starts whole, with 3 pods" in text for text in texts(cluster, fairgate.team_a)) == 3,
            what="all three wait for room",
        )
        assert started(cluster, fairgate.team_a) == []
        cluster.kubectl("delete", "pod", "holder", "-n", fairgate.team_b, "--wait=true")
        wait_for(cluster, lambda: len(started(cluster, fairgate.team_a)) == 3, what="all three started")
        wait_for(cluster, lambda: fairgate.charged("a") == 12, what="12 GPUs charged")


def test_room_is_kept_for_pods_of_a_stateful_set_until_their_time_is_up(cluster):
    """The others are made an hour after the first one."""
    make_nodes(cluster, 2)
    with serve_fairgate(cluster, policy=QUEUES) as fairgate:
        made = workload("StatefulSet", "ranks", replicas=3, serviceName="ranks", minReadySeconds=3600)
        cluster.kubectl.apply([made], "-n", fairgate.team_a)
        wait_bound(cluster, fairgate.team_a, "ranks-0")
        wait_for(cluster, lambda: fairgate.charged("a") == 12, what="room for three is charged")
        wait_for(cluster, lambda: fairgate.ledger("a")["status"]["reserved"] == "8", what="the ledger has it")
        create_pod(cluster, fairgate.team_a, pod("other", gpus=9, **SIZE))
        assert started(cluster, fairgate.team_a) == ["ranks-0"]
        wait_for(cluster, lambda: fairgate.charged("a") == 13, what="the GPUs are no longer reserved")
        wait_bound(cluster, fairgate.team_a, "other")
        said = wait_for(cluster, lambda: warnings(cluster, fairgate.team_a, "GangTimedOut"), what="the Event")
        assert said == ["2 pods of its gang did not come within 10s: their GPUs are no longer reserved"]
        assert fairgate.metric("fairgate_gangs_timed_out_total", team="a") == 1


def test_pods_of_a_stateful_set_follow_one_another_into_the_room_that_is_kept(cluster):
    make_nodes(cluster, 3)
    with serve_fairgate(cluster, policy=QUEUES) as fairgate:
        create_pod(cluster, fairgate.team_a, pod("holder", gpus=8, **SIZE))
        wait_bound(cluster, fairgate.team_a, "holder")  # what is left of the limit is what three pods need
        made = workload("StatefulSet", "ranks", replicas=3, serviceName="ranks")
        cluster.kubectl.apply([made], "-n", fairgate.team_a)
        wait_for(cluster, lambda: len(started(cluster, fairgate.team_a)) == 4, what="all three started")
        assert fairgate.charged("a") == 20
        wait_for(cluster, lambda: not fairgate.ledger("a")["ledger"]["inFlight"], what="nothing stays in flight")
        assert fairgate.metric("fairgate_gangs_timed_out_total", team="a") == 0


def test_a_gang_that_does_not_come_in_time_says_so_and_holds_nothing(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, policy=QUEUES) as fairgate:
        create_pod(cluster, fairgate.team_a, member("m-0", "g", size=2))
        create_pod(cluster, fairgate.team_a, pod("stray", gpus=4, labels={"ray.io/cluster": "gone"}, **SIZE))
        wait_bound(cluster, fairgate.team_a, "stray")
        (said,) = wait_for(cluster, lambda: warnings(cluster, fairgate.team_a, "GangSizeUnknown"), what="the Event")
        assert said.startswith("gang gone: RayCluster gone is not there, or its kind is not installed: ")
        (said,) = wait_for(cluster, lambda: warnings(cluster, fairgate.team_a, "GangTimedOut"), what="the Event")
        want = "1 of 2 members of gang g have come within 10s: "
        want += "those that came start once there is room for the others, too"
        assert said == want
        why = "for m-0-follower-0 beside the others: no node has nvidia.com/gpu 4 free now"
        said = f"waits: gang g starts whole, with 2 pods; {why}"
        wait_for(cluster, lambda: said in "".join(texts(cluster, fairgate.team_a)), what="the annotation")
        assert fairgate.metric("fairgate_gangs_timed_out_total", team="a") == 1
        assert fairgate.charged("a") == 4
        create_pod(cluster, fairgate.team_a, member("m-1", "g", size=2, gpus=2))
        wait_for(cluster, lambda: len(started(cluster, fairgate.team_a)) == 3, what="it starts once it is whole")


def test_members_that_are_made_once_another_has_a_node_get_the_room_that_is_kept_for_them(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, policy=QUEUES) as fairgate:
        create_pod(cluster, fairgate.team_a, member("m-0", "g", size=2))
        wait_bound(cluster, fairgate.team_a, "m-0")
        wait_for(cluster, lambda: fairgate.ledger("a")["status"]["reserved"] == "4", what="room for the other is kept")
        create_pod(cluster, fairgate.team_b, pod("other", gpus=4, **SIZE))
        create_pod(cluster, fairgate.team_a, member("m-1", "g", size=2))
        wait_bound(cluster, fairgate.team_a, "m-1")
        assert fairgate.charged("a") == 8
        assert started(cluster, fairgate.team_b) == []


@pytest.mark.long
def test_a_leader_that_is_killed_while_it_releases_a_gang_of_200_leaves_no_part_of_it(cluster):
    make_nodes(cluster, 20)
    count = 200
    with serve_fairgate(cluster, limit_a=count, policy=QUEUES, replicas=3) as fairgate:
        pods = [member(f"m-{number:03}", "g", size=count, gpus=1) for number in range(count)]
        (leader,) = [n for n in range(3) if fairgate.metric("fairgate_leader", replica=n, lease="fairgate") == 1]
        create_all(cluster, [(fairgate.team_a, made) for made in pods[1:]])
        assert in_line(cluster, fairgate.team_a) == count - 1
        create_pod(cluster, fairgate.team_a, pods[0])
        # one pod is read in milliseconds, and a list of 200 takes as long as the release of them all
        wait_for(cluster, lambda: not waits(cluster, fairgate.team_a, "m-001"), what="the first gate is gone", poll=0)
        fairgate.stop(signal.SIGKILL, replica=leader)
        assert in_line(cluster, fairgate.team_a), "it was killed too late: all are released"
        others = [number for number in range(3) if number != leader]
        wait_for(cluster, lambda: in_line(cluster, fairgate.team_a) == 0, what="all are released")
        wait_for(cluster, lambda: len(started(cluster, fairgate.team_a)) == count, what="all started")
        for number in others:
            wait_for(
                cluster, lambda n=number: fairgate.charged("a", replica=n) == count, what=f"replica {number} agrees"
            )
        wait_for(cluster, lambda: not fairgate.ledger("a")["ledger"]["inFlight"], what="nothing stays in flight")
        assert all(not each["spec"].get("schedulingGates") for each in list_pods(cluster, fairgate.team_a))


@pytest.mark.parametrize(
    ("group", "version", "marks"),
    [
        ("scheduling.x-k8s.io", "v1alpha1", {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}),
        ("scheduling.volcano.sh", "v1beta1", {"annotations": {"scheduling.k8s.io/group-name": "g"}}),
    ],
    ids=["scheduler-plugins", "Volcano"],
)
def test_pods_of_a_pod_group_wait_for_as_many_as_it_wants(cluster, group, version, marks):
    make_nodes(cluster, 1)
    cluster.kubectl.apply([definition(group, version, kind="PodGroup")])
    try:
        with serve_fairgate(cluster, policy=QUEUES) as fairgate:
            made = {"apiVersion": f"{group}/{version}", "kind": "PodGroup", "metadata": {"name": "g"}}
            made["spec"] = {"minMember": 3}
            path = f"/apis/{group}/{version}/namespaces/{fairgate.team_a}/podgroups"
            wait_for(cluster, lambda: cluster.api.create(path, made), what="the PodGroup")
            for number in range(2):
                create_pod(cluster, fairgate.team_a, pod(f"m-{number}", gpus=1, **marks, **SIZE))
            wait_for(
                cluster,
                lambda: "waits: 2 of 3 members of gang g have come" in texts(cluster, fairgate.team_a),
                what="two of three wait",
            )
            create_pod(cluster, fairgate.team_a, pod("m-2", gpus=1, **marks, **SIZE))
            wait_for(cluster, lambda: len(started(cluster, fairgate.team_a)) == 3, what="all three started")
    finally:
        cluster.kubectl("delete", "crd", f"podgroups.{group}")
