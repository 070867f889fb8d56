"""Devices that pods get by ResourceClaims (DRA): who uses which claim, and what the devices count.

Kubernetes' own worst case is counted until a claim is allocated: `All` as 32 devices, of alternatives the dearest. A
claim that pods share is paid by the first of them that the world knows, then by the next. Resources that a DeviceClass
hands out under a name of their own are counted here too.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from webhook.core.model.amount import ONE_GPU, Units, exact_units
from webhook.core.model.claim_ref import ClaimRef
from webhook.core.model.demand import Demand, Weights, in_shares, in_slices
from webhook.core.model.device_class import DeviceClass, age_order
from webhook.core.model.gpu_names import looks_like_gpu
from webhook.core.model.names import DEVICE_CLASS, Namespace, ResourceName, Uid
from webhook.core.model.policy import Policy

ALL_DEVICES: Final = 32
"""The most that one claim can hold (AllocationResultsMaxSize), and what `All` counts until it is allocated."""

ADMIN_ACCESS: Final = "resource.kubernetes.io/admin-access"
"""Namespace label: its pods may look at devices that others use; that takes nothing away."""


_BY_CLAIM: Final = ResourceName("")


class ClassCount(NamedTuple):
    """So many devices of one DeviceClass. `driver`: whose they are, "" where the claim leaves that open."""

    device_class: str
    number: int
    driver: str = ""


class DeviceRequest(NamedTuple):
    """One request of a claim: the first of its alternatives that can be had."""

    alternatives: tuple[ClassCount, ...]
    is_admin: bool = False


class GroupEntry(NamedTuple):
    """A claim that the pods of a PodGroup share: those whose entry has this name and template."""

    name: str
    template: str


ClaimSpec = tuple[DeviceRequest, ...]
"""What a claim, or a template of claims, asks for; for an allocated claim what it got."""


class ClaimKey(NamedTuple):
    """A claim, template or group, among all of the cluster."""

    kind: str
    namespace: Namespace
    name: str


class Found(NamedTuple):
    """A demand with its claims. `missing` objects are not known (yet); `unknown` names look like GPUs to nobody's word.

    Where something is missing or unknown it counts nothing in `demand`.
    """

    demand: Demand
    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class Worth(NamedTuple):
    """What the devices of a claim count, in GPU units; `missing` and `unknown` as in `Found`."""

    gpus: Units
    missing: tuple[str, ...]
    unknown: tuple[str, ...]


class _Take(NamedTuple):
    """Devices of a class: how many, and what they count beside what the containers' own names count already.

    `asked` is the resource of the containers that asks for them, "" where a claim does.
    """

    device_class: DeviceClass
    number: int
    units: Units
    is_certain: bool
    asked: ResourceName = _BY_CLAIM


_Known = TypeVar("_Known", ClaimSpec, frozenset[GroupEntry])


class Claims:
    """Claims, templates and classes as the cluster has them, and the pods that use them."""

    def __init__(self) -> None:
        self._specs: dict[ClaimKey, ClaimSpec] = {}
        self._uids: dict[ClaimKey, Uid] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._by_resource: dict[ResourceName, DeviceClass] = {}
        self._users: dict[ClaimKey, dict[Uid, None]] = {}
        self._pods: dict[Uid, tuple[ClaimKey, ...]] = {}
        self._groups: dict[ClaimKey, frozenset[GroupEntry]] = {}
        self._gone: set[ClaimKey] = set()  # deleted, still in use

    def set(self, key: ClaimKey, spec: ClaimSpec | None, uid: Uid | None = None) -> Iterable[Uid]:
        """Take in a claim or a template (None: it is gone); gives the pods whose demand may be another now.

        Pods keep the devices of a claim whose template was deleted: what is gone holds until its last pod is. `uid`
        tells a claim from an earlier one of the same name.
        """
        if uid is None:
            self._uids.pop(key, None)
        else:
            self._uids[key] = uid
        return self._set(self._specs, key, spec)

    def set_group(self, key: ClaimKey, entries: frozenset[GroupEntry] | None) -> Iterable[Uid]:
        """Take in what the pods of a PodGroup share (None: it is gone), as `set` does."""
        return self._set(self._groups, key, entries)

    def _set(self, known: dict[ClaimKey, _Known], key: ClaimKey, now: _Known | None) -> Iterable[Uid]:
        self._gone.discard(key)
        if now is None:
            self._gone.add(key)
            self._bury(key)
        elif known.get(key) != now:
            known[key] = now
            return tuple(self._users.get(key, ()))
        return ()

    def set_class(self, name: str, device_class: DeviceClass | None) -> Iterable[Uid]:
        """Take in a class (None: it is gone); gives the pods whose demand may be another now."""
        if self._classes.get(name) == device_class:
            return ()
        if device_class is None:
            del self._classes[name]
        else:
            self._classes[name] = device_class
        # of two classes with one resource the newer holds, as for kube-scheduler
        ordered = sorted(self._classes.values(), key=age_order)
        self._by_resource = {known.extended_resource: known for known in ordered if known.extended_resource}
        return tuple(self._pods)

    def knows(self, name: ResourceName) -> bool:
        """Tell whether a class hands out this resource, or may."""
        return name in self._by_resource or name.startswith(DEVICE_CLASS)

    def uid_of(self, key: ClaimKey) -> Uid | None:
        """Tell which claim has this name now; None where none is there."""
        return self._uids.get(key)

    def payer_of(self, key: ClaimKey) -> tuple[Uid, ...]:
        """Tell the pod that pays for a claim, if there is one."""
        return tuple(islice(self._users.get(key, ()), 1))

    def worth(self, spec: ClaimSpec, policy: Policy, *, is_admin: bool) -> Worth:
        """Count the devices of a claim, whoever pays for them."""
        missing: list[str] = []
        unknown: list[str] = []
        units = sum(take.units for take in self._takes(spec, policy, missing, unknown, is_admin=is_admin))
        return Worth(exact_units(units), tuple(missing), tuple(unknown))

    def join(self, uid: Uid, namespace: Namespace, refs: tuple[ClaimRef, ...]) -> Iterable[Uid]:
        """Let a pod use its claims, and no others any more; gives the pods that pay for those from now on.

        A pod without any joins too: it may ask for what a class hands out.
        """
        before, keys = self._pods.get(uid, ()), tuple(dict.fromkeys(_keys(namespace, refs)))
        self._pods[uid] = keys
        for key in keys:
            self._users.setdefault(key, {})[uid] = None
        return self._part(uid, [key for key in before if key not in keys])

    def leave(self, uid: Uid) -> Iterable[Uid]:
        """Let a pod go; gives the pods that pay for its shared claims from now on."""
        return self._part(uid, self._pods.pop(uid, ()))

    def find(
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
    ) -> Found:
        """Add what a pod's claims count to what its containers ask for, in shares where its scheduler keeps to them."""
        own = demand.own or demand
        counted = in_shares(own, policy.resources) if shares_by in policy.defaults.share_schedulers else own
        counted = in_slices(counted, slices, policy.resources)
        missing: list[str] = []
        unknown: list[str] = []
        takes = list(self._extended(own, policy, unknown))
        units: Units = sum(take.units for take in takes)
        # entries that name the same claim are one claim
        for ref in {(ref.claim, "" if ref.claim else ref.entry): ref for ref in refs}.values():
            spec = self._spec(namespace, ref)
            if spec is None:
                kind, name = ("ResourceClaim", ref.claim) if ref.claim else ("ResourceClaimTemplate", ref.template)
                missing.append(f"{kind} {namespace}/{name}")
                continue
            of_ref = self._takes(spec, policy, missing, unknown, is_admin=is_admin)
            takes += of_ref
            units += sum(take.units for take in of_ref) if self._pays(uid, namespace, ref) else 0
        if not takes:
            return Found(counted, tuple(missing), tuple(unknown))
        requests, devices = dict(own.requests), dict(own.devices)
        for take in takes:
            if take.is_certain:
                self._seat(take, requests, devices, policy.resources)
        full = replace(
            own,
            gpus=exact_units(counted.gpus + units),
            devices=tuple(sorted(devices.items())),
            requests=tuple(sorted(requests.items())),
            own=own,
            claims=tuple(sorted(filter(None, (self._uids.get(key) for key in _named(namespace, refs))))),
        )
        return Found(full, tuple(missing), tuple(unknown))

    def _seat(
        self,
        take: _Take,
        requests: dict[ResourceName, int],
        devices: dict[ResourceName, int],
        weights: Weights,
    ) -> None:
        """Let devices of a class draw on the one room that all of the class's names share.

        The class's own name is asked for, too: nodes that have the devices by a device plugin do not have it.
        """
        room = self._room_of(take.device_class, weights)
        for name in {room, take.device_class.implicit_resource} - {take.asked}:
            requests[name] = requests.get(name, 0) + take.number
        if take.asked in devices:
            devices[take.asked] -= take.number
            if not devices[take.asked]:
                del devices[take.asked]
        devices[room] = devices.get(room, 0) + take.number

    def _room_of(self, device_class: DeviceClass, weights: Weights) -> ResourceName:
        """Name the room of a class as nodes offer it: by its resource, if policy weighs that and no newer has it."""
        mapped = device_class.extended_resource
        is_known = mapped is not None and mapped in weights and self._by_resource.get(mapped) == device_class
        return mapped if mapped is not None and is_known else device_class.implicit_resource

    def _part(self, uid: Uid, keys: Iterable[ClaimKey]) -> Iterable[Uid]:
        heirs: dict[Uid, None] = {}
        for key in keys:
            users = self._users[key]
            paid = next(iter(users)) == uid
            del users[uid]
            if not users:
                del self._users[key]
                self._bury(key)
            elif paid:
                heirs[next(iter(users))] = None
        return heirs

    def _bury(self, key: ClaimKey) -> None:
        if key in self._gone and key not in self._users:
            self._gone.discard(key)
            self._specs.pop(key, None)
            self._groups.pop(key, None)

    def _extended(self, own: Demand, policy: Policy, unknown: list[str]) -> Iterator[_Take]:
        """Weigh extended resources that policy does not name but a DeviceClass does.

        What policy names it weighs already: of those it is only told whose devices they are.
        """
        weights = policy.resources
        for name in own.strange:
            if name in policy.ignored_resources:
                continue
            if name in weights:
                if (known := self._classes.get(name.removeprefix(DEVICE_CLASS))) is not None:
                    yield _Take(known, dict(own.requests)[name], 0, is_certain=True, asked=name)
                continue
            implicit = self._classes.get(name.removeprefix(DEVICE_CLASS)) if name.startswith(DEVICE_CLASS) else None
            device_class = implicit or self._by_resource.get(name)
            weight = None if device_class is None else _weight(device_class, weights)
            number = dict(own.requests)[name]
            if weight is None and device_class is not None and device_class.may_be_gpu(""):
                yield _Take(device_class, number, number * ONE_GPU, is_certain=False)
            elif weight is not None and device_class is not None:
                yield _Take(device_class, number, number * weight, is_certain=True, asked=name)
            elif looks_like_gpu(name) or (device_class is not None and device_class.mentions_gpus):
                unknown.append(name)

    def _takes(
        self, spec: ClaimSpec, policy: Policy, missing: list[str], unknown: list[str], *, is_admin: bool
    ) -> list[_Take]:
        wanted = [request for request in spec if not (request.is_admin and is_admin)]
        return [take for request in wanted if (take := self._dearest(request, policy, missing, unknown))]

    def _dearest(self, request: DeviceRequest, policy: Policy, missing: list[str], unknown: list[str]) -> _Take | None:
        """Count a request by the alternative that counts most."""
        weights, ignored = policy.resources, policy.ignored_resources
        dearest: _Take | None = None
        for name, number, driver in request.alternatives:
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
            # room is judged where it is certain which devices are meant, and how many
            is_certain = device_class is not None and len(request.alternatives) == 1 and number < ALL_DEVICES
            is_certain = is_certain and not is_guess
            take = _Take(known, number, number * weight, is_certain)
            if dearest is None or take.units > dearest.units:
                dearest = take
        return dearest

    def _spec(self, namespace: Namespace, ref: ClaimRef) -> ClaimSpec | None:
        found = self._specs.get(ClaimKey("claim", namespace, ref.claim)) if ref.claim else None
        return self._specs.get(ClaimKey("template", namespace, ref.template)) if found is None else found

    def _pays(self, uid: Uid, namespace: Namespace, ref: ClaimRef) -> bool:
        users: Iterable[Uid] = ()
        if ref.claim:
            users = self._users.get(ClaimKey("claim", namespace, ref.claim), ())
        if ref.group and (ref.entry, ref.template) in self._groups.get(ClaimKey("group", namespace, ref.group), ()):
            users = self._users.get(_of_group(namespace, ref), ())
        return next(iter(users), uid) == uid


def _of_group(namespace: Namespace, ref: ClaimRef) -> ClaimKey:
    return ClaimKey("entry", namespace, f"{ref.group}/{ref.entry}/{ref.template}")


def _named(namespace: Namespace, refs: tuple[ClaimRef, ...]) -> Iterator[ClaimKey]:
    """List the claims that a pod names itself: those that were there before it."""
    return (ClaimKey("claim", namespace, ref.claim) for ref in refs if ref.claim and not ref.template)


def _keys(namespace: Namespace, refs: tuple[ClaimRef, ...]) -> Iterator[ClaimKey]:
    """List all that a pod's demand depends on."""
    for ref in refs:
        if ref.group:
            yield ClaimKey("group", namespace, ref.group)
            yield _of_group(namespace, ref)
        if ref.claim:
            yield ClaimKey("claim", namespace, ref.claim)
        if ref.template:
            yield ClaimKey("template", namespace, ref.template)


def _weight(device_class: DeviceClass, weights: Weights) -> Units | None:
    own = weights.get(device_class.implicit_resource)
    if own is not None or device_class.extended_resource is None:
        return own
    return weights.get(device_class.extended_resource)
