"""The demand mix: what sizes of pods come, learned from those that came, and what a cluster expects before any did.

Old arrivals fade by halves as new ones come, not by the clock: an idle weekend teaches nothing, and the same events
give the same mix. It is not stored: a process that starts anew learns from the pods that run.
"""

from functools import lru_cache
from typing import Final

from webhook.core.model.demand import Demand, PerDevice
from webhook.core.model.names import CPU, MEMORY, ResourceName
from webhook.core.model.shape import DEFAULT_PRIOR, Prior, Shape

_MEMORY: Final = 8192
"""Arrivals after which all counts are halved: enough for the rare sizes to be known, few enough to follow a change."""

_PRIOR_ARRIVALS: Final = 32
"""As many arrivals as the prior is worth, for each resource."""

_KEPT_SHAPES: Final = 512
"""Shapes counted; where there are more, the rarest leaves."""

_ARRIVAL: Final = 16
"""What one arrival counts, so that it can be halved a few times."""

_LOOK: Final = 32
"""Arrivals after which what came is first held against what was expected; later it takes more to make a difference."""

_DRIFT: Final = 16
"""What is expected is made anew when a sixteenth of it would be others: each time costs a pass over the nodes."""


Weights = dict[Shape, int]


def resource_of(demand: Demand) -> ResourceName | None:
    """Name the GPU resource that decides where a pod fits: the one it has most of; None where it asks for none."""
    if demand.per_device is not None:
        return demand.per_device.resource
    devices = demand.devices
    if len(devices) > 1:
        return max(devices, key=lambda device: device[1])[0]
    return devices[0][0] if devices else None


@lru_cache(maxsize=1024)  # asked for every pod that comes, and those of one template are the same
def shape_of(
    requests: tuple[tuple[ResourceName, int], ...], resource: ResourceName, ask: PerDevice | None = None
) -> Shape:
    """Tell the size of a pod in terms of one of the GPU resources that it asks for."""
    amounts = dict(requests)
    cpu, memory = amounts.get(CPU, 0), amounts.get(MEMORY, 0)
    if ask is None:
        return Shape(amounts.get(resource, 0), cpu=cpu, memory=memory)
    return Shape(ask.number, ask.amount, ask.parts, cpu, memory)


class DemandMix:
    """Counts of shapes by resource. `version` moves when what is expected is no longer what comes."""

    __slots__ = ("_counts", "_expected", "_prior", "_until_look", "version")

    def __init__(self) -> None:
        self._prior = DEFAULT_PRIOR
        self._counts: dict[ResourceName, Weights] = {}
        self._expected: dict[ResourceName, Weights] = {}
        self._until_look: dict[ResourceName, int] = {}  # arrivals until what came is held against what was expected
        self.version = 0

    def set_prior(self, prior: Prior) -> None:
        """Expect something else of what has not come yet."""
        if prior != self._prior:
            self._prior = prior
            self._move()

    def note(self, demand: Demand) -> None:
        """Count a pod that came."""
        resource = resource_of(demand)
        if resource is None:
            return
        counts = self._counts.setdefault(resource, {})
        shape = shape_of(demand.requests, resource, demand.per_device)
        counts[shape] = counts.get(shape, 0) + _ARRIVAL
        if len(counts) > _KEPT_SHAPES:
            del counts[min(counts, key=lambda each: (counts[each], each == shape, each))]
        left = self._until_look.get(resource, _LOOK) - 1
        self._until_look[resource] = left
        if left <= 0:
            self._look(resource)

    def expected(self, resource: ResourceName) -> Weights:
        """Weigh the shapes of the pods to come that ask for a resource; the same until `version` moves."""
        known = self._expected.get(resource)
        if known is None:
            known = self._expected[resource] = self._weights(resource)
        return known

    def _look(self, resource: ResourceName) -> None:
        counts = self._counts[resource]
        known = sum(counts.values()) // _ARRIVAL
        self._until_look[resource] = max(_LOOK, known // _DRIFT)
        if known >= _MEMORY:
            self._counts[resource] = {shape: count // 2 for shape, count in counts.items() if count > 1}
        if resource in self._expected and _differ(self._expected[resource], self._weights(resource)):
            self._move()

    def _move(self) -> None:
        self._expected.clear()
        self.version += 1

    def _weights(self, resource: ResourceName) -> Weights:
        whole = sum(weight for _, weight in self._prior)
        weights = {shape: _ARRIVAL * _PRIOR_ARRIVALS * weight // whole for shape, weight in self._prior}
        for shape, count in self._counts.get(resource, {}).items():
            weights[shape] = weights.get(shape, 0) + count
        return weights


def _differ(first: Weights, second: Weights) -> bool:
    one, other = sum(first.values()), sum(second.values())
    apart = sum(abs(first.get(shape, 0) * other - second.get(shape, 0) * one) for shape in first.keys() | second.keys())
    return apart * _DRIFT > 2 * one * other
