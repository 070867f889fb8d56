"""Beside HAMi, as far as its pods show it: what it assigns to a pod is what Fairgate charges for it.

No module of HAMi is published, so nothing of it runs here. Its part is played by the fields and annotations that its
webhook and its scheduler write (github.com/Project-HAMi/HAMi v2.10.0: pkg/scheduler, pkg/device/devices.go).
"""

from fractions import Fraction

import pytest

from tests.control_plane.api import MERGE_PATCH, ApiError
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, make_nodes, wait_for
from tests.scenarios.standing_fairgate import TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

DEVICE_MIB = 81920
POLICY = f"resources: {{nvidia.com/gpumem: {{perGpu: {DEVICE_MIB}}}}}"
SPLIT = 10
"""Pods that HAMi's device plugin lets share one device: its node offers so many pieces of each."""


def share(name, **limits):
    """A pod as it is after HAMi's webhook."""
    resources = {"limits": {f"nvidia.com/{key}": str(amount) for key, amount in limits.items()}}
    container = {"name": "main", "image": "example.invalid/train:1", "resources": resources}
    return pod(name, containers=[container], schedulerName="hami-scheduler")


def assign(cluster, namespace, name, node, *devices):
    """Do what HAMi's scheduler does: write the devices of the only container, and bind the pod."""
    text = "".join(f"{uuid},NVIDIA,{mib},{cores}:" for uuid, mib, cores in devices) + ";"
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    notes = {"hami.io/vgpu-node": node, "hami.io/bind-phase": "allocating"}
    notes |= {"hami.io/vgpu-devices-to-allocate": text, "hami.io/vgpu-devices-allocated": text}
    cluster.api.patch(path, {"metadata": {"annotations": notes}}, content_type=MERGE_PATCH)
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
    cluster.api.create(f"{path}/binding", binding)


def assigned(found):
    """The GPUs that HAMi assigned to a pod: of each device the larger of its memory and its cores."""
    text = found["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"]
    devices = [device.split(",") for device in text.rstrip(";").split(":") if device]
    return sum(max(Fraction(int(mib), DEVICE_MIB), Fraction(int(cores), 100)) for _, _, mib, cores in devices)


def test_what_hami_assigns_is_what_is_charged(cluster):
    make_nodes(cluster, 1, gpus=2 * SPLIT)
    with serve_fairgate(cluster, policy=POLICY) as fairgate:
        mine = fairgate.team_a
        create_pod(cluster, mine, share("memory", gpu=1, gpumem=20480, gpucores=10))
        create_pod(cluster, mine, share("cores", gpu=2, gpumem=8192, gpucores=30))
        assign(cluster, mine, "memory", "node-0", ("GPU-0", 20480, 10))
        assign(cluster, mine, "cores", "node-0", ("GPU-0", 8192, 30), ("GPU-1", 8192, 30))
        found = {name: get_pod(cluster, mine, name) for name in ("memory", "cores")}
        assert {name: assigned(each) for name, each in found.items()} == {
            "memory": Fraction(1, 4),
            "cores": Fraction(6, 10),
        }
        want = float(sum(map(assigned, found.values())))
        wait_for(cluster, lambda: fairgate.charged("a") == pytest.approx(want), what=f"{want} GPUs charged")
        for name, each in found.items():
            assert "affinity" not in each["spec"], f"{name} is placed by HAMi"
            wait_for(
                cluster,
                lambda name=name: TIER in get_pod(cluster, mine, name)["metadata"]["labels"],
                what=f"{name} is adopted",
            )
        create_pod(cluster, mine, share("whole", gpu=19))
        fairgate.wait_seen("a")
        with pytest.raises(ApiError, match=r"requested 0.2, limit 20, used 19.85.*\(TeamLimitExceeded\)"):
            create_pod(cluster, mine, share("more", gpu=1, gpumem=16384, gpucores=5))
        create_pod(cluster, mine, share("rest", gpu=1, gpumem=12288, gpucores=5))


def test_a_pod_of_another_scheduler_with_hamis_resources_counts_whole_devices(cluster):
    """Nothing enforces its share: such a pod is one that HAMi's webhook did not see."""
    make_nodes(cluster, 1, gpus=2 * SPLIT)
    with serve_fairgate(cluster, policy=POLICY) as fairgate:
        passed_by = share("p", gpu=21, gpumem=1)
        del passed_by["spec"]["schedulerName"]
        with pytest.raises(ApiError, match=r"requested 21, limit 20"):
            create_pod(cluster, fairgate.team_a, passed_by)
