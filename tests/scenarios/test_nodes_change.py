"""Nodes change under a running Fairgate: added, cordoned, repartitioned, shrunk. Decisions follow without a restart."""

import pytest

from tests.control_plane.api import ApiError
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, make_nodes, wait_bound, wait_for
from tests.scenarios.changing_nodes import asking, chosen, offer
from tests.scenarios.standing_fairgate import TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

ONE_G, THREE_G = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"
POOLS = """
pools:
  - name: gpus
    affinity: [{key: broker, operator: DoesNotExist}]
  - name: brokers
    nodeSelector: {broker: "yes"}
    tolerations: [{key: broker, operator: Exists, effect: NoSchedule}]
    match: {podSelector: {matchLabels: {app: kafka}}}
  - name: cloud
    nodeSelector: {cloud: "yes"}
    autoscaled: true
    teams: [b]
"""


def test_a_pod_for_devices_that_are_not_offered_now_waits_and_one_for_more_is_refused(cluster):
    """Of a device that is unhealthy, or whose plugin restarts, kubelet reports capacity that is not allocatable."""
    (node,) = make_nodes(cluster, 1, gpus=7)
    with serve_fairgate(cluster, is_own=True) as fairgate:  # a standing one remembers larger nodes that left
        pods = f"/api/v1/namespaces/{fairgate.team_a}/pods"

        def is_refused(gpus, text):
            try:
                cluster.api.create(pods, pod("p", gpus=gpus), dryRun="All")
            except ApiError as error:
                return text in error.message
            return False

        wait_for(cluster, lambda: is_refused(8, "the only node has 7; ask for less"), what="the node is known")
        cluster.api.patch(f"/api/v1/nodes/{node}/status", {"status": {"capacity": {"nvidia.com/gpu": "8"}}})
        wait_for(cluster, lambda: is_refused(9, "the only node has 8; ask for less"), what="its capacity is known")
        create_pod(cluster, fairgate.team_a, pod("waits", gpus=8))
        offer(cluster, node, **{"nvidia.com/gpu": "8"})
        assert wait_bound(cluster, fairgate.team_a, "waits") == node


def test_decisions_follow_the_nodes(cluster):
    (first,) = make_nodes(cluster, 1, gpus=2)
    with serve_fairgate(cluster) as fairgate:
        ours = fairgate.team_a

        def settles(made, nodes, what):
            wait_for(cluster, lambda: chosen(cluster, ours, made) == nodes or None, what=what)

        assert chosen(cluster, ours, pod("p", gpus=4)) == []
        (second,) = make_nodes(cluster, 1, gpus=4, prefix="late")
        settles(pod("p", gpus=4), [second], "the node that was added is chosen")
        cluster.kubectl("cordon", second)
        settles(pod("p", gpus=4), [], "the cordoned node is not")
        cluster.kubectl("uncordon", second)

        create_pod(cluster, ours, pod("holder", gpus=2))
        wait_bound(cluster, ours, "holder")
        assert get_pod(cluster, ours, "holder")["spec"]["nodeName"] == first
        offer(cluster, first, **{"nvidia.com/gpu": "1"})
        offer(cluster, second, **{"nvidia.com/gpu": "3"})
        settles(pod("p", gpus=4), [], "a device failed")
        settles(pod("p", gpus=1), [second], "less than is used")
        cluster.kubectl("delete", "pod", "holder", "-n", ours, "--wait=true")
        settles(pod("p", gpus=1), [first, second], "what is left of the first node is given away")

        offer(cluster, second, **{"nvidia.com/gpu": None, ONE_G: "7"})
        settles(asking("p", **{ONE_G: "7"}), [second], "cut into seven")
        offer(cluster, second, **{ONE_G: None, THREE_G: "2"})
        settles(asking("p", **{THREE_G: "2"}), [second], "repartitioned")
        settles(asking("p", **{ONE_G: "1"}), [], "the old slices are gone")


def test_kinds_of_pods_are_kept_apart_and_resources_without_a_weight_are_refused(cluster):
    taints = [{"key": "broker", "effect": "NoSchedule"}]
    (broker,) = make_nodes(cluster, 1, gpus=0, prefix="broker", labels={"broker": "yes"}, taints=taints)
    make_nodes(cluster, 1, gpus=4)
    with serve_fairgate(cluster, policy=POOLS) as fairgate:
        create_pod(cluster, fairgate.team_b, pod("kafka-0", labels={"app": "kafka"}))
        create_pod(cluster, fairgate.team_b, pod("web-0", labels={"app": "web"}))
        for name in ("kafka-0", "web-0"):
            wait_bound(cluster, fairgate.team_b, name)
        sent, web = (get_pod(cluster, fairgate.team_b, name) for name in ("kafka-0", "web-0"))
        assert sent["spec"]["nodeName"] == broker
        assert TIER not in sent["metadata"]["labels"]
        assert web["spec"]["nodeName"] != broker

        with pytest.raises(ApiError, match=r"nvidia\.com/gpu\.shared looks like a GPU"):
            create_pod(cluster, fairgate.team_a, asking("shared", **{"nvidia.com/gpu.shared": "1"}))

        waiting = pod("waits", gpus=8, annotations={"fairgate.dev/pool": "cloud"})
        created = create_pod(cluster, fairgate.team_b, waiting)
        assert created["spec"]["nodeSelector"] == {"cloud": "yes"}
        assert "affinity" not in created["spec"], "an autoscaler must see that a new node would help"
        (grown,) = make_nodes(cluster, 1, gpus=8, prefix="cloud", labels={"cloud": "yes"})
        wait_bound(cluster, fairgate.team_b, "waits")
        assert get_pod(cluster, fairgate.team_b, "waits")["spec"]["nodeName"] == grown
