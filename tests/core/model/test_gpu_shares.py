"""Shares of devices and weights that do not divide evenly: exact, and never more than the whole."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders as b
from tests.kube.support.created import pod_of, with_resources
from webhook.core.model.amounts import ONE_GPU
from webhook.core.model.demand import demand_of, in_shares, reweighed
from webhook.policy.sections import BUILT_IN

MEMORY, PERCENT, CORES = "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"
WEIGHTS = {**BUILT_IN, MEMORY: Fraction(ONE_GPU, 81920)}


def counted(limits, weights=WEIGHTS):
    """The demand of a container whose scheduler enforces its share."""
    return in_shares(whole(limits, weights), weights)


def whole(limits, weights=WEIGHTS):
    """Its demand with any other scheduler."""
    return pod_of(with_resources(None, limits), weights).demand


def test_a_share_is_the_larger_of_memory_and_cores_once_per_device():
    assert counted({b.GPU: 2, MEMORY: 20480, CORES: 10}).gpus == ONE_GPU // 2
    assert counted({b.GPU: 2, PERCENT: 10, CORES: 50}).gpus == ONE_GPU
    assert counted({MEMORY: 40960}).gpus == ONE_GPU // 2, "no number of devices is one device"


def test_memory_that_is_not_requested_is_the_whole_memory():
    assert counted({b.GPU: 1, CORES: 10}).gpus == ONE_GPU
    assert counted({b.GPU: 3}).gpus == 3 * ONE_GPU


def test_an_absolute_amount_of_memory_comes_before_a_percentage():
    assert counted({b.GPU: 1, MEMORY: 8192, PERCENT: 90}).gpus == ONE_GPU // 10


def test_memory_without_a_weight_is_unresolved_and_counts_the_whole_device():
    demand = counted({b.GPU: 1, MEMORY: 8192}, BUILT_IN)
    assert (demand.gpus, demand.strange) == (ONE_GPU, (MEMORY,))


@pytest.mark.parametrize("share", [{PERCENT: 0}, {PERCENT: 1}, {MEMORY: 1}, {CORES: 1}, {MEMORY: 0, CORES: 0}])
def test_a_share_lowers_no_charge_until_its_scheduler_is_known(share):
    assert whole({b.GPU: 8, **share}).gpus == 8 * ONE_GPU


def test_an_amount_of_zero_is_absent():
    assert counted({b.GPU: 8, PERCENT: 0, CORES: 0}).gpus == 8 * ONE_GPU
    assert counted({b.GPU: 2, MEMORY: 0, PERCENT: 25}).gpus == ONE_GPU // 2
    assert counted({PERCENT: 0}).gpus == 0
    assert counted({b.GPU: 0, PERCENT: 50}).gpus == ONE_GPU // 2, "no number of devices is one device"


def test_shares_beside_whole_gpus_add_up_and_init_containers_get_whole_ones():
    manifest = b.pod(
        containers=[b.container("whole", gpus=1), container("share", {b.GPU: 1, PERCENT: 25})],
        initContainers=[
            container("sidecar", {b.GPU: 1, PERCENT: 50}, restartPolicy="Always"),
            container("warm-up", {b.GPU: 2, PERCENT: 25}),
        ],
    )
    asked = pod_of(manifest, WEIGHTS).demand
    assert in_shares(asked, WEIGHTS).gpus == (3 + Fraction(1, 4)) * ONE_GPU, (
        "the share, and sidecar and warm-up at once"
    )
    assert asked.gpus == 4 * ONE_GPU


def container(name, limits, **more):
    return {"name": name, "resources": {"limits": {key: str(value) for key, value in limits.items()}}, **more}


def test_a_share_is_weighed_again_by_another_policy():
    demand, heavier = counted({b.GPU: 2, MEMORY: 20480}), {**WEIGHTS, MEMORY: Fraction(ONE_GPU, 40960)}
    assert in_shares(reweighed(demand, heavier), heavier).gpus == ONE_GPU


@given(st.integers(1, 10**9), st.data())
def test_the_shares_of_one_gpu_add_up_to_exactly_the_gpu(size, data):
    weights = {"x.dev/gpu-mem": Fraction(ONE_GPU, size)}
    assert demand_of({"x.dev/gpu-mem": size}, weights).gpus == ONE_GPU
    parts = []
    while (left := size - sum(parts)) > 0 and len(parts) < 50:
        parts.append(data.draw(st.integers(1, left)))
    charges = [demand_of({"x.dev/gpu-mem": part}, weights).gpus for part in parts]
    assert sum(charges) == Fraction(sum(parts) * ONE_GPU, size)
