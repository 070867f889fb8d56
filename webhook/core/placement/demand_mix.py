"""The demand mix: sizes of pods and their frequency, learned from arrivals, with a prior for a new cluster.

Old arrivals of a user lose weight by halves as new ones come, not by the clock: an idle weekend changes nothing, and
the same events give the same mix. It is not stored: a restarted process learns from the pods that run.

It places the pods of all teams, so none of them may fill it: a team counts for at most as many arrivals as the others
on average, and so does a user within the team.
"""

from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Final, TypeVar

from webhook.core.model.contributions import bounded
from webhook.core.model.demand import Demand, PerDevice
from webhook.core.model.names import CPU, MEMORY, ResourceName, User
from webhook.core.model.shape import DEFAULT_PRIOR, Prior, Shape

_HALVE_AFTER: Final = 8192
"""Arrivals after which all counts are halved: enough to know the rare sizes, few enough to follow a change."""

_PRIOR_ARRIVALS: Final = 32
"""The weight of the prior in arrivals, for each resource."""

_MAX_SHAPES: Final = 512
"""Shapes counted of each user and together; above that the rarest is dropped."""

_MAX_USERS: Final = 16
"""Users of a team that are counted apart: the first. A team may have any number, such as service accounts."""

_OTHER_USERS: Final = User("")

_ARRIVAL_COUNT: Final = 16
"""The count of one arrival, so that it can be halved a few times."""

_FIRST_COMPARISON: Final = 32
"""Arrivals before the first comparison with the expected mix; later it takes more to make a difference."""

_FLOOR: Final = 256 * _ARRIVAL_COUNT
"""A team or user always counts for so many arrivals: eight times the prior, where the others have few."""

_DRIFT: Final = 16
"""The expected mix is recomputed when a sixteenth of it differs: each time costs a pass over the nodes."""


_K = TypeVar("_K", bound=Hashable)

Weights = dict[Shape, int]


class _Arrivals:
    """The arrivals of one user's pods, by shape."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts: Weights = {}
        self.total = 0

    def add(self, shape: Shape) -> None:
        counts = self.counts
        counts[shape] = counts.get(shape, 0) + _ARRIVAL_COUNT
        self.total += _ARRIVAL_COUNT
        if len(counts) > _MAX_SHAPES:
            self.total -= counts.pop(min(counts, key=lambda each: (counts[each], each == shape, each)))
        if self.total >= _HALVE_AFTER * _ARRIVAL_COUNT:
            self.counts = {shape: count // 2 for shape, count in counts.items() if count > 1}
            self.total = sum(self.counts.values())


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

    __slots__ = ("_arrivals", "_expected", "_prior", "_until_comparison", "version")

    def __init__(self) -> None:
        self._prior = DEFAULT_PRIOR
        self._arrivals: dict[ResourceName, dict[str, dict[User, _Arrivals]]] = {}  # by resource, team and user
        self._expected: dict[ResourceName, Weights] = {}
        self._until_comparison: dict[ResourceName, int] = {}  # arrivals until the next comparison with the expected mix
        self.version = 0

    def set_prior(self, prior: Prior) -> None:
        """Set the mix expected before any arrivals."""
        if prior != self._prior:
            self._prior = prior
            self._invalidate()

    def note(self, demand: Demand, *, team: str = "", user: User | None = None) -> None:
        """Count the arrival of a pod of a user; `team` is its team, or its namespace where it has none."""
        resource = resource_of(demand)
        if resource is None:
            return
        shape = shape_of(demand.requests, resource, demand.per_device)
        if not shape.number:  # it shares a claim whose room another pod takes
            return
        users = self._arrivals.setdefault(resource, {}).setdefault(team, {})
        arrivals = users.get(user or _OTHER_USERS)
        if arrivals is None:
            of = user if user and len(users) < _MAX_USERS else _OTHER_USERS
            arrivals = users.setdefault(of, _Arrivals())
        arrivals.add(shape)
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
        teams = self._arrivals[resource].values()
        known = sum(arrivals.total for users in teams for arrivals in users.values()) // _ARRIVAL_COUNT
        self._until_comparison[resource] = max(_FIRST_COMPARISON, min(known, _HALVE_AFTER) // _DRIFT)
        if resource in self._expected and _differ(self._expected[resource], self._weights(resource)):
            self._invalidate()

    def _invalidate(self) -> None:
        self._expected.clear()
        self.version += 1

    def _weights(self, resource: ResourceName) -> Weights:
        whole = sum(weight for _, weight in self._prior)
        weights = {shape: _ARRIVAL_COUNT * _PRIOR_ARRIVALS * weight // whole for shape, weight in self._prior}
        teams = (_together(_learned(users)) for users in self._arrivals.get(resource, {}).values())
        learned = _together(dict(enumerate(teams)))
        for shape in sorted(learned, key=lambda shape: (-learned[shape], shape))[:_MAX_SHAPES]:
            weights[shape] = weights.get(shape, 0) + learned[shape]
        return weights


def _learned(users: Mapping[User, _Arrivals]) -> dict[User, Weights]:
    return {user: arrivals.counts for user, arrivals in users.items()}


def _together(several: Mapping[_K, Weights]) -> Weights:
    """Return the sum of several, each bounded by the others."""
    totals = {key: sum(counts.values()) for key, counts in several.items()}
    parts = bounded(totals, floor=_FLOOR)
    found: Weights = {}
    for key, counts in several.items():
        part, total = parts[key], totals[key]
        for shape, count in counts.items():
            found[shape] = found.get(shape, 0) + (count if part == total else count * part // total)
    return found


def _differ(first: Weights, second: Weights) -> bool:
    one, other = sum(first.values()), sum(second.values())
    apart = sum(abs(first.get(shape, 0) * other - second.get(shape, 0) * one) for shape in first.keys() | second.keys())
    return apart * _DRIFT > 2 * one * other
