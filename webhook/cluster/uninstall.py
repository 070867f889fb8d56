"""Takes Fairgate out of a cluster, step by step; what is gone already is no error, so each step may be repeated.

At every moment GPU pods can be created, and queued pods are served by a leader or can be let go. The webhooks are
deleted first, while their servers still answer. Then no process leads for as long as the uninstallation runs: it holds
their Leases, which leaders notice within two seconds. If it is killed, the Leases expire and the processes go on.
Queued pods are let go before the processes stop, and once more after that: a request may have been on its way. Reports,
which say what runs, and Leases are deleted last. A step that fails in part is the last one: no process stops while a
pod needs it.
"""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from itertools import chain
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import msgspec

from webhook.cluster.api.client import MERGE_PATCH, STRATEGIC_PATCH, ApiConnection, ApiError, ClusterError
from webhook.cluster.api.requests import find, pod_path
from webhook.cluster.reads.listing import pages
from webhook.cluster.writes.evictions import write_hold
from webhook.core.model.amounts import NodeName, plural
from webhook.kube.ledger import reports
from webhook.kube.nodes.holds import is_marked
from webhook.kube.objects import keys, objects
from webhook.kube.objects.events import LeaseRecord, lease_patch, micro_time
from webhook.kube.pod.waiting import MarkedPod, by_turns, in_line, let_go_patch, unmark_patch, with_notice
from webhook.kube.registration.static_files import (
    DEFINITIONS,
    HELD_ROOM_OBJECT,
    PROCESS_REPORT,
    REGISTERED_GUARDS,
    ROLES,
    WEBHOOKS,
    OwnedObject,
)


class _Process(NamedTuple):
    text: str


T = TypeVar("T")
_Named = OwnedObject | MarkedPod | _Process
_T = TypeVar("_T", OwnedObject, MarkedPod)

_TRIES: Final = 4
_REST_SECONDS: Final = 0.5
_MAX_REST_SECONDS: Final = 10.0
_RENEWALS: Final = 4
"""Renewals in the time of a Lease."""
_OWN_LABEL: Final = ",".join(f"{key}={value}" for key, value in keys.OWN_LABELS)
_NO_REPLICAS: Final = msgspec.json.encode({"spec": {"replicas": 0}})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where Fairgate's processes are, what stays, bounds on requests, and times in seconds."""

    namespace: str = ""
    """That of the processes; empty: look in all."""
    workload: str = ""
    """The Deployment or StatefulSet of the servers; empty: those with Fairgate's label."""
    certificates: OwnedObject | None = None
    """The Secret to delete."""
    keeps_line: bool = False
    keeps_definitions: bool = False
    at_once: int = 16
    """Requests at a time: API Priority and Fairness gives a client that many without others noticing."""
    pods_per_second: float = 100.0
    """Pods let go, or relieved of a notice: kube-scheduler binds about as many."""
    settle_seconds: float = 2.0
    """After a webhook or guard was deleted, each API server may use it until its own watch delivers that: milliseconds.
    A leader notices within two seconds that it no longer leads."""
    lease_seconds: int = 30
    """How long no process leads after an uninstallation was killed; then the old ones continue."""
    poll_seconds: float = 0.5
    """Between two looks whether processes have stopped, or a definition is gone."""
    wait_seconds: float = 120.0
    """How long to wait for processes to stop: they drain, and kubelets allow a minute."""


class Step(StrEnum):
    """The steps, in their order."""

    WEBHOOKS = "webhooks"
    LEADERS = "leaders"
    GUARDS = "guards"
    LINE = "line"
    HOLDS = "holds"
    NOTICES = "notices"
    PROCESSES = "processes"
    DEFINITIONS = "definitions"
    ROLES = "roles"
    LEASES = "leases"
    CERTIFICATES = "certificates"


class State(StrEnum):
    """How far a step is. `kept`: what it is about stays, as the user wished."""

    PLANNED = "planned"
    DONE = "done"
    KEPT = "kept"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class StepReport:
    """A step, what it does, and with what."""

    step: Step
    state: State
    does: str
    objects: tuple[str, ...]
    failed: Annotated[tuple[str, ...], msgspec.Meta(description="what could not be done, and why")] = ()


_DOES: Final = {
    Step.WEBHOOKS: "deleted; GPU pods are created as without Fairgate, and none joins the queue",
    Step.LEADERS: "taken over; servers and evictors change nothing more by themselves",
    Step.GUARDS: "deleted; the API server no longer protects Fairgate's keys",
    Step.LINE: "let go, the oldest of each namespace first; each starts where it finds room, whatever limits say",
    Step.HOLDS: "opened; held nodes take any pod",
    Step.NOTICES: "withdrawn; these pods are not evicted",
    Step.PROCESSES: "stopped, those in the cluster by scaling to zero",
    Step.DEFINITIONS: "deleted, with ledgers, held nodes and reports",
    Step.ROLES: "deleted",
    Step.LEASES: "deleted",
    Step.CERTIFICATES: "deleted",
}
_KEPT: Final = {
    Step.LINE: "stay queued; none of them starts until Fairgate is installed again with a policy that has a queue, or "
    "an admin removes their gates",
    Step.DEFINITIONS: "stay, with their objects",
}
_Find = Callable[[], Awaitable[list[Any]]]
_Act = Callable[[list[Any]], Awaitable[list[str]]]
"""Returns for each object that failed its name and why."""


class _Spec(msgspec.Struct, frozen=True):
    replicas: int = 1


class _Item(msgspec.Struct, frozen=True):
    metadata: objects.ObjectMeta
    spec: _Spec = _Spec()


_item: Final = msgspec.json.Decoder(_Item)
_node: Final = msgspec.json.Decoder(objects.Node)


class Uninstallation:
    """One uninstallation.

    `report` gets each step that has something to do, as it ends; `waits` the processes that still run, whenever these
    are others than before.
    """

    def __init__(
        self,
        connection: ApiConnection,
        scope: Scope,
        *,
        report: Callable[[StepReport], None],
        waits: Callable[[list[str]], None],
    ) -> None:
        self._connection = connection
        self._scope = scope
        self._report = report
        self._waits = waits
        self._seen: dict[tuple[str, str], float] = {}
        present, delete = partial(partial, self._present), self._delete
        self._work: dict[Step, tuple[_Find, _Act | None]] = {
            Step.WEBHOOKS: (present(WEBHOOKS), self._unregister),
            Step.LEADERS: (self._leases, self._take_over),
            Step.GUARDS: (present(REGISTERED_GUARDS), self._delete_guards),
            Step.LINE: (self._line, None if scope.keeps_line else self._let_go),
            Step.HOLDS: (self._held, self._open),
            Step.NOTICES: (self._noticed, self._withdraw),
            Step.PROCESSES: (self._processes, self._stop),
            Step.DEFINITIONS: (present(DEFINITIONS), None if scope.keeps_definitions else self._delete_with_objects),
            Step.ROLES: (present(ROLES), delete),
            Step.LEASES: (self._leases, delete),
            Step.CERTIFICATES: (self._certificates, delete),
        }
        self._renewing: asyncio.Task[None] | None = None

    async def plan(self) -> list[StepReport]:
        """Return all steps in order; those with nothing to do have no objects. Raises ClusterError."""
        return [
            _reported(step, await find(), state=State.PLANNED if act else State.KEPT)
            for step, (find, act) in self._work.items()
        ]

    async def run(self) -> None:
        """Carry all steps out. Raises ClusterError, after which another run goes on.

        All is read once before: without a right to read, nothing is changed.
        """
        await self.plan()
        try:
            for step in Step:
                await self._carry_out(step)
                if step is Step.PROCESSES:  # what they wrote while they were stopped, or a request was on its way
                    for again in (Step.LINE, Step.HOLDS, Step.NOTICES)[self._scope.keeps_line :]:
                        await self._carry_out(again)
        finally:
            if self._renewing is not None:
                self._renewing.cancel()
                await asyncio.gather(self._renewing, return_exceptions=True)

    async def _carry_out(self, step: Step) -> None:
        find, act = self._work[step]
        if not (found := await find()):
            return
        failed = await act(found) if act else []
        state = State.FAILED if failed else State.DONE if act else State.KEPT
        self._report(_reported(step, found, state=state, failed=failed))
        if failed:
            raise ClusterError(f"{plural(len(failed), 'object')} could not be changed: run it again")

    # -- what is found

    async def _present(self, wanted: Iterable[OwnedObject]) -> list[OwnedObject]:
        owned = list(wanted)
        reads = (find(self._connection, each.path, action=f"get {each.plural}") for each in owned)
        return [each for each, body in zip(owned, await asyncio.gather(*reads), strict=True) if body is not None]

    async def _leases(self) -> list[OwnedObject]:
        names = (keys.EVICTOR_LEASE, keys.SERVER_LEASE)
        found = [await self._owned(keys.LEASE_API, "Lease", fieldSelector=f"metadata.name={name}") for name in names]
        return sorted((each for listed in found for each in listed), key=lambda each: each.text)

    async def _line(self) -> list[MarkedPod]:
        return by_turns(await self._selected("/api/v1/pods", in_line, fieldSelector="spec.nodeName="))

    async def _held(self) -> list[OwnedObject]:
        nodes = await self._selected("/api/v1/nodes", _held_node)
        return [*nodes, *await self._present([HELD_ROOM_OBJECT])]

    async def _noticed(self) -> list[MarkedPod]:
        return await self._selected("/api/v1/pods", with_notice, labelSelector=keys.TIER)

    async def _processes(self) -> list[OwnedObject | _Process]:
        name = self._scope.workload
        selector = {"fieldSelector": f"metadata.name={name}"} if name else {"labelSelector": _OWN_LABEL}
        workloads = [await self._owned("apps/v1", kind, **selector) for kind in ("Deployment", "StatefulSet")]
        return [*chain(*workloads), *map(_Process, await self._running())]

    async def _running(self) -> list[str]:
        """Return the processes that report themselves.

        A report that stays the same for long enough is of a process that ended, whatever its clock said.
        """
        body = await find(self._connection, PROCESS_REPORT, action="get reports")
        entries = reports.decode(body).replicas if body is not None else {}
        now, here = self._connection.server_time or time.time(), time.monotonic()
        alive = []
        for name, each in entries.items():
            age, at = here - self._seen.setdefault((name, each.at), here), reports.read_at(each.at)
            if at is not None and max(now - at, age) <= reports.SILENT_SECONDS:
                alive.append(f"{each.component} {name.rpartition('_')[0] or name}")
        return sorted(alive)

    async def _certificates(self) -> list[OwnedObject]:
        """To read it would need a right to its keys."""
        return [self._scope.certificates] if self._scope.certificates else []

    async def _owned(self, api_version: str, kind: str, **selector: str) -> list[OwnedObject]:
        """Return the objects of a kind, without workloads that are scaled to zero."""
        path = OwnedObject(api_version, kind, "", self._scope.namespace).path.rstrip("/")

        def owned(raw: bytes) -> OwnedObject | None:
            item = _item.decode(raw)
            named = OwnedObject(api_version, kind, item.metadata.name, item.metadata.namespace)
            return named if item.spec.replicas else None

        return await self._selected(path, owned, **selector)

    async def _selected(self, path: str, choose: Callable[[bytes], T | None], **selectors: str) -> list[T]:
        found: list[T] = []
        async for page in pages(self._connection, path, selectors):
            found += [each for each in (choose(bytes(item)) for item in page.items or ()) if each is not None]
        return found

    # -- what is done

    async def _unregister(self, webhooks: list[OwnedObject]) -> list[str]:
        for each in webhooks:
            await self._delete([each])
            await asyncio.sleep(self._scope.settle_seconds / 2)
        return []

    async def _delete_guards(self, guards: list[OwnedObject]) -> list[str]:
        await self._delete(guards)
        await asyncio.sleep(self._scope.settle_seconds)
        return []

    async def _take_over(self, leases: list[OwnedObject]) -> list[str]:
        await self._hold(leases)
        self._renewing = asyncio.create_task(self._renew(leases))
        await asyncio.sleep(self._scope.settle_seconds)
        return []

    async def _renew(self, leases: list[OwnedObject]) -> None:
        while True:
            await asyncio.sleep(self._scope.lease_seconds / _RENEWALS)
            with suppress(ClusterError):  # the next renewal comes before the Lease expires
                await self._hold(leases)

    async def _hold(self, leases: list[OwnedObject]) -> None:
        """Write this process as the holder in any case; a Lease that is gone needs no holder."""
        now = micro_time(datetime.now(UTC))
        holder = f"{socket.gethostname()}_uninstall"
        record = LeaseRecord(holder, self._scope.lease_seconds, acquired_at=now, renewed_at=now)
        for each in leases:
            await self._send("PATCH", each.path, lease_patch(record, version=""), action="patch leases")

    async def _let_go(self, pods: list[MarkedPod]) -> list[str]:
        return await self._each(pods, lambda pod: self._patch_pod(pod, let_go_patch(pod), content_type=STRATEGIC_PATCH))

    async def _withdraw(self, pods: list[MarkedPod]) -> list[str]:
        return await self._each(pods, lambda pod: self._patch_pod(pod, unmark_patch(pod)))

    async def _patch_pod(self, pod: MarkedPod, body: bytes, *, content_type: str = MERGE_PATCH) -> None:
        path = pod_path(pod.namespace, pod.name)
        await self._send("PATCH", path, body, action="patch pods", content_type=content_type)

    async def _open(self, held: list[OwnedObject]) -> list[str]:
        await self._delete([each for each in held if each == HELD_ROOM_OBJECT])
        nodes = [each for each in held if each != HELD_ROOM_OBJECT]
        return await self._each(nodes, lambda node: write_hold(self._connection, NodeName(node.name), None))

    async def _stop(self, found: list[OwnedObject | _Process]) -> list[str]:
        """Scale what runs in the cluster to zero, and wait until processes no longer report themselves."""
        for each in found:
            if isinstance(each, OwnedObject):
                await self._send("PATCH", f"{each.path}/scale", _NO_REPLICAS, action=f"patch {each.plural}/scale")
        is_last = _now() + self._scope.wait_seconds
        before: list[str] = []
        while left := await self._running():
            if left != before:
                self._waits(left)
                before = left
            if _now() > is_last:
                raise ClusterError(
                    f"still running: {', '.join(left)}; stop them, then run `fairgate uninstall` again: it goes on "
                    "from here. Until then GPU pods are created as without Fairgate"
                )
            await asyncio.sleep(self._scope.poll_seconds)
        return []

    async def _delete_with_objects(self, definitions: list[OwnedObject]) -> list[str]:
        """Delete definitions one by one; each is gone once its objects are."""
        for each in definitions:
            is_last = _now() + self._scope.wait_seconds
            while await self._present([each]):
                if _now() > is_last:
                    seconds = self._scope.wait_seconds
                    raise ClusterError(f"{each.text} is being deleted for {seconds:g} s: its object has a finalizer")
                await self._delete([each])
                await asyncio.sleep(self._scope.poll_seconds)
        return []

    async def _delete(self, owned: list[OwnedObject]) -> list[str]:
        for each in owned:
            await self._send("DELETE", each.path, None, action=f"delete {each.plural}")
        return []

    async def _send(
        self, method: str, path: str, body: bytes | None, *, action: str, content_type: str = MERGE_PATCH
    ) -> None:
        """Send a change; what is gone needs none."""
        try:
            await self._connection.send(method, path, body, action=action, content_type=content_type)
        except ApiError as error:
            if not error.is_missing:
                raise

    async def _each(self, things: Iterable[_T], act: Callable[[_T], Awaitable[None]]) -> list[str]:
        """Act on each, so many at once and in a second; return for each that failed for good its name and why."""
        queue = enumerate(list(things))
        began = _now()
        failed: list[str] = []

        async def work() -> None:
            for number, each in queue:  # shared: each has one worker
                await asyncio.sleep(began + (number - self._scope.at_once) / self._scope.pods_per_second - _now())
                if problem := await _tried(each, act):
                    failed.append(f"{each.text}: {problem}")

        await asyncio.gather(*(work() for _ in range(self._scope.at_once)))
        return sorted(failed)


async def _tried(each: _T, act: Callable[[_T], Awaitable[None]]) -> str:
    """Act on an object, several times if need be; return why it could not be done, nothing if it was.

    A conflict that stays is of a pod that was made again by that name: without webhooks, and so without a gate.
    """
    problem = ""
    for attempt in range(_TRIES):
        rest = _REST_SECONDS * 2**attempt
        try:
            await act(each)
        except ClusterError as error:
            problem = str(error)
            if isinstance(error, ApiError):
                if error.is_invalid:  # what is forbidden is tried again: guards may be in force for a moment
                    break
                rest = max(rest, error.retry_after_seconds)
                problem = "" if error.is_conflict else problem
        else:
            return ""
        await asyncio.sleep(min(rest, _MAX_REST_SECONDS))
    return problem


def _reported(step: Step, found: Iterable[_Named], *, state: State, failed: Iterable[str] = ()) -> StepReport:
    does = (_KEPT if state is State.KEPT else _DOES)[step]
    return StepReport(step, state, does, tuple(each.text for each in found), tuple(failed))


def _held_node(raw: bytes) -> OwnedObject | None:
    node = _node.decode(raw)
    return OwnedObject(keys.CORE_API, "Node", node.metadata.name) if is_marked(node) else None


def _now() -> float:
    return asyncio.get_running_loop().time()
