"""What one series of an exporter says of one GPU, by the labels that policy names."""

import math
from collections.abc import Mapping
from typing import Final

from webhook.core.idle.utilization import GpuSeries
from webhook.core.model.idle_rules import SeriesLabels, UtilizationMetric
from webhook.core.model.names import Namespace

_FULL_PERCENT: Final = 100


def gpu_series(
    labels: Mapping[str, str], value: float, metric: UtilizationMetric, names: SeriesLabels
) -> GpuSeries | None:
    """Return a series as the utilization of a GPU; None where it names no pod, or its value says nothing.

    A series of a part of a GPU by a metric of whole GPUs says nothing: DCGM and AMD's exporter show 0 there.
    """
    pod, namespace = _first(labels, names.pod), _first(labels, names.namespace)
    is_part = any(labels.get(each, "") not in ("", "0") for each in names.part)
    if not (pod and namespace) or not math.isfinite(value) or (is_part and metric.is_of_whole_gpus):
        return None
    gpu = tuple(labels.get(each, "") for each in names.gpu)
    return GpuSeries(Namespace(namespace), pod, gpu, value * _FULL_PERCENT / metric.full, metric.is_of_whole_gpus)


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")
