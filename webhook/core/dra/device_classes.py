"""Device classes, and how many GPUs the devices that claims and containers request of them count.

A request counts the worst case of Kubernetes: `All` is 32 devices, and of several alternatives the most expensive one.
Devices that are no GPUs take room on their nodes, too, where every device of their class belongs to one node.
Extended resources backed by a DeviceClass are counted by the containers that request them. The claim that
kube-scheduler makes for those is named by no pod, so it counts for none.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from webhook.core.dra.claim_spec import ALL_DEVICES, ClaimSpec, ClassCount, DeviceRequest
from webhook.core.dra.device_parts import DeviceSizes
from webhook.core.dra.dra_slices import NO_FACTS, ClassCondition, ClassFacts, with_tainted
from webhook.core.model.amount import ONE_GPU, Units, exact_units
from webhook.core.model.demand import Demand, Weights
from webhook.core.model.device_class import DeviceClass, age_order
from webhook.core.model.gpu_names import looks_like_gpu
from webhook.core.model.names import DEVICE_CLASS, ResourceName
from webhook.core.model.policy import Policy

_BY_CLAIM: Final = ResourceName("")
ANY_ALTERNATIVE: Final = -1


def _nothing_known(_name: str, _conditions: tuple[ClassCondition, ...]) -> ClassFacts:
    return NO_FACTS


class ClaimValue(NamedTuple):
    """GPU units of the devices of a claim; `missing` and `unknown` as in the resolved demand."""

    gpus: Units
    missing: tuple[str, ...]
    unknown: tuple[str, ...]


class ClassDemand(NamedTuple):
    """Devices of a class: how many, and the GPU units beyond what the containers' own resources count already.

    `requested_as` is the containers' resource that requests them, "" where a claim does. `takes_room`: no other pod
    takes their room. `is_gpu`: they are named in the charge; others only take room. `facts` are those of the devices
    that a claim may get, and `is_tolerating`: it takes some that a taint closes.
    """

    device_class: DeviceClass
    number: int
    units: Units
    is_certain: bool
    requested_as: ResourceName = _BY_CLAIM
    takes_room: bool = True
    is_gpu: bool = True
    facts: ClassFacts = NO_FACTS
    is_tolerating: bool = False


class DeviceClasses:
    """The classes of the cluster, and the sizes of devices that others may have parts of.

    `facts_of` returns what is known of the devices of a class that meet further conditions.
    """

    def __init__(self, facts_of: Callable[[str, tuple[ClassCondition, ...]], ClassFacts] = _nothing_known) -> None:
        self.facts_of = facts_of
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
        self,
        spec: ClaimSpec,
        policy: Policy,
        missing: list[str],
        unknown: list[str],
        *,
        is_admin: bool,
        alternative: int = ANY_ALTERNATIVE,
    ) -> list[ClassDemand]:
        """Return the devices that a claim requests; what it lacks goes to `missing` and `unknown`.

        The most expensive alternative is charged; the room is that of `alternative`, where it is one.
        """
        wanted = [request for request in spec if not (request.is_admin and is_admin)]
        return [each for request in wanted if (each := self._counted(request, policy, missing, unknown, alternative))]

    def _counted(
        self, request: DeviceRequest, policy: Policy, missing: list[str], unknown: list[str], alternative: int
    ) -> ClassDemand | None:
        """Count a request by its most expensive alternative, with the room of the one that is asked for.

        What is charged must not depend on the room: between decision and commit another alternative may be free.
        """
        listed = request.alternatives
        found = [self._weighed(each, policy, missing, unknown) for each in listed]
        most = max(filter(None, found), key=lambda each: each.units, default=None)
        if len(listed) <= 1 or most is None:
            return most
        chosen = None if alternative < 0 else found[min(alternative, len(found) - 1)]
        return most._replace(is_certain=False) if chosen is None else chosen._replace(units=most.units, is_gpu=False)

    def _weighed(self, count: ClassCount, policy: Policy, missing: list[str], unknown: list[str]) -> ClassDemand | None:
        weights, ignored = policy.resources, policy.ignored_resources
        device_class = self._classes.get(count.device_class)
        known = device_class or DeviceClass(count.device_class)
        weight = _weight(known, weights)
        is_guess = weight is None and known.may_be_gpu(count.driver)
        if known.implicit_resource in ignored or known.extended_resource in ignored:
            return None
        # node resources are requested only where it is certain which devices are meant, and how many
        is_certain = device_class is not None and count.number < ALL_DEVICES and not (count.parts or count.may_be_part)
        facts = self.facts_of(count.device_class, count.conditions)
        if is_guess:
            weight = ONE_GPU
        if weight is None:
            if device_class is None:
                missing.append(f"DeviceClass {count.device_class}")
            elif device_class.mentions_gpus:
                unknown.append(known.implicit_resource)
            if not (is_certain and facts.is_local):
                return None
        units: Units = 0
        if weight is not None:
            units = count.number * weight - sum((1 - self.sizes.share_of(part)) * weight for part in count.parts)
        is_tolerating = any(each.tolerates(taint) for each in count.tolerations for taint in facts.taints)
        return ClassDemand(
            known,
            count.number,
            units,
            is_certain and not is_guess,
            is_gpu=weight is not None,
            facts=facts,
            is_tolerating=is_tolerating,
        )

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
        implicit, facts = each.device_class.implicit_resource, each.facts
        resource = self._node_resource(each.device_class, weights)
        names = {resource, implicit} - {each.requested_as} if each.takes_room else set()
        if facts.taints and each.takes_room:
            names = {with_tainted(implicit)} if each.is_tolerating else {*names, with_tainted(implicit)}
        for name in names:
            requests[name] = requests.get(name, 0) + each.number
        for name, amount in facts.consumes if each.takes_room else ():
            requests[name] = requests.get(name, 0) + each.number * amount
        if not each.is_gpu:
            return
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
