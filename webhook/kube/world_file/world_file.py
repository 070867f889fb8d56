"""World files: from the output of `kubectl get nodes,pods -A -o yaml` (or `-o json`) to core objects.

Reads YAML (several documents too) or JSON; each document is a v1 List or a single object.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from webhook.core.devices.claim_users import AllocatedAt, ClaimKey, ClaimSpec
from webhook.core.devices.slices import ClassCondition, Slice, TaintRule
from webhook.core.model.demand import Weights
from webhook.core.model.gpu_shares import DeviceClass
from webhook.core.model.node import Node
from webhook.core.model.pod import NamespaceFacts, PriorityTriple, Resident
from webhook.core.placement.rejecting_nodes import Rejection, Start
from webhook.core.reclaim.reclaim_pods import Disruption
from webhook.core.world.listed_charges import assume_charges
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World
from webhook.files import InputError
from webhook.kube.ledger.team_ledger import TeamLedger
from webhook.kube.nodes import holds
from webhook.kube.nodes import nodes as autoscalers
from webhook.kube.nodes.nodes import to_namespace, to_node, to_priority
from webhook.kube.objects import keys, objects
from webhook.kube.pod import devices, slices
from webhook.kube.pod.existing import EndedPod, to_ended, to_resident
from webhook.kube.pod.gangs import gang_of_pod_group
from webhook.kube.pod.outcomes import to_rejection, to_start
from webhook.kube.pod.waiting import to_waiting
from webhook.kube.workloads import unknown_kinds
from webhook.yaml_text import DocumentError, read_documents

MAX_PROBLEMS: Final = 20
"""Maximum number of problems that are reported for a file."""


class WorldFileError(InputError):
    """The file is not a world file: each of `problems` has file, path, what is wrong and what was expected."""


class KnownClaim(NamedTuple):
    """A claim or a template."""

    key: ClaimKey
    spec: ClaimSpec
    allocated: AllocatedAt | None = None


class KnownClass(NamedTuple):
    """A DeviceClass, and what its selectors say of the devices."""

    device_class: DeviceClass
    conditions: tuple[ClassCondition, ...]


@dataclass(slots=True)
class WorldFile:
    """The content of a file, without pods that use nothing (ended, or without GPUs and without a node).

    `waiting` are the pods that wait in line, `ended` those that asked for GPUs. `outcomes` are what kubelets did with
    pods, ended ones included. `autoscaling` says which autoscalers of nodes the cluster has, `scalings` what scales
    workloads, by namespace and name. `budgets` are those of pods, which reclaim reads. `ledgers` list the charges that
    no pod shows yet.
    """

    nodes: list[Node] = field(default_factory=list)
    pods: list[Resident] = field(default_factory=list)
    namespaces: list[NamespaceFacts] = field(default_factory=list)
    priority_classes: list[PriorityTriple] = field(default_factory=list)
    device_classes: list[KnownClass] = field(default_factory=list)
    claims: list[KnownClaim] = field(default_factory=list)
    slices: list[tuple[str, Slice]] = field(default_factory=list)
    waiting: list[WaitingPod] = field(default_factory=list)
    outcomes: list[Rejection | Start] = field(default_factory=list)
    autoscaling: list[autoscalers.Definition | autoscalers.Status] = field(default_factory=list)
    ended: list[EndedPod] = field(default_factory=list)
    scalings: list[tuple[str, unknown_kinds.Scaling]] = field(default_factory=list)
    bound_volumes: list[autoscalers.BoundVolume] = field(default_factory=list)
    taint_rules: list[tuple[str, TaintRule]] = field(default_factory=list)
    groups: list[devices.PodGroup] = field(default_factory=list)
    budgets: list[Disruption] = field(default_factory=list)
    ledgers: list[TeamLedger] = field(default_factory=list)

    @property
    def taken_at(self) -> int:
        """Return the latest time in the file, in Unix seconds."""
        return max((*(pod.created for pod in self.pods), *(each.at for each in self.outcomes)), default=0)

    def fill(self, world: World) -> None:
        """Add everything to a world: namespaces first, since pods are charged to the team of their namespace."""
        world.autoscalers |= autoscalers.found_in(self.autoscaling)
        for namespace in self.namespaces:
            world.set_namespace(namespace)
        for priority_class in self.priority_classes:
            world.set_priority_class(priority_class)
        self._fill_devices(world)
        for node in self.nodes:
            world.set_node(node)
        for handle, scaling in self.scalings:
            world.minimums.set_scaler(handle, *scaling)
        for pod in self.pods:
            world.set_pod(pod)
        for waiting in self.waiting:
            world.set_waiting(waiting)
        listed = [flight for each in self.ledgers for flight in each.record.flights.values()]
        assume_charges(world, listed if self.ledgers else None)
        for volume in self.bound_volumes:
            world.fleet.labels.set_volume(volume.name, volume.claim, volume.terms)
        for outcome in self.outcomes:
            world.rejecting_nodes.note(outcome)
        world.rejecting_nodes.tick(self.taken_at)
        world.sort_nodes()

    def _fill_devices(self, world: World) -> None:
        for device_class, conditions in self.device_classes:
            world.set_device_class(device_class.name, device_class, *conditions)
        for claim in self.claims:
            world.set_claim(claim.key, claim.spec, allocated=claim.allocated)
        for name, found in self.slices:
            world.set_slice(name, found)
        for name, rule in self.taint_rules:
            world.set_taint_rule(name, rule)
        for group in self.groups:
            keep_group(group, world)


def keep_group(found: devices.PodGroup, world: World) -> bool:
    """Set a PodGroup's shared claims, its domain, and how many of its pods must stay; return whether it has any."""
    entries, domain, scaling = (
        devices.to_group(found),
        devices.domain_of_group(found),
        unknown_kinds.scaling_of_group(found),
    )
    if entries:
        world.set_group(devices.group_key(found.metadata), entries)
    gang = gang_of_pod_group(found.metadata.namespace or "default", found.metadata.name)
    if domain is None:
        world.group_domains.pop(gang, None)
    else:
        world.group_domains[gang] = domain
    minimums = world.minimums
    if minimums.set_scaler(gang, *scaling) if scaling is not None else minimums.remove_scaler(gang):
        world.on_usage_changed()
    return bool(entries) or domain is not None or scaling is not None


class _Head(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    api_version: str = ""
    kind: str = ""
    items: list[msgspec.Raw] | None = None
    metadata: objects.ObjectMeta | None = None


class _Kept(msgspec.Struct, frozen=True, gc=False):
    """An object that a file keeps, and that nothing of a world is made of."""

    metadata: objects.ObjectMeta


class _Kind(NamedTuple):
    api_versions: tuple[str, ...]
    decoder: "msgspec.json.Decoder[object]"


_APIS: Final = {
    keys.DEVICES_API: tuple(f"{keys.DEVICES_GROUP}/{version}" for version in keys.DEVICES_VERSIONS),
    unknown_kinds.SCALER_API: (unknown_kinds.SCALER_API, "autoscaling/v1"),
}
"""The versions of an API that are read, if more than one is."""
_KINDS: Final = {
    kind: _Kind(_APIS.get(api_version, (api_version,)), msgspec.json.Decoder(fields))
    for kind, api_version, fields in (
        ("Node", keys.CORE_API, objects.Node),
        ("Pod", keys.CORE_API, objects.Pod),
        ("Namespace", keys.CORE_API, objects.Namespace),
        ("PriorityClass", keys.PRIORITY_API, objects.PriorityClass),
        ("DeviceClass", keys.DEVICES_API, slices.DeviceClassObject),
        ("ResourceClaim", keys.DEVICES_API, devices.ResourceClaim),
        ("ResourceClaimTemplate", keys.DEVICES_API, devices.ResourceClaimTemplate),
        ("ResourceSlice", keys.DEVICES_API, slices.ResourceSlice),
        ("CustomResourceDefinition", keys.EXTENSIONS_API, autoscalers.Definition),
        ("ConfigMap", keys.CORE_API, autoscalers.Status),
        (unknown_kinds.KIND, unknown_kinds.SCALER_API, unknown_kinds.Autoscaler),
        (autoscalers.KIND, keys.CORE_API, autoscalers.PersistentVolume),
        ("DeviceTaintRule", keys.DEVICES_API, slices.DeviceTaintRule),
        ("PodGroup", keys.GROUPS_API, devices.PodGroup),
        ("PodDisruptionBudget", keys.BUDGET_API, holds.DisruptionBudget),
        ("LimitRange", keys.CORE_API, _Kept),
        (keys.TEAM_LEDGER, keys.OWN_API, TeamLedger),
    )
}
_head_decoder: Final = msgspec.json.Decoder(_Head)


@dataclass(slots=True)
class _Found:
    """The objects and problems so far."""

    weights: Weights
    world: WorldFile = field(default_factory=WorldFile)
    problems: list[str] = field(default_factory=list)

    def keep(self, found: object) -> None:
        """Translate and add one decoded object. Raises ValueError if it is malformed."""
        world = self.world
        match found:
            case objects.Node():
                world.nodes.append(to_node(found))
            case objects.Pod():
                self._keep_pod(found)
            case objects.Namespace():
                world.namespaces.append(to_namespace(found))
            case objects.PriorityClass():
                world.priority_classes.append(to_priority(found))
            case autoscalers.Definition() | autoscalers.Status():
                world.autoscaling.append(found)
            case unknown_kinds.Autoscaler():
                if (scaling := unknown_kinds.scaling_of(found)) is not None:
                    world.scalings.append((f"{found.metadata.namespace}/{found.metadata.name}", scaling))
            case _:
                self._keep_other(found)

    def _keep_other(self, found: object) -> None:
        world = self.world
        match found:
            case autoscalers.PersistentVolume():
                if (volume := autoscalers.to_volume(found)) is not None:
                    world.bound_volumes.append(volume)
            case holds.DisruptionBudget():
                world.budgets.append(holds.to_disruption(found))
            case devices.PodGroup():
                world.groups.append(found)
            case TeamLedger():
                found.record  # noqa: B018 - a malformed one raises ValueError here, where its place is known
                world.ledgers.append(found)
            case _:
                self._keep_device(found)

    def _keep_device(self, found: object) -> None:
        world = self.world
        match found:
            case slices.DeviceClassObject():
                world.device_classes.append(known_class(found))
            case devices.ResourceClaim():
                world.claims.append(known_claim(found)._replace(allocated=devices.allocated_at(found)))
            case devices.ResourceClaimTemplate():
                world.claims.append(known_template(found))
            case slices.ResourceSlice():
                world.slices.append((found.metadata.name, slices.to_slice(found)))
            case slices.DeviceTaintRule():
                if (rule := slices.to_taint_rule(found)) is not None:
                    world.taint_rules.append((found.metadata.name, rule))

    def _keep_pod(self, pod: objects.Pod) -> None:
        if (outcome := to_rejection(pod, self.weights) or to_start(pod, self.weights)) is not None:
            self.world.outcomes.append(outcome)
        if (resident := to_resident(pod, self.weights)) is not None:
            self.world.pods.append(resident)
        elif (waiting := to_waiting(pod, self.weights, is_trusted=True)) is not None:
            self.world.waiting.append(waiting)
        elif (ended := to_ended(pod, self.weights)) is not None:
            self.world.ended.append(ended)


def known_class(found: slices.DeviceClassObject) -> KnownClass:
    """Translate a DeviceClass."""
    return KnownClass(slices.to_class(found), slices.conditions_of(found))


def known_claim(found: devices.ResourceClaim) -> KnownClaim:
    """Translate a claim, without where it is allocated."""
    return KnownClaim(devices.claim_key(found.metadata), devices.to_claim(found))


def known_template(found: devices.ResourceClaimTemplate) -> KnownClaim:
    """Translate the template of a claim."""
    return KnownClaim(devices.template_key(found.metadata), devices.to_template(found))


def read_world(path: str | Path, weights: Weights) -> WorldFile:
    """Read a world file; `weights` maps each GPU resource to the GPU units of one device.

    Raises WorldFileError with the problems (at most twenty) of a file that is not one.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise WorldFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    return parse_world(content, weights, name=str(path))


def parse_world(content: bytes | str, weights: Weights, *, name: str) -> WorldFile:
    """Read a world from text; its problems name the file `name`. Raises like read_world."""
    found = _Found(weights)
    documents = list(_documents(content.encode() if isinstance(content, str) else content, name))
    if not documents:
        raise WorldFileError(f"{name}: is empty; expected what `kubectl get nodes,pods -A -o yaml` prints")
    for number, document in enumerate(documents, start=1):
        _read_document(document, name if len(documents) == 1 else f"{name}: document {number}", found)
    found.problems.extend(_duplicates(found.world, name))
    if found.problems:
        more = len(found.problems) - MAX_PROBLEMS
        problems = found.problems[:MAX_PROBLEMS] + ([f"{name}: and {more} more problems"] if more > 0 else [])
        raise WorldFileError(*problems)
    return found.world


def parse_objects(listed: Iterable[object], weights: Weights, *, name: str) -> WorldFile:
    """Read a world from objects, as JSON has them. Raises like read_world."""
    content = msgspec.json.encode({"apiVersion": keys.CORE_API, "kind": "List", "items": list(listed)})
    return parse_world(content, weights, name=name)


def _documents(content: bytes, name: str) -> Iterator[bytes]:
    """Yield each document as JSON; JSON input is passed on without parsing."""
    if content.lstrip()[:1] == b"{":
        yield content
        return
    try:
        for document in read_documents(content):
            if document is not None:
                yield msgspec.json.encode(document)
    except (DocumentError, UnicodeEncodeError) as error:
        raise WorldFileError(f"{name}: not valid YAML: {error}") from error


def _read_document(document: bytes, where: str, found: _Found) -> None:
    try:
        head = _head_decoder.decode(document)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        found.problems.append(f"{where}: {objects.describe(error)}; expected a v1 List or an object of it")
        return
    if head.kind != "List":
        _read_object(document, head, where, found)
        return
    for index, item in enumerate(head.items or ()):
        place = f"{where}: items[{index}]"
        try:
            item_head = _head_decoder.decode(item)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            found.problems.append(f"{place}: {objects.describe(error)}")
            continue
        _read_object(item, item_head, place, found)


def _read_object(raw: msgspec.Raw | bytes, head: _Head, where: str, found: _Found) -> None:
    known = _KINDS.get(head.kind)
    if known is None or head.api_version not in known.api_versions:
        accepted = ", ".join(f"{each.api_versions[0]} {kind}" for kind, each in _KINDS.items())
        got = f"{head.api_version or 'no apiVersion'} {head.kind or 'no kind'}"
        found.problems.append(f"{where}: got {got}; expected one of {accepted}, or a v1 List of them")
        return
    if head.metadata is None or not head.metadata.name:
        found.problems.append(f"{where}: {head.kind} without metadata.name; every object needs one")
        return
    name = f"{head.metadata.namespace}/{head.metadata.name}".lstrip("/")
    try:
        found.keep(known.decoder.decode(raw))
    except (ValueError, RecursionError) as error:  # msgspec's and Unicode's errors are ValueErrors too
        found.problems.append(f"{where} ({head.kind} {name}): {objects.describe(error)}")


def _duplicates(found: WorldFile, where: str) -> Iterator[str]:
    named: dict[str, list[str]] = {
        "Node": [str(node.name) for node in found.nodes],
        "Pod": [
            *(f"{pod.namespace}/{pod.name}" for pod in found.pods),
            *(f"{waiting.pod.namespace}/{waiting.pod.name}" for waiting in found.waiting),
        ],
        "Namespace": [str(namespace.name) for namespace in found.namespaces],
        "PriorityClass": [priority_class.name for priority_class in found.priority_classes],
        "DeviceClass": [device_class.name for device_class, _ in found.device_classes],
        "ResourceClaim or its template": [
            f"{each.key.namespace}/{each.key.name} ({each.key.kind})" for each in found.claims
        ],
        "ResourceSlice": [name for name, _ in found.slices],
        unknown_kinds.KIND: [name for name, _ in found.scalings],
        autoscalers.KIND: [each.name for each in found.bound_volumes],
        "DeviceTaintRule": [name for name, _ in found.taint_rules],
        "PodGroup": [f"{each.metadata.namespace}/{each.metadata.name}" for each in found.groups],
        "PodDisruptionBudget": [f"{each.namespace}/{each.name}" for each in found.budgets],
        keys.TEAM_LEDGER: [each.metadata.name for each in found.ledgers],
    }
    for kind, names in named.items():
        for name, times in Counter(names).items():
            if times > 1:
                yield f"{where}: {kind} {name} occurs {times} times; keep one"
