"""Devices that drivers offer.

Parts of devices that several claims share: consumable capacity (KEP-5075).

A driver may offer a device of 80 GiB to any number of claims, each of which consumes some of its capacities. Such a
part counts as the largest share that it takes of one of them, exactly: together the parts of a device count no less
than what is taken of any of its capacities.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Final, NamedTuple

from webhook.core.model.amounts import NodeName, ResourceName
from webhook.core.model.constraints import Taint
from webhook.core.model.gpu_shares import DeviceClass, age_order
from webhook.core.model.node import Node

Amounts = Mapping[str, Fraction]
"""Capacities by name."""


class DevicePart(NamedTuple):
    """What a claim consumes of a device: the device by pool (`driver/pool`) and name, and amounts of its capacities."""

    pool: str
    device: str
    consumed: tuple[tuple[str, Fraction], ...]


class SizedDevice(NamedTuple):
    """A device that claims may share, and the size of its capacities."""

    name: str
    capacities: tuple[tuple[str, Fraction], ...]


class DeviceSizes:
    """The sizes of devices that claims may share, by the slices that offer them."""

    def __init__(self) -> None:
        self._slices: dict[str, tuple[str, tuple[SizedDevice, ...]]] = {}
        self._sizes: dict[tuple[str, str], dict[str, Amounts]] = {}

    def set(self, slice_name: str, pool: str, devices: Iterable[SizedDevice]) -> bool:
        """Set the devices of a slice, none if it is gone; return whether a size may have changed."""
        now = pool, tuple(devices)
        before = self._slices.pop(slice_name, (pool, ()))
        for device in before[1]:
            of_device = self._sizes[before[0], device.name]
            del of_device[slice_name]
            if not of_device:
                del self._sizes[before[0], device.name]
        if now[1]:
            self._slices[slice_name] = now
        for device in now[1]:
            self._sizes.setdefault((pool, device.name), {})[slice_name] = dict(device.capacities)
        return before != now and bool(before[1] or now[1])

    def share_of(self, part: DevicePart) -> Fraction:
        """Return how much of its device a part is: all of it where that is not known.

        While a driver publishes a pool again two slices may have a device: the larger share counts.
        """
        sizes = self._sizes.get((part.pool, part.device), {}).values()
        return max((_share(part, size) for size in sizes), default=Fraction(1))


def _share(part: DevicePart, size: Amounts) -> Fraction:
    consumed = dict(part.consumed)
    if not consumed or any(amount <= 0 or size.get(name, 0) <= 0 for name, amount in part.consumed):
        return Fraction(1)
    return min(Fraction(1), max(amount / size[name] for name, amount in consumed.items()))


# Devices of nodes from ResourceSlices (DRA), counted by DeviceClass.
#
# A class selects devices by CEL. Conditions on driver and attributes are evaluated; any other condition counts as met,
# so a count is an upper bound and kube-scheduler decides. Devices shared between nodes (network attached) belong to no
# node and are not counted. The devices of a class with an extended resource have two names but one capacity.
#
# Devices that share counters, such as a GPU and its partitions, count by those as well: each counter is a resource of
# the node, of which a device of a class takes the least that any takes. Devices with a taint that closes them are
# counted apart, for claims that tolerate one of those taints (`with_tainted`); one that is in use stays counted.


Value = str | int | bool


_UNSHARED: Final = 1 << 50
"""What a node offers of a counter that none of its devices take: they are not limited by it."""
_MAX_FACTS: Final = 512
"""Classes, with conditions of claims, of which the facts are remembered: tenants write conditions."""


class SliceDevice(NamedTuple):
    """One device: its driver, and the attributes that classes select by, by qualified name (`gpu.nvidia.com/type`).

    `taints` close it; `consumes` are the counters that it shares with other devices of its pool, by resource.
    """

    driver: str
    attributes: Mapping[str, Value]
    taints: tuple[Taint, ...] = ()
    consumes: tuple[tuple[ResourceName, int], ...] = ()

    @property
    def kind(self) -> tuple[object, ...]:
        """What it shares with equal devices, hashable."""
        return (self.driver, tuple(self.attributes.items()), self.taints, self.consumes)


class TaintRule(NamedTuple):
    """A taint that an admin sets on devices, by driver, pool and name: "" for any."""

    driver: str
    pool: str
    device: str
    taint: Taint

    def may_concern(self, driver: str) -> bool:
        """Whether it may be about devices of a driver."""
        return self.driver in ("", driver)


class ClassCondition(NamedTuple):
    """One condition of a class: an attribute has this value; the attribute "" is the driver."""

    attribute: str
    value: Value

    def is_met(self, device: SliceDevice) -> bool:
        """Whether a device meets the condition."""
        if not self.attribute:
            return device.driver == self.value
        found = device.attributes.get(self.attribute)
        return type(found) is type(self.value) and found == self.value


class Slice(NamedTuple):
    """Devices of one node, or of several (""); only slices of a pool's newest generation count.

    `names` are those of the devices, `sized` the ones that claims may share, `counters` what devices of the pool share.
    """

    node: NodeName
    pool: str
    generation: int
    devices: tuple[SliceDevice, ...]
    sized: tuple[SizedDevice, ...] = ()
    names: tuple[str, ...] = ()
    counters: tuple[tuple[ResourceName, int], ...] = ()


class ClassFacts(NamedTuple):
    """What is known of all devices of a class that a claim may get.

    `is_local`: they are devices of single nodes. `taints` close some of them. `consumes` is the least that one takes of
    counters.
    """

    is_local: bool = False
    taints: frozenset[Taint] = frozenset()
    consumes: tuple[tuple[ResourceName, int], ...] = ()


NO_FACTS: Final = ClassFacts()


def with_tainted(resource: ResourceName) -> ResourceName:
    """Return the resource that counts the devices of another one with those that a taint closes."""
    return ResourceName(f"{resource}, tainted too")


class _ClassSelector(NamedTuple):
    device_class: DeviceClass
    conditions: tuple[ClassCondition, ...]


class DraSlices:
    """Nodes as reported by the API, plus the devices of their slices."""

    def __init__(self) -> None:
        self._nodes: dict[NodeName, Node] = {}
        self._slices: dict[str, Slice] = {}
        self._slices_of_node: dict[NodeName, dict[str, None]] = {}
        self._classes: dict[str, _ClassSelector] = {}
        self._rules: dict[str, TaintRule] = {}
        self._kinds: dict[tuple[object, ...], SliceDevice] = {}
        self._numbers: Counter[tuple[tuple[object, ...], bool]] = Counter()  # of each kind, and whether nodes share it
        self._allocated: dict[Hashable, frozenset[tuple[str, str]]] = {}
        self._in_use: Counter[tuple[str, str]] = Counter()  # by pool and device
        self._facts: dict[tuple[str, tuple[ClassCondition, ...]], ClassFacts] = {}
        self._known: dict[str, ClassFacts] = {}
        self._counters: frozenset[ResourceName] = frozenset()
        self._has_changed = False

    def facts_of(self, name: str, conditions: tuple[ClassCondition, ...] = ()) -> ClassFacts:
        """Return what is known of the devices of a class that meet further conditions."""
        found = self._facts.get((name, conditions))
        if found is None:
            if len(self._facts) >= _MAX_FACTS:
                self._facts.clear()
            found = self._facts[name, conditions] = self._facts_among(name, conditions)
        return found

    def set_node(self, node: Node) -> Node:
        """Set a node; return it with all its devices."""
        self._nodes[node.name] = node
        return self._with_devices(node)

    def remove_node(self, name: NodeName) -> None:
        """Remove a node; its slices stay until they are deleted."""
        self._nodes.pop(name, None)

    def set_slice(self, name: str, found: Slice | None) -> Iterable[Node]:
        """Set or remove (None) a slice; return the nodes whose devices changed."""
        before = self._slices.pop(name, None)
        is_new = self._count_kinds(before, found)
        if before is not None:
            members = self._slices_of_node[before.node]
            del members[name]
            if not members:
                del self._slices_of_node[before.node]
        if found is not None:
            self._slices[name] = found
            self._slices_of_node.setdefault(found.node, {})[name] = None
        if is_new and self._learn():
            return self._updated(self._slices_of_node)
        return self._updated({each.node for each in (before, found) if each is not None})

    def set_class(
        self, name: str, device_class: DeviceClass | None, conditions: tuple[ClassCondition, ...]
    ) -> Iterable[Node]:
        """Set or remove (None) a class; return the nodes whose devices may have changed."""
        if device_class is None:
            self._classes.pop(name, None)
        else:
            self._classes[name] = _ClassSelector(device_class, conditions)
        self._learn()
        return self._updated(self._slices_of_node)

    def set_rule(self, name: str, rule: TaintRule | None) -> Iterable[Node]:
        """Set or remove (None) a rule that taints devices; return the nodes whose devices may have changed."""
        if rule is None:
            self._rules.pop(name, None)
        else:
            self._rules[name] = rule
        self._learn()
        return self._updated(self._slices_of_node)

    def set_allocated(self, key: Hashable, devices: frozenset[tuple[str, str]]) -> Iterable[Node]:
        """Set the devices of a claim, by pool and name; return the nodes where a closed device is in use, or no longer.

        A device that has a taint stays with the claim that has it.
        """
        before = self._allocated.pop(key, frozenset())
        if devices:
            self._allocated[key] = devices
        self._in_use.update(devices - before)
        for each in before - devices:
            self._in_use[each] -= 1
            if not self._in_use[each]:
                del self._in_use[each]
        pools = {pool for pool, _ in before ^ devices} if any(facts.taints for facts in self._known.values()) else ()
        return self._updated({each.node for each in self._slices.values() if each.pool in pools} if pools else ())

    def take_changed(self) -> bool:
        """Return whether the facts of a class changed since the last call."""
        changed, self._has_changed = self._has_changed, False
        return changed

    def _count_kinds(self, before: Slice | None, found: Slice | None) -> bool:
        """Count the kinds of devices; return whether one came or is gone."""
        known = len(self._numbers)
        is_new = False
        for each, sign in ((found, 1), (before, -1)):
            if each is None:
                continue
            for device in each.devices:
                kind = device.kind, not each.node
                self._kinds.setdefault(device.kind, device)
                is_new = is_new or kind not in self._numbers
                self._numbers[kind] += sign
                if not self._numbers[kind]:
                    del self._numbers[kind]
        return is_new or len(self._numbers) != known

    def _learn(self) -> bool:
        """Learn the facts of all classes again; return whether nodes offer other resources by that."""
        self._facts.clear()
        before, self._known = self._known, {name: self.facts_of(name) for name in self._classes}
        self._has_changed = self._has_changed or before != self._known
        consumed = {name for kind, _ in self._numbers for name, _ in self._kinds[kind].consumes}
        counters, self._counters = self._counters, frozenset(consumed)
        is_tainted = [{name for name, facts in each.items() if facts.taints} for each in (before, self._known)]
        return counters != self._counters or is_tainted[0] != is_tainted[1]

    def _facts_among(self, name: str, conditions: tuple[ClassCondition, ...]) -> ClassFacts:
        known = self._classes.get(name)
        if known is None:
            return NO_FACTS
        wanted = (*known.conditions, *conditions)
        kinds = [
            (self._kinds[kind], is_shared)
            for kind, is_shared in self._numbers
            if all(condition.is_met(self._kinds[kind]) for condition in wanted)
        ]
        devices = [device for device, _ in kinds]
        taints = {taint for device in devices for taint in device.taints}
        taints.update(
            rule.taint for rule in self._rules.values() if any(rule.may_concern(device.driver) for device in devices)
        )
        sharing = [dict(device.consumes) for device in devices if device.consumes]
        least = sharing[0] if sharing else {}
        for consumed in sharing:
            least = {name: min(amount, consumed[name]) for name, amount in least.items() if name in consumed}
        is_local = bool(kinds) and not any(is_shared for _, is_shared in kinds)
        return ClassFacts(is_local, frozenset(taints), tuple(sorted(least.items())))

    def _updated(self, names: Iterable[NodeName]) -> Iterable[Node]:
        return [self._with_devices(self._nodes[name]) for name in names if name in self._nodes]

    def _with_devices(self, node: Node) -> Node:
        """Add the devices that the node's device plugins do not have already: no name has both sources."""
        if node.name not in self._slices_of_node:
            return node
        offered = {name: amount for name, amount in node.allocatable.items() if amount}
        counts = self._counts(node.name)
        allocatable = {**node.allocatable, **counts, **offered}
        return replace(
            node,
            allocatable=allocatable,
            at_best={name: amount for name, amount in node.at_best.items() if amount > allocatable.get(name, 0)},
            alias_of={
                device_class.implicit_resource: name
                for name, device_class in self._class_of_resource().items()
                if name not in offered and device_class.implicit_resource in counts
            },
        )

    def _class_of_resource(self) -> dict[ResourceName, DeviceClass]:
        """Return the class behind each extended resource: of several the newest, as in kube-scheduler."""
        classes = sorted((each.device_class for each in self._classes.values()), key=age_order)
        return {each.extended_resource: each for each in classes if each.extended_resource is not None}

    def _counts(self, node: NodeName) -> dict[ResourceName, int]:
        slices = [self._slices[name] for name in self._slices_of_node[node]]
        newest: dict[str, int] = {}
        for each in slices:
            newest[each.pool] = max(each.generation, newest.get(each.pool, 0))
        present = [each for each in slices if each.generation == newest[each.pool]]
        devices = [device for each in present for device in each.devices]
        closed = [device for each in present for device in self._closed(each)]
        counts: dict[ResourceName, int] = {}
        for device_class, conditions in self._classes.values():
            number, shut = (
                sum(all(condition.is_met(device) for condition in conditions) for device in listed)
                for listed in (devices, closed)
            )
            if number > shut:
                counts[device_class.implicit_resource] = number - shut
            if number and self.facts_of(device_class.name).taints:
                counts[with_tainted(device_class.implicit_resource)] = number
        class_of_resource = self._class_of_resource().items()
        return (
            counts
            | {
                name: counts[each.implicit_resource]
                for name, each in class_of_resource
                if each.implicit_resource in counts
            }
            | self._shared_counters(present)
        )

    def _shared_counters(self, slices: list[Slice]) -> dict[ResourceName, int]:
        """Return the counters that the devices of a node share.

        It has more than enough of those of other nodes, and of those of a driver that has devices without any there.
        """
        if not self._counters:
            return {}
        found: dict[ResourceName, int] = {}
        unshared = {device.driver for each in slices for device in each.devices if not device.consumes}
        for each in slices:
            if each.pool.partition("/")[0] not in unshared:
                for name, amount in each.counters:
                    found[name] = found.get(name, 0) + amount
        return dict.fromkeys(self._counters, _UNSHARED) | found

    def _closed(self, found: Slice) -> Iterable[SliceDevice]:
        """Yield the devices of a slice that a taint closes, and that no claim has."""
        driver, _, pool = found.pool.partition("/")
        rules = [rule for rule in self._rules.values() if rule.may_concern(driver) and rule.pool in ("", pool)]
        for number, device in enumerate(found.devices):
            name = found.names[number] if number < len(found.names) else ""
            is_tainted = device.taints or any(rule.device in ("", name) for rule in rules)
            if is_tainted and (found.pool, name) not in self._in_use:
                yield device
