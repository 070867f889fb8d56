"""A team reclaims its share: exactly enough of what others borrow is evicted, on one node, and nothing more."""

import time

import pytest

from tests.control_plane.objects import pod
from tests.control_plane.workbench import (
    create_pod,
    list_pods,
    make_namespace,
    make_nodes,
    wait_for,
    wait_unschedulable,
)
from tests.scenarios.evictor import alive, ask, evicted, evictor, fill, held_nodes, wait_bound
from tests.scenarios.standing_fairgate import TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]
HOSTNAME = "kubernetes.io/hostname"


@pytest.mark.promise
def test_the_third_scenario_a_share_is_reclaimed_exactly(cluster):
    """By a server of its own: a standing one has learned sizes of pods for which it leaves room on each node."""
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, limit_a=40, limit_b=40, is_own=True) as fairgate, evictor(fairgate) as running:
        mine, theirs = fairgate.team_a, fairgate.team_b
        names = fill(cluster, mine, 40)
        borrowed = {
            found["metadata"]["name"]
            for found in list_pods(cluster, mine)
            if found["metadata"]["labels"][TIER] == "preemptible"
        }
        assert len(borrowed) == 20
        ask(cluster, theirs, "b0", gpus=8)
        wait_bound(cluster, theirs, "b0")
        gone = evicted(cluster, mine, names)
        assert len(gone) == 8
        assert set(gone) <= borrowed
        wait_for(cluster, lambda: not held_nodes(cluster), what="no hold is left")
        ones = [f"b{number}" for number in range(1, 13)]
        for name in ones:
            ask(cluster, theirs, name)
        wait_bound(cluster, theirs, *ones)
        assert set(evicted(cluster, mine, names)) == borrowed
        assert len(running.said("evicted")) == 20
        described = cluster.kubectl("describe", "pod", "b0", "-n", theirs)
        assert "Reclaiming" in described
        assert "team b's guaranteed share is 20, 8 taken; team a holds 20 GPUs beyond its share" in described
        ask(cluster, theirs, "more")
        wait_unschedulable(cluster, theirs, "more")
        assert len(alive(cluster, mine)) == 20

        cluster.kubectl("delete", "pods", "--all", "-n", theirs, "--wait=true")
        fill(cluster, mine, 20, prefix="again")
        assert len(running.said("evicted")) == 20


def test_two_pods_of_whole_nodes_cost_the_pods_of_two_nodes(cluster):
    make_nodes(cluster, 6, gpus=8)
    with serve_fairgate(cluster, limit_a=48, limit_b=48) as fairgate, evictor(fairgate) as running:
        mine, theirs = fairgate.team_a, fairgate.team_b
        names = fill(cluster, mine, 48, labels={TIER: "preemptible"})
        for name in ("b0", "b1"):
            ask(cluster, theirs, name, gpus=8)
        wait_bound(cluster, theirs, "b0", "b1")
        assert len(evicted(cluster, mine, names)) == 16
        assert len(running.said("evicted")) == 16


@pytest.mark.promise
def test_no_pod_is_evicted_while_there_is_room_or_where_it_would_not_help(cluster):
    make_nodes(cluster, 2)
    taint = {"key": "moon", "effect": "NoSchedule"}  # all causes may be temporary: the pods are admitted
    make_nodes(cluster, 1, prefix="moon", gpus=16, labels={"zone": "moon"}, taints=[taint])
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate, evictor(fairgate) as running:
        fill(cluster, fairgate.team_a, 19)
        ask(cluster, fairgate.team_b, "fits")
        ask(cluster, fairgate.team_b, "huge", gpus=11)
        ask(cluster, fairgate.team_b, "moon", nodeSelector={"zone": "moon"})
        wait_bound(cluster, fairgate.team_b, "fits")
        wait_for(cluster, lambda: len(running.said("no plan")) == 2, what="a log line without a plan")
        assert not running.said("plan")
        assert len(alive(cluster, fairgate.team_a)) == 19


def test_no_pod_is_evicted_on_a_node_whose_anti_affinity_excludes_the_waiting_pod(cluster):
    """On node w0's the borrowers are younger and would be the cheaper victims."""
    make_nodes(cluster, 2)
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "web"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    serving = {"labels": {"app": "web"}, "affinity": apart}
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate, evictor(fairgate) as running:
        mine, theirs = fairgate.team_a, fairgate.team_b
        borrowing = [{"labels": {TIER: "preemptible"}, "nodeSelector": {HOSTNAME: f"node-{n}"}} for n in range(2)]
        names = fill(cluster, mine, 10, prefix="old", **borrowing[0])
        ask(cluster, theirs, "w0", **serving)
        wait_bound(cluster, theirs, "w0")
        time.sleep(1.1)  # start times are in whole seconds
        names += fill(cluster, mine, 9, prefix="young", **borrowing[1])
        ask(cluster, theirs, "w1", **serving)
        wait_bound(cluster, theirs, "w1")
        ask(cluster, theirs, "w2", **serving)
        wait_for(cluster, lambda: running.said("no plan"), what="a log line for w2")
        assert [line["cause"] for line in running.said("no plan")] == ["TopologyUnmet"]
        (gone,) = evicted(cluster, mine, names)
        assert gone.startswith("old")


def test_the_room_is_not_taken_by_the_replacement_of_a_victim(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate, evictor(fairgate) as running:
        mine = fairgate.team_a
        fill(cluster, mine, 2, gpus=10, prefix="own")
        cluster.kubectl("delete", "pod", "own01", "-n", mine, "--wait=true")
        labels = {"app": "web"}
        template = pod("web", gpus=1, cpu="1", memory="4Gi", labels={**labels, TIER: "preemptible"})
        spec = {"replicas": 10, "selector": {"matchLabels": labels}, "template": template}
        body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"}, "spec": spec}
        cluster.api.create(f"/apis/apps/v1/namespaces/{mine}/replicasets", body)
        wait_for(cluster, lambda: sum(_runs(each) for each in list_pods(cluster, mine)) == 11, what="all GPUs borrowed")
        ask(cluster, fairgate.team_b, "b", gpus=4)
        wait_bound(cluster, fairgate.team_b, "b")
        assert len(running.said("evicted")) == 4
        wait_for(cluster, lambda: len(_unbound(cluster, mine)) == 4, what="the replacements wait")


def test_a_victim_that_ignores_sigterm_is_awaited_and_no_other_pod_is_evicted(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate, evictor(fairgate) as running:
        stubborn = {"fairgate.test/ignores-sigterm": "true"}
        more = {"annotations": stubborn, "terminationGracePeriodSeconds": 4, "labels": {TIER: "preemptible"}}
        fill(cluster, fairgate.team_a, 10, **more)
        ask(cluster, fairgate.team_b, "b")
        assert wait_bound(cluster, fairgate.team_b, "b") > 2
        assert len(running.said("evicted")) == 1
        [plan] = running.said("plan")
        assert (plan["gpus"], plan["surplus_gpus"], len(plan["victims"])) == (1, 0, 1)


def test_room_taken_by_a_pod_that_bypassed_the_webhook_is_planned_again(cluster):
    make_nodes(cluster, 1)
    free = make_namespace(cluster, labels={"fairgate.dev/exempt": "true"})
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate, evictor(fairgate) as running:
        stubborn = {"fairgate.test/ignores-sigterm": "true"}
        more = {"annotations": stubborn, "terminationGracePeriodSeconds": 4, "labels": {TIER: "preemptible"}}
        fill(cluster, fairgate.team_a, 10, **more)
        ask(cluster, fairgate.team_b, "b")
        wait_for(cluster, lambda: running.said("evicted"), what="the first victim")
        create_pod(cluster, free, pod("thief", gpus=1, nodeName="node-0"))
        wait_bound(cluster, fairgate.team_b, "b")
        assert [line["why"] for line in running.said("hold given up")] == ["the reserved GPUs are gone"]
        assert len(running.said("evicted")) == 2


def test_the_minimum_runtime_is_respected(cluster):
    make_nodes(cluster, 1)
    policy = "reclaim: {minimumRuntime: 8s}"
    with serve_fairgate(cluster, limit_a=40, limit_b=40, policy=policy) as fairgate, evictor(fairgate) as running:
        fill(cluster, fairgate.team_a, 10, labels={TIER: "preemptible"})
        began = time.monotonic()
        ask(cluster, fairgate.team_b, "b")
        wait_for(cluster, lambda: running.said("no plan"), what="a log line for the waiting pod")
        wait_bound(cluster, fairgate.team_b, "b")
        assert time.monotonic() - began > 4
        assert len(running.said("evicted")) == 1


def _unbound(cluster, namespace):
    return [found for found in list_pods(cluster, namespace) if not found["spec"].get("nodeName")]


def _runs(found):
    return found["status"].get("phase") == "Running"
