"""Demand mix, gradient, scarcity.

The demand mix: sizes of pods and their frequency, learned from arrivals, with a prior for a new cluster.

Old arrivals of a user lose weight by halves as new ones come, not by the clock: an idle weekend changes nothing, and
the same events give the same mix. It is not stored: a restarted process learns from the pods that run.

It places the pods of all teams, so none of them may fill it: a team counts for at most as many arrivals as the others
on average, and so does a user within the team.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from functools import lru_cache
from itertools import accumulate
from typing import Final, NamedTuple, NewType, TypeVar

from webhook.core.model.amounts import CPU, MEMORY, NodeName, ResourceName, Uid, User, bounded
from webhook.core.model.constraints import Tier
from webhook.core.model.demand import DEFAULT_PRIOR, Demand, PerDevice, Prior, Shape

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


# How useful free GPUs are for future pods: placing a pod should reduce this measure as little as possible.
#
# This is the fragmentation gradient of "Beware of Fragmentation" (USENIX ATC '23), inverted. For each shape of the
# demand mix, a node's free GPUs are useful if the shape fits there by cpu, memory and devices, and of the devices only
# those with room for its share; each shape counts by its frequency. The cost of a pod is how much of this it takes.
#
# A node's cpu and memory matter only by which shapes still fit. So the sizes in the mix are rounded up to a few steps,
# and free amounts down to marks, the sums of two steps: a node between two marks fits the same steps as one at the
# lower mark, before and after a pod whose size is a step.


WHOLE: Final = 1000
"""One GPU is 1,000 here, rounded down: the measure is compared, not charged."""

WEIGHT: Final = 1 << 16
"""The sum of the weights of all shapes."""

_CPU_STEPS: Final = 24
_MEMORY_STEPS: Final = 10
_MOST_DEVICES: Final = 16


class DeviceState(NamedTuple):
    """The free devices of a node: wholly free ones, the rest of the others (sorted), and the pieces of one device."""

    whole: int
    partly: tuple[int, ...] = ()
    size: int = 1


class Profile(NamedTuple):
    """How useful devices are for the shapes that fit by cpu and memory."""

    shares: list[int]  # sizes of a share on one device, sorted
    useful: list[int]  # weight of the shapes with at most that share, by position
    whole: list[int]  # weight of the shapes that use a whole device, by number of devices


class Steps:
    """The sizes of one resource, rounded: `steps` of requested amounts, `marks` of free amounts."""

    __slots__ = ("marks", "steps")

    def __init__(self, sizes: Iterable[tuple[int, int]], most: int) -> None:
        self.steps = _merged(sizes, most)
        self.marks = sorted({0, *self.steps, *(one + other for one in self.steps for other in self.steps)})

    def step(self, size: int) -> int:
        """Round a requested amount up; an amount above every step stays as it is."""
        index = bisect_left(self.steps, size)
        return self.steps[index] if size and index < len(self.steps) else size

    def fitting(self, free: int) -> int:
        """Return how many steps fit."""
        return bisect_right(self.steps, free)

    def mark(self, free: int) -> int:
        """Round a free amount down; return the position of the mark."""
        return bisect_right(self.marks, free, 1) - 1  # from the second: the first is 0, and less counts as 0


class Fragmentation:
    """The measure for one GPU resource under one demand mix."""

    __slots__ = ("_profiles", "_shapes", "cpu", "memory", "sizes", "total")

    def __init__(self, weights: Weights) -> None:
        total = sum(weights.values())
        self.cpu = Steps(((shape.cpu, weight) for shape, weight in weights.items()), _CPU_STEPS)
        self.memory = Steps(((shape.memory, weight) for shape, weight in weights.items()), _MEMORY_STEPS)
        self._shapes = [
            (shape, self.cpu.fitting(self.rounded(shape).cpu), self.memory.fitting(self.rounded(shape).memory), weight)
            for shape, weight in ((shape, weight * WEIGHT // total) for shape, weight in weights.items())
        ]
        self.sizes: dict[Shape, int] = {}  # the rounded shapes, and their weights
        for shape, _, _, weight in self._shapes:
            rounded = self.rounded(shape)
            self.sizes[rounded] = self.sizes.get(rounded, 0) + weight
        self.total = sum(weight for *_, weight in self._shapes)  # a little below WEIGHT: each weight is rounded down
        self._profiles: dict[tuple[int, int, int], Profile] = {}

    def rounded(self, shape: Shape) -> Shape:
        """Round a shape's cpu and memory up to steps."""
        return shape._replace(cpu=self.cpu.step(shape.cpu), memory=self.memory.step(shape.memory))

    def profile(self, size: int, cpu: int, memory: int) -> Profile:
        """Return the profile of devices of a size beside these numbers of steps of cpu and of memory."""
        key = (size, cpu, memory)
        known = self._profiles.get(key)
        if known is None:
            fitting = [
                (shape, weight) for shape, cpus, sizes, weight in self._shapes if cpus <= cpu and sizes <= memory
            ]
            known = self._profiles[key] = _profile(fitting, size)
        return known


def useful(state: DeviceState, profile: Profile) -> int:
    """Return how useful free devices are, in thousandths of a GPU times WEIGHT."""
    whole = state.whole
    total = whole * WHOLE * profile.whole[whole if whole < _MOST_DEVICES else _MOST_DEVICES]
    for left in state.partly:
        total += left * profile.useful[bisect_right(profile.shares, left)]
    return total


def share_of(shape: Shape, size: int) -> int:
    """Return the thousandths of a device with `size` pieces that a shape takes; above 1000 it never fits.

    Rounded down like free amounts, so that a shape that fits in pieces fits here.
    """
    return shape.amount * WHOLE // (shape.parts or size)


def after(state: DeviceState, shape: Shape) -> DeviceState | None:
    """Take a shape's devices off, the fullest that fit first; None where they do not fit."""
    share, number = share_of(shape, state.size), shape.number
    if not number:
        return state
    if share == WHOLE:
        return state._replace(whole=state.whole - number) if number <= state.whole else None
    partly = state.partly
    start = bisect_left(partly, share)
    fullest = partly[start : start + number]
    fresh = number - len(fullest)
    if fresh > state.whole or share > WHOLE:
        return None
    left = [*partly[:start], *partly[start + number :], *[WHOLE - share] * fresh]
    left.extend([each - share for each in fullest if each > share])
    left.sort()
    return DeviceState(state.whole - fresh, tuple(left), state.size)


def _profile(fitting: list[tuple[Shape, int]], size: int) -> Profile:
    single: dict[int, int] = {}
    several = [0] * (_MOST_DEVICES + 1)
    for shape, weight in fitting:
        share = share_of(shape, size)
        if share <= WHOLE and shape.number == 1:
            single[share] = single.get(share, 0) + weight
        elif share <= WHOLE:
            several[min(shape.number, _MOST_DEVICES)] += weight
    shares = sorted(single)
    by_share = list(accumulate((single[share] for share in shares), initial=0))
    return Profile(shares, by_share, [by_share[-1] + weight for weight in accumulate(several)])


def _merged(sizes: Iterable[tuple[int, int]], most: int) -> list[int]:
    """Merge neighbors, each time the pair whose rounding up costs least, until there are few enough."""
    weights: dict[int, int] = {}
    for size, weight in sizes:
        if size:
            weights[size] = weights.get(size, 0) + weight
    left = sorted(weights.items())
    while len(left) > most:
        _, index = min((left[i][1] * (left[i + 1][0] - left[i][0]), i) for i in range(len(left) - 1))
        (_, lighter), (size, weight) = left[index : index + 2]
        left[index : index + 2] = [(size, weight + lighter)]
    return [size for size, _ in left]


# Pod sizes that only a few nodes can ever hold, and how many of those nodes are reserved for them.
#
# In the demand mix such sizes are too rare to have weight: a node with twice the cores of the others would be filled by
# pods that fit anywhere. So while few of the nodes for a scarce size are left, other pods take these nodes last.


_SCARCE_FRACTION: Final = 4
"""A size is scarce if at most one in this many nodes could hold it when empty."""

_MAX_GROUPS: Final = 8

_MARGIN: Final = 4
"""Nodes reserved per average number of running pods of the size, up to three quarters of the capable nodes.

Occupied nodes rarely become empty again, and such pods come in bursts. Measured on openb's list multigpu20 with tasks
that come and go: of 567 tasks of 8 GPUs 567 find a node with four, 565 with three, 559 with two and half of the nodes,
528 with nothing reserved.
"""


class NodeRoom(NamedTuple):
    """The room of a node, free or in total: devices, and the numbers of steps of cpu and of memory that fit."""

    devices: DeviceState
    cpu: int
    memory: int


class Group(NamedTuple):
    """Scarce sizes that the same nodes can hold: the largest of each way to request devices, and their weight."""

    shapes: tuple[Shape, ...]
    cpu: int
    memory: int
    weight: int
    nodes: frozenset[NodeRoom]
    capable: int

    def reserved_nodes(self, pods: int) -> int:
        """Return how many nodes are reserved while this many pods run."""
        return min(self.capable * 3 // 4, _MARGIN * self.weight * pods // WEIGHT + 1)

    def fits(self, room: NodeRoom) -> bool:
        """Whether the largest of these sizes fits."""
        return (
            self.cpu <= room.cpu
            and self.memory <= room.memory
            and all(after(room.devices, shape) is not None for shape in self.shapes)
        )


class Scarcity:
    """The groups of scarce sizes of one GPU resource; sets of them are bitmaps."""

    __slots__ = ("_forecast", "_nodes", "groups")

    def __init__(self, fragmentation: Fragmentation, nodes: Counter[NodeRoom]) -> None:
        self._forecast, self._nodes = fragmentation, nodes
        found: dict[frozenset[NodeRoom], list[tuple[Shape, int]]] = {}
        for shape, weight in fragmentation.sizes.items():
            if shape.number:
                found.setdefault(self._capable(shape), []).append((shape, weight))
        groups = [self._group(capable, sizes) for capable, sizes in found.items() if self._is_scarce(capable)]
        self.groups = tuple(sorted(groups, key=lambda group: -group.weight)[:_MAX_GROUPS])

    def fitting(self, room: NodeRoom) -> int:
        """Return the groups that fit."""
        return sum(group.fits(room) << number for number, group in enumerate(self.groups))

    def entitled(self, shape: Shape) -> int:
        """Return the groups whose nodes are open to a size, since it has no better choice itself."""
        capable = self._capable(shape) if self.groups else frozenset()
        return sum((capable <= group.nodes) << number for number, group in enumerate(self.groups))

    def _capable(self, shape: Shape) -> frozenset[NodeRoom]:
        cpu, memory = self._forecast.cpu.fitting(shape.cpu), self._forecast.memory.fitting(shape.memory)
        return frozenset(
            room
            for room in self._nodes
            if cpu <= room.cpu and memory <= room.memory and after(room.devices, shape) is not None
        )

    def _is_scarce(self, capable: frozenset[NodeRoom]) -> bool:
        return 0 < _SCARCE_FRACTION * sum(self._nodes[room] for room in capable) <= self._nodes.total()

    def _group(self, capable: frozenset[NodeRoom], sizes: list[tuple[Shape, int]]) -> Group:
        return Group(
            tuple({shape._replace(cpu=0, memory=0): None for shape, _ in sizes}),
            max(self._forecast.cpu.fitting(shape.cpu) for shape, _ in sizes),
            max(self._forecast.memory.fitting(shape.memory) for shape, _ in sizes),
            sum(weight for _, weight in sizes),
            capable,
            sum(self._nodes[room] for room in capable),
        )


# Which tiers hold the GPUs of a node, so that placement can keep them apart.
#
# Where guaranteed and borrowing pods share a node, evicting the borrowers frees no whole node. Only pods that are
# labeled as borrowing are ever evicted, so all others hold their node as guaranteed ones do.


Tiers = NewType("Tiers", int)
"""The tiers of the pods that hold GPUs of a resource on a node: 0 none, 1 borrowing, 2 guaranteed, 3 both."""

TIER_MIX_COST: Final[Mapping[Tier, tuple[int, int, int, int]]] = {
    Tier.GUARANTEED: (0, 2, 0, 1),
    Tier.PREEMPTIBLE: (0, 0, 2, 1),
}
"""What a pod of a tier costs by the tiers there: 0 none of the other, 1 both are there, 2 only the other."""

_NO_PODS: Final = (0, 0)


class TierMix:
    """The pods that hold GPUs, counted by node, resource and tier."""

    __slots__ = ("_borrowing", "_counts", "pods")

    def __init__(self) -> None:
        self._borrowing: set[Uid] = set()  # also while they hold nothing: a plan removes pods and restores them
        self.pods: dict[ResourceName, int] = {}  # how many hold GPUs of each resource
        self._counts: dict[tuple[NodeName, ResourceName], tuple[int, int]] = {}

    def on(self, node: NodeName, resource: ResourceName) -> Tiers:
        """Return which tiers hold GPUs of a resource on a node."""
        guaranteed, preemptible = self._counts.get((node, resource), _NO_PODS)
        return Tiers(2 * (guaranteed > 0) + (preemptible > 0))

    def set_borrowed(self, holder: Uid, demand: Demand, *, is_borrowed: bool, on: NodeName | None) -> bool:
        """Set whether a pod borrows; `on` is where it is counted already. Return whether that is new."""
        if is_borrowed == (holder in self._borrowing):
            return False
        if on is not None:
            self.change(on, demand, holder, -1)
        (self._borrowing.add if is_borrowed else self._borrowing.remove)(holder)
        if on is not None:
            self.change(on, demand, holder, 1)
        return True

    def change(self, node: NodeName, demand: Demand, holder: Uid, sign: int) -> None:
        """Count a pod on a node, or (sign -1) remove it."""
        counts, borrows = self._counts, holder in self._borrowing
        for resource, _ in demand.devices:
            key = (node, resource)
            self.pods[resource] = self.pods.get(resource, 0) + sign
            guaranteed, preemptible = counts.get(key, _NO_PODS)
            now = (guaranteed, preemptible + sign) if borrows else (guaranteed + sign, preemptible)
            if now == _NO_PODS:
                del counts[key]
            else:
                counts[key] = now
