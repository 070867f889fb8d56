"""Reads what of Fairgate is in a cluster: objects, workloads, processes, and what is written on pods and nodes."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import msgspec

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.one_object import find
from webhook.cluster.reads.listing import pages
from webhook.cluster.uninstall.scope import Scope, Tempo
from webhook.core.model.names import NodeName
from webhook.kube.ledger import reports
from webhook.kube.objects import keys, objects
from webhook.kube.pod.let_go import MarkedPod, by_turns, in_line, with_notice
from webhook.kube.reclaim.holds import is_marked
from webhook.kube.registration.inventory import (
    DEFINITIONS,
    HELD_ROOM,
    PROCESS_REPORT,
    REGISTERED_GUARDS,
    ROLES,
    WEBHOOKS,
    OwnedObject,
    certificates,
    leases,
)

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
    wanted = [*WEBHOOKS, *REGISTERED_GUARDS, *DEFINITIONS, *ROLES, HELD_ROOM]
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
