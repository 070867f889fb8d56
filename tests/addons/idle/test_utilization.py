"""Which series belong to which pod, and which GPUs are shared."""

import pytest

from webhook.addons.idle.judge import GpuSeries, utilization_by_pod

A, B = ("ns", "a"), ("ns", "b")


def series(pod, gpu, percent, **more):
    return GpuSeries("ns", pod, (gpu,), percent, **more)


def test_the_highest_metric_of_a_gpu_counts():
    found = utilization_by_pod(
        [series("a", "g0", 3), series("a", "g0", 40, is_of_whole_gpus=True), series("a", "g1", 1)]
    )
    assert found[A].by_gpu == {("g0",): 40, ("g1",): 1}
    assert found[A].of_parts == {("g0",): 3, ("g1",): 1}


@pytest.mark.parametrize(("other", "want"), [("g0", True), ("g1", False)], ids=["of one GPU", "of two GPUs"])
def test_pods_share_a_gpu(other, want):
    found = utilization_by_pod([series("a", "g0", 0), series("b", other, 90)])
    assert (found[A].is_shared, found[B].is_shared) == (want, want)
