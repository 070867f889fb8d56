"""Who uses a claim; device classes.

What claims and claim templates request, and what PodGroups share. Values only.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from webhook.core.devices.slices import NO_FACTS, ClassCondition, ClassFacts, DevicePart, DeviceSizes, with_tainted
from webhook.core.model.amounts import DEVICE_CLASS, ONE_GPU, Namespace, NodeName, ResourceName, Uid, Units, exact_units
from webhook.core.model.constraints import Toleration
from webhook.core.model.demand import ClaimRef, Demand, Weights
from webhook.core.model.gpu_shares import DeviceClass, age_order, looks_like_gpu
from webhook.core.model.policy import Policy

ALL_DEVICES: Final = 32
"""The most devices in one claim (AllocationResultsMaxSize), and what `All` counts until it is allocated."""


class ClaimKey(NamedTuple):
    """The key of a claim, template or group in the cluster."""

    kind: str
    namespace: Namespace
    name: str


class ClassCount(NamedTuple):
    """A number of devices of one DeviceClass. `driver` is "" where the claim does not name one.

    `parts` are those of them of which the claim has a part. `may_be_part`: it asks for some of a device's capacity.
    `conditions` are those of the claim itself on the devices, and `tolerations` of their taints while it has none yet.
    """

    device_class: str
    number: int
    driver: str = ""
    parts: tuple[DevicePart, ...] = ()
    may_be_part: bool = False
    conditions: tuple[ClassCondition, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


class DeviceRequest(NamedTuple):
    """One request of a claim: the first alternative that can be satisfied."""

    alternatives: tuple[ClassCount, ...]
    is_admin: bool = False


class GroupEntry(NamedTuple):
    """A claim shared by the pods of a PodGroup whose entry has this name and template."""

    name: str
    template: str


class AllocatedAt(NamedTuple):
    """Where the devices of an allocated claim can be used: on this node only; on several if it is None.

    `devices` are they, each by its pool (`driver/pool`) and name.
    """

    node: NodeName | None = None
    devices: frozenset[tuple[str, str]] = frozenset()


ClaimSpec = tuple[DeviceRequest, ...]
"""The requests of a claim or a claim template; for an allocated claim its devices."""


# Which pods use which claim: who is charged for it, and who takes the room of its devices on each node.
#
# The first pod is charged. Devices are on one node, where one user takes their room: the charged pod if it is there,
# else the first one there. While no user has a node, the charged pod asks for the room. Every change costs the same
# however many pods use a claim: a tenant may create thousands.


_SHARED_KINDS: Final = frozenset({"claim", "entry"})
"""Kinds of keys that stand for devices; templates and groups are only read."""


@dataclass(slots=True)
class _Users:
    """The users of one claim in the order in which they came, and by node (None: without one)."""

    nodes: dict[Uid, NodeName | None] = field(default_factory=dict)
    on: dict[NodeName | None, dict[Uid, None]] = field(default_factory=dict)
    there: dict[NodeName, dict[Uid, None]] = field(default_factory=dict)  # not only expected there

    @property
    def charged_pod(self) -> Uid | None:
        return next(iter(self.nodes), None)

    @property
    def has_node(self) -> bool:
        return len(self.on) > (None in self.on)

    def next_node(self, uid: Uid) -> NodeName | None:
        """Return the node of the pod that is charged once a user has left."""
        return next((node for user, node in islice(self.nodes.items(), 2) if user != uid), None)

    def holder(self, node: NodeName | None) -> Uid | None:
        """Return the user that takes the room on a node; for None the one that asks for it, if none has a node."""
        if node is None and self.has_node:
            return None
        charged = self.charged_pod
        if charged is not None and self.nodes[charged] == node:
            return charged
        return next(iter(self.on.get(node, ())), None)

    def roles(self, nodes: Iterable[NodeName | None]) -> set[tuple[Uid | None, NodeName | None, bool]]:
        """Return the charged pod, and who takes or asks for room on these nodes and those of the first two users."""
        where = {*nodes, None, *(self.nodes[uid] for uid in islice(self.nodes, 2))}
        return {(self.charged_pod, None, True), *((self.holder(node), node, False) for node in where)}

    def set_there(self, uid: Uid, node: NodeName | None) -> None:
        """Note on which node a user is, not only expected; None for no node."""
        before = self.nodes.get(uid)
        if before is not None and before != node and uid in self.there.get(before, ()):
            del self.there[before][uid]
            if not self.there[before]:
                del self.there[before]
        if node is not None:
            self.there.setdefault(node, {})[uid] = None

    def set(self, uid: Uid, node: NodeName | None) -> None:
        if uid in self.nodes and self.nodes[uid] != node:
            self._leave_node(uid)
        self.nodes[uid] = node
        self.on.setdefault(node, {})[uid] = None

    def remove(self, uid: Uid) -> None:
        self.set_there(uid, None)
        self._leave_node(uid)
        del self.nodes[uid]

    def _leave_node(self, uid: Uid) -> None:
        node = self.nodes[uid]
        del self.on[node][uid]
        if not self.on[node]:
            del self.on[node]


class ClaimUsers:
    """The pods that use claims, and the keys of each."""

    def __init__(self) -> None:
        self._users: dict[ClaimKey, _Users] = {}
        self._keys: dict[Uid, tuple[ClaimKey, ...]] = {}

    def __contains__(self, key: ClaimKey) -> bool:
        return key in self._users

    @property
    def is_empty(self) -> bool:
        """Whether no pod uses a claim."""
        return not self._users

    def pods(self) -> tuple[Uid, ...]:
        """Return all pods, those without claims included."""
        return tuple(self._keys)

    def keys_of(self, uid: Uid) -> tuple[ClaimKey, ...]:
        """Return what a pod uses."""
        return self._keys.get(uid, ())

    def of(self, key: ClaimKey) -> tuple[Uid, ...]:
        """Return the users of a key, in the order in which they came."""
        users = self._users.get(key)
        return () if users is None else tuple(users.nodes)

    def on_nodes(self, key: ClaimKey) -> list[Uid]:
        """Return the users that are on a node, not only expected there."""
        users = self._users.get(key)
        return [] if users is None else [uid for there in users.there.values() for uid in there]

    def on_node(self, key: ClaimKey, node: NodeName) -> Iterable[Uid]:
        """Return the users that are on this node, not only expected there."""
        users = self._users.get(key)
        return () if users is None else users.there.get(node, ())

    def replace(self, uid: Uid, key: ClaimKey, new: ClaimKey) -> None:
        """Have a pod use another key in place of one that it uses."""
        node = self._users[key].nodes[uid]
        self.join(uid, tuple([new if each == key else each for each in self._keys[uid]]), node)

    def charged_pod(self, key: ClaimKey) -> Uid | None:
        """Return the pod charged for a claim, if there is one."""
        users = self._users.get(key)
        return None if users is None else users.charged_pod

    def takes_room(self, key: ClaimKey, uid: Uid) -> bool:
        """Whether a pod takes, or asks for, the room of a claim's devices; a new user does if no other has a node."""
        users = self._users.get(key)
        if users is None or uid not in users.nodes:
            return users is None or not users.has_node
        return users.holder(users.nodes[uid]) == uid

    def node(self, key: ClaimKey, uid: Uid) -> NodeName | None:
        """Return the node where others than this pod use a claim: of the charged pod, or the first; None without."""
        users = self._users.get(key)
        if users is None or users.charged_pod is None:
            return None
        if users.charged_pod != uid and (node := users.nodes[users.charged_pod]) is not None:
            return node
        used = (node for node, there in users.on.items() if any(other != uid for other in there))
        return next(filter(None, used), None)

    def join(
        self, uid: Uid, keys: tuple[ClaimKey, ...], node: NodeName | None, *, is_expected: bool = False
    ) -> set[Uid]:
        """Set what a pod uses, and its node; return the others that are charged, or take room, for something else now.

        `is_expected`: it is not on that node yet.
        """
        changed: set[Uid] = set()
        before, self._keys[uid] = self._keys.get(uid, ()), keys
        for key in keys:
            users = self._users.setdefault(key, _Users())
            users.set_there(uid, None if is_expected else node)
            if uid in users.nodes and users.nodes[uid] == node:
                continue
            where = (node, users.nodes.get(uid))
            roles = users.roles(where)
            users.set(uid, node)
            changed |= _changed(key, roles, users.roles(where))
        for key in before:
            if key not in keys:
                changed |= self._remove(uid, key)
        changed.discard(uid)
        return changed

    def leave(self, uid: Uid) -> set[Uid]:
        """Remove a pod; return the pods that are charged, or take room, for something else now."""
        changed: set[Uid] = set()
        for key in self._keys.pop(uid, ()):
            changed |= self._remove(uid, key)
        changed.discard(uid)
        return changed

    def _remove(self, uid: Uid, key: ClaimKey) -> set[Uid]:
        users = self._users[key]
        where = (users.nodes[uid], users.next_node(uid))
        roles = users.roles(where)
        users.remove(uid)
        if not users.nodes:
            del self._users[key]
            return set()
        return _changed(key, roles, users.roles(where))


_Roles = set[tuple[Uid | None, NodeName | None, bool]]


def _changed(key: ClaimKey, before: _Roles, after: _Roles) -> set[Uid]:
    """Return the pods whose role is another one."""
    if key.kind not in _SHARED_KINDS:
        return set()
    return {uid for uid, _, _ in before ^ after if uid is not None}


def group_key(namespace: Namespace, ref: ClaimRef) -> ClaimKey:
    """Return the key of the claim that the pods of a group share for an entry."""
    return ClaimKey("entry", namespace, f"{ref.group}/{ref.entry}/{ref.template}")


def named_claims(namespace: Namespace, refs: tuple[ClaimRef, ...]) -> Iterator[ClaimKey]:
    """Return the claims that a pod names itself: they exist independent of the pod."""
    return (ClaimKey("claim", namespace, ref.claim) for ref in refs if ref.claim and not ref.template)


def keys_of(namespace: Namespace, refs: tuple[ClaimRef, ...]) -> Iterator[ClaimKey]:
    """Return all objects that a pod's demand depends on."""
    for ref in refs:
        if ref.group:
            yield ClaimKey("group", namespace, ref.group)
            yield group_key(namespace, ref)
        if ref.claim:
            yield ClaimKey("claim", namespace, ref.claim)
        if ref.template:
            yield ClaimKey("template", namespace, ref.template)


# Device classes, and how many GPUs the devices that claims and containers request of them count.
#
# A request counts the worst case of Kubernetes: `All` is 32 devices, and of several alternatives the most expensive
# one. Devices that are no GPUs take room on their nodes, too, where every device of their class belongs to one node.
# Extended resources backed by a DeviceClass are counted by the containers that request them. The claim that
# kube-scheduler makes for those is named by no pod, so it counts for none.


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
