"""From DeviceClasses and ResourceSlices (resource.k8s.io) to core values: which devices there are."""

import re
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from math import ceil
from sys import intern
from typing import Final

import msgspec

from webhook.core.devices.slices import ClassCondition, SizedDevice, Slice, SliceDevice, TaintRule, Value
from webhook.core.model.amounts import NodeName, ResourceName
from webhook.core.model.constraints import Effect, Taint
from webhook.core.model.gpu_shares import DeviceClass, looks_like_gpu
from webhook.kube.objects import objects
from webhook.kube.objects.bounds import Quantity, exact

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
