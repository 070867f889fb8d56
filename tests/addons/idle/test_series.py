"""Series with the labels that exporters write, as Prometheus keeps them."""

import pytest

from webhook.addons.idle.judge import gpu_series
from webhook.core.model.policy_addons import UtilizationMetric
from webhook.policy.addons import LABELS, METRICS, Exporter

ENGINE, UTIL = METRICS[Exporter.DCGM]
(AMD,) = METRICS[Exporter.AMD]
DCGM = {"UUID": "GPU-1", "Hostname": "n0"}


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        ({"namespace": "vision", "pod": "train"}, ("vision", "train")),
        (
            {"exported_namespace": "vision", "exported_pod": "train", "namespace": "gpu-operator", "pod": "dcgm-x"},
            ("vision", "train"),
        ),
    ],
    ids=["labels are honored", "labels are not honored"],
)
def test_the_pod_that_uses_the_gpu_is_found(labels, want):
    found = gpu_series(DCGM | labels, 17.0, UTIL, LABELS)
    assert (found.namespace, found.pod) == want
    assert (found.percent, found.gpu.count("GPU-1")) == (17.0, 1)


def test_a_ratio_is_a_hundredth_of_percent():
    assert gpu_series(DCGM | {"namespace": "n", "pod": "p"}, 0.25, ENGINE, LABELS).percent == 25.0


def test_devices_of_two_nodes_with_one_index_differ():
    pods = ({"namespace": "n", "pod": "p", "gpu_id": "0", "hostname": name} for name in ("n0", "n1"))
    assert len({gpu_series(labels, 1.0, AMD, LABELS).gpu for labels in pods}) == 2


@pytest.mark.parametrize(
    ("labels", "value", "metric"),
    [
        ({}, 0.0, UTIL),
        ({"pod": "p"}, 0.0, UTIL),
        ({"namespace": "n", "pod": "p"}, float("nan"), UTIL),
        ({"namespace": "n", "pod": "p", "GPU_I_ID": "3"}, 0.0, UTIL),
        ({"namespace": "n", "pod": "p", "gpu_partition_id": "1"}, 0.0, AMD),
    ],
    ids=["no pod", "no namespace", "no number", "a MIG device by a metric of whole GPUs", "an AMD partition"],
)
def test_what_says_nothing_is_left_out(labels, value, metric):
    assert gpu_series(DCGM | labels, value, metric, LABELS) is None


def test_a_mig_device_has_the_metric_that_counts_by_time():
    labels = DCGM | {"namespace": "n", "pod": "p", "GPU_I_ID": "3"}
    assert gpu_series(labels, 0.5, ENGINE, LABELS).percent == 50.0


def test_an_own_metric_has_its_own_value_of_full_use():
    metric = UtilizationMetric("duty", full=1000)
    assert gpu_series(DCGM | {"namespace": "n", "pod": "p"}, 50.0, metric, LABELS).percent == 5.0
