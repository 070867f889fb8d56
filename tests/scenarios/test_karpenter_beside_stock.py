"""Karpenter beside Fairgate: it brings as many nodes and removes as many as without, and reclaim keeps what it frees.

How long pods wait is printed and not asserted: both wait for Karpenter's own rounds of seconds.
"""

import sys
import time
from typing import NamedTuple

import pytest

from tests.builders import decision_of
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, list_pods, wait_bound, wait_for, wait_unschedulable
from tests.scenarios.evictor import evictor, held_nodes
from tests.scenarios.karpenter import GPUS, node_pool, nodes, set_replicas, wait_nodes, wait_running, without_scheduler
from tests.scenarios.standing_fairgate import TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("karpenter")]

POOL = "pools: [{name: cloud, nodeSelector: {pool: cloud}}]"
"""Nothing says that it is autoscaled: Fairgate finds Karpenter."""

ROUND_SECONDS = 30
"""Longer than Karpenter's rounds of disruption, which come every ten seconds, and what they wait for."""


def test_a_pod_that_lost_its_room_brings_a_node(cluster):
    """Karpenter leaves pods alone that name their nodes in matchFields: no other node would fit."""
    with (
        node_pool(cluster, consolidates=False),
        serve_fairgate(cluster, limit_a=64, policy=POOL, is_own=True) as fairgate,
    ):
        ours = fairgate.team_a
        create_pod(cluster, ours, pod("first", gpus=4))
        lost = wait_bound(cluster, ours, "first", timeout=90)

        def lose_its_room():
            late = create_pod(cluster, ours, pod("late", gpus=4))
            assert decision_of(late)["nodes"] == [lost], "it is sent to the node that has room"
            cluster.kubectl("delete", "node", lost, "--wait=false")
            wait_for(cluster, lambda: not nodes(cluster), what="the node is gone", timeout=90)

        without_scheduler(cluster, lose_its_room)
        assert wait_bound(cluster, ours, "late", timeout=90) in nodes(cluster)


class Course(NamedTuple):
    """The nodes on which 28 GPUs ran in pods of 2, the seconds until then, and until those for 12 GPUs were left."""

    nodes: int
    seconds: float
    seconds_to_shrink: float


def course_of(cluster, namespace):
    set_replicas(cluster, namespace, 14)
    seconds, started = wait_running(cluster, namespace, 14), len(nodes(cluster))
    set_replicas(cluster, namespace, 6)
    to_shrink = wait_nodes(cluster, 2)
    wait_running(cluster, namespace, 6)
    set_replicas(cluster, namespace, 0)
    wait_nodes(cluster, 0)
    return Course(started, seconds, to_shrink)


def test_as_many_nodes_come_and_go_as_without_fairgate(cluster, namespace, capsys):
    with node_pool(cluster):
        stock = course_of(cluster, namespace)
        with serve_fairgate(cluster, limit_a=64, policy=POOL, is_own=True) as fairgate:
            ours = course_of(cluster, fairgate.team_a)
    with capsys.disabled():
        sys.stdout.write(f"\nwith Fairgate {ours}, without {stock}\n")
    assert stock.nodes == 4, "28 GPUs on nodes of 8"
    assert ours.nodes == stock.nodes


def test_a_node_that_reclaim_empties_is_not_removed_before_its_pod_comes(cluster):
    """While the kube-scheduler is away the node stays empty for as long as Karpenter needs to remove an empty one."""
    with (
        node_pool(cluster, most_gpus=2 * GPUS),
        serve_fairgate(cluster, limit_a=64, limit_b=64, policy=POOL, is_own=True) as fairgate,
    ):
        mine, theirs = fairgate.team_a, fairgate.team_b
        set_replicas(cluster, mine, 2, gpus=GPUS, labels={TIER: "preemptible"})
        wait_running(cluster, mine, 2)
        before = nodes(cluster)
        create_pod(cluster, theirs, pod("owner", gpus=GPUS))
        wait_unschedulable(cluster, theirs, "owner")

        def reclaim_alone():
            with evictor(fairgate) as running:
                wait_for(cluster, lambda: running.said("evicted"), what="a borrower is evicted")
                (held,) = wait_for(cluster, lambda: held_nodes(cluster), what="its node is held")
                time.sleep(ROUND_SECONDS)
                assert nodes(cluster) == before
                taints = cluster.api.get(f"/api/v1/nodes/{held}")["spec"]["taints"]
                assert [taint["key"] for taint in taints] == ["fairgate.dev/held"]
                cluster.start("kube-scheduler")
                assert wait_bound(cluster, theirs, "owner", timeout=90) == held
                wait_for(cluster, lambda: not held_nodes(cluster), what="no hold is left")
                assert len(running.said("evicted")) == 1

        cluster.stop("kube-scheduler")
        try:
            reclaim_alone()
        finally:
            cluster.revive()
        assert nodes(cluster) == before
        annotations = [cluster.api.get(f"/api/v1/nodes/{name}")["metadata"]["annotations"] for name in before]
        assert not any("karpenter.sh/do-not-disrupt" in each for each in annotations)
        assert get_pod(cluster, theirs, "owner")["metadata"]["labels"][TIER] == "guaranteed"
        assert len(list_pods(cluster, mine)) == 2
