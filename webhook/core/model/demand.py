"""What a pod needs, weights, shares, MIG, device classes.

References from pods to ResourceClaims.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from webhook.core.model.amounts import CPU, DEVICE_CLASS, MEMORY, ResourceName, Uid, Units, exact_units
from webhook.core.model.gpu_shares import DEVICE, piece_weight, weight_of, whole_weight_of


class ClaimRef(NamedTuple):
    """An entry in a pod's spec.resourceClaims: the claim, where it exists, and the template it is created from.

    `group` is the pod's PodGroup, which may have one claim for all of its pods with the same entry.
    """

    claim: str = ""
    template: str = ""
    group: str = ""
    entry: str = ""


# The demand of a pod, by the formula of Kubernetes, in exact integers.
#
# Source of the formula: k8s.io/component-helpers/resource/helpers.go (PodRequests, AggregateContainerRequests): max(sum
# of app containers + sum of restartable init containers, max over init containers of (its own + restartable ones before
# it)) + overhead. Cpu and memory of a running pod, which an in-place resize changes, are the most of what its spec asks
# for, what its kubelet allocated and what its cgroups have.


Amounts = Mapping[ResourceName, int]
"""Resource amounts: cpu in milli-cores, memory in bytes, everything else in pieces."""
Weights = Mapping[ResourceName, Units]
"""GPU units per piece of each GPU resource; a Fraction where units do not divide evenly."""


@dataclass(frozen=True, slots=True)
class Container:
    """The requests of one container; a restartable init container (sidecar) keeps them while the pod runs."""

    requests: Amounts
    is_restartable: bool = False


class Reported(NamedTuple):
    """The cpu and memory of a pod as its kubelet reports them, each the larger of allocated and actual.

    `pod_level` is what it reports for the whole pod, None where it reports nothing. With `is_infeasible` the node can
    never grant what the spec asks for now: then only what is reported counts.
    """

    containers: Amounts
    pod_level: Amounts | None = None
    is_infeasible: bool = False


class PerDevice(NamedTuple):
    """Room on single devices: `number` different devices, each with `amount` (at least 1) of `resource` free.

    With `parts` the amount is a share of a device of any size: 1 of 1 is a wholly free device, 25 of 100 a quarter,
    rounded up to pieces.
    """

    resource: ResourceName
    amount: int
    number: int = 1
    parts: int = 0

    def on(self, capacity: int) -> int:
        """Return how many pieces it takes of a device of this capacity: at least one, even of a device that is gone."""
        return max(1, -(-capacity * self.amount // self.parts)) if self.parts else self.amount


@dataclass(frozen=True, slots=True)
class Demand:
    """The resources that a pod takes.

    `gpus` is its charge in GPU units; `devices` are the GPU resources behind it, by name in pieces, sorted; `requests`
    are all requests of the pod on its node, sorted, those devices included except where they are of a claim whose room
    another pod takes; `per_device` is what must fit on single devices, None where pieces are only counted. Hashable on
    purpose.

    `counted` is the input of the charge where that is not `requests`: shares of devices by their shape, each as a whole
    device (see `in_shares`). `strange` are extended resources without a weight, and all resources named after a
    DeviceClass. `own` is the demand of the containers alone, where claims, device classes, shares or MIG slices changed
    the demand; `claims` are then the UIDs of the claims that the pod names.
    """

    gpus: Units
    devices: tuple[tuple[ResourceName, int], ...]
    requests: tuple[tuple[ResourceName, int], ...]
    per_device: PerDevice | None = None
    counted: tuple[tuple[ResourceName, int], ...] | None = None
    strange: tuple[ResourceName, ...] = ()
    own: "Demand | None" = None
    claims: tuple[Uid, ...] = field(default=(), compare=False)

    @property
    def held(self) -> tuple[tuple[ResourceName, int], ...]:
        """Its devices without those of claims whose room another pod takes."""
        if self.own is None:
            return self.devices
        requests = dict(self.requests)
        taken = ((name, min(amount, requests.get(name, 0))) for name, amount in self.devices)
        return tuple([(name, amount) for name, amount in taken if amount])


def pod_requests(
    containers: Sequence[Container],
    *,
    init: Sequence[Container] = (),
    overhead: Amounts | None = None,
    pod_level: Amounts | None = None,
    reported: Reported | None = None,
) -> dict[ResourceName, int]:
    """Return the sum of a pod's requests on its node.

    Pod-level requests, where given, replace the containers' sum for the resources they name (cpu, memory, hugepages);
    the overhead is added to the result. `reported` is given for a pod whose kubelet reports other amounts than its spec
    asks for; a resize changes cpu and memory only, so all else is as the spec says.
    """
    total = at_once(containers, init=init)
    if reported is not None:
        if reported.is_infeasible:
            total.update((name, 0) for name in (CPU, MEMORY))
        _raise(total, reported.containers)
    if pod_level:
        whole = dict(pod_level)
        if reported is not None and reported.pod_level is not None:
            if reported.is_infeasible:
                whole.clear()
            _raise(whole, reported.pod_level)
        total.update(whole)
    if overhead:
        _add(total, overhead)
    return total


def at_once(containers: Sequence[Container], *, init: Sequence[Container] = ()) -> dict[ResourceName, int]:
    """Return the most that a pod's containers use at once."""
    running: dict[ResourceName, int] = {}
    for container in containers:
        _add(running, container.requests)
    sidecars: dict[ResourceName, int] = {}
    peak: dict[ResourceName, int] = {}
    for container in init:
        if container.is_restartable:
            _add(running, container.requests)
            _add(sidecars, container.requests)
            _raise(peak, sidecars)
        else:
            needed = dict(sidecars)
            _add(needed, container.requests)
            _raise(peak, needed)
    _raise(running, peak)
    return running


def demand_of(
    requests: Amounts, weights: Weights, *, per_device: PerDevice | None = None, counted: Amounts | None = None
) -> Demand:
    """Return the demand of requests; `weights` maps each GPU resource to the GPU units of one piece.

    `counted`, where given, is weighed instead of the requests.
    """
    devices = tuple(sorted((name, amount) for name, amount in requests.items() if amount and name in weights))
    weighed = requests if counted is None else counted
    total = sum(amount * weight for name, amount in weighed.items() if (weight := whole_weight_of(name, weights)))
    return Demand(
        gpus=exact_units(total),
        devices=devices,
        requests=tuple(sorted((name, amount) for name, amount in requests.items() if amount)),
        per_device=per_device,
        counted=None if counted is None else tuple(sorted(counted.items())),
        strange=tuple(sorted(name for name, amount in requests.items() if amount and _is_unresolved(name, weights))),
    )


def in_shares(demand: Demand, weights: Weights) -> Demand:
    """Charge shares of devices by their shape, for a pod whose scheduler enforces the shares."""
    own = demand.own or demand
    if own.counted is None:
        return own
    total = sum(amount * weight for name, amount in own.counted if (weight := weight_of(name, weights)))
    return replace(own, gpus=exact_units(total), own=own)


def in_slices(demand: Demand, slices: Sequence[ResourceName], weights: Weights) -> Demand:
    """Charge requests for `nvidia.com/gpu` by MIG slices, for a pod that can get nothing larger than these slices.

    Devices with a requested share count as whole devices: sharing does not split them.
    """
    own = demand.own or demand
    pieces = 0 if own.counted is not None else dict(own.devices).get(DEVICE, 0)
    if not (pieces and slices):
        return demand
    total = own.gpus - pieces * (weights[DEVICE] - piece_weight(slices, weights))
    return replace(own, gpus=exact_units(total), own=own)


def _is_unresolved(name: ResourceName, weights: Weights) -> bool:
    return "/" in name and (name not in weights or name.startswith(DEVICE_CLASS))


def reweighed(demand: Demand, weights: Weights) -> Demand:
    """Return the demand of a pod's containers under other weights."""
    own = demand.own or demand
    counted = None if own.counted is None else dict(own.counted)
    return demand_of(dict(own.requests), weights, per_device=own.per_device, counted=counted)


def _add(total: dict[ResourceName, int], more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: dict[ResourceName, int], floor: Amounts) -> None:
    for name, amount in floor.items():
        if total.get(name, 0) < amount:
            total[name] = amount


# Sizes of pods, as the demand mix weighs them.


class Shape(NamedTuple):
    """A size of pod: `number` devices with `amount` of each (as in PerDevice), plus cpu and memory.

    Devices that are only counted have an amount of 1 in 1 part: whole pieces.
    """

    number: int
    amount: int = 1
    parts: int = 1
    cpu: int = 0
    memory: int = 0


Prior = tuple[tuple[Shape, int], ...]

DEFAULT_PRIOR: Final[Prior] = ((Shape(1), 50), (Shape(2), 20), (Shape(4), 15), (Shape(8), 15))
"""Powers of two, small ones more often: the usual sizes of training and serving jobs, until this cluster shows
others."""
