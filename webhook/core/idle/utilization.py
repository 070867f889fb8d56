"""The utilization of GPUs by pod, from the series of an exporter; what cannot be attributed is left out."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from webhook.core.model.names import Namespace

PodKey = tuple[Namespace, str]
"""Namespace and name of a pod."""


class GpuSeries(NamedTuple):
    """The highest utilization of one GPU in the last reading, in percent, for the pod that the exporter names.

    `gpu` identifies the GPU, or a part of one. `is_of_whole_gpus`: its metric means nothing for parts.
    """

    namespace: Namespace
    pod: str
    gpu: tuple[str, ...]
    percent: float
    is_of_whole_gpus: bool = False


@dataclass(frozen=True, slots=True)
class PodUtilization:
    """What is known of a pod's GPUs: the highest utilization of each in percent, and whether others share one of them.

    `of_parts` are the values of the metrics that mean something for parts of a GPU.
    """

    by_gpu: Mapping[tuple[str, ...], float]
    of_parts: Mapping[tuple[str, ...], float]
    is_shared: bool = False


def utilization_by_pod(found: Iterable[GpuSeries]) -> dict[PodKey, PodUtilization]:
    """Return the utilization by pod; the highest of several metrics of a GPU counts.

    A GPU that several pods have is shared: its value is that of all of them, and exporters show 0 for a pod whose
    processes they cannot find.
    """
    pods: dict[PodKey, tuple[dict[tuple[str, ...], float], dict[tuple[str, ...], float]]] = {}
    for each in found:
        every, of_parts = pods.setdefault((each.namespace, each.pod), ({}, {}))
        for values in (every,) if each.is_of_whole_gpus else (every, of_parts):
            values[each.gpu] = max(each.percent, values.get(each.gpu, 0.0))
    users = Counter(gpu for every, _ in pods.values() for gpu in every)
    return {
        key: PodUtilization(every, of_parts, any(users[gpu] > 1 for gpu in every))
        for key, (every, of_parts) in pods.items()
    }
