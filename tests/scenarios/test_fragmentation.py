"""Six 3-GPU pods and one of 8 on four nodes of ten: without Fairgate the large one waits, with it it runs.

The picture without Fairgate is in test_stock_scheduler.py: 6/6/3/3, and the large pod pending. The same here, on the
same nodes, in the same test, so that only Fairgate makes the difference.
"""

import pytest

from tests.builders import decision_of
from tests.control_plane.objects import pod
from tests.control_plane.workbench import (
    create_pod,
    get_pod,
    gpus_by_node,
    make_namespace,
    make_nodes,
    wait_bound,
    wait_for,
    wait_phase,
    wait_unschedulable,
)
from tests.scenarios.standing_fairgate import serve_fairgate

pytestmark = pytest.mark.cluster

SIZE = {"cpu": "6", "memory": "48Gi"}


def fill(cluster, namespace):
    for number in range(6):
        create_pod(cluster, namespace, pod(f"small-{number}", gpus=3, **SIZE))
        wait_bound(cluster, namespace, f"small-{number}")
    return sorted(gpus_by_node(cluster).values(), reverse=True)


@pytest.mark.promise
def test_small_pods_are_packed_so_that_the_large_one_runs(cluster):
    make_nodes(cluster, 4)
    without = make_namespace(cluster)
    assert fill(cluster, without) == [6, 6, 3, 3]
    create_pod(cluster, without, pod("large", gpus=8, **SIZE))
    wait_unschedulable(cluster, without, "large")
    cluster.kubectl("delete", "pods", "--all", "-n", without, "--wait=true")
    wait_for(cluster, lambda: sum(gpus_by_node(cluster).values()) == 0, what="all nodes free again")

    with serve_fairgate(cluster) as fairgate:
        assert fill(cluster, fairgate.team_a) == [9, 9, 0, 0]
        create_pod(cluster, fairgate.team_b, pod("large", gpus=8, **SIZE))
        wait_phase(cluster, fairgate.team_b, "large", "Running")
        for namespace, name in [(fairgate.team_a, f"small-{n}") for n in range(6)] + [(fairgate.team_b, "large")]:
            placed = get_pod(cluster, namespace, name)
            decided = decision_of(placed)
            assert placed["spec"]["nodeName"] == decided["nodes"][0], "bound to the first choice"
