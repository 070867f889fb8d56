"""Device classes, and how many GPUs the devices that claims and containers request of them count.

A request counts the worst case of Kubernetes: `All` is 32 devices, and of several alternatives the most expensive one.
Extended resources backed by a DeviceClass are counted by the containers that request them. The claim that
kube-scheduler makes for those is named by no pod, so it counts for none.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from webhook.core.dra.claim_spec import ALL_DEVICES, ClaimSpec, DeviceRequest
from webhook.core.dra.device_parts import DeviceSizes
from webhook.core.model.amount import ONE_GPU, Units, exact_units
from webhook.core.model.demand import Demand, Weights
from webhook.core.model.device_class import DeviceClass, age_order
from webhook.core.model.gpu_names import looks_like_gpu
from webhook.core.model.names import DEVICE_CLASS, ResourceName
from webhook.core.model.policy import Policy

_BY_CLAIM: Final = ResourceName("")


class ClaimValue(NamedTuple):
    """GPU units of the devices of a claim; `missing` and `unknown` as in the resolved demand."""

    gpus: Units
    missing: tuple[str, ...]
    unknown: tuple[str, ...]


class ClassDemand(NamedTuple):
    """Devices of a class: how many, and the GPU units beyond what the containers' own resources count already.

    `requested_as` is the containers' resource that requests them, "" where a claim does. `takes_room`: no other pod
    takes their room.
    """

    device_class: DeviceClass
    number: int
    units: Units
    is_certain: bool
    requested_as: ResourceName = _BY_CLAIM
    takes_room: bool = True


class DeviceClasses:
    """The classes of the cluster, and the sizes of devices that others may have parts of."""

    def __init__(self) -> None:
        self.sizes = DeviceSizes()
        self._classes: dict[str, DeviceClass] = {}
        self._by_resource: dict[ResourceName, DeviceClass] = {}

    def set(self, name: str, device_class: DeviceClass | None) -> bool:
        """Set or remove (None) a class; return whether that changed anything."""
        if self._classes.get(name) == device_class:
            return False
        if device_class is None:
            del self._classes[name]
        else:
            self._classes[name] = device_class
        # of two classes with the same resource the newer wins, as in kube-scheduler
        ordered = sorted(self._classes.values(), key=age_order)
        self._by_resource = {known.extended_resource: known for known in ordered if known.extended_resource}
        return True

    def are_ordinary(self, resources: tuple[ResourceName, ...]) -> bool:
        """Whether none of these resources, which policy does not weigh, can be a GPU."""
        return not any(self.knows(name) or looks_like_gpu(name) for name in resources)

    def knows(self, name: ResourceName) -> bool:
        """Whether a class provides this resource, or may provide it."""
        return name in self._by_resource or name.startswith(DEVICE_CLASS)

    def worth(self, spec: ClaimSpec, policy: Policy, *, is_admin: bool) -> ClaimValue:
        """Count the devices of a claim, independent of the pod charged for it."""
        missing: list[str] = []
        unknown: list[str] = []
        units = sum(each.units for each in self.of_claim(spec, policy, missing, unknown, is_admin=is_admin))
        return ClaimValue(exact_units(units), tuple(missing), tuple(unknown))

    def of_containers(self, own: Demand, policy: Policy, unknown: list[str]) -> Iterator[ClassDemand]:
        """Weigh extended resources that policy does not name but a DeviceClass does.

        Those that policy names are weighed already: for them only the class is returned.
        """
        weights = policy.resources
        for name in own.strange:
            if name in policy.ignored_resources:
                continue
            if name in weights:
                if (known := self._classes.get(name.removeprefix(DEVICE_CLASS))) is not None:
                    yield ClassDemand(known, dict(own.requests)[name], 0, is_certain=True, requested_as=name)
                continue
            implicit = self._classes.get(name.removeprefix(DEVICE_CLASS)) if name.startswith(DEVICE_CLASS) else None
            device_class = implicit or self._by_resource.get(name)
            weight = None if device_class is None else _weight(device_class, weights)
            number = dict(own.requests)[name]
            if weight is None and device_class is not None and device_class.may_be_gpu(""):
                yield ClassDemand(device_class, number, number * ONE_GPU, is_certain=False)
            elif weight is not None and device_class is not None:
                yield ClassDemand(device_class, number, number * weight, is_certain=True, requested_as=name)
            elif looks_like_gpu(name) or (device_class is not None and device_class.mentions_gpus):
                unknown.append(name)

    def of_claim(
        self, spec: ClaimSpec, policy: Policy, missing: list[str], unknown: list[str], *, is_admin: bool
    ) -> list[ClassDemand]:
        """Return the devices that a claim requests; what it lacks goes to `missing` and `unknown`."""
        wanted = [request for request in spec if not (request.is_admin and is_admin)]
        return [each for request in wanted if (each := self._most_expensive(request, policy, missing, unknown))]

    def _most_expensive(
        self, request: DeviceRequest, policy: Policy, missing: list[str], unknown: list[str]
    ) -> ClassDemand | None:
        """Count a request by its most expensive alternative."""
        weights, ignored = policy.resources, policy.ignored_resources
        most_expensive: ClassDemand | None = None
        for name, number, driver, parts, may_be_part in request.alternatives:
            device_class = self._classes.get(name)
            known = device_class or DeviceClass(name)
            weight = _weight(known, weights)
            is_guess = weight is None and known.may_be_gpu(driver)
            if known.implicit_resource in ignored or known.extended_resource in ignored:
                continue
            if is_guess:
                weight = ONE_GPU
            if weight is None:
                if device_class is None:
                    missing.append(f"DeviceClass {name}")
                elif device_class.mentions_gpus:
                    unknown.append(known.implicit_resource)
                continue
            # node resources are requested only where it is certain which devices are meant, and how many
            is_certain = device_class is not None and len(request.alternatives) == 1 and number < ALL_DEVICES
            is_certain = is_certain and not (is_guess or parts or may_be_part)
            units = number * weight - sum((1 - self.sizes.share_of(part)) * weight for part in parts)
            each = ClassDemand(known, number, units, is_certain)
            if most_expensive is None or each.units > most_expensive.units:
                most_expensive = each
        return most_expensive

    def add(
        self,
        each: ClassDemand,
        requests: dict[ResourceName, int],
        devices: dict[ResourceName, int],
        weights: Weights,
    ) -> None:
        """Count devices of a class under the one node resource that all names of the class share.

        The implicit resource of the class is requested as well: nodes whose device plugin has the devices do not have
        it. Where another user of a claim takes the room, nothing is requested.
        """
        resource = self._node_resource(each.device_class, weights)
        names = {resource, each.device_class.implicit_resource} - {each.requested_as} if each.takes_room else ()
        for name in names:
            requests[name] = requests.get(name, 0) + each.number
        if each.requested_as in devices:
            devices[each.requested_as] -= each.number
            if not devices[each.requested_as]:
                del devices[each.requested_as]
        devices[resource] = devices.get(resource, 0) + each.number

    def _node_resource(self, device_class: DeviceClass, weights: Weights) -> ResourceName:
        """Return the resource of the devices on nodes: extended, where policy weighs it and no newer class has it."""
        mapped = device_class.extended_resource
        is_known = mapped is not None and mapped in weights and self._by_resource.get(mapped) == device_class
        return mapped if mapped is not None and is_known else device_class.implicit_resource


def _weight(device_class: DeviceClass, weights: Weights) -> Units | None:
    own = weights.get(device_class.implicit_resource)
    if own is not None or device_class.extended_resource is None:
        return own
    return weights.get(device_class.extended_resource)
