"""What an uninstallation would remove: its scope, the rights that it needs, what is there.

What an uninstallation is about: where to look, what to keep, how fast it writes.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import msgspec

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.requests import find
from webhook.cluster.reads.listing import pages
from webhook.core.model.amounts import NodeName
from webhook.kube.ledger import reports
from webhook.kube.nodes.holds import is_marked
from webhook.kube.objects import keys, objects
from webhook.kube.pod.waiting import MarkedPod, by_turns, in_line, with_notice
from webhook.kube.registration.static_files import (
    DEFINITIONS,
    HELD_ROOM_OBJECT,
    PROCESS_REPORT,
    REGISTERED_GUARDS,
    ROLES,
    WEBHOOKS,
    OwnedObject,
    certificates,
    leases,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where Fairgate's processes are, and what stays.

    `namespace` is theirs, empty to look in all. `workload` names the Deployment or StatefulSet of the servers; empty:
    those with Fairgate's label. `certs_secret` is the Secret to remove from `secret_namespace`, empty for none.
    """

    namespace: str = ""
    workload: str = ""
    certs_secret: str = ""
    secret_namespace: str = ""
    keeps_line: bool = False
    keeps_definitions: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tempo:
    """Bounds on requests, and times in seconds."""

    at_once: int = 16
    """Requests at a time: API Priority and Fairness gives a client that many without others noticing."""
    pods_per_second: float = 100.0
    """Pods let go, or relieved of a notice: kube-scheduler binds about as many."""
    settle_seconds: float = 2.0
    """After a webhook was deleted, each API server may call it until its own watch delivers that: some milliseconds.
    A leader notices within two seconds that it no longer leads."""
    lease_seconds: int = 30
    """How long no process leads after an uninstallation was killed; then the old ones continue."""
    poll_seconds: float = 0.5
    """Between two looks whether processes have stopped, or a definition is gone."""
    wait_seconds: float = 120.0
    """How long to wait for processes to stop: they drain, and kubelets allow a minute."""


# The rights that an uninstallation needs, and which of them its user lacks.


_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Right(NamedTuple):
    """A verb on a resource of an API group; no name is every object, no namespace all or none."""

    verb: str
    group: str
    resource: str
    name: str = ""
    namespace: str = ""

    @property
    def text(self) -> str:
        """The right in words."""
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        named = f" {self.name}" if self.name else ""
        return f"{self.verb} {what}{named}" + (f" in namespace {self.namespace}" if self.namespace else "")


def needed_rights(scope: Scope) -> tuple[Right, ...]:
    """Return every right that an uninstallation of this scope needs, in the order of its steps."""
    return tuple(dict.fromkeys(_needed(scope)))


def _needed(scope: Scope) -> Iterator[Right]:
    for each in (*WEBHOOKS, *REGISTERED_GUARDS, *ROLES):
        yield from _of(each, "get", "delete")
    yield Right("list", "", "pods")
    yield Right("patch", "", "pods")
    yield Right("list", "", "nodes")
    yield Right("get", "", "nodes")
    yield Right("patch", "", "nodes")
    yield from _of(HELD_ROOM_OBJECT, "get", "delete")
    yield Right("get", keys.OWN_GROUP, keys.REPORTS, "replicas")
    for each in DEFINITIONS:
        yield from _of(each, "get", *(() if scope.keeps_definitions else ("delete",)))
    yield from _workload_rights(scope)
    for lease in leases(scope.namespace):
        if scope.namespace:
            yield from _of(lease, "get", "patch", "delete")
    if not scope.namespace:
        for verb in ("list", "patch", "delete"):
            yield Right(verb, "coordination.k8s.io", "leases")
    if scope.certs_secret:
        yield from _of(certificates(scope.secret_namespace, scope.certs_secret), "delete")


def _workload_rights(scope: Scope) -> Iterator[Right]:
    for plural in ("deployments", "statefulsets"):
        yield Right("get" if scope.workload else "list", "apps", plural, scope.workload, scope.namespace)
        yield Right("patch", "apps", f"{plural}/scale", scope.workload, scope.namespace)


def _of(owned: OwnedObject, *verbs: str) -> Iterator[Right]:
    return (Right(verb, owned.group, owned.plural, owned.name, owned.namespace) for verb in verbs)


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


async def missing_rights(connection: ApiConnection, rights: Iterable[Right], tempo: Tempo) -> list[Right]:
    """Return the rights that the user lacks, as the API server says. Raises ClusterError."""
    wanted, limit = list(rights), asyncio.Semaphore(tempo.at_once)

    async def has(right: Right) -> bool:
        async with limit:
            return await _has(connection, right)

    allowed = await asyncio.gather(*map(has, wanted))
    return [right for right, is_allowed in zip(wanted, allowed, strict=True) if not is_allowed]


async def _has(connection: ApiConnection, right: Right) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "name": right.name,
        "namespace": right.namespace,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    body = await connection.send(
        "POST", _REVIEWS, msgspec.json.encode(review), action="create selfsubjectaccessreviews"
    )
    return msgspec.json.decode(body, type=_Review).status.allowed


# Reads what of Fairgate is in a cluster: objects, workloads, processes, and what is written on pods and nodes.


T = TypeVar("T")

SILENT_SECONDS: Final = 35.0
"""A process that reported nothing for so long has ended: it does so every ten seconds."""

_APPS: Final = "/apis/apps/v1"
_OWN_LABEL: Final = ",".join(f"{key}={value}" for key, value in keys.OWN_LABELS)
_node: Final = msgspec.json.Decoder(objects.Node)


class OwnWorkload(NamedTuple):
    """A Deployment or StatefulSet of Fairgate's processes."""

    kind: str
    namespace: str
    name: str
    replicas: int

    @property
    def path(self) -> str:
        """Its API path."""
        return f"{_APPS}/namespaces/{self.namespace}/{self.kind.lower()}s/{self.name}"

    @property
    def text(self) -> str:
        """Kind, namespace and name."""
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Survey:
    """What is there. `processes` are those that report, by pod or host."""

    present: frozenset[OwnedObject]
    workloads: tuple[OwnWorkload, ...]
    processes: tuple[str, ...]
    line: tuple[MarkedPod, ...]
    notices: tuple[MarkedPod, ...]
    held_nodes: tuple[NodeName, ...]

    def among(self, wanted: Iterable[OwnedObject]) -> list[OwnedObject]:
        """Return those of some objects that are there, in their order."""
        return [each for each in wanted if each in self.present]

    @property
    def leases(self) -> list[OwnedObject]:
        """The Leases that are there."""
        return self._of_kind("Lease")

    @property
    def secrets(self) -> list[OwnedObject]:
        """The Secret with the certificates, if it was named."""
        return self._of_kind("Secret")

    def _of_kind(self, kind: str) -> list[OwnedObject]:
        return sorted((each for each in self.present if each.kind == kind), key=lambda each: each.text)


async def survey(connection: ApiConnection, scope: Scope, tempo: Tempo) -> Survey:
    """Read everything once. Raises ClusterError."""
    wanted = [*WEBHOOKS, *REGISTERED_GUARDS, *DEFINITIONS, *ROLES, HELD_ROOM_OBJECT]
    if scope.namespace:
        wanted += leases(scope.namespace)
    limit = asyncio.Semaphore(tempo.at_once)

    async def found(owned: OwnedObject) -> OwnedObject | None:
        async with limit:
            return owned if await find(connection, owned.path, action=f"get {owned.plural}") is not None else None

    present = frozenset(filter(None, await asyncio.gather(*map(found, wanted))))
    unread = [] if scope.namespace else await _all_leases(connection)
    if scope.certs_secret:  # reading it would take a right to its keys
        unread.append(certificates(scope.secret_namespace, scope.certs_secret))
    return Survey(
        present=present | frozenset(unread),
        workloads=tuple(await _workloads(connection, scope)),
        processes=tuple(await running(connection)),
        line=tuple(await pods_in_line(connection)),
        notices=tuple(await pods_with_notice(connection)),
        held_nodes=tuple(await held_nodes(connection)),
    )


async def pods_in_line(connection: ApiConnection) -> list[MarkedPod]:
    """Return the pods with Fairgate's gate, in the order in which they are let go. Raises ClusterError."""
    return by_turns(await _selected(connection, "/api/v1/pods", in_line, fieldSelector="spec.nodeName="))


async def pods_with_notice(connection: ApiConnection) -> list[MarkedPod]:
    """Return the borrowing pods whose eviction is announced. Raises ClusterError."""
    return await _selected(connection, "/api/v1/pods", with_notice, labelSelector=keys.TIER)


async def held_nodes(connection: ApiConnection) -> list[NodeName]:
    """Return the nodes with a hold or its taint. Raises ClusterError."""
    return await _selected(connection, "/api/v1/nodes", _held)


def _held(raw: bytes) -> NodeName | None:
    node = _node.decode(raw)
    return NodeName(node.metadata.name) if is_marked(node) else None


async def running(connection: ApiConnection, *, seen: dict[str, tuple[str, float]] | None = None) -> list[str]:
    """Return the processes that report themselves. Raises ClusterError.

    `seen` remembers reports from call to call: one that stays the same for long enough is of a process that ended,
    whatever its clock said.
    """
    body = await find(connection, PROCESS_REPORT, action="get reports")
    entries = reports.decode(body).replicas if body is not None else {}
    now, here = connection.server_time or time.time(), time.monotonic()
    alive = []
    for name, each in sorted(entries.items()):
        at, since = each.at, here
        if seen is not None:
            before = seen.get(name)
            since = before[1] if before is not None and before[0] == at else here
            seen[name] = (at, since)
        reported = reports.read_at(at)
        if reported is not None and now - reported <= SILENT_SECONDS and here - since <= SILENT_SECONDS:
            alive.append(f"{each.component} {name.rpartition('_')[0] or name}")
    return sorted(alive)


async def _all_leases(connection: ApiConnection) -> list[OwnedObject]:
    found = []
    for name in (keys.SERVER_LEASE, keys.EVICTOR_LEASE):
        named = {"fieldSelector": f"metadata.name={name}"}
        items = await _items(connection, f"/apis/{keys.LEASE_API}/leases", "list leases", **named)
        found += [OwnedObject(keys.LEASE_API, "Lease", name, item.metadata.namespace) for item in items]
    return found


async def _workloads(connection: ApiConnection, scope: Scope) -> list[OwnWorkload]:
    at = f"{_APPS}/namespaces/{scope.namespace}" if scope.namespace else _APPS
    found: list[OwnWorkload] = []
    for kind in ("Deployment", "StatefulSet"):
        plural = f"{kind.lower()}s"
        if scope.workload:
            body = await find(connection, f"{at}/{plural}/{scope.workload}", action=f"get {plural}")
            items = [msgspec.json.decode(body, type=_Item)] if body is not None else []
        else:
            items = await _items(connection, f"{at}/{plural}", f"list {plural}", labelSelector=_OWN_LABEL)
        found += [OwnWorkload(kind, each.metadata.namespace, each.metadata.name, each.spec.replicas) for each in items]
    return found


class _Spec(msgspec.Struct, frozen=True):
    replicas: int = 1


class _Item(msgspec.Struct, frozen=True):
    metadata: objects.ObjectMeta
    spec: _Spec = _Spec()


class _Items(msgspec.Struct, frozen=True):
    items: list[_Item] | None = None


async def _items(connection: ApiConnection, path: str, action: str, **params: str) -> list[_Item]:
    body = await find(connection, path, action=action, params=params)
    return (msgspec.json.decode(body, type=_Items).items or []) if body is not None else []


async def _selected(
    connection: ApiConnection, path: str, choose: Callable[[bytes], T | None], **selectors: str
) -> list[T]:
    found: list[T] = []
    async for page in pages(connection, path, selectors):
        found += [each for each in (choose(bytes(item)) for item in page.items or ()) if each is not None]
    return found
