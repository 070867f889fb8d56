"""Beside the descheduler, which is built from its module: neither undoes the other's work, round by round."""

import pytest

from tests.control_plane.commands import SCHEDULER
from tests.control_plane.objects import GPU, job, pod_spec
from tests.control_plane.workbench import gpus_by_node, list_pods, make_nodes, wait_for
from tests.scenarios.evictor import ask, evictor, wait_bound
from tests.scenarios.standing_fairgate import TEAM, TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "1", "memory": "1Gi"}
ZONE = "topology.kubernetes.io/zone"
ROUNDS = 4
AFFINITY = {
    "RemovePodsViolatingNodeAffinity": {
        "nodeAffinityType": [
            "requiredDuringSchedulingIgnoredDuringExecution",
            "preferredDuringSchedulingIgnoredDuringExecution",
        ]
    }
}
DUPLICATES = {"RemoveDuplicates": {}}
UTILIZATION = {"LowNodeUtilization": {"thresholds": {GPU: 20}, "targetThresholds": {GPU: 50}}}
EVERYTHING = {"nodeFit": True}
OTHERS = {"nodeFit": True, "labelSelector": {"matchExpressions": [{"key": TEAM, "operator": "DoesNotExist"}]}}
"""What docs/tasks/coexistence.md advises: the descheduler leaves Fairgate's pods alone."""


def deployment(name, *, replicas, gpus):
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(gpus=gpus, terminationGracePeriodSeconds=1, **SIZE)}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def all_running(cluster, namespace, count):
    """Wait until a namespace has so many pods that run, and no others; returns their UIDs."""

    def uids():
        found = list_pods(cluster, namespace)
        assert [each["status"].get("phase") for each in found] == ["Running"] * count
        assert not any("deletionTimestamp" in each["metadata"] for each in found)
        return {each["metadata"]["uid"] for each in found}

    return wait_for(cluster, uids, what=f"{count} pods of {namespace} run", timeout=90)


def evictions(fairgate, count, descheduler, evicts, plugins):
    """How many pods of team a the descheduler evicts in each round; their controllers replace them in between."""
    found, before = [], all_running(fairgate.cluster, fairgate.team_a, count)
    for _ in range(ROUNDS):
        deschedule = {name: args for name, args in plugins.items() if name in AFFINITY}
        balance = {name: args for name, args in plugins.items() if name not in AFFINITY}
        descheduler.round(evicts, deschedule=deschedule, balance=balance)
        after = all_running(fairgate.cluster, fairgate.team_a, count)
        found.append(len(before - after))
        before = after
    return found


def workload(kind, *, pods, gpus):
    if kind == "Deployment":
        return deployment("w", replicas=pods, gpus=gpus)
    return job("w", pods=pods, gpus=gpus, terminationGracePeriodSeconds=1, **SIZE)


@pytest.mark.parametrize("kind", ["Deployment", "Job"])
def test_with_the_label_selector_no_plugin_evicts_a_pod_of_fairgate(cluster, descheduler, kind):
    """Six pods are packed on one of three nodes, which all three plugins would spread."""
    make_nodes(cluster, 3)
    with serve_fairgate(cluster) as fairgate:
        cluster.kubectl.apply([workload(kind, pods=6, gpus=1)], "-n", fairgate.team_a)
        all_running(cluster, fairgate.team_a, 6)
        assert sorted(gpus_by_node(cluster).values()) == [0, 0, 6]
        assert evictions(fairgate, 6, descheduler, OTHERS, AFFINITY | DUPLICATES | UTILIZATION) == [0] * ROUNDS


def test_pods_of_a_deployment_are_not_moved_even_without_it(cluster, descheduler):
    """Each of them has one node, and the descheduler finds no other that would take it."""
    make_nodes(cluster, 3)
    with serve_fairgate(cluster) as fairgate:
        cluster.kubectl.apply([workload("Deployment", pods=6, gpus=1)], "-n", fairgate.team_a)
        all_running(cluster, fairgate.team_a, 6)
        assert evictions(fairgate, 6, descheduler, EVERYTHING, AFFINITY | DUPLICATES | UTILIZATION) == [0] * ROUNDS


def test_without_it_duplicates_with_several_nodes_are_evicted_in_every_round(cluster, descheduler):
    """Two on each node are wanted, and Fairgate packs what replaces the others. Their rule lets them have several."""
    make_nodes(cluster, 3, labels={ZONE: "z"})
    made = workload("Deployment", pods=6, gpus=1)
    rule = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"}
    made["spec"]["template"]["spec"]["topologySpreadConstraints"] = [
        {**rule, "labelSelector": made["spec"]["selector"]}
    ]
    with serve_fairgate(cluster) as fairgate:
        cluster.kubectl.apply([made], "-n", fairgate.team_a)
        all_running(cluster, fairgate.team_a, 6)
        found = evictions(fairgate, 6, descheduler, EVERYTHING, DUPLICATES)
        assert min(found) > 0, found
        assert max(gpus_by_node(cluster).values()) > 2


@pytest.mark.parametrize("plugin", [DUPLICATES, UTILIZATION], ids=["RemoveDuplicates", "LowNodeUtilization"])
def test_without_it_pods_of_a_job_are_evicted(cluster, descheduler, plugin):
    """They have several nodes, too. The Job waits longer after each one that ends so, and fails after its limit."""
    make_nodes(cluster, 3)
    with serve_fairgate(cluster) as fairgate:
        mine = fairgate.team_a
        cluster.kubectl.apply([workload("Job", pods=6, gpus=1)], "-n", mine)
        before = all_running(cluster, mine, 6)
        descheduler.round(EVERYTHING, deschedule={}, balance=plugin)
        assert before - still_running(cluster, mine)


def test_a_pod_on_a_fallback_node_is_moved_once(cluster, descheduler):
    """Its preference is for its first node; what replaces it is on the node that it prefers."""
    make_nodes(cluster, 3)
    with serve_fairgate(cluster) as fairgate:
        mine = fairgate.team_a
        cluster.stop(SCHEDULER)
        try:
            cluster.kubectl.apply([workload("Job", pods=1, gpus=2)], "-n", mine)
            (waits,) = wait_for(cluster, lambda: list_pods(cluster, mine), what="its pod")
            first, fallback, *_ = nodes_of(waits)
            name = waits["metadata"]["name"]
            binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": fallback}}
            cluster.api.create(f"/api/v1/namespaces/{mine}/pods/{name}/binding", binding)
        finally:
            cluster.start(SCHEDULER)
        assert evictions(fairgate, 1, descheduler, EVERYTHING, AFFINITY) == [1] + [0] * (ROUNDS - 1)
        (moved,) = list_pods(cluster, mine)
        assert moved["spec"]["nodeName"] == nodes_of(moved)[0]
        assert first in nodes_of(moved)


def nodes_of(found):
    """The nodes that Fairgate chose for a pod, the most preferred one first."""
    affinity = found["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    names = [name for term in terms for field in term["matchFields"] for name in field["values"]]
    preferred = max(affinity["preferredDuringSchedulingIgnoredDuringExecution"], key=lambda each: each["weight"])
    (first,) = [name for field in preferred["preference"]["matchFields"] for name in field["values"]]
    return [first, *(name for name in names if name != first)]


def test_the_descheduler_and_the_evictor_do_not_fight(cluster, descheduler):
    """A share is reclaimed once, for the pod that waits, whatever rounds of the descheduler come after it."""
    make_nodes(cluster, 2, gpus=8)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate, evictor(fairgate) as running:
        mine, theirs = fairgate.team_a, fairgate.team_b
        ends = {"labels": {TIER: "preemptible"}, "terminationGracePeriodSeconds": 1}
        cluster.kubectl.apply([job("borrows", pods=16, gpus=1, **ends, **SIZE)], "-n", mine)
        all_running(cluster, mine, 16)
        ask(cluster, theirs, "b0", gpus=4)
        wait_bound(cluster, theirs, "b0")
        before = wait_for(cluster, lambda: has(still_running(cluster, mine), 12), what="12 borrowers are left")
        for _ in range(ROUNDS):
            descheduler.round(OTHERS, deschedule=AFFINITY, balance=DUPLICATES | UTILIZATION)
            assert still_running(cluster, mine) == before
        assert len(still_running(cluster, theirs)) == 1
        assert len(running.said("evicted")) == 4
        assert len(running.said("plan")) == 1


def still_running(cluster, namespace):
    return {
        each["metadata"]["uid"]
        for each in list_pods(cluster, namespace)
        if each["status"].get("phase") == "Running" and "deletionTimestamp" not in each["metadata"]
    }


def has(found, count):
    assert len(found) == count, len(found)
    return found
