"""The problem, on the stock scheduler and without any webhook: GPUs enough, but no node has room.

Every comparison with Fairgate starts from this picture.
"""

import pytest

from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, gpus_by_node, make_nodes, wait_bound, wait_unschedulable

pytestmark = pytest.mark.cluster


@pytest.mark.promise
def test_six_small_pods_leave_no_room_for_a_large_one(cluster, namespace):
    make_nodes(cluster, 4, gpus=10, cpu="64", memory="512Gi")
    for number in range(6):
        # The default score looks at CPU and memory only: without such requests the pods would pile up instead.
        create_pod(cluster, namespace, pod(f"small-{number}", gpus=3, cpu="6", memory="48Gi"))
        wait_bound(cluster, namespace, f"small-{number}")

    used = gpus_by_node(cluster)
    assert sorted(used.values(), reverse=True) == [6, 6, 3, 3]

    create_pod(cluster, namespace, pod("large", gpus=8, cpu="16", memory="128Gi"))
    message = wait_unschedulable(cluster, namespace, "large")
    assert "4 Insufficient nvidia.com/gpu" in message
    assert "nodeName" not in get_pod(cluster, namespace, "large")["spec"]
    assert 40 - sum(used.values()) == 22  # free GPUs, and none of them of use
