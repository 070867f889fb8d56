"""From ResourceClaims, their templates, DeviceClasses and ResourceSlices (resource.k8s.io/v1) to core values."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from webhook.core.dra.dra_claims import ALL_DEVICES, ClaimKey, ClaimSpec, ClassCount, DeviceRequest, GroupEntry
from webhook.core.dra.dra_slices import Condition, Device, Slice, Value
from webhook.core.model.device_class import DeviceClass
from webhook.core.model.domain_request import DomainRequest
from webhook.core.model.gpu_names import looks_like_gpu
from webhook.core.model.names import Namespace, NodeName, ResourceName
from webhook.kube.objects import keys, objects
from webhook.kube.pod.domain_requests import required_by_key

_ALL: Final = "All"
_CLOSED_TO_PODS: Final = frozenset({"NoSchedule", "NoExecute"})

_Attributed = tuple[str, Value, type]  # the type too: True and 1 are equal in Python but not in CEL
_UNIQUE: Final = frozenset({"uuid", "parentUUID", "pciBusID", "pcieRoot"})
"""Attributes that are unique to a device. They are not counted by; without them equal devices share an object."""

# `device.driver == "gpu.nvidia.com"` and `device.attributes["gpu.nvidia.com"].type == "gpu"`, alone or joined by &&
_DRIVER: Final = re.compile(r"""device\.driver\s*==\s*(["'])(?P<value>[^"']*)\1""")
_ATTRIBUTE: Final = re.compile(
    r"""device\.attributes\[(["'])(?P<domain>[^"']+)\1\]\.(?P<name>\w+)\s*==\s*"""
    r"""((["'])(?P<text>[^"']*)\5|(?P<number>-?\d{1,18})|(?P<bool>true|false))"""
)

# several drivers: `device.driver in ["a", "b"]`; no escapes in a driver's name, which could hide another one
_DRIVER_NAME: Final = r"""(["'])[a-z0-9.-]+\1"""
_SOME_DRIVER: Final = re.compile(rf"device\.driver\s*==\s*{_DRIVER_NAME}|device\.driver\s+in\s+\[[^\]\\]+\]")


class _Cel(msgspec.Struct, frozen=True, gc=False):
    expression: str = ""


class _Selector(msgspec.Struct, frozen=True, gc=False):
    cel: _Cel = _Cel()


class _DeviceSubRequest(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    device_class_name: str = ""
    selectors: tuple[_Selector, ...] | None = None
    allocation_mode: str = ""
    count: int = 1
    admin_access: bool | None = None


class _DeviceRequest(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    exactly: _DeviceSubRequest | None = None
    first_available: tuple[_DeviceSubRequest, ...] | None = None


class _DeviceClaim(msgspec.Struct, frozen=True, gc=False):
    requests: tuple[_DeviceRequest, ...] | None = None


class _ClaimSpec(msgspec.Struct, frozen=True, gc=False):
    devices: _DeviceClaim = _DeviceClaim()


class _Result(msgspec.Struct, frozen=True, gc=False):
    request: str
    driver: str = ""


class _Allocated(msgspec.Struct, frozen=True, gc=False):
    results: tuple[_Result, ...] | None = None


class _Allocation(msgspec.Struct, frozen=True, gc=False):
    devices: _Allocated = _Allocated()


class _Consumer(msgspec.Struct, frozen=True, gc=False):
    resource: str = ""
    uid: str = ""


class _ClaimStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    allocation: _Allocation | None = None
    reserved_for: tuple[_Consumer, ...] | None = None


class ResourceClaim(msgspec.Struct, frozen=True, gc=False):
    """A ResourceClaim."""

    metadata: objects.ObjectMeta
    spec: _ClaimSpec
    status: _ClaimStatus | None = None


class _TemplateSpec(msgspec.Struct, frozen=True, gc=False):
    spec: _ClaimSpec


class ResourceClaimTemplate(msgspec.Struct, frozen=True, gc=False):
    """A ResourceClaimTemplate."""

    metadata: objects.ObjectMeta
    spec: _TemplateSpec


class _DeviceClassSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    selectors: tuple[_Selector, ...] | None = None
    extended_resource_name: str | None = None


class _Dated(objects.ObjectMeta, frozen=True, gc=False, rename="camel"):
    creation_timestamp: str | None = None


class DeviceClassObject(msgspec.Struct, frozen=True, gc=False):
    """A DeviceClass."""

    metadata: _Dated
    spec: _DeviceClassSpec = _DeviceClassSpec()


class _Attribute(msgspec.Struct, frozen=True, gc=False):
    text: str | None = msgspec.field(default=None, name="string")
    number: int | None = msgspec.field(default=None, name="int")
    flag: bool | None = msgspec.field(default=None, name="bool")


class _Taint(msgspec.Struct, frozen=True, gc=False):
    effect: str = ""


class _Device(msgspec.Struct, frozen=True, gc=False):
    attributes: dict[str, _Attribute] | None = None
    taints: tuple[_Taint, ...] | None = None


class _Pool(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    generation: int = 0


class _SliceSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    driver: str = ""
    pool: _Pool = _Pool()
    node_name: str | None = None
    devices: tuple[_Device, ...] | None = None


class ResourceSlice(msgspec.Struct, frozen=True, gc=False):
    """A ResourceSlice: devices that a driver offers."""

    metadata: objects.ObjectMeta
    spec: _SliceSpec


class _GroupClaim(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    resource_claim_template_name: str | None = None


class _GroupTopology(msgspec.Struct, frozen=True, gc=False):
    key: str = ""


class _GroupConstraints(msgspec.Struct, frozen=True, gc=False):
    topology: tuple[_GroupTopology, ...] | None = None


class _PodGroupSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    resource_claims: tuple[_GroupClaim, ...] | None = None
    scheduling_constraints: _GroupConstraints | None = None


class PodGroup(msgspec.Struct, frozen=True, gc=False):
    """A PodGroup (scheduling.k8s.io): the claims that its pods share, and the one domain that all of them are in."""

    metadata: objects.ObjectMeta
    spec: _PodGroupSpec = _PodGroupSpec()


def to_group(group: PodGroup) -> frozenset[GroupEntry]:
    """Return the claim templates that the pods of a group share."""
    return frozenset(
        GroupEntry(claim.name, claim.resource_claim_template_name)
        for claim in group.spec.resource_claims or ()
        if claim.resource_claim_template_name
    )


def domain_of_group(group: PodGroup) -> DomainRequest | None:
    """Return the domain that the pods of a group must all be in; None where any will do."""
    constraints = group.spec.scheduling_constraints
    listed = constraints.topology if constraints is not None else None
    return required_by_key(listed[0].key) if listed else None


def group_key(metadata: objects.ObjectMeta) -> ClaimKey:
    """Return the key of a PodGroup."""
    return ClaimKey("group", metadata.namespace or Namespace("default"), metadata.name)


def claim_key(metadata: objects.ObjectMeta) -> ClaimKey:
    """Return the key of a claim."""
    return ClaimKey("claim", metadata.namespace or Namespace("default"), metadata.name)


def template_key(metadata: objects.ObjectMeta) -> ClaimKey:
    """Return the key of a claim template."""
    return ClaimKey("template", metadata.namespace or Namespace("default"), metadata.name)


def to_claim(claim: ResourceClaim) -> ClaimSpec | None:
    """Return what a claim counts as; None if kube-scheduler made it for container requests, which are counted there."""
    if keys.EXTENDED_CLAIM in (claim.metadata.annotations or {}):
        return None
    found = allocated(claim)
    return _requested(claim.spec) if found is None else found


def allocated(claim: ResourceClaim) -> ClaimSpec | None:
    """Return the devices allocated to a claim, or None if it has no allocation."""
    allocation = claim.status.allocation if claim.status is not None else None
    if allocation is None:
        return None
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for result in allocation.devices.results or ():
        counts[result.request][result.driver] += 1
    return tuple(each for request in claim.spec.devices.requests or () for each in _allocated_to(request, counts))


def to_template(template: ResourceClaimTemplate) -> ClaimSpec:
    """Return what a claim from this template counts as."""
    return _requested(template.spec.spec)


def to_class(found: DeviceClassObject) -> DeviceClass:
    """Translate a DeviceClass."""
    spec, name = found.spec, found.metadata.name
    resource = spec.extended_resource_name
    expressions = [selector.cel.expression for selector in spec.selectors or ()]
    return DeviceClass(
        name,
        ResourceName(resource) if resource else None,
        found.metadata.creation_timestamp or "",
        mentions_gpus=any(map(looks_like_gpu, (name, resource or "", *expressions))),
        is_open=not any(map(_names_drivers, expressions)),
    )


def conditions_of(found: DeviceClassObject) -> tuple[Condition, ...]:
    """Return a class's conditions on driver and attributes; other conditions in its CEL are ignored."""
    return tuple(
        condition
        for selector in found.spec.selectors or ()
        if "||" not in selector.cel.expression and "?" not in selector.cel.expression
        for part in selector.cel.expression.split("&&")
        if (condition := _condition(part.strip())) is not None
    )


def to_slice(found: ResourceSlice) -> Slice | None:
    """Translate a ResourceSlice; None if its devices do not belong to a single node."""
    spec = found.spec
    if not spec.node_name:
        return None
    devices = tuple(
        _device(spec.driver, _attributes(device, spec.driver))
        for device in spec.devices or ()
        if not any(taint.effect in _CLOSED_TO_PODS for taint in device.taints or ())
    )
    return Slice(NodeName(spec.node_name), f"{spec.driver}/{spec.pool.name}", spec.pool.generation, devices)


def _requested(spec: _ClaimSpec) -> ClaimSpec:
    return tuple(
        DeviceRequest(tuple(map(_counted, subs)), any(bool(sub.admin_access) for sub in subs))
        for request in spec.devices.requests or ()
        if (subs := _alternatives(request))
    )


def _allocated_to(request: _DeviceRequest, counts: Mapping[str, Mapping[str, int]]) -> ClaimSpec:
    """Return the devices allocated to a request, by driver, of the alternative that was chosen.

    `counts` are those of each request or alternative, by driver.
    """
    found: list[DeviceRequest] = []
    for sub in _alternatives(request):
        name = request.name if request.exactly is not None else f"{request.name}/{sub.name}"
        found += (
            DeviceRequest((ClassCount(sub.device_class_name, number, driver),), bool(sub.admin_access))
            for driver, number in counts.get(name, {}).items()
        )
    return tuple(found)


def _alternatives(request: _DeviceRequest) -> tuple[_DeviceSubRequest, ...]:
    return request.first_available or (() if request.exactly is None else (request.exactly,))


def _counted(sub: _DeviceSubRequest) -> ClassCount:
    number = ALL_DEVICES if sub.allocation_mode == _ALL else max(0, sub.count)
    drivers = (_driver_of(selector.cel.expression) for selector in sub.selectors or ())
    return ClassCount(sub.device_class_name, number, next(filter(None, drivers), ""))


def _driver_of(expression: str) -> str:
    """Return the driver that a claim's own CEL selects; "" unless it is only plain conditions: tenants write it."""
    conditions = [_condition(part.strip()) for part in expression.split("&&")]
    if None in conditions:
        return ""
    return next((str(each.value) for each in conditions if each is not None and not each.attribute), "")


def _names_drivers(expression: str) -> bool:
    """Whether a class selects only devices of the drivers that its CEL names."""
    return "?" not in expression and all(
        any(_SOME_DRIVER.fullmatch(part.strip(" \n()")) for part in alternative.split("&&"))
        for alternative in expression.split("||")
    )


def _condition(text: str) -> Condition | None:
    driver = _DRIVER.fullmatch(text)
    if "\\" in text:
        return None  # an escape may spell any other value
    if driver is not None:
        return Condition("", driver["value"])
    found = _ATTRIBUTE.fullmatch(text)
    if found is None or found["name"] in _UNIQUE:
        return None
    value: Value = found["text"] or ""
    if found["number"] is not None:
        value = int(found["number"])
    elif found["bool"] is not None:
        value = found["bool"] == "true"
    return Condition(f"{found['domain']}/{found['name']}", value)


def _attributes(device: _Device, driver: str) -> tuple[_Attributed, ...]:
    """Return the attributes by qualified name: the driver is the domain of one without a domain."""
    found: dict[str, Value] = {}
    for name, given in (device.attributes or {}).items():
        value = next((v for v in (given.text, given.number, given.flag) if v is not None), None)
        if value is not None and name.rpartition("/")[2] not in _UNIQUE:
            found[name if "/" in name else f"{driver}/{name}"] = value
    return tuple((name, found[name], type(found[name])) for name in sorted(found))


@lru_cache(maxsize=4096)
def _device(driver: str, attributes: tuple[_Attributed, ...]) -> Device:
    """Return one shared object for equal devices: a cluster has few kinds; 40,000 separate objects take 80 MB."""
    return Device(driver, {name: value for name, value, _ in attributes})
