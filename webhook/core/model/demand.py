"""What a pod needs, by Kubernetes' own formula, in exact integers.

Source of the formula: k8s.io/component-helpers/resource/helpers.go (PodRequests, AggregateContainerRequests):
max(sum of app containers + sum of restartable init containers,
    max over init containers of (its own + restartable ones before it)) + overhead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from webhook.core.model.amount import Units, exact_units
from webhook.core.model.gpu_shares import DEVICE, weight_of, whole_weight_of
from webhook.core.model.mig_slices import piece_weight
from webhook.core.model.names import DEVICE_CLASS, ResourceName, Uid

Amounts = Mapping[ResourceName, int]
"""Resource amounts: cpu in milli-cores, memory in bytes, everything else in pieces."""
Weights = Mapping[ResourceName, Units]
"""GPU units that one piece of each GPU resource counts; a Fraction where units do not divide evenly."""


@dataclass(frozen=True, slots=True)
class Container:
    """The requests of one container; a restartable init container (sidecar) keeps them while the pod runs."""

    requests: Amounts
    is_restartable: bool = False


class PerDevice(NamedTuple):
    """Room on single devices: `number` different ones, each with `amount` (at least 1) of `resource` free.

    With `parts` the amount is in so many parts of a device, whatever its size: 1 of 1 is a wholly free device, 25 of
    100 a quarter, rounded up to pieces.
    """

    resource: ResourceName
    amount: int
    number: int = 1
    parts: int = 0

    def on(self, capacity: int) -> int:
        """Tell how many pieces it takes of a device of this capacity: at least one, also of a device that is gone."""
        return max(1, -(-capacity * self.amount // self.parts)) if self.parts else self.amount


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pod takes.

    `gpus` is its charge in GPU units (see amount.py); `devices` are the GPU resources behind it, by name in pieces,
    sorted; `requests` is everything it asks of its node, sorted, those devices included; `per_device` is what of it
    must fit on single devices, None where pieces are only counted. Hashable on purpose.

    `counted` is what the charge was weighed from, where that is not `requests`: shares of devices by their shape, each
    as a whole device (see `in_shares`). `strange` are extended resources that the weights do not name, and all that are
    named by a DeviceClass. `own` is what the containers alone ask for, where claims, device classes, shares or slices
    changed the demand (see claims.py); `claims` are then the UIDs of the claims that the pod names.
    """

    gpus: Units
    devices: tuple[tuple[ResourceName, int], ...]
    requests: tuple[tuple[ResourceName, int], ...]
    per_device: PerDevice | None = None
    counted: tuple[tuple[ResourceName, int], ...] | None = None
    strange: tuple[ResourceName, ...] = ()
    own: "Demand | None" = None
    claims: tuple[Uid, ...] = field(default=(), compare=False)


def pod_requests(
    containers: Sequence[Container],
    *,
    init: Sequence[Container] = (),
    overhead: Amounts | None = None,
    pod_level: Amounts | None = None,
) -> dict[ResourceName, int]:
    """Add up what a pod asks of its node.

    Pod-level requests, where given, replace the containers' sum for the resources they name (cpu, memory, hugepages);
    the overhead comes on top.
    """
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
            at_once = dict(sidecars)
            _add(at_once, container.requests)
            _raise(peak, at_once)
    _raise(running, peak)
    if pod_level:
        running.update(pod_level)
    if overhead:
        _add(running, overhead)
    return running


def demand_of(
    requests: Amounts, weights: Weights, *, per_device: PerDevice | None = None, counted: Amounts | None = None
) -> Demand:
    """Weigh requests: `weights` maps each GPU resource name to the GPU units that one piece of it counts.

    `counted` is weighed instead of the requests, where it is given.
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
        strange=tuple(sorted(name for name, amount in requests.items() if amount and _is_strange(name, weights))),
    )


def in_shares(demand: Demand, weights: Weights) -> Demand:
    """Weigh shares of devices by their shape, for a pod whose scheduler sees to it that it gets no more."""
    own = demand.own or demand
    if own.counted is None:
        return own
    total = sum(amount * weight for name, amount in own.counted if (weight := weight_of(name, weights)))
    return replace(own, gpus=exact_units(total), own=own)


def in_slices(demand: Demand, slices: Sequence[ResourceName], weights: Weights) -> Demand:
    """Weigh what is asked for as `nvidia.com/gpu` by slices, for a pod that can be handed nothing larger than these.

    Devices beside which a share is asked for stay whole: who shares devices does not cut them.
    """
    own = demand.own or demand
    pieces = 0 if own.counted is not None else dict(own.devices).get(DEVICE, 0)
    if not (pieces and slices):
        return demand
    total = own.gpus - pieces * (weights[DEVICE] - piece_weight(slices, weights))
    return replace(own, gpus=exact_units(total), own=own)


def _is_strange(name: ResourceName, weights: Weights) -> bool:
    return "/" in name and (name not in weights or name.startswith(DEVICE_CLASS))


def reweighed(demand: Demand, weights: Weights) -> Demand:
    """Weigh what a pod's containers ask for by other weights."""
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
