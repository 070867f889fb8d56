"""The demand mix: sizes of pods and their frequency, learned from arrivals, with a prior for a new cluster.

Old arrivals lose weight by halves as new ones come, not by the clock: an idle weekend changes nothing, and the same
events give the same mix. It is not stored: a restarted process learns from the pods that run.
"""

from functools import lru_cache
from typing import Final

from webhook.core.model.demand import Demand, PerDevice
from webhook.core.model.names import CPU, MEMORY, ResourceName
from webhook.core.model.shape import DEFAULT_PRIOR, Prior, Shape

_HALVE_AFTER: Final = 8192
"""Arrivals after which all counts are halved: enough to know the rare sizes, few enough to follow a change."""

_PRIOR_ARRIVALS: Final = 32
"""The weight of the prior in arrivals, for each resource."""

_MAX_SHAPES: Final = 512
"""Shapes counted; above that the rarest is dropped."""

_ARRIVAL_COUNT: Final = 16
"""The count of one arrival, so that it can be halved a few times."""

_FIRST_COMPARISON: Final = 32
"""Arrivals before the first comparison with the expected mix; later it takes more to make a difference."""

_DRIFT: Final = 16
"""The expected mix is recomputed when a sixteenth of it differs: each time costs a pass over the nodes."""


Weights = dict[Shape, int]


def resource_of(demand: Demand) -> ResourceName | None:
    """Return the GPU resource that decides where a pod fits: the one it requests most; None where it requests none."""
    if demand.per_device is not None:
        return demand.per_device.resource
    devices = demand.devices
    if len(devices) > 1:
        return max(devices, key=lambda device: device[1])[0]
    return devices[0][0] if devices else None


@lru_cache(maxsize=1024)  # called for every pod, and those of one template are the same
def shape_of(
    requests: tuple[tuple[ResourceName, int], ...], resource: ResourceName, per_device: PerDevice | None = None
) -> Shape:
    """Return the size of a pod in terms of one of its GPU resources."""
    amounts = dict(requests)
    cpu, memory = amounts.get(CPU, 0), amounts.get(MEMORY, 0)
    if per_device is None:
        return Shape(amounts.get(resource, 0), cpu=cpu, memory=memory)
    return Shape(per_device.number, per_device.amount, per_device.parts, cpu, memory)


class DemandMix:
    """Counts of shapes by resource. `version` increases when the expected mix no longer matches the arrivals."""

    __slots__ = ("_counts", "_expected", "_prior", "_until_comparison", "version")

    def __init__(self) -> None:
        self._prior = DEFAULT_PRIOR
        self._counts: dict[ResourceName, Weights] = {}
        self._expected: dict[ResourceName, Weights] = {}
        self._until_comparison: dict[ResourceName, int] = {}  # arrivals until the next comparison with the expected mix
        self.version = 0

    def set_prior(self, prior: Prior) -> None:
        """Set the mix expected before any arrivals."""
        if prior != self._prior:
            self._prior = prior
            self._invalidate()

    def note(self, demand: Demand) -> None:
        """Count the arrival of a pod."""
        resource = resource_of(demand)
        if resource is None:
            return
        counts = self._counts.setdefault(resource, {})
        shape = shape_of(demand.requests, resource, demand.per_device)
        if not shape.number:  # it shares a claim whose room another pod takes
            return
        counts[shape] = counts.get(shape, 0) + _ARRIVAL_COUNT
        if len(counts) > _MAX_SHAPES:
            del counts[min(counts, key=lambda each: (counts[each], each == shape, each))]
        left = self._until_comparison.get(resource, _FIRST_COMPARISON) - 1
        self._until_comparison[resource] = left
        if left <= 0:
            self._compare(resource)

    def expected(self, resource: ResourceName) -> Weights:
        """Return the weights of the shapes of future pods for a resource; unchanged until `version` increases."""
        known = self._expected.get(resource)
        if known is None:
            known = self._expected[resource] = self._weights(resource)
        return known

    def _compare(self, resource: ResourceName) -> None:
        counts = self._counts[resource]
        known = sum(counts.values()) // _ARRIVAL_COUNT
        self._until_comparison[resource] = max(_FIRST_COMPARISON, known // _DRIFT)
        if known >= _HALVE_AFTER:
            self._counts[resource] = {shape: count // 2 for shape, count in counts.items() if count > 1}
        if resource in self._expected and _differ(self._expected[resource], self._weights(resource)):
            self._invalidate()

    def _invalidate(self) -> None:
        self._expected.clear()
        self.version += 1

    def _weights(self, resource: ResourceName) -> Weights:
        whole = sum(weight for _, weight in self._prior)
        weights = {shape: _ARRIVAL_COUNT * _PRIOR_ARRIVALS * weight // whole for shape, weight in self._prior}
        for shape, count in self._counts.get(resource, {}).items():
            weights[shape] = weights.get(shape, 0) + count
        return weights


def _differ(first: Weights, second: Weights) -> bool:
    one, other = sum(first.values()), sum(second.values())
    apart = sum(abs(first.get(shape, 0) * other - second.get(shape, 0) * one) for shape in first.keys() | second.keys())
    return apart * _DRIFT > 2 * one * other
