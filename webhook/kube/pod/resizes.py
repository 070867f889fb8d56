"""What a pod's kubelet reports of its cpu and memory, where that differs from what its spec asks for.

A pod's spec is what its user wants. While it is resized in place, and for as long as its node cannot grant the resize,
its kubelet has allocated another amount, and its cgroups may have a third. Most pods are as their spec says, so these
parts are compared by their bytes and parsed only where they differ.

Source: k8s.io/component-helpers/resource/helpers.go (AggregateContainerRequests with UseStatusResources), by which
kube-scheduler counts.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from webhook.core.model.demand import Amounts, Container, Reported, at_once
from webhook.core.model.names import CPU, MEMORY, ResourceName
from webhook.kube.objects import objects, quantity
from webhook.kube.objects.quantity import Quantity

_AS_REQUESTED: Final = (b"", b"")
"""A container of which kubelet reports what its spec asks for."""

_PENDING: Final = b'"PodResizePending"'
_INFEASIBLE: Final = "Infeasible"

Named = tuple[str, bytes, bool]
"""A container's name, its resources as raw JSON, and whether it is a sidecar."""
Statuses = tuple[tuple[bytes, bytes] | None, ...]
"""For each container what is allocated, and its actual resources, as raw JSON; None where nothing is reported yet."""


class ReportedParts(NamedTuple):
    """The raw JSON that kubelet reports, by container in the order of the spec, and for the whole pod.

    Since 1.36 it reports the sums of the whole pod, and the containers are left out.
    """

    containers: Statuses
    init: Statuses
    allocated: bytes
    resources: bytes
    is_infeasible: bool

    @property
    def size(self) -> int:
        """Its length in bytes."""
        listed = (*self.containers, *self.init, (self.allocated, self.resources))
        return sum(len(allocated) + len(actual) for each in listed if each is not None for allocated, actual in (each,))


class _Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    reason: str | None = None


class _Resources(msgspec.Struct, frozen=True, gc=False):
    requests: dict[ResourceName, Quantity] | None = None


_conditions_decoder: Final = msgspec.json.Decoder(list[_Condition])
_resources_decoder: Final = msgspec.json.Decoder(_Resources)
_amounts_decoder: Final = msgspec.json.Decoder(dict[ResourceName, Quantity])


def reported_parts(app: Sequence[Named], init: Sequence[Named], status: objects.PodStatus) -> ReportedParts | None:
    """Return what kubelet reports of a pod's resources; None where it reports what the spec asks for, or nothing."""
    of_app, of_init = status.container_statuses, status.init_container_statuses
    allocated, resources = bytes(status.allocated_resources), bytes(status.resources)
    if of_app is None and of_init is None and not (allocated and resources):
        return None
    # what is reported of the containers is part of that
    if allocated and b'"requests":{' in resources.replace(b" ", b""):
        return ReportedParts((), (), allocated, resources, _is_infeasible(bytes(status.conditions)))
    if not resources and _are_as_requested(app, of_app) and _are_as_requested(init, of_init):
        return None
    by_name = {each.name: each for each in (*(of_init or ()), *(of_app or ()))}
    containers, before = _statuses(app, by_name), _statuses(init, by_name)
    if not (resources or _differ(containers) or _differ(before)):
        return None
    return ReportedParts(containers, before, allocated, resources, _is_infeasible(bytes(status.conditions)))


def reported_amounts(parts: ReportedParts, containers: Sequence[Container], *, init: Sequence[Container]) -> Reported:
    """Return the larger of what kubelet allocated and what the cgroups have; the whole pod's, where it reports that.

    `containers` and `init` are those of the spec. Raises ValueError if an amount cannot be parsed.
    """
    resources, allocated = _resources(parts.resources), _amounts(parts.allocated)
    actual = None if resources is None else resources.requests
    of_pod = [each for each in (allocated, None if actual is None else _read(actual)) if each is not None]
    levels: Sequence[Amounts] = of_pod
    if allocated is None or actual is None:
        levels = [
            at_once(
                _reported(containers, parts.containers, parts, is_actual=is_actual),
                init=_reported(init, parts.init, parts, is_actual=is_actual),
            )
            for is_actual in (False, True)
        ]
    most = _most(levels)
    return Reported(
        {name: amount for name, amount in most.items() if name in (CPU, MEMORY)},
        None if resources is None else _most(of_pod),
        parts.is_infeasible,
    )


def is_pod_level(name: ResourceName) -> bool:
    """Whether a pod may request a resource for all of its containers together."""
    return name in (CPU, MEMORY) or name.startswith("hugepages-")


def _reported(
    containers: Sequence[Container], statuses: Statuses, parts: ReportedParts, *, is_actual: bool
) -> list[Container]:
    """Return the containers with what is allocated to them, or with their actual resources."""
    found = []
    for container, status in zip(containers, statuses, strict=True):
        requests = container.requests
        if status is None:
            requests = {} if parts.is_infeasible else requests
        elif status != _AS_REQUESTED:
            allocated, actual = status
            listed = _resources(actual) if is_actual else None
            amounts = _amounts(allocated) if listed is None or listed.requests is None else _read(listed.requests)
            if amounts is not None or parts.is_infeasible:
                requests = amounts or {}
        found.append(Container(requests, is_restartable=container.is_restartable))
    return found


def _resources(raw: bytes) -> _Resources | None:
    return objects.read_part(_resources_decoder, raw, where="resources")


def _amounts(raw: bytes) -> Amounts | None:
    listed = objects.read_part(_amounts_decoder, raw, where="allocatedResources")
    return None if listed is None else _read(listed)


def _read(listed: dict[ResourceName, Quantity]) -> Amounts:
    return {name: max(0, quantity.amount(name, value)) for name, value in listed.items() if is_pod_level(name)}


def _most(levels: Sequence[Amounts]) -> Amounts:
    return {name: max(level.get(name, 0) for level in levels) for each in levels for name in each}


def _are_as_requested(listed: Sequence[Named], statuses: list[objects.ContainerStatus] | None) -> bool:
    """Whether kubelet reports for all of these containers what their spec asks for: so it is for most pods."""
    if not listed:
        return True
    if statuses is None or len(statuses) != len(listed):
        return False
    asked = {name: raw for name, raw, _ in listed}
    return all(_is_as_requested(asked.get(status.name, b""), status) for status in statuses)


def _is_as_requested(asked: bytes, status: objects.ContainerStatus) -> bool:
    """Whether the API server wrote the same amounts with the same bytes; what is written otherwise is parsed."""
    if not asked or bytes(status.resources) != asked:
        return False
    allocated = bytes(status.allocated_resources)
    return not allocated or b'"requests":' + allocated in asked


def _statuses(listed: Sequence[Named], by_name: dict[str, objects.ContainerStatus]) -> Statuses:
    return tuple([_status(asked, by_name.get(name)) for name, asked, _ in listed])


def _status(asked: bytes, status: objects.ContainerStatus | None) -> tuple[bytes, bytes] | None:
    if status is None:
        return None
    if _is_as_requested(asked, status):
        return _AS_REQUESTED
    allocated, actual = bytes(status.allocated_resources), bytes(status.resources)
    return (allocated, actual) if allocated or actual else None


def _differ(statuses: Statuses) -> bool:
    return any(each for each in statuses if each is not None and each != _AS_REQUESTED)


def _is_infeasible(conditions: bytes) -> bool:
    if _PENDING not in conditions:
        return False
    listed = objects.read_part(_conditions_decoder, conditions, where="status.conditions") or ()
    return next((each.reason == _INFEASIBLE for each in listed if each.type == "PodResizePending"), False)
