"""Reclaim with care: disruption budgets, notice, whole gangs, and leaders that die during an eviction."""

import json
import signal

import pytest

from tests.control_plane.workbench import get_pod, list_pods, make_nodes, wait_for
from tests.scenarios.evictor import HOLD, alive, ask, evicted, evictor, fill, held_nodes, node_of, wait_bound
from tests.scenarios.ray import RAY, ray_cluster, ray_clusters
from tests.scenarios.standing_fairgate import TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

BORROW = {TIER: "preemptible"}


def budget(cluster, namespace, name, labels, **more):
    """A disruption budget that allows no eviction."""
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": labels}, **more}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}
    cluster.api.create(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", body)


def events_of(cluster, namespace, name):
    found = cluster.api.list(f"/api/v1/namespaces/{namespace}/events")
    return {each["reason"]: each["message"] for each in found if each["involvedObject"]["name"] == name}


def test_a_disruption_budget_that_allows_none_is_respected_until_it_goes(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate, evictor(fairgate) as running:
        budget(cluster, fairgate.team_a, "keep", {"app": "kept"})
        fill(cluster, fairgate.team_a, 10, labels={**BORROW, "app": "kept"})
        ask(cluster, fairgate.team_b, "b")
        wait_for(
            cluster,
            lambda: "do not free enough GPUs" in events_of(cluster, fairgate.team_b, "b").get("CannotReclaim", ""),
            what="an Event on the waiting pod",
        )
        assert not running.said("evicted")
        cluster.api.delete(f"/apis/policy/v1/namespaces/{fairgate.team_a}/poddisruptionbudgets/keep")
        wait_bound(cluster, fairgate.team_b, "b")
        assert len(running.said("evicted")) == 1


def test_pods_under_two_budgets_are_not_chosen(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate, evictor(fairgate) as running:
        for name in ("one", "two"):
            budget(cluster, fairgate.team_a, name, {"app": "kept"})
        kept = fill(cluster, fairgate.team_a, 5, labels={**BORROW, "app": "kept"})
        free = fill(cluster, fairgate.team_a, 5, prefix="free", labels=BORROW)
        ask(cluster, fairgate.team_b, "b", gpus=5)
        wait_bound(cluster, fairgate.team_b, "b")
        assert evicted(cluster, fairgate.team_a, kept) == []
        assert evicted(cluster, fairgate.team_a, free) == free
        assert not running.said("eviction refused")


def test_a_pod_that_does_not_work_goes_before_a_younger_one_that_does_though_a_budget_covers_it(cluster):
    make_nodes(cluster, 1, gpus=8)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate:
        crashes = {**BORROW, "app": "crashes"}
        budget(cluster, fairgate.team_a, "keep", {"app": "crashes"}, unhealthyPodEvictionPolicy="AlwaysAllow")
        fill(cluster, fairgate.team_a, 1, prefix="crashes", gpus=4, labels=crashes)
        fill(cluster, fairgate.team_a, 1, prefix="trains", gpus=4, labels=BORROW)
        crash(cluster, fairgate.team_a, "crashes00")
        with evictor(fairgate) as running:
            ask(cluster, fairgate.team_b, "b", gpus=4)
            wait_bound(cluster, fairgate.team_b, "b")
            assert alive(cluster, fairgate.team_a) == ["trains00"]
            assert not running.said("eviction refused")


def crash(cluster, namespace, name):
    """Write what kubelet writes of a pod in CrashLoopBackOff."""
    status = get_pod(cluster, namespace, name)["status"]
    (container,) = status["containerStatuses"]
    container.update(ready=False, started=False, restartCount=500, state={"waiting": {"reason": "CrashLoopBackOff"}})
    ready = {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}
    written = {"containerStatuses": [container], "conditions": [{"type": "PodScheduled", "status": "True"}, ready]}
    cluster.api.patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": written})


def test_victims_get_a_notice_before_their_eviction(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, limit_a=40, limit_b=40, policy="reclaim: {notice: 4s}") as fairgate:
        fill(cluster, fairgate.team_a, 10, labels=BORROW)
        with evictor(fairgate):
            ask(cluster, fairgate.team_b, "b")
            (noticed,) = wait_for(cluster, lambda: _noticed(cluster, fairgate.team_a), what="a notice on a victim")
            assert noticed["metadata"]["annotations"]["fairgate.dev/evict-for"] == "b"
            assert held_nodes(cluster) == ["node-0"]
            wait_for(
                cluster,
                lambda: (
                    "Save your work"
                    in events_of(cluster, fairgate.team_a, noticed["metadata"]["name"]).get("EvictionPlanned", "")
                ),
                what="and gets an Event",
            )
            assert len(alive(cluster, fairgate.team_a)) == 10
            wait_bound(cluster, fairgate.team_b, "b")
            assert len(alive(cluster, fairgate.team_a)) == 9


def test_a_notice_is_withdrawn_when_no_pod_waits_any_more(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, limit_a=40, limit_b=40, policy="reclaim: {notice: 3s}") as fairgate:
        fill(cluster, fairgate.team_a, 10, labels=BORROW)
        with evictor(fairgate) as running:
            ask(cluster, fairgate.team_b, "b")
            wait_for(cluster, lambda: _noticed(cluster, fairgate.team_a), what="a notice on a victim")
            cluster.kubectl("delete", "pod", "b", "-n", fairgate.team_b, "--wait=true")
            wait_for(cluster, lambda: not _noticed(cluster, fairgate.team_a), what="it may stay after all")
            wait_for(cluster, lambda: not held_nodes(cluster), what="the hold is taken off")
            ask(cluster, fairgate.team_b, "next")
            wait_bound(cluster, fairgate.team_b, "next")
            assert len(running.said("evicted")) == 1
            assert len(alive(cluster, fairgate.team_a)) == 9


def test_a_leader_killed_between_plan_and_eviction_leaves_no_second_victim(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster, limit_a=40, limit_b=40, policy="reclaim: {notice: 6s}") as fairgate:
        names = fill(cluster, fairgate.team_a, 20, labels=BORROW)
        with evictor(fairgate) as first:
            ask(cluster, fairgate.team_b, "b", gpus=3)
            noticed = wait_for(cluster, lambda: _noticed(cluster, fairgate.team_a, 3), what="notices on three victims")
            first.stop(signal.SIGKILL)
        (node,) = held_nodes(cluster)
        note = json.loads(cluster.api.get(f"/api/v1/nodes/{node}")["metadata"]["annotations"][HOLD])
        assert len(note["evict"]) == 3
        with evictor(fairgate) as second:
            wait_bound(cluster, fairgate.team_b, "b")
            assert evicted(cluster, fairgate.team_a, names) == sorted(each["metadata"]["name"] for each in noticed)
            assert not second.said("plan")
            wait_for(cluster, lambda: not held_nodes(cluster), what="the hold is taken off")


def test_a_leader_killed_while_it_evicts_leaves_no_second_victim(cluster):
    """How many were evicted before it was killed is random: it evicts a gang within milliseconds."""
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, limit_a=60, limit_b=40) as fairgate, ray_clusters(cluster):
        owner = ray_cluster(cluster, fairgate.team_a, "train")
        gang = fill(cluster, fairgate.team_a, 40, labels={**BORROW, RAY: "train"}, owners=[owner])
        with evictor(fairgate) as first:
            ask(cluster, fairgate.team_b, "b", gpus=2)
            wait_for(cluster, lambda: first.said("evicted"), what="the first eviction of the gang")
            first.stop(signal.SIGKILL)
        ask(cluster, fairgate.team_a, "bystander", labels=BORROW)
        with evictor(fairgate) as second:
            wait_bound(cluster, fairgate.team_b, "b")
            wait_for(cluster, lambda: evicted(cluster, fairgate.team_a, gang) == gang, what="the gang is gone whole")
            wait_bound(cluster, fairgate.team_a, "bystander")
            assert evicted(cluster, fairgate.team_a, ["bystander"]) == []
            assert not second.said("plan")


@pytest.mark.usefixtures("training_operator")
def test_a_gang_of_the_training_operator_is_evicted_whole(cluster):
    make_nodes(cluster, 2, gpus=8)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate, evictor(fairgate) as running:
        mine = fairgate.team_a
        cluster.kubectl.apply(_pytorchjob("bert", mine))
        wait_for(cluster, lambda: len(_running(cluster, mine)) == 4, what="the gang runs")
        gang = sorted(_running(cluster, mine))
        singles = fill(cluster, mine, 8, prefix="single", labels=BORROW)
        ask(cluster, fairgate.team_b, "b2", gpus=2)
        wait_bound(cluster, fairgate.team_b, "b2")
        assert len(evicted(cluster, mine, singles)) == 2
        assert evicted(cluster, mine, gang) == []
        ask(cluster, fairgate.team_b, "b8", gpus=8)
        wait_bound(cluster, fairgate.team_b, "b8")
        assert len({line["name"] for line in running.said("evicted")} & set(gang)) in (0, 4)
        assert node_of(cluster, fairgate.team_b, "b8")


def _noticed(cluster, namespace, count=1):
    key = "fairgate.dev/evict-at"
    found = [each for each in list_pods(cluster, namespace) if key in each["metadata"].get("annotations", {})]
    return found if len(found) >= count else []


def _running(cluster, namespace):
    return [p["metadata"]["name"] for p in list_pods(cluster, namespace) if p["status"].get("phase") == "Running"]


def _pytorchjob(name, namespace):
    def replicas(count):
        requests = {"cpu": "1", "memory": "4Gi", "nvidia.com/gpu": "2"}
        container = {
            "name": "pytorch",
            "image": "example.invalid/train:1",
            "resources": {"requests": requests, "limits": {"nvidia.com/gpu": "2"}},
        }
        template = {"metadata": {"labels": BORROW}, "spec": {"containers": [container]}}
        return {"replicas": count, "restartPolicy": "OnFailure", "template": template}

    specs = {"pytorchReplicaSpecs": {"Master": replicas(1), "Worker": replicas(3)}}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": specs}
