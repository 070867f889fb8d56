"""Operators change nodes under a running Fairgate, as MIG manager and driver upgrades do, step by step."""

import json

import pytest

from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, make_nodes, wait_bound, wait_for
from tests.scenarios.changing_nodes import asking, chosen, offer
from tests.scenarios.evictor import evictor
from tests.scenarios.standing_fairgate import TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

ONE_G = "nvidia.com/mig-1g.5gb"
MIG_STATE, DRIVER_STATE = "nvidia.com/mig.config.state", "nvidia.com/gpu-driver-upgrade-state"
PRODUCT = "nvidia.com/gpu.product"
MIG_POLICY = f"resources: {{nvidia.com/gpu: {{gpus: 1}}, {ONE_G}: {{gpus: 1/7}}}}"


def label(cluster, node, **labels):
    """Set labels of a node as an operator does; None removes one."""
    cluster.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}})


def warned(cluster, namespace, *, gpus):
    """What a user is warned of who creates a pod now."""
    made = json.dumps(pod("p", gpus=gpus))
    return cluster.kubectl.run("create", "--dry-run=server", "-n", namespace, "-f", "-", stdin=made).stderr


def test_a_repartitioning_costs_no_team_its_share_and_evicts_no_pod(cluster):
    """As NVIDIA's MIG manager does it: a label, then no devices, then no resource and no labels, then others."""
    (node,) = make_nodes(cluster, 1, gpus=8, labels={PRODUCT: "NVIDIA-A100-SXM4-40GB"})
    gpu = "nvidia.com/gpu"
    with serve_fairgate(cluster, policy=MIG_POLICY, is_own=True) as fairgate, evictor(fairgate):
        ours, theirs = fairgate.team_a, fairgate.team_b
        create_pod(cluster, theirs, pod("stays", gpus=2, labels={TIER: "preemptible"}))
        assert wait_bound(cluster, theirs, "stays") == node
        label(cluster, node, **{MIG_STATE: "pending"})
        partitioned = "node {} takes no new pods while its GPUs are being repartitioned"
        wait_for(cluster, lambda: chosen(cluster, ours, pod("p", gpus=1)) == [], what="the node is closed")
        made = create_pod(cluster, ours, pod("waits", gpus=8))
        assert "affinity" not in made["spec"]

        cluster.api.patch(f"/api/v1/nodes/{node}/status", {"status": {"allocatable": {gpu: "0"}}})
        offers = f"node {node} offers 0 of 8 {gpu} now: its GPUs are being repartitioned"
        wait_for(cluster, lambda: offers in warned(cluster, ours, gpus=8), what="what the node offers is said")
        offer(cluster, node, **{gpu: None})
        label(cluster, node, **{PRODUCT: None})
        wait_for(
            cluster, lambda: partitioned.format(node) in warned(cluster, ours, gpus=8), what="it is known what it had"
        )
        assert (fairgate.charged("b"), fairgate.charged("a")) == (2, 8), "charged as before"
        assert fairgate.metric("fairgate_gpus_in_maintenance") == 8
        assert get_pod(cluster, theirs, "stays")["metadata"].get("deletionTimestamp") is None

        offer(cluster, node, **{ONE_G: "56"})
        label(cluster, node, **{MIG_STATE: "success", PRODUCT: "NVIDIA-A100-SXM4-40GB"})
        small = asking("small", **{ONE_G: "7"})
        wait_for(cluster, lambda: chosen(cluster, ours, small) == [node], what="its slices are given away")
        assert fairgate.charged("b") == 2, "the pod that stayed has what its kubelet gave it"
        cluster.kubectl("delete", "pod", "stays", "-n", theirs, "--wait=true")
        wait_for(cluster, lambda: fairgate.charged("b") == 0, what="its charge ends with it")
        assert get_pod(cluster, ours, "waits")["status"].get("phase") == "Pending"


def test_a_pod_that_kube_scheduler_would_bind_there_waits_in_line_until_it_is_over(cluster):
    (node,) = make_nodes(cluster, 1, gpus=8)
    with serve_fairgate(cluster, is_own=True) as fairgate:
        ours = fairgate.team_a
        label(cluster, node, **{MIG_STATE: "pending"})
        wait_for(cluster, lambda: fairgate.metric("fairgate_gpus_in_maintenance") == 8, what="the state is known")
        made = create_pod(cluster, ours, pod("waits", gpus=4))
        assert made["spec"]["schedulingGates"] == [{"name": "fairgate.dev/queue"}]
        assert "while its GPUs are being repartitioned" in made["metadata"]["annotations"]["fairgate.dev/waiting"]
        assert fairgate.charged("a") == 0
        label(cluster, node, **{MIG_STATE: "success"})
        assert wait_bound(cluster, ours, "waits") == node
        assert fairgate.charged("a") == 4


def test_during_a_driver_upgrade_pods_go_elsewhere_or_wait_with_the_reason(cluster):
    """As k8s-operator-libs does it: a label, a cordon, no devices for a while, and back."""
    first, second = make_nodes(cluster, 2, gpus=4)
    with serve_fairgate(cluster, is_own=True) as fairgate:
        ours = fairgate.team_a
        label(cluster, first, **{DRIVER_STATE: "cordon-required"})
        wait_for(cluster, lambda: chosen(cluster, ours, pod("p", gpus=4)) == [second], what="the other node is chosen")
        cluster.kubectl("cordon", first)
        label(cluster, first, **{DRIVER_STATE: "pod-restart-required"})
        create_pod(cluster, ours, pod("elsewhere", gpus=4))
        assert wait_bound(cluster, ours, "elsewhere") == second
        wait_for(
            cluster, lambda: "driver is being upgraded" in warned(cluster, ours, gpus=4), what="the reason is said"
        )
        offer(cluster, first, **{"nvidia.com/gpu": "0"})
        create_pod(cluster, ours, pod("waits", gpus=4))
        label(cluster, first, **{DRIVER_STATE: "upgrade-done"})
        offer(cluster, first, **{"nvidia.com/gpu": "4"})
        cluster.kubectl("uncordon", first)
        assert wait_bound(cluster, ours, "waits") == first
