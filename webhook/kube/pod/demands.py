"""Requests, resizes.

What a pod's kubelet reports of its cpu and memory, where that differs from what its spec asks for.

A pod's spec is what its user wants. While it is resized in place, and for as long as its node cannot grant the resize,
its kubelet has allocated another amount, and its cgroups may have a third. Most pods are as their spec says, so these
parts are compared by their bytes and parsed only where they differ.

Source: k8s.io/component-helpers/resource/helpers.go (AggregateContainerRequests with UseStatusResources), by which
kube-scheduler counts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from sys import intern
from typing import Final, NamedTuple, TypeVar

import msgspec

from webhook.core.model.amounts import CPU, HOST_PORT, MEMORY, PODS, ResourceName
from webhook.core.model.demand import (
    Amounts,
    Container,
    Demand,
    PerDevice,
    Reported,
    Weights,
    at_once,
    demand_of,
    pod_requests,
)
from webhook.core.model.gpu_shares import SHARES, shaped, unshared
from webhook.kube.objects import bounds, keys, objects
from webhook.kube.objects.bounds import Quantity

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
_resized_decoder: Final = msgspec.json.Decoder(_Resources)
_allocated_decoder: Final = msgspec.json.Decoder(dict[ResourceName, Quantity])


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
    resources, allocated = _resources(parts.resources), _allocated(parts.allocated)
    actual = None if resources is None else resources.requests
    of_pod = [each for each in (allocated, None if actual is None else _of_pod(actual)) if each is not None]
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
            amounts = _allocated(allocated) if listed is None or listed.requests is None else _of_pod(listed.requests)
            if amounts is not None or parts.is_infeasible:
                requests = amounts or {}
        found.append(Container(requests, is_restartable=container.is_restartable))
    return found


def _resources(raw: bytes) -> _Resources | None:
    return objects.read_part(_resized_decoder, raw, where="resources")


def _allocated(raw: bytes) -> Amounts | None:
    listed = objects.read_part(_allocated_decoder, raw, where="allocatedResources")
    return None if listed is None else _of_pod(listed)


def _of_pod(listed: dict[ResourceName, Quantity]) -> Amounts:
    return {name: max(0, bounds.amount(name, value)) for name, value in listed.items() if is_pod_level(name)}


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


# A pod's demand: from the raw resources of its containers to a core Demand. No placement, no metadata.
#
# Pods of one template have identical bytes in their resources, so the demand is cached by those bytes. A pod that
# exists counts what its kubelet reports as well.


MAX_DEVICES: Final = 1_000_000
"""Maximum number of devices of one kind in a pod: a larger number is a typing error or an attack on the arithmetic."""

_GPU_MEMORY: Final = ResourceName(keys.GPU_MEMORY)
_GPU_COUNT: Final = ResourceName(keys.GPU_COUNT)

_T = TypeVar("_T")

_EVERY_ADDRESS: Final = ("", "0.0.0.0")  # noqa: S104 - compared, not bound
_ONE_ADDRESS: Final = ResourceName("")
_PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
_CACHED_POLICIES: Final = 8
_CONTAINER_BYTES: Final = 64

_Source = tuple[tuple[Named, ...], tuple[Named, ...], bytes, bytes, ReportedParts | None, tuple[ResourceName, ...]]


@dataclass(frozen=True, slots=True)
class Reading:
    """A pod's parsed demand.

    `problems` lists what the API server would refuse in the GPU amounts, and what cannot be parsed. `demand` is None
    if something cannot be parsed; `excess` lists exceeded limits. `opens_ports`: it takes host ports, on any address.
    """

    demand: Demand | None
    problems: tuple[str, ...] = ()
    excess: tuple[str, ...] = ()
    opens_ports: bool = False


class _ResourceList(msgspec.Struct, frozen=True, gc=False):
    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


@dataclass(slots=True)
class _Findings:
    problems: list[str] = field(default_factory=list)
    is_readable: bool = True

    def unreadable(self, text: str) -> None:
        self.problems.append(text)
        self.is_readable = False


_resources_decoder: Final = msgspec.json.Decoder(_ResourceList)
_amounts_decoder: Final = msgspec.json.Decoder(dict[str, Quantity])


def read_demand(spec: objects.PodSpec, weights: Weights, *, status: objects.PodStatus | None = None) -> Reading:
    """Return a pod's total demand; `weights` maps each GPU resource to the GPU units of one device.

    `status` is given for a pod that exists: as in kube-scheduler, what its kubelet reports counts. The cache identifies
    the weights by identity: pass the same policy's mapping each time, and never change it.
    """
    listed = spec.init_containers
    app = tuple([(c.name, bytes(c.resources), False) for c in spec.containers])
    init = tuple([(c.name, bytes(c.resources), c.restart_policy == "Always") for c in listed]) if listed else ()
    reported = None if status is None else reported_parts(app, init, status)
    source = (app, init, bytes(spec.overhead), bytes(spec.resources), reported, _host_ports(spec))
    known = _READINGS.get(id(weights))
    if known is None or known.weights is not weights:
        known = _new_cache(weights)
    reading = known.by_source.known.get(source)
    return _read_and_cache(known, source) if reading is None else reading


@dataclass(frozen=True, slots=True)
class _Readings:
    """The cache for one policy's weights; holding the weights keeps their id from being reused."""

    weights: Weights
    by_source: bounds.ByteCache[_Source, Reading] = field(default_factory=bounds.ByteCache)


_READINGS: Final[dict[int, _Readings]] = {}


def _new_cache(weights: Weights) -> _Readings:
    if len(_READINGS) >= _CACHED_POLICIES:
        _READINGS.clear()
    cache = _READINGS[id(weights)] = _Readings(weights)
    return cache


def _read_and_cache(known: _Readings, source: _Source) -> Reading:
    app, init, overhead, pod_level, reported, _ = source
    reading = _read(known.weights, source)
    size = (
        len(overhead) + len(pod_level) + sum(_CONTAINER_BYTES + len(name) + len(raw) for name, raw, _ in (*app, *init))
    ) + (0 if reported is None else reported.size)
    known.by_source.keep(source, reading, size)
    return reading


def _read(weights: Weights, source: _Source) -> Reading:
    app, init, overhead, pod_level, parts, ports = source
    findings = _Findings()
    containers = [_container(c, what="container", weights=weights, findings=findings) for c in app]
    inits = [_container(c, what="init container", weights=weights, findings=findings) for c in init]
    over = _amounts(_part(_amounts_decoder, overhead, where="overhead", findings=findings), "overhead", findings)
    whole_pod = _pod_level(pod_level, [*containers, *inits], weights=weights, findings=findings)
    reported = None
    try:
        reported = None if parts is None else reported_amounts(parts, containers, init=inits)
    except ValueError as error:
        findings.unreadable(f"status: {error}")
    problems = tuple(findings.problems)
    if not findings.is_readable:
        return Reading(None, problems)
    requests = pod_requests(containers, init=inits, overhead=over, pod_level=whole_pod, reported=reported)
    excess = tuple(_excess(requests))
    requests[PODS] = 1  # every pod uses one of its node's `pods`
    if ports:
        requests.update(dict.fromkeys(filter(None, ports), 1))
    counted = None
    if any(requests.get(name) for name in SHARES):
        # HAMi's scheduler reads shares of app containers only: an init container gets whole devices
        counted = pod_requests([_shaped(c) for c in containers], init=[_whole(c) for c in inits], overhead=over)
    demand = demand_of(requests, weights, per_device=_per_device(requests), counted=counted)
    return Reading(demand, problems, excess, bool(ports))


def _host_ports(spec: objects.PodSpec) -> tuple[ResourceName, ...]:
    """Return the host ports that a pod takes on every address of its node, as resources: at most so many are read.

    Those on one address are the resource "", which no node counts. As in kube-scheduler, those of sidecars count, and
    those of other init containers do not.
    """
    ports = [each for container in spec.containers for each in container.ports or () if each.host_port]
    for container in spec.init_containers or ():
        if container.ports is not None and container.restart_policy == "Always":
            ports += container.ports
    return tuple(islice(dict.fromkeys(_ports_of(ports)), bounds.HOST_PORTS)) if ports else ()


def _ports_of(ports: Iterable[objects.ContainerPort]) -> Iterator[ResourceName]:
    for each in ports:
        if each.host_port and each.host_ip not in _EVERY_ADDRESS:
            yield _ONE_ADDRESS
        elif each.host_port:
            protocol = each.protocol if each.protocol in _PROTOCOLS else "TCP"
            yield ResourceName(intern(f"{HOST_PORT}{each.host_port} ({protocol})"))


def _excess(requests: Mapping[ResourceName, int]) -> Iterator[str]:
    yield from bounds.excess("spec.containers: number of resources", len(requests), bounds.RESOURCES)
    longest = max(map(len, requests), default=0)
    yield from bounds.excess("spec.containers: length of a resource's name", longest, bounds.RESOURCE_NAME)


def _per_device(requests: Mapping[ResourceName, int]) -> PerDevice | None:
    """Return the shared memory needed per device: gpushare uses one device, or as many as the pod names."""
    memory = requests.get(_GPU_MEMORY, 0)
    number = requests.get(_GPU_COUNT, 0) or 1
    return PerDevice(_GPU_MEMORY, -(-memory // number), number) if memory else None


def _shaped(container: Container) -> Container:
    if SHARES.isdisjoint(container.requests):
        return container
    return Container(shaped(container.requests), is_restartable=container.is_restartable)


def _whole(container: Container) -> Container:
    if SHARES.isdisjoint(container.requests):
        return container
    return Container(unshared(container.requests), is_restartable=container.is_restartable)


def _container(named: Named, *, what: str, weights: Weights, findings: _Findings) -> Container:
    name, raw, is_restartable = named
    where = f"{what} {bounds.shortened(name)}"
    listed = _part(_resources_decoder, raw, where=where, findings=findings) or _ResourceList()
    requests, limits = listed.requests or {}, listed.limits or {}
    for resource in sorted((requests.keys() | limits.keys()) & weights.keys()):
        problem = _gpu_problem(resource, requests.get(resource), limits.get(resource))
        if problem is not None:
            findings.problems.append(f"{where}: {problem}")
    effective = {**limits, **requests}
    # requests default to limits, resource by resource, as in the API server's own defaulting
    return Container(_amounts(effective, where, findings), is_restartable=is_restartable)


def _pod_level(
    raw: bytes, containers: Iterable[Container], *, weights: Weights, findings: _Findings
) -> dict[ResourceName, int]:
    listed = _part(_resources_decoder, raw, where="pod resources", findings=findings) or _ResourceList()
    requests, limits = listed.requests or {}, listed.limits or {}
    findings.problems.extend(
        f"pod resources: {resource} cannot be set for the whole pod; set it on the container that uses it"
        for resource in sorted((requests.keys() | limits.keys()) & weights.keys())
    )
    requested = {name for container in containers for name in container.requests}
    # a pod-level limit is the request where neither the pod nor any container has one (setDefaultPodRequests)
    effective = {name: value for name, value in limits.items() if name not in requested} | requests
    amounts = _amounts(effective, "pod resources", findings)
    return {name: value for name, value in amounts.items() if is_pod_level(name)}


def _gpu_problem(resource: str, request: Quantity | None, limit: Quantity | None) -> str | None:
    """Return what the API server would refuse in one container's GPUs of one kind, or None."""
    try:
        requested = limit if request is None else request
        if requested is not None and bounds.amount(resource, requested) < 0:
            return None  # reported by _amounts, as for any other resource
        for value in (request, limit):
            problem = None if value is None else _count_problem(resource, value)
            if problem is not None:
                return problem
        if request is not None and limit is None:
            problem = "has no limit; GPUs cannot be overcommitted: set the limit to the same number"
            return f"{resource} request {request} {problem}"
        if request is not None and limit is not None and bounds.exact(request) != bounds.exact(limit):
            return (
                f"{resource} request {request} and limit {limit} differ; GPUs cannot be overcommitted: "
                "set both to the same number"
            )
    except ValueError:
        return None  # reported by _amounts, once for every kind of resource
    return None


def _count_problem(resource: str, value: Quantity) -> str | None:
    exact = bounds.exact(value)
    if exact.denominator != 1:
        return (
            f"{resource} is {value}; GPUs are counted in whole numbers: request {bounds.whole(value)}, "
            "or a resource that is a share of a GPU, if the cluster offers one"
        )
    if exact > MAX_DEVICES:
        return f"{resource} is {value}, more than the maximum of {MAX_DEVICES} per container; check the number"
    return None


def _amounts(listed: Mapping[str, Quantity] | None, where: str, findings: _Findings) -> dict[ResourceName, int]:
    found: dict[ResourceName, int] = {}
    for name, value in (listed or {}).items():
        try:
            read = bounds.amount(name, value)
        except ValueError as error:
            findings.unreadable(f"{where}: {name}: {error}")
            continue
        if read < 0:
            findings.unreadable(f"{where}: {name} is {value}; an amount cannot be negative: request 0 or more")
        else:
            found[ResourceName(name)] = read
    return found


def _part(decoder: "msgspec.json.Decoder[_T]", raw: bytes, *, where: str, findings: _Findings) -> _T | None:
    try:
        return objects.read_part(decoder, raw, where="resources")
    except ValueError as error:
        findings.unreadable(f"{where}: {error}")
        return None
