"""ResourceClaims (DRA): which pod uses which claim, and how many GPUs the devices count.

Until a claim is allocated it counts the worst case of Kubernetes: `All` is 32 devices, and of several alternatives the
most expensive one. A shared claim is charged to the first of its pods in the world, then to the next, and takes its
room once on a node (claim_users.py). Extended resources backed by a DeviceClass are counted here too: by the containers
that request them. The claim that kube-scheduler makes for those is named by no pod, so it counts for none.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from webhook.core.dra.claim_spec import ALL_DEVICES, AllocatedAt, ClaimKey, ClaimSpec, DeviceRequest, GroupEntry
from webhook.core.dra.claim_users import ClaimUsers, group_key, keys_of, named_claims
from webhook.core.dra.device_parts import DeviceSizes
from webhook.core.dra.dra_slices import Slice
from webhook.core.model.amount import ONE_GPU, Units, exact_units
from webhook.core.model.claim_ref import ClaimRef
from webhook.core.model.demand import Demand, Weights, in_shares, in_slices
from webhook.core.model.device_class import DeviceClass, age_order
from webhook.core.model.gpu_names import looks_like_gpu
from webhook.core.model.names import DEVICE_CLASS, Namespace, NodeName, ResourceName, Uid
from webhook.core.model.policy import Policy

ADMIN_ACCESS: Final = "resource.kubernetes.io/admin-access"
"""Namespace label: its pods may monitor devices that other pods use; that takes no device away."""


_BY_CLAIM: Final = ResourceName("")


class ResolvedDemand(NamedTuple):
    """A demand including its claims.

    `missing` objects are not in the world (yet). `unknown` names look like GPUs but policy does not mention them.
    Neither counts in `demand`.
    """

    demand: Demand
    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class Instead(NamedTuple):
    """Roles that a pod would have in claims: those it would not use, whose room it would take, that it would pay."""

    without: Collection[ClaimKey] = ()
    taking: Collection[ClaimKey] = ()
    charged: Collection[ClaimKey] = ()


AS_IS: Final = Instead()


class ClaimValue(NamedTuple):
    """GPU units of the devices of a claim; `missing` and `unknown` as in the resolved demand."""

    gpus: Units
    missing: tuple[str, ...]
    unknown: tuple[str, ...]


class _ClassDemand(NamedTuple):
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


_Spec = TypeVar("_Spec", ClaimSpec, frozenset[GroupEntry])
_Value = TypeVar("_Value", Uid, AllocatedAt)


def _never(_charged: Uid, _claim: Uid) -> bool:
    return False


class Claims:
    """The claims, templates and classes of the cluster, and the pods that use them."""

    def __init__(self) -> None:
        self._specs: dict[ClaimKey, ClaimSpec] = {}
        self._uids: dict[ClaimKey, Uid] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._by_resource: dict[ResourceName, DeviceClass] = {}
        self.users = ClaimUsers()
        self.sizes = DeviceSizes()
        self._allocated: dict[ClaimKey, AllocatedAt] = {}
        self._lost: dict[Uid, dict[ClaimKey, ClaimKey]] = {}  # claims that were removed while pods had their devices
        self._groups: dict[ClaimKey, frozenset[GroupEntry]] = {}
        self._deleted: set[ClaimKey] = set()  # deleted, still in use

    def set(
        self, key: ClaimKey, spec: ClaimSpec | None, uid: Uid | None = None, *, allocated: AllocatedAt | None = None
    ) -> Iterable[Uid]:
        """Set or remove (None) a claim or a template; return the pods whose demand may have changed.

        Pods keep the devices of a claim whose template was deleted: a deleted object counts until its last pod is gone.
        `uid` distinguishes a claim from an earlier one of the same name.
        """
        moved = self._keep_devices(key) if spec is None and key in self._allocated else ()
        _put(self._uids, key, uid)
        _put(self._allocated, key, allocated)
        return (*moved, *self._set(self._specs, key, spec))

    def _keep_devices(self, key: ClaimKey) -> tuple[Uid, ...]:
        """Count a removed claim for the pods that have its devices, whatever claim gets its name; return these.

        kube-scheduler's finalizer keeps a claim in use, and users who may write claims can remove that.
        """
        users = self.users.on_nodes(key)
        lost = key._replace(name=f"{key.name} {self._uids.get(key, '')}")  # no object has a name with a space
        if users:
            self._specs[lost] = self._specs[key]
            self._deleted.add(lost)
        for uid in users:
            self._lost.setdefault(uid, {})[key] = lost
            self.users.replace(uid, key, lost)
        return (*users, *self.users.of(key))

    def set_group(self, key: ClaimKey, entries: frozenset[GroupEntry] | None) -> Iterable[Uid]:
        """Set or remove (None) the claims shared by the pods of a PodGroup, as `set` does."""
        return self._set(self._groups, key, entries)

    def _set(self, known: dict[ClaimKey, _Spec], key: ClaimKey, now: _Spec | None) -> Iterable[Uid]:
        self._deleted.discard(key)
        if now is None:
            self._deleted.add(key)
            self._drop_if_unused(key)
        elif known.get(key) != now:
            known[key] = now
            return self.users.of(key)
        return ()

    def set_class(self, name: str, device_class: DeviceClass | None) -> Iterable[Uid]:
        """Set or remove (None) a class; return the pods whose demand may have changed."""
        if self._classes.get(name) == device_class:
            return ()
        if device_class is None:
            del self._classes[name]
        else:
            self._classes[name] = device_class
        # of two classes with the same resource the newer wins, as in kube-scheduler
        ordered = sorted(self._classes.values(), key=age_order)
        self._by_resource = {known.extended_resource: known for known in ordered if known.extended_resource}
        return self.users.pods()

    def set_slice(self, name: str, found: Slice | None) -> Iterable[Uid]:
        """Set or remove (None) the sizes of a slice's devices; return the pods whose demand may have changed."""
        pool, sized = ("", ()) if found is None else (found.pool, found.sized)
        return self.users.pods() if self.sizes.set(name, pool, sized) else ()

    def __contains__(self, key: ClaimKey) -> bool:
        """Whether a claim or template is known."""
        return key in self._specs

    def knows(self, name: ResourceName) -> bool:
        """Whether a class provides this resource, or may provide it."""
        return name in self._by_resource or name.startswith(DEVICE_CLASS)

    def uid_of(self, key: ClaimKey) -> Uid | None:
        """Return the UID of the claim with this key; None where there is none."""
        return self._uids.get(key)

    def shared_by(self, uid: Uid, namespace: Namespace, refs: tuple[ClaimRef, ...]) -> Iterator[ClaimKey]:
        """Yield the keys of claims that a pod uses and that others may use as well."""
        return filter(None, (self._shared_key(uid, namespace, ref) for ref in refs))

    def node_of(self, key: ClaimKey, uid: Uid) -> NodeName | None:
        """Return the node that a pod must be on to use a claim: where it is allocated, or other users are expected."""
        allocated = self._allocated.get(key)
        return (None if allocated is None else allocated.node) or self.users.node(key, uid)

    def worth(self, spec: ClaimSpec, policy: Policy, *, is_admin: bool) -> ClaimValue:
        """Count the devices of a claim, independent of the pod charged for it."""
        missing: list[str] = []
        unknown: list[str] = []
        units = sum(each.units for each in self._class_demands(spec, policy, missing, unknown, is_admin=is_admin))
        return ClaimValue(exact_units(units), tuple(missing), tuple(unknown))

    def join(
        self, uid: Uid, namespace: Namespace, refs: tuple[ClaimRef, ...], *, node: NodeName | None, is_expected: bool
    ) -> Iterable[Uid]:
        """Set the claims that a pod uses, and its node; return the other pods whose charge or room changed by that.

        A pod without claims joins too: it may request an extended resource of a class.
        """
        before, lost = self.users.keys_of(uid), self._lost.get(uid, {})
        keys = dict.fromkeys(lost.get(key, key) for key in keys_of(namespace, refs))
        changed = self.users.join(uid, tuple(keys), node, is_expected=is_expected)
        self._drop_unused(before)
        return changed

    def leave(self, uid: Uid) -> Iterable[Uid]:
        """Remove a pod; return the pods whose charge or room changed by that."""
        before = self.users.keys_of(uid)
        changed = self.users.leave(uid)
        self._lost.pop(uid, None)
        self._drop_unused(before)
        return changed

    def resolve(
        self,
        demand: Demand,
        refs: tuple[ClaimRef, ...],
        *,
        namespace: Namespace,
        uid: Uid,
        is_admin: bool,
        shares_by: str,
        slices: tuple[ResourceName, ...],
        policy: Policy,
        may_inherit: Callable[[Uid, Uid], bool] = _never,
        instead: Instead = AS_IS,
    ) -> ResolvedDemand:
        """Add a pod's claims to what its containers request, by shares where its scheduler enforces them.

        `may_inherit` says whether a pod that is charged for a claim was admitted with the claim of this UID.
        """
        own = demand.own or demand
        counted = in_shares(own, policy.resources) if shares_by in policy.defaults.share_schedulers else own
        counted = in_slices(counted, slices, policy.resources)
        missing: list[str] = []
        unknown: list[str] = []
        class_demands = list(self._extended_resources(own, policy, unknown))
        units: Units = sum(each.units for each in class_demands)
        # several entries may name the same claim
        for ref in {(ref.claim, "" if ref.claim else ref.entry): ref for ref in refs}.values():
            spec = self._spec(uid, namespace, ref)
            if spec is None:
                kind, name = ("ResourceClaim", ref.claim) if ref.claim else ("ResourceClaimTemplate", ref.template)
                missing.append(f"{kind} {namespace}/{name}")
                continue
            key = self._shared_key(uid, namespace, ref)
            if key in instead.without:
                continue
            of_claim = self._class_demands(spec, policy, missing, unknown, is_admin=is_admin)
            if key is not None and key not in instead.taking and not self.users.takes_room(key, uid):
                of_claim = [each._replace(takes_room=False) for each in of_claim]
            class_demands += of_claim
            is_charged = key is None or key in instead.charged or self.users.charged_pod(key) in (None, uid)
            units += sum(each.units for each in of_claim) if is_charged else 0
        if not class_demands:
            return ResolvedDemand(counted, tuple(missing), tuple(unknown))
        requests, devices = dict(own.requests), dict(own.devices)
        for each in class_demands:
            if each.is_certain:
                self._add_devices(each, requests, devices, policy.resources)
        full = replace(
            own,
            gpus=exact_units(counted.gpus + units),
            devices=tuple(sorted(devices.items())),
            requests=tuple(sorted(requests.items())),
            own=own,
            claims=tuple(sorted(self._admitted_with(uid, namespace, refs, may_inherit))),
        )
        return ResolvedDemand(full, tuple(missing), tuple(unknown))

    def _admitted_with(
        self, uid: Uid, namespace: Namespace, refs: tuple[ClaimRef, ...], may_inherit: Callable[[Uid, Uid], bool]
    ) -> Iterator[Uid]:
        """Yield the named claims that the pod is charged for, or that another pod was admitted with.

        A claim that was made again after its charged pod was admitted was never compared with a limit.
        """
        for key in named_claims(namespace, refs):
            charged, claim = self.users.charged_pod(key), self._uids.get(key)
            if claim is not None and (charged in (None, uid) or (charged is not None and may_inherit(charged, claim))):
                yield claim

    def _add_devices(
        self,
        each: _ClassDemand,
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

    def _drop_unused(self, keys: Iterable[ClaimKey]) -> None:
        for key in keys:
            self._drop_if_unused(key)

    def _drop_if_unused(self, key: ClaimKey) -> None:
        if key in self._deleted and key not in self.users:
            self._deleted.discard(key)
            self._specs.pop(key, None)
            self._groups.pop(key, None)

    def _extended_resources(self, own: Demand, policy: Policy, unknown: list[str]) -> Iterator[_ClassDemand]:
        """Weigh extended resources that policy does not name but a DeviceClass does.

        Those that policy names are weighed already: for them only the class is returned.
        """
        weights = policy.resources
        for name in own.strange:
            if name in policy.ignored_resources:
                continue
            if name in weights:
                if (known := self._classes.get(name.removeprefix(DEVICE_CLASS))) is not None:
                    yield _ClassDemand(known, dict(own.requests)[name], 0, is_certain=True, requested_as=name)
                continue
            implicit = self._classes.get(name.removeprefix(DEVICE_CLASS)) if name.startswith(DEVICE_CLASS) else None
            device_class = implicit or self._by_resource.get(name)
            weight = None if device_class is None else _weight(device_class, weights)
            number = dict(own.requests)[name]
            if weight is None and device_class is not None and device_class.may_be_gpu(""):
                yield _ClassDemand(device_class, number, number * ONE_GPU, is_certain=False)
            elif weight is not None and device_class is not None:
                yield _ClassDemand(device_class, number, number * weight, is_certain=True, requested_as=name)
            elif looks_like_gpu(name) or (device_class is not None and device_class.mentions_gpus):
                unknown.append(name)

    def _class_demands(
        self, spec: ClaimSpec, policy: Policy, missing: list[str], unknown: list[str], *, is_admin: bool
    ) -> list[_ClassDemand]:
        wanted = [request for request in spec if not (request.is_admin and is_admin)]
        return [each for request in wanted if (each := self._most_expensive(request, policy, missing, unknown))]

    def _most_expensive(
        self, request: DeviceRequest, policy: Policy, missing: list[str], unknown: list[str]
    ) -> _ClassDemand | None:
        """Count a request by its most expensive alternative."""
        weights, ignored = policy.resources, policy.ignored_resources
        most_expensive: _ClassDemand | None = None
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
            each = _ClassDemand(known, number, units, is_certain)
            if most_expensive is None or each.units > most_expensive.units:
                most_expensive = each
        return most_expensive

    def _spec(self, uid: Uid, namespace: Namespace, ref: ClaimRef) -> ClaimSpec | None:
        found = self._specs.get(self._claim_key(uid, namespace, ref)) if ref.claim else None
        return self._specs.get(ClaimKey("template", namespace, ref.template)) if found is None else found

    def _claim_key(self, uid: Uid, namespace: Namespace, ref: ClaimRef) -> ClaimKey:
        """Return the key of the claim that a pod has by this name."""
        key = ClaimKey("claim", namespace, ref.claim)
        return self._lost.get(uid, {}).get(key, key)

    def _shared_key(self, uid: Uid, namespace: Namespace, ref: ClaimRef) -> ClaimKey | None:
        """Return the key under which pods use the same claim; None where the claim is the pod's own as far as known."""
        if ref.group and (ref.entry, ref.template) in self._groups.get(ClaimKey("group", namespace, ref.group), ()):
            return group_key(namespace, ref)
        return self._claim_key(uid, namespace, ref) if ref.claim else None


def _put(known: "dict[ClaimKey, _Value]", key: ClaimKey, value: "_Value | None") -> None:
    if value is None:
        known.pop(key, None)
    else:
        known[key] = value


def _weight(device_class: DeviceClass, weights: Weights) -> Units | None:
    own = weights.get(device_class.implicit_resource)
    if own is not None or device_class.extended_resource is None:
        return own
    return weights.get(device_class.extended_resource)
