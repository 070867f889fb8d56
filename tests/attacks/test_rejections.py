"""Nodes closed by pods that are made to be rejected: a tenant closes them to its own team alone."""

import pytest

from tests.attacks.attacker import make_attacker
from tests.control_plane.api import ApiError
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, list_pods, wait_bound, wait_for, wait_unschedulable
from tests.scenarios.evictor import evictor, fill
from tests.scenarios.standing_fairgate import TIER, serve_fairgate
from tests.scenarios.test_rejecting_nodes import settled_nodes

pytestmark = [pytest.mark.cluster, pytest.mark.standing]


def test_pods_that_every_node_rejects_close_no_node_to_another_team(cluster):
    """As two replicas of a time-sliced GPU are, which a device plugin may refuse on every node."""
    nodes = settled_nodes(cluster, 2)
    with serve_fairgate(cluster) as fairgate:
        attacker = make_attacker(cluster, fairgate.team_a)
        for number in range(16):
            on = nodes[number % 2]
            made = pod(f"bad-{number}", gpus=1, nodeName=on, annotations={"fairgate.test/rejected-by": on})
            attacker.create_pod(made)
        wait_for(
            cluster,
            lambda: [fairgate.metric("fairgate_node_rejecting_teams", node=node) for node in nodes] == [1, 1],
            what="both nodes are closed to the attacker's team",
        )
        for number in range(16):  # all GPUs that there are
            create_pod(cluster, fairgate.team_b, pod(f"honest-{number}", gpus=1))
        bound = [wait_bound(cluster, fairgate.team_b, f"honest-{number}") for number in range(16)]
        assert sorted(bound) == sorted(8 * nodes)


def test_a_tenant_writes_no_rejection_itself(cluster):
    (node,) = settled_nodes(cluster, 1)
    status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "startTime": "2026-01-01T00:00:00Z"}
    with serve_fairgate(cluster) as fairgate:
        attacker = make_attacker(cluster, fairgate.team_a)
        attacker.create_pod(pod("born-so", gpus=1) | {"status": status})
        assert wait_bound(cluster, fairgate.team_a, "born-so") == node
        assert get_pod(cluster, fairgate.team_a, "born-so")["status"].get("reason") is None
        with pytest.raises(ApiError, match="forbidden"):
            attacker.api.patch(f"/api/v1/namespaces/{fairgate.team_a}/pods/born-so/status", {"status": status})
        assert [each["status"].get("reason") for each in list_pods(cluster, fairgate.team_a)] == [None]


def test_pods_that_kube_scheduler_refuses_for_a_cause_of_their_own_close_no_node_to_others(cluster):
    """As pods of one ReplicaSet with a volume that one of them uses alone: their reports count for themselves."""
    nodes = settled_nodes(cluster, 2)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate, evictor(fairgate) as running:
        attacker = make_attacker(cluster, fairgate.team_a)
        term = {"labelSelector": {"matchLabels": {"app": "own"}}, "topologyKey": "kubernetes.io/hostname"}
        apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        borrows = {"gpus": 1, "cpu": "1", "memory": "1Gi", "labels": {TIER: "preemptible"}}
        for node in nodes:  # room for one of the attacker's pods on each
            selector = {"kubernetes.io/hostname": node}
            fill(cluster, fairgate.team_b, 4, prefix=f"on-{node}-", nodeSelector=selector, **borrows)
        for number in range(4):
            attacker.create_pod(
                pod(f"own-{number}", gpus=2, cpu="1", memory="1Gi", labels={"app": "own"}, affinity=apart)
            )
        for name in ("own-2", "own-3"):
            wait_unschedulable(cluster, fairgate.team_a, name)
        for number in range(4):
            create_pod(cluster, fairgate.team_b, pod(f"honest-{number}", gpus=1, cpu="1", memory="1Gi"))
        bound = [wait_bound(cluster, fairgate.team_b, f"honest-{number}") for number in range(4)]
        assert set(bound) <= set(nodes)
        assert running.said("evicted") == []
