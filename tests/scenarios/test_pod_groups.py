"""Kubernetes' own PodGroups, on an API server that serves them and a scheduler that schedules their pods together."""

import pytest

from tests.control_plane.minors import needs
from tests.control_plane.objects import pod
from tests.control_plane.workbench import (
    create_pod,
    list_pods,
    make_namespace,
    make_nodes,
    wait_bound,
    wait_for,
    wait_phase,
)
from tests.scenarios.evictor import alive, ask, evictor, fill, held_nodes
from tests.scenarios.standing_fairgate import TIER, serve_fairgate
from tests.scenarios.test_gangs import started, texts

pytestmark = [pytest.mark.cluster, needs("1.37", "before, there is no v1beta1 of PodGroups")]

GATES = "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true"
FLAGS = {
    "kube-apiserver": (GATES, "--runtime-config=scheduling.k8s.io/v1beta1=true"),
    "kube-scheduler": (GATES,),
    "kube-controller-manager": (GATES,),
}
SIZE = {"cpu": "1", "memory": "1Gi"}
QUEUES = "defaults: {onLimit: queue, onNoRoom: queue}\n"
RACK = "example.com/rack"


def make_group(cluster, namespace, name, policy, **spec):
    made = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": name}}
    made["spec"] = {"schedulingPolicy": policy, **spec}
    cluster.api.create(f"/apis/scheduling.k8s.io/v1beta1/namespaces/{namespace}/podgroups", made)


def member(name, group, **spec):
    return pod(name, gpus=4, schedulingGroup={"podGroupName": group}, **spec, **SIZE)


def make_gang(cluster, namespace, name, *, members=4, **spec):
    """Create a PodGroup that starts whole, and its pods."""
    make_group(cluster, namespace, name, {"gang": {"minCount": members}}, **spec)
    for number in range(members):
        create_pod(cluster, namespace, member(f"{name}-{number}", name))


def conditions(cluster, namespace):
    """What kube-scheduler says of each pod without a node."""
    listed = [each["status"].get("conditions", ()) for each in list_pods(cluster, namespace)]
    return [next((found["message"] for found in each if found["status"] == "False"), "") for each in listed]


def on(node):
    return {"nodeSelector": {"kubernetes.io/hostname": node}}


def test_pods_of_a_pod_group_start_whole_in_its_domain_and_those_of_a_basic_one_at_once(start_control_plane):
    cluster = start_control_plane(extra_args=FLAGS)
    for rack in ("a", "b"):
        make_nodes(cluster, 2, prefix=f"rack-{rack}", labels={RACK: rack}, gpus=8)
    with serve_fairgate(cluster, policy=QUEUES) as fairgate:
        mine = fairgate.team_a
        make_group(cluster, mine, "basic", {"basic": {}})
        create_pod(cluster, mine, member("alone", "basic", **on("rack-a-0")))
        wait_bound(cluster, mine, "alone")

        create_pod(cluster, fairgate.team_b, pod("holder", gpus=8, **on("rack-b-0"), **SIZE))  # no rack has 16 left
        wait_bound(cluster, fairgate.team_b, "holder")
        make_group(
            cluster, mine, "whole", {"gang": {"minCount": 4}}, schedulingConstraints={"topology": [{"key": RACK}]}
        )
        for number in range(3):
            create_pod(cluster, mine, member(f"m-{number}", "whole"))
        wait_for(
            cluster,
            lambda: sum("waits: 3 of 4 members of gang whole have come" in text for text in texts(cluster, mine)) == 3,
            what="three of four wait",
        )
        assert fairgate.charged("a") == 4
        create_pod(cluster, mine, member("m-3", "whole"))
        wait_for(
            cluster,
            lambda: sum("starts whole, with 4 pods" in text for text in texts(cluster, mine)) == 4,
            what="all wait for a rack",
        )
        assert started(cluster, mine) == ["alone"]
        cluster.kubectl("delete", "pod", "holder", "-n", fairgate.team_b, "--wait=true")
        wait_for(cluster, lambda: len(started(cluster, mine)) == 5, what="all four started")
        nodes = {each["spec"]["nodeName"] for each in list_pods(cluster, mine) if each["metadata"]["name"] != "alone"}
        assert nodes == {"rack-b-0", "rack-b-1"}
        wait_for(cluster, lambda: fairgate.charged("a") == 20, what="all five are charged")


def test_a_gang_in_one_rack_starts_as_without_us_and_not_where_its_pods_are_named_to_nodes(start_control_plane):
    """Half of a node of rack a is taken: each pod alone would fill that node up, and the gang fits into rack b only."""
    cluster = start_control_plane(extra_args=FLAGS)
    for rack in ("a", "b"):
        make_nodes(cluster, 2, prefix=f"rack-{rack}", labels={RACK: rack}, gpus=8)
    one_rack = {"schedulingConstraints": {"topology": [{"key": RACK}]}}
    stock = make_namespace(cluster, labels={"fairgate.dev/exempt": "true"})
    create_pod(cluster, stock, pod("holder", gpus=4, **on("rack-a-0"), **SIZE))
    wait_bound(cluster, stock, "holder")

    def clear(namespace):
        names = [each["metadata"]["name"] for each in list_pods(cluster, namespace)]
        cluster.kubectl("delete", "pods", *(name for name in names if name != "holder"), "-n", namespace, "--wait=true")

    def starts_in_rack_b(namespace):
        make_gang(cluster, namespace, "whole", **one_rack)
        wait_for(cluster, lambda: len(started(cluster, namespace, "whole")) == 4, what="all four started")
        pods = [each for each in list_pods(cluster, namespace) if each["metadata"]["name"] != "holder"]
        assert {each["spec"]["nodeName"] for each in pods} == {"rack-b-0", "rack-b-1"}
        clear(namespace)

    starts_in_rack_b(stock)
    with serve_fairgate(cluster, policy="placement: {mode: require, podGroups: require}\n") as fairgate:
        make_gang(cluster, fairgate.team_a, "named", **one_rack)
        wait_for(
            cluster,
            lambda: any("0/2 placements are available" in text for text in conditions(cluster, fairgate.team_a)),
            what="no rack holds the gang, as its pods are bound to nodes",
        )
        assert started(cluster, fairgate.team_a) == []
        clear(fairgate.team_a)
    for mode in ("auto", "require"):
        with serve_fairgate(cluster, policy=f"placement: {{mode: {mode}}}\n") as fairgate:
            starts_in_rack_b(fairgate.team_a)


def test_a_pod_group_inside_its_guaranteed_share_gets_room_that_others_borrow(start_control_plane):
    cluster = start_control_plane(extra_args=FLAGS)
    make_nodes(cluster, 2, gpus=8)
    with serve_fairgate(cluster, limit_b=40) as fairgate, evictor(fairgate) as running:
        own = fill(cluster, fairgate.team_b, 1, prefix="own", gpus=4)
        create_pod(cluster, fairgate.team_b, pod("borrows", gpus=4, labels={TIER: "preemptible"}, **SIZE))
        fill(cluster, fairgate.team_b, 2, prefix="more", gpus=4, labels={TIER: "preemptible"})
        wait_bound(cluster, fairgate.team_b, "borrows")
        make_gang(cluster, fairgate.team_a, "whole", members=3)
        wait_for(cluster, lambda: len(started(cluster, fairgate.team_a)) == 3, what="all three started", timeout=90)
        assert started(cluster, fairgate.team_b) == own
        assert len(running.said("evicted")) == 3
        assert set(fairgate.tiers(fairgate.team_a)) == {"guaranteed"}
        wait_for(cluster, lambda: not held_nodes(cluster), what="no hold is left")


def test_a_pod_group_loses_pods_down_to_its_minimum_and_only_below_that_all(start_control_plane):
    cluster = start_control_plane(extra_args=FLAGS)
    make_nodes(cluster, 1, gpus=8)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate, evictor(fairgate):
        make_group(cluster, fairgate.team_a, "elastic", {"gang": {"minCount": 6}})
        names = [f"e-{number}" for number in range(8)]
        for name in names:
            spec = {"labels": {TIER: "preemptible"}, "schedulingGroup": {"podGroupName": "elastic"}}
            create_pod(cluster, fairgate.team_a, pod(name, gpus=1, **spec, **SIZE))
        for name in names:
            wait_phase(cluster, fairgate.team_a, name, "Running")
        ask(cluster, fairgate.team_b, "one")
        wait_bound(cluster, fairgate.team_b, "one")
        assert len(alive(cluster, fairgate.team_a)) == 7
        ask(cluster, fairgate.team_b, "two", gpus=2)
        wait_bound(cluster, fairgate.team_b, "two")
        assert alive(cluster, fairgate.team_a) == []


def test_a_group_that_does_not_exist_starts_nothing_and_where_groups_are_not_served_its_pods_are_ordinary(
    cluster, start_control_plane
):
    make_nodes(cluster, 2, gpus=8)
    with serve_fairgate(cluster, policy=QUEUES) as fairgate:
        create_pod(cluster, fairgate.team_a, member("dropped", "whole"))
        wait_bound(cluster, fairgate.team_a, "dropped")
        (found,) = list_pods(cluster, fairgate.team_a)
        assert "schedulingGroup" not in found["spec"]
        assert found["spec"]["affinity"]["nodeAffinity"], "a list of nodes"

    with_groups = start_control_plane(extra_args=FLAGS)
    make_nodes(with_groups, 2, gpus=8)
    with serve_fairgate(with_groups, policy=QUEUES) as fairgate:
        create_pod(with_groups, fairgate.team_a, member("early", "late"))
        wait_for(
            with_groups,
            lambda: not any("schedulingGates" in each["spec"] for each in list_pods(with_groups, fairgate.team_a)),
            what="it waits for its group in kube-scheduler, no longer queued",
            timeout=90,
        )
        assert started(with_groups, fairgate.team_a) == []
        make_group(with_groups, fairgate.team_a, "late", {"basic": {}})
        wait_bound(with_groups, fairgate.team_a, "early")
