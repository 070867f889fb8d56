"""A team takes its share back: exactly enough of what others borrow goes, on one node, and nothing more."""

import pytest

from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, list_pods, make_nodes, wait_for, wait_phase
from tests.scenarios.evictor import alive, evictor, held_nodes, node_of, wait_bound
from tests.scenarios.gate import TIER, gate

pytestmark = pytest.mark.cluster

SIZE = {"cpu": "1", "memory": "4Gi"}


def fill(cluster, namespace, count, *, gpus=1, prefix="a", **more):
    """Create pods and wait until all of them run."""
    names = [f"{prefix}{number:02}" for number in range(count)]
    for name in names:
        create_pod(cluster, namespace, pod(name, gpus=gpus, **SIZE, **more))
    for name in names:
        wait_phase(cluster, namespace, name, "Running")
    return names


def gone_from(cluster, namespace, names):
    left = set(alive(cluster, namespace))
    return [name for name in names if name not in left]


def test_the_third_scenario_a_share_comes_back_and_not_one_gpu_more(cluster):
    make_nodes(cluster, 4)
    with gate(cluster, limit_a=40, limit_b=40) as fairgate, evictor(fairgate) as running:
        names = fill(cluster, fairgate.team_a, 40)
        borrowed = {
            found["metadata"]["name"]
            for found in list_pods(cluster, fairgate.team_a)
            if found["metadata"]["labels"][TIER] == "preemptible"
        }
        assert len(borrowed) == 20
        create_pod(cluster, fairgate.team_b, pod("b0", gpus=8, **SIZE))
        took = wait_bound(cluster, fairgate.team_b, "b0")
        assert took < 5
        gone = gone_from(cluster, fairgate.team_a, names)
        assert len(gone) == 8
        assert set(gone) <= borrowed
        wait_for(cluster, lambda: not held_nodes(cluster), what="no hold is left")
        for number in range(1, 13):
            create_pod(cluster, fairgate.team_b, pod(f"b{number}", gpus=1, **SIZE))
        wait_bound(cluster, fairgate.team_b, *(f"b{number}" for number in range(1, 13)))
        assert len(alive(cluster, fairgate.team_a)) == 20
        assert set(gone_from(cluster, fairgate.team_a, names)) == borrowed
        assert len(running.said("evicted")) == 20
        create_pod(cluster, fairgate.team_b, pod("more", gpus=1, **SIZE))
        described = cluster.kubectl("describe", "pod", "b0", "-n", fairgate.team_b)
        assert "Reclaiming" in described
        assert "team b's guaranteed share is 20" in described
        assert node_of(cluster, fairgate.team_b, "more") is None
        assert len(alive(cluster, fairgate.team_a)) == 20
