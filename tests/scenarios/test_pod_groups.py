"""Kubernetes' own PodGroups, on an API server that serves them and a scheduler that schedules their pods together."""

import pytest

from tests.control_plane.minors import needs
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, list_pods, make_nodes, wait_bound, wait_for
from tests.scenarios.standing_fairgate import serve_fairgate
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
