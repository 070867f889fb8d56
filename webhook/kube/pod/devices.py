"""Who claims how much of which devices.

From ResourceClaims, their templates (resource.k8s.io) and PodGroups to core values: who claims how much.

In v1beta1 a request has the fields itself that later versions have in `exactly`; an API server passes no other
fields.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
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
from webhook.core.devices.slices import ClassCondition, DevicePart
from webhook.core.model.amounts import Namespace, NodeName, Uid
from webhook.core.model.constraints import NODE_NAME_FIELD, DomainRequest, Operator
from webhook.kube.objects import keys, objects
from webhook.kube.objects.bounds import Quantity, exact
from webhook.kube.pod.constraints import read_tolerations
from webhook.kube.pod.gangs import required_by_key
from webhook.kube.pod.slices import Selector, condition_of

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
