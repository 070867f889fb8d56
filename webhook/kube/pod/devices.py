"""Claims and slices of DRA.

From DeviceClasses and ResourceSlices (resource.k8s.io) to core values: which devices there are.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from math import ceil
from sys import intern
from typing import Final

import msgspec

from webhook.core.devices.claim_users import (
    ALL_DEVICES,
    AllocatedAt,
    ClaimKey,
    ClaimSpec,
    ClassCount,
    DeviceRequest,
    GroupEntry,
)
from webhook.core.devices.slices import ClassCondition, DevicePart, SizedDevice, Slice, SliceDevice, TaintRule, Value
from webhook.core.model.amounts import Namespace, NodeName, ResourceName, Uid
from webhook.core.model.constraints import NODE_NAME_FIELD, DomainRequest, Effect, Operator, Taint
from webhook.core.model.demand import DeviceClass, looks_like_gpu
from webhook.kube.objects import keys, objects
from webhook.kube.objects.bounds import Quantity, exact
from webhook.kube.pod.constraints import read_tolerations
from webhook.kube.pod.gangs import required_by_key

_CLOSING: Final = {each.value: each for each in (Effect.NO_SCHEDULE, Effect.NO_EXECUTE)}

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


class Cel(msgspec.Struct, frozen=True, gc=False):
    """An expression in CEL that selects devices."""

    expression: str = ""


class Selector(msgspec.Struct, frozen=True, gc=False):
    """A selector of a class or of a claim."""

    cel: Cel = Cel()


class _DeviceClassSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    selectors: tuple[Selector, ...] | None = None
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
    key: str = ""
    value: str = ""
    effect: str = ""


class _Capacity(msgspec.Struct, frozen=True, gc=False):
    value: Quantity = 0


class _Counters(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Counters of a set, or what a device takes of them."""

    name: str = ""
    counter_set: str = ""
    counters: dict[str, _Capacity] | None = None


class _BasicDevice(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    attributes: dict[str, _Attribute] | None = None
    taints: tuple[_Taint, ...] | None = None
    allow_multiple_allocations: bool | None = None
    capacity: dict[str, _Capacity] | None = None
    consumes_counters: tuple[_Counters, ...] | None = None


class _Device(_BasicDevice, frozen=True, gc=False, rename="camel"):
    """A device; in v1beta1 all but its name is in `basic`."""

    name: str = ""
    basic: _BasicDevice | None = None

    @property
    def fields(self) -> _BasicDevice:
        """All but its name."""
        return self.basic or self


class _Pool(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    generation: int = 0


class _SliceSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    driver: str = ""
    pool: _Pool = _Pool()
    node_name: str | None = None
    devices: tuple[_Device, ...] | None = None
    shared_counters: tuple[_Counters, ...] | None = None


class ResourceSlice(msgspec.Struct, frozen=True, gc=False):
    """A ResourceSlice: devices that a driver offers."""

    metadata: objects.ObjectMeta
    spec: _SliceSpec


class _TaintedDevices(msgspec.Struct, frozen=True, gc=False):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class _RuleSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    device_selector: _TaintedDevices | None = None
    taint: _Taint = _Taint()


class DeviceTaintRule(msgspec.Struct, frozen=True, gc=False):
    """A DeviceTaintRule: without a selector it is about no device, with an empty one about all."""

    metadata: objects.ObjectMeta
    spec: _RuleSpec


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


def conditions_of(found: DeviceClassObject) -> tuple[ClassCondition, ...]:
    """Return a class's conditions on driver and attributes; other conditions in its CEL are ignored."""
    return tuple(
        condition
        for selector in found.spec.selectors or ()
        if "||" not in selector.cel.expression and "?" not in selector.cel.expression
        for part in selector.cel.expression.split("&&")
        if (condition := condition_of(part.strip())) is not None
    )


def to_slice(found: ResourceSlice) -> Slice:
    """Translate a ResourceSlice; one whose devices do not belong to a single node has the node ""."""
    spec = found.spec
    devices = tuple(
        _device(spec.driver, _attributes(fields, spec.driver), _taints(fields.taints), _taken(fields, spec.driver))
        for fields in (device.fields for device in spec.devices or ())
    )
    return Slice(
        NodeName(spec.node_name or ""),
        f"{spec.driver}/{spec.pool.name}",
        spec.pool.generation,
        devices,
        tuple(_sized(device) for device in spec.devices or () if device.fields.allow_multiple_allocations),
        tuple(intern(device.name) for device in spec.devices or ()),
        _counters(spec.shared_counters, spec.driver),
    )


def to_taint_rule(found: DeviceTaintRule) -> TaintRule | None:
    """Translate a rule; None for one that closes no device."""
    selected, (taint, *_) = found.spec.device_selector, (*_taints((found.spec.taint,)), None)
    if selected is None or taint is None:
        return None
    return TaintRule(selected.driver or "", selected.pool or "", selected.device or "", taint)


def _taints(taints: tuple[_Taint, ...] | None) -> tuple[Taint, ...]:
    """Return the taints that close a device."""
    listed = [Taint(each.key, _CLOSING[each.effect], each.value) for each in taints or () if each.effect in _CLOSING]
    return tuple(sorted(listed))


def _taken(device: _BasicDevice, driver: str) -> tuple[tuple[ResourceName, int], ...]:
    return _counters(device.consumes_counters, driver)


def _counters(sets: tuple[_Counters, ...] | None, driver: str) -> tuple[tuple[ResourceName, int], ...]:
    """Return amounts of counters by the resource that stands for them; those of several sets are one resource.

    What cannot be read is left out.
    """
    found: dict[ResourceName, int] = {}
    for each in sets or ():
        for name, counter in (each.counters or {}).items():
            with suppress(ValueError):
                resource = ResourceName(intern(f"{driver} counter {name}"))
                found[resource] = found.get(resource, 0) + ceil(exact(counter.value))
    return tuple(sorted(found.items()))


def _sized(device: _Device) -> SizedDevice:
    """Return a device that claims may share; an amount that cannot be read is left out, so parts of it count whole."""
    found: list[tuple[str, Fraction]] = []
    for name, capacity in sorted((device.fields.capacity or {}).items()):
        with suppress(ValueError):
            found.append((name, exact(capacity.value)))
    return SizedDevice(device.name, tuple(found))


def _names_drivers(expression: str) -> bool:
    """Whether a class selects only devices of the drivers that its CEL names."""
    return "?" not in expression and all(
        any(_SOME_DRIVER.fullmatch(part.strip(" \n()")) for part in alternative.split("&&"))
        for alternative in expression.split("||")
    )


def condition_of(text: str) -> ClassCondition | None:
    """Return the condition that a part of an expression is; None where it is none on driver or attributes."""
    driver = _DRIVER.fullmatch(text)
    if "\\" in text:
        return None  # an escape may spell any other value
    if driver is not None:
        return ClassCondition("", driver["value"])
    found = _ATTRIBUTE.fullmatch(text)
    if found is None or found["name"] in _UNIQUE:
        return None
    value: Value = found["text"] or ""
    if found["number"] is not None:
        value = int(found["number"])
    elif found["bool"] is not None:
        value = found["bool"] == "true"
    return ClassCondition(f"{found['domain']}/{found['name']}", value)


def _attributes(device: _BasicDevice, driver: str) -> tuple[_Attributed, ...]:
    """Return the attributes by qualified name: the driver is the domain of one without a domain."""
    found: dict[str, Value] = {}
    for name, given in (device.attributes or {}).items():
        value = next((v for v in (given.text, given.number, given.flag) if v is not None), None)
        if value is not None and name.rpartition("/")[2] not in _UNIQUE:
            found[name if "/" in name else f"{driver}/{name}"] = value
    return tuple((name, found[name], type(found[name])) for name in sorted(found))


@lru_cache(maxsize=4096)
def _device(
    driver: str,
    attributes: tuple[_Attributed, ...],
    taints: tuple[Taint, ...],
    consumes: tuple[tuple[ResourceName, int], ...],
) -> SliceDevice:
    """Return one shared object for equal devices: a cluster has few kinds; 40,000 separate objects take 80 MB."""
    return SliceDevice(driver, {name: value for name, value, _ in attributes}, taints, consumes)


# From ResourceClaims, their templates (resource.k8s.io) and PodGroups to core values: who claims how much.
#
# In v1beta1 a request has the fields itself that later versions have in `exactly`; an API server passes no other
# fields.


_ALL: Final = "All"
_MAX_SELECTORS: Final = 4
_MAX_CONDITIONS: Final = 8
"""Of a claim's own conditions so many are read: what is left out, kube-scheduler evaluates."""


class _Capacities(msgspec.Struct, frozen=True, gc=False):
    """Some of a device's capacity; how much is counted once it is allocated."""


class _DeviceSubRequest(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    device_class_name: str = ""
    selectors: tuple[Selector, ...] | None = None
    allocation_mode: str = ""
    count: int = 1
    admin_access: bool | None = None
    capacity: _Capacities | None = None
    tolerations: msgspec.Raw = objects.NOTHING


class _DeviceRequest(_DeviceSubRequest, frozen=True, gc=False, rename="camel"):
    exactly: _DeviceSubRequest | None = None
    first_available: tuple[_DeviceSubRequest, ...] | None = None


class _DeviceClaim(msgspec.Struct, frozen=True, gc=False):
    requests: tuple[_DeviceRequest, ...] | None = None


class _ClaimSpec(msgspec.Struct, frozen=True, gc=False):
    devices: _DeviceClaim = _DeviceClaim()


class _Result(msgspec.Struct, frozen=True, gc=False):
    request: str
    driver: str = ""
    pool: str = ""
    device: str = ""
    share: str = msgspec.field(default="", name="shareID")
    consumed: dict[str, Quantity] | None = msgspec.field(default=None, name="consumedCapacity")


class _Allocated(msgspec.Struct, frozen=True, gc=False):
    results: tuple[_Result, ...] | None = None


class _NodeField(msgspec.Struct, frozen=True, gc=False):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class _NodeTerm(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    match_fields: tuple[_NodeField, ...] | None = None


class _NodeSelector(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_selector_terms: tuple[_NodeTerm, ...] | None = None


class _Allocation(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    devices: _Allocated = _Allocated()
    node_selector: _NodeSelector | None = None


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


class _GroupClaim(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    resource_claim_template_name: str | None = None


class _GroupTopology(msgspec.Struct, frozen=True, gc=False):
    key: str = ""


class _GroupConstraints(msgspec.Struct, frozen=True, gc=False):
    topology: tuple[_GroupTopology, ...] | None = None


class _Gang(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    min_count: int = 0


class _GroupPolicy(msgspec.Struct, frozen=True, gc=False):
    gang: _Gang | None = None


class _DisruptionMode(msgspec.Struct, frozen=True, gc=False):
    all: objects.Present | None = None


class _PodGroupSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    resource_claims: tuple[_GroupClaim, ...] | None = None
    scheduling_constraints: _GroupConstraints | None = None
    scheduling_policy: _GroupPolicy | None = None
    disruption_mode: _DisruptionMode | None = None


class PodGroup(msgspec.Struct, frozen=True, gc=False):
    """A PodGroup (scheduling.k8s.io): the claims that its pods share, their one domain, and how many may be missing."""

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


def to_claim(claim: ResourceClaim) -> ClaimSpec:
    """Return what a claim counts as, for each pod that names it.

    That includes claims with the annotation of those that kube-scheduler makes for container requests: no pod names
    one of these, and tenants may write the annotation.
    """
    found = allocated(claim)
    return _requested(claim.spec) if found is None else found


def allocated_at(claim: ResourceClaim) -> AllocatedAt | None:
    """Return where the allocated devices can be used; None if there is no allocation.

    kube-scheduler selects a single node by its name (allocator, createNodeSelector).
    """
    allocation = claim.status.allocation if claim.status is not None else None
    if allocation is None:
        return None
    selector = allocation.node_selector
    terms = () if selector is None else selector.node_selector_terms or ()
    fields = terms[0].match_fields or () if len(terms) == 1 else ()
    results = allocation.devices.results or ()
    devices = frozenset((f"{each.driver}/{each.pool}", each.device) for each in results)
    for each in fields:
        if each.key == NODE_NAME_FIELD and each.operator == Operator.IN and len(each.values or ()) == 1:
            return AllocatedAt(NodeName((each.values or ("",))[0]), devices)
    return AllocatedAt(devices=devices)


def made_for(claim: ResourceClaim) -> Uid | None:
    """Return the pod that kube-scheduler made a claim for, to serve its containers' requests, if the claim says so.

    kube-scheduler makes it with this annotation and the pod as its controller, allocates it, and only then writes its
    name into the pod's status (extendeddynamicresources.go). Tenants may write the same.
    """
    metadata = claim.metadata
    if (metadata.annotations or {}).get(keys.EXTENDED_CLAIM) != "true":
        return None
    owners = (owner for owner in metadata.owner_references or () if owner.controller and owner.kind == "Pod")
    return next((Uid(owner.uid) for owner in owners), None)


def allocated(claim: ResourceClaim) -> ClaimSpec | None:
    """Return the devices allocated to a claim, or None if it has no allocation."""
    allocation = claim.status.allocation if claim.status is not None else None
    if allocation is None:
        return None
    results: dict[str, list[_Result]] = defaultdict(list)
    for result in allocation.devices.results or ():
        results[result.request].append(result)
    return tuple(each for request in claim.spec.devices.requests or () for each in _allocated_to(request, results))


def to_template(template: ResourceClaimTemplate) -> ClaimSpec:
    """Return what a claim from this template counts as."""
    return _requested(template.spec.spec)


def _requested(spec: _ClaimSpec) -> ClaimSpec:
    return tuple(
        DeviceRequest(tuple(map(_class_count, subs)), any(bool(sub.admin_access) for sub in subs))
        for request in spec.devices.requests or ()
        if (subs := _alternatives(request))
    )


def _allocated_to(request: _DeviceRequest, results: Mapping[str, Sequence[_Result]]) -> ClaimSpec:
    """Return the devices allocated to a request, by driver, of the alternative that was chosen.

    `results` are those of each request or alternative.
    """
    found: list[DeviceRequest] = []
    for sub in _alternatives(request):
        name = f"{request.name}/{sub.name}" if request.first_available else request.name
        own = results.get(name, ())
        for driver, number in Counter(result.driver for result in own).items():
            parts = tuple(_part(result) for result in own if result.driver == driver and result.share)
            counted = ClassCount(sub.device_class_name, number, driver, parts, conditions=_conditions(sub))
            found.append(DeviceRequest((counted,), bool(sub.admin_access)))
    return tuple(found)


def _part(result: _Result) -> DevicePart:
    """Return the part of a device that a claim has; one whose amounts cannot be read counts as all of it."""
    try:
        consumed = tuple(sorted((name, exact(amount)) for name, amount in (result.consumed or {}).items()))
    except ValueError:
        consumed = ()
    return DevicePart(f"{result.driver}/{result.pool}", result.device, consumed)


def _alternatives(request: _DeviceRequest) -> tuple[_DeviceSubRequest, ...]:
    return request.first_available or (request.exactly or request,)


def _class_count(sub: _DeviceSubRequest) -> ClassCount:
    number = ALL_DEVICES if sub.allocation_mode == _ALL else max(0, sub.count)
    conditions = _conditions(sub)
    driver = next((str(each.value) for each in conditions if not each.attribute), "")
    tolerations = read_tolerations(bytes(sub.tolerations))
    return ClassCount(
        sub.device_class_name,
        number,
        driver,
        may_be_part=sub.capacity is not None,
        conditions=conditions,
        tolerations=tolerations,
    )


def _conditions(sub: _DeviceSubRequest) -> tuple[ClassCondition, ...]:
    """Return the conditions of a claim's own CEL; none of an expression that has any other: tenants write it."""
    found: list[ClassCondition] = []
    for selector in (sub.selectors or ())[:_MAX_SELECTORS]:
        parts = [condition_of(part.strip()) for part in selector.cel.expression.split("&&")]
        if None not in parts:
            found += [each for each in parts if each is not None]
    return tuple(found[:_MAX_CONDITIONS])
