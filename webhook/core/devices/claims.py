"""ResourceClaims (DRA): which pod uses which claim, and what its pods are charged for.

What the devices count is in claim_users.py. A shared claim is charged to the first of its pods in the world, then to
the next, and takes its room once on a node (claim_users.py).
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from webhook.core.devices.claim_users import (
    ANY_ALTERNATIVE,
    AllocatedAt,
    ClaimKey,
    ClaimSpec,
    ClaimUsers,
    DeviceClasses,
    GroupEntry,
    group_key,
    keys_of,
    named_claims,
)
from webhook.core.devices.slices import Slice
from webhook.core.model.amounts import Namespace, NodeName, ResourceName, Uid, Units, exact_units
from webhook.core.model.demand import ClaimRef, Demand, in_shares, in_slices
from webhook.core.model.gpu_shares import DeviceClass
from webhook.core.model.policy import Policy

ADMIN_ACCESS: Final = "resource.kubernetes.io/admin-access"
"""Namespace label: its pods may monitor devices that other pods use; that takes no device away."""


class ResolvedDemand(NamedTuple):
    """A demand including its claims.

    `missing` objects are not in the world (yet). `unknown` names look like GPUs but policy does not mention them.
    Neither counts in `demand`. `alternatives` is how many there are of the devices that one of its requests may get,
    `shared` what claims that other pods may use as well count of it.
    """

    demand: Demand
    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    alternatives: int = 1
    shared: tuple[tuple[ClaimKey, Units], ...] = ()


class Instead(NamedTuple):
    """Roles that a pod would have in claims: those it would not use, whose room it would take, that it would pay.

    `alternative` is the one of `firstAvailable` that it would get, by its number.
    """

    without: Collection[ClaimKey] = ()
    taking: Collection[ClaimKey] = ()
    charged: Collection[ClaimKey] = ()
    alternative: int = ANY_ALTERNATIVE


AS_IS: Final = Instead()


_Spec = TypeVar("_Spec", ClaimSpec, frozenset[GroupEntry])
_Value = TypeVar("_Value", Uid, AllocatedAt)


def _never(_charged: Uid, _claim: Uid) -> bool:
    return False


class Claims:
    """The claims, templates and classes of the cluster, and the pods that use them."""

    def __init__(self) -> None:
        self._specs: dict[ClaimKey, ClaimSpec] = {}
        self._uids: dict[ClaimKey, Uid] = {}
        self.users = ClaimUsers()
        self.classes = DeviceClasses()
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
        return self.users.pods() if self.classes.set(name, device_class) else ()

    def set_slice(self, name: str, found: Slice | None) -> Iterable[Uid]:
        """Set or remove (None) the sizes of a slice's devices; return the pods whose demand may have changed."""
        pool, sized = ("", ()) if found is None else (found.pool, found.sized)
        return self.users.pods() if self.classes.sizes.set(name, pool, sized) else ()

    def __contains__(self, key: ClaimKey) -> bool:
        """Whether a claim or template is known."""
        return key in self._specs

    def has_gpus(self, key: ClaimKey, policy: Policy) -> bool:
        """Whether a claim is for GPUs, as far as that is known."""
        spec = self._specs.get(key)
        return spec is None or any(each.is_gpu for each in self.classes.of_claim(spec, policy, [], [], is_admin=False))

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
        alternatives = 1
        class_demands = list(self.classes.of_containers(own, policy, unknown))
        units: Units = sum(each.units for each in class_demands)
        shared: dict[ClaimKey, Units] = {}
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
            alternatives = max(alternatives, *(len(request.alternatives) for request in spec), 1)
            of_claim = self.classes.of_claim(
                spec, policy, missing, unknown, is_admin=is_admin, alternative=instead.alternative
            )
            if key is not None and key not in instead.taking and not self.users.takes_room(key, uid):
                of_claim = [each._replace(takes_room=False) for each in of_claim]
            class_demands += of_claim
            is_charged = key is None or key in instead.charged or self.users.charged_pod(key) in (None, uid)
            worth = sum(each.units for each in of_claim) if is_charged else 0
            units += worth
            if key is not None and worth:
                shared[key] = exact_units(worth)
        if not class_demands:
            return ResolvedDemand(counted, tuple(missing), tuple(unknown))
        requests, devices = dict(own.requests), dict(own.devices)
        for each in class_demands:
            if each.is_certain:
                self.classes.add(each, requests, devices, policy.resources)
        full = replace(
            own,
            gpus=exact_units(counted.gpus + units),
            devices=tuple(sorted(devices.items())),
            requests=tuple(sorted(requests.items())),
            own=own,
            claims=tuple(sorted(self._admitted_with(uid, namespace, refs, may_inherit))),
        )
        return ResolvedDemand(full, tuple(missing), tuple(unknown), alternatives, tuple(shared.items()))

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

    def _drop_unused(self, keys: Iterable[ClaimKey]) -> None:
        for key in keys:
            self._drop_if_unused(key)

    def _drop_if_unused(self, key: ClaimKey) -> None:
        if key in self._deleted and key not in self.users:
            self._deleted.discard(key)
            self._specs.pop(key, None)
            self._groups.pop(key, None)

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
