"""Further objects of a cluster: a workload, Events, PodDisruptionBudgets, and the leading evictor.

Each is read once; what may not be read is left out with a note, since an explanation is useful without it.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.cli.explain.target import Target
from webhook.core.reclaim.failures import FailureBudget, WorkloadId
from webhook.core.reclaim.reclaim_pod import Disruption
from webhook.kube.objects import keys
from webhook.kube.objects.lease import LeaseRecord, read_lease
from webhook.kube.pod.pods import unix_seconds
from webhook.kube.reclaim.disruptions import DisruptionBudget, to_disruption
from webhook.kube.world_file.world_objects import WorldKind

if TYPE_CHECKING:
    from webhook.cluster.api.client import ApiConnection

LEASE: Final = keys.EVICTOR_LEASE
EVENTS: Final = "200"
"""Events of one object that are read: kube-apiserver keeps them for an hour."""


@dataclass(frozen=True, slots=True)
class PastEvent:
    """An Event of Fairgate, its count, and the last time in seconds of Unix time."""

    reason: str
    message: str
    count: int
    last: int


@dataclass(frozen=True, slots=True)
class Evictor:
    """The leading evictor: "" if none leads, None if that is not known; `why` is the reason."""

    leader: str | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class ClusterDetails:
    """The further objects; `failures` is how many failures workloads survive.

    `notes` are those that could not be read; `why_no_workload` is about the workload.
    """

    evictor: Evictor = Evictor(None, "a world file does not say which evictor leads")
    budgets: tuple[Disruption, ...] = ()
    failures: Mapping[WorkloadId, FailureBudget] = field(default_factory=dict)
    events: tuple[PastEvent, ...] = ()
    workload: Mapping[str, Any] | None = None
    why_no_workload: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DetailsRequest:
    """What to read: the object, and the namespace where Fairgate runs.

    `reads_reclaim`: the objects that reclaim depends on are read, too; `reads_failures`: and the workloads that count
    failures, of which there may be as many as pods.
    """

    target: Target | None
    namespace: str
    fairgate_namespace: str
    reads_reclaim: bool = True
    reads_failures: bool = False


_BUDGETS: Final = WorldKind("PodDisruptionBudget", keys.BUDGET_API, f"/apis/{keys.BUDGET_API}/poddisruptionbudgets")


class _EventMeta(msgspec.Struct, frozen=True, rename="camel"):
    creation_timestamp: str | None = None


class _Place(msgspec.Struct, frozen=True):
    namespace: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Place = _Place()


class _Source(msgspec.Struct, frozen=True):
    component: str | None = None


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _EventMeta = _EventMeta()
    reason: str | None = None
    message: str | None = None
    count: int | None = None
    last_timestamp: str | None = None
    source: _Source | None = None


class _List(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] | None = None


class _Version(msgspec.Struct, frozen=True):
    version: str


class _Group(msgspec.Struct, frozen=True, rename="camel"):
    preferred_version: _Version


def read_details(kubeconfig: Path | None, request: DetailsRequest) -> ClusterDetails:
    """Return the further objects. Raises ClusterError where the cluster cannot be reached."""
    return asyncio.run(fetch_details(kubeconfig, request))


async def fetch_details(kubeconfig: Path | None, request: DetailsRequest) -> ClusterDetails:
    """Return the further objects, inside an event loop. Raises ClusterError where the cluster cannot be reached."""
    from webhook.cluster.api.client import connect  # noqa: PLC0415 - slow to import, and files need none of it

    async with await connect(kubeconfig) as connection:
        reader = _Reader(connection)
        evictor, budgets, failures, events, workload = await asyncio.gather(
            reader.evictor(request),
            reader.budgets(request),
            reader.failures(request),
            reader.events(request),
            reader.workload(request),
        )
        return ClusterDetails(
            evictor, budgets, failures, events, workload, reader.why_no_workload, notes=tuple(reader.notes)
        )


async def fetch_evictor(connection: "ApiConnection", namespace: str) -> Evictor:
    """Return the leading evictor by its Lease, of a namespace before others."""
    return await _Reader(connection).evictor(DetailsRequest(None, "", namespace))


class _Reader:
    def __init__(self, connection: "ApiConnection") -> None:
        self.notes: list[str] = []
        self.why_no_workload = ""
        self._connection = connection

    async def evictor(self, request: DetailsRequest) -> Evictor:
        if not request.reads_reclaim:
            return Evictor(None, "its Lease was not read")
        namespace = request.fairgate_namespace
        path = f"/apis/{keys.LEASE_API}/namespaces/{namespace}/leases/{LEASE}"
        body, why = await self._get(path, action="get leases")
        if body is not None:
            return leading(read_lease(body).record, now=datetime.now(UTC))
        if why:
            return Evictor(None, f"its Lease could not be read: {why}")
        return await self._evictor_elsewhere() or Evictor("", f"there is no Lease {LEASE} in namespace {namespace}")

    async def _evictor_elsewhere(self) -> Evictor | None:
        """Return the leader of another namespace, where all may be read; users may create Leases in their own."""
        params = {"fieldSelector": f"metadata.name={LEASE}", "limit": EVENTS}
        body, _ = await self._get(f"/apis/{keys.LEASE_API}/leases", params, action="list leases")
        for raw in () if body is None else msgspec.json.decode(body, type=_List).items or ():
            found = leading(read_lease(raw).record, now=datetime.now(UTC))
            if found.leader:
                namespace = msgspec.json.decode(raw, type=_Named).metadata.namespace
                return Evictor(f"{found.leader} of namespace {namespace}")
        return None

    async def budgets(self, request: DetailsRequest) -> tuple[Disruption, ...]:
        """Return all disruption budgets; those that cannot be read are left out."""
        if not request.reads_reclaim:
            return ()
        from webhook.cluster.api.errors import ApiError  # noqa: PLC0415 - slow to import, and files need none of it
        from webhook.cluster.reads.listing import list_objects  # noqa: PLC0415

        try:
            listed = await list_objects(self._connection, _BUDGETS)
        except ApiError as error:
            self.notes.append(f"{_BUDGETS.kind}s are not looked at: {error}")
            return ()
        found = []
        for each in listed:
            try:
                found.append(to_disruption(msgspec.convert(each, DisruptionBudget)))
            except ValueError:
                continue
        return tuple(found)

    async def failures(self, request: DetailsRequest) -> dict[WorkloadId, FailureBudget]:
        """Return how many failures each Job, and each other workload that counts them, survives."""
        found: dict[WorkloadId, FailureBudget] = {}
        if not request.reads_failures:
            return found
        from webhook.cluster.api.errors import ApiError  # noqa: PLC0415 - slow to import, and files need none of it
        from webhook.cluster.reads.listing import load  # noqa: PLC0415
        from webhook.cluster.watch.failures import failure_kinds  # noqa: PLC0415

        def keep(workload: WorkloadId, budget: FailureBudget | None) -> None:
            if budget is not None:
                found[workload] = budget

        refused: dict[str, ApiError] = {}
        for kind in failure_kinds(keep):
            try:
                await load(self._connection, kind)
            except ApiError as error:
                refused[kind.name] = error
        if refused:
            self.notes.append(f"{', '.join(refused)} are not looked at: {next(iter(refused.values()))}")
        return found

    async def events(self, request: DetailsRequest) -> tuple[PastEvent, ...]:
        if request.target is None:
            return ()
        selector = f"involvedObject.name={request.target.name},involvedObject.kind={request.target.kind.kind}"
        path = f"/api/v1/namespaces/{request.namespace}/events"
        body, why = await self._get(path, {"fieldSelector": selector, "limit": EVENTS}, action="list events")
        if body is None:
            self.notes.append(f"Events are not shown: {why}")
            return ()
        found = (msgspec.json.decode(raw, type=_Event) for raw in msgspec.json.decode(body, type=_List).items or ())
        ours = [_past(each) for each in found if each.source and (each.source.component or "").startswith("fairgate")]
        return tuple(sorted(ours, key=lambda each: -each.last))

    async def workload(self, request: DetailsRequest) -> Mapping[str, Any] | None:
        """Return the named workload; None where it is a pod, or does not exist."""
        target = request.target
        if target is None or target.is_pod:
            return None
        base = f"/apis/{target.kind.group}" if target.kind.group else "/api"
        action = f"get {target.kind.resource}"
        for version in await self._versions(target, base):
            path = f"{base}/{version}/namespaces/{request.namespace}/{target.kind.resource}/{target.name}"
            body, why = await self._get(path, action=action)
            if body is not None:
                found: Mapping[str, Any] = msgspec.json.decode(body)
                return found
            self.why_no_workload = why or self.why_no_workload
        return None

    async def _versions(self, target: Target, base: str) -> tuple[str, ...]:
        if target.versions != ("*",):
            return target.versions
        body, _ = await self._get(base, action="get")
        return () if body is None else (msgspec.json.decode(body, type=_Group).preferred_version.version,)

    async def _get(
        self, path: str, params: Mapping[str, str] | None = None, *, action: str
    ) -> "tuple[bytes | None, str]":
        """Return a body; or None and why, "" where there is no such object."""
        from webhook.cluster.api.errors import ApiError  # noqa: PLC0415

        try:
            return await self._connection.send("GET", path, action=action, params=params), ""
        except ApiError as error:
            return None, "" if error.is_missing else str(error)


def leading(record: LeaseRecord, *, now: datetime) -> Evictor:
    """Return the leader by a Lease; clocks may differ by the duration of the Lease."""
    if not record.holder:
        return Evictor("", f"its Lease {LEASE} is free")
    renewed = unix_seconds(record.renewed_at)
    silent = int(now.timestamp()) - renewed
    if silent > 2 * record.duration_seconds:
        return Evictor("", f"{record.holder} renewed its Lease {silent} s ago for the last time")
    return Evictor(record.holder)


def _past(event: _Event) -> PastEvent:
    last = unix_seconds(event.last_timestamp or event.metadata.creation_timestamp or "")
    return PastEvent(event.reason or "", event.message or "", event.count or 1, last)
