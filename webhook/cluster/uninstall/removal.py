"""Carries out an uninstallation: its plan, its steps, the writes to pods, the Leases.

Holds the Leases of servers and evictors, so that none of them leads while an uninstallation runs.

A leader renews with the version that it wrote last, so it notices at its next renewal, within two seconds, and stops
what only a leader does. If the uninstallation is killed, the Leases expire and the processes go on.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec

from webhook.cluster.api.client import MERGE_PATCH, STRATEGIC_PATCH, ApiConnection, ApiError, ClusterError
from webhook.cluster.api.requests import find, pod_path
from webhook.cluster.uninstall.survey import Scope, Survey, Tempo, held_nodes, pods_in_line, pods_with_notice, running
from webhook.cluster.writes.evictions import write_hold
from webhook.core.model.amounts import NodeName
from webhook.kube.objects.events import LeaseRecord, lease_patch, micro_time
from webhook.kube.pod.waiting import MarkedPod, let_go_patch, unmark_patch
from webhook.kube.registration.static_files import (
    DEFINITIONS,
    HELD_ROOM_OBJECT,
    REGISTERED_GUARDS,
    ROLES,
    WEBHOOKS,
    OwnedObject,
)

_RENEWALS: Final = 4
"""Renewals in the time of a Lease."""


@asynccontextmanager
async def taken_over(connection: ApiConnection, leases: Iterable[OwnedObject], tempo: Tempo) -> AsyncIterator[None]:
    """Take these Leases from their holders, and hold them until the end of the block. Raises ClusterError."""
    held = list(leases)
    began = datetime.now(UTC)
    for lease in held:
        await _take(connection, lease, tempo, since=began)
    renewing = asyncio.create_task(_renew(connection, held, tempo, since=began))
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)


async def _renew(connection: ApiConnection, leases: Iterable[OwnedObject], tempo: Tempo, *, since: datetime) -> None:
    held = list(leases)
    while True:
        await asyncio.sleep(tempo.lease_seconds / _RENEWALS)
        for lease in held:
            try:
                await _take(connection, lease, tempo, since=since)
            except ClusterError:  # the next renewal comes before the Lease expires
                continue


async def _take(connection: ApiConnection, lease: OwnedObject, tempo: Tempo, *, since: datetime) -> None:
    """Write this process as the holder in any case; a Lease that is gone needs no holder."""
    holder = f"{socket.gethostname()}_uninstall"
    now = micro_time(datetime.now(UTC))
    record = LeaseRecord(holder, tempo.lease_seconds, acquired_at=micro_time(since), renewed_at=now)
    try:
        await connection.send(
            "PATCH",
            lease.path,
            lease_patch(record, version=""),
            action="patch leases",
            content_type=MERGE_PATCH,
        )
    except ApiError as error:
        if not error.is_missing:
            raise


# What an uninstallation does, in which order. Pure.
#
# At every moment GPU pods can be created, and pods in line are served by a leader or can be let go. The webhooks are
# deleted first, while their servers still answer. Then no process leads for as long as the uninstallation runs. Pods in
# line are let go before the processes stop, and once more after that: a request may have been on its way. Reports,
# which say what runs, and Leases are deleted last.


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


class PlannedStep(NamedTuple):
    """A step, what it does, and with what. One that does nothing on purpose `is_kept`."""

    step: Step
    does: str
    objects: tuple[str, ...]
    is_kept: bool = False


KEPT_LINE: Final = (
    "stay queued; none of them starts until Fairgate is installed again with a policy that has a queue, or an admin "
    "removes their gates"
)
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


def plan(found: Survey, scope: Scope) -> tuple[PlannedStep, ...]:
    """Return all steps in order; those with nothing to do have no objects."""
    line = _texts(found.line)
    definitions = _owned(found, DEFINITIONS)
    stopped = (*(each.text for each in found.workloads if each.replicas), *found.processes)
    return (
        _planned(Step.WEBHOOKS, _owned(found, WEBHOOKS)),
        _planned(Step.LEADERS, tuple(each.text for each in found.leases)),
        _planned(Step.GUARDS, _owned(found, REGISTERED_GUARDS)),
        PlannedStep(Step.LINE, KEPT_LINE, line, is_kept=True) if scope.keeps_line else _planned(Step.LINE, line),
        _planned(Step.HOLDS, (*(f"Node {name}" for name in found.held_nodes), *_owned(found, (HELD_ROOM_OBJECT,)))),
        _planned(Step.NOTICES, _texts(found.notices)),
        _planned(Step.PROCESSES, stopped),
        PlannedStep(Step.DEFINITIONS, "stay, with their objects", definitions, is_kept=True)
        if scope.keeps_definitions
        else _planned(Step.DEFINITIONS, definitions),
        _planned(Step.ROLES, _owned(found, ROLES)),
        _planned(Step.LEASES, tuple(each.text for each in found.leases)),
        _planned(Step.CERTIFICATES, tuple(each.text for each in found.secrets)),
    )


def _planned(step: Step, objects: tuple[str, ...]) -> PlannedStep:
    return PlannedStep(step, _DOES[step], objects)


def _owned(found: Survey, wanted: Iterable[OwnedObject]) -> tuple[str, ...]:
    return tuple(each.text for each in found.among(wanted))


def _texts(pods: Iterable[MarkedPod]) -> tuple[str, ...]:
    return tuple(f"Pod {each.text}" for each in pods)


# Patches many pods, so many at a time and so many in a second; what fails is tried again, then named.


_TRIES: Final = 4
_REST_SECONDS: Final = 0.5
_MAX_REST_SECONDS: Final = 10.0


async def patch_pods(
    connection: ApiConnection,
    pods: Iterable[MarkedPod],
    patch: Callable[[MarkedPod], bytes],
    *,
    content_type: str,
    tempo: Tempo,
) -> list[str]:
    """Patch each pod; return for each one that could not be patched its name and why.

    A pod that is gone, or another one by its name, is not an error.
    """
    queue = enumerate(list(pods))
    began = _now()
    failed: list[str] = []

    async def work() -> None:
        for number, pod in queue:  # shared: each pod has one worker
            await asyncio.sleep(began + (number - tempo.at_once) / tempo.pods_per_second - _now())
            problem = await _patch(connection, pod, patch(pod), content_type)
            if problem:
                failed.append(f"{pod.text}: {problem}")

    async with asyncio.TaskGroup() as group:
        for _ in range(tempo.at_once):
            group.create_task(work())
    return sorted(failed)


async def _patch(connection: ApiConnection, pod: MarkedPod, body: bytes, content_type: str) -> str:
    """Patch one pod; return why it could not be done, nothing if it was."""
    path = pod_path(pod.namespace, pod.name)
    problem = ""
    for attempt in range(_TRIES):
        rest = _REST_SECONDS * 2**attempt
        try:
            await connection.send("PATCH", path, body, action="patch pods", content_type=content_type)
        except ApiError as error:
            if error.is_missing:
                return ""
            problem = str(error)
            if error.is_forbidden or error.status == HTTPStatus.UNPROCESSABLE_ENTITY:
                break
            rest = max(rest, error.retry_after_seconds)
        except ClusterError as error:
            problem = str(error)
        else:
            return ""
        await asyncio.sleep(min(rest, _MAX_REST_SECONDS))
    return problem


def _now() -> float:
    return asyncio.get_running_loop().time()


# Carries an uninstallation out, step by step. Each step may be repeated: what is gone already is no error.


_NO_REPLICAS: Final = msgspec.json.encode({"spec": {"replicas": 0}})


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step that ended, and what it could not do."""

    planned: PlannedStep
    failed: tuple[str, ...] = ()


class Uninstallation:
    """One uninstallation.

    `report` gets the result of each step that has something to do, as it ends; `waits` the processes that still run,
    whenever these are others than before.
    """

    def __init__(
        self,
        connection: ApiConnection,
        scope: Scope,
        tempo: Tempo,
        *,
        report: Callable[[StepResult], None],
        waits: Callable[[list[str]], None],
    ) -> None:
        self._connection = connection
        self._scope = scope
        self._tempo = tempo
        self._report = report
        self._waits = waits

    async def run(self, found: Survey) -> None:
        """Remove what a survey found. Raises ClusterError, after which a new survey and another run go on."""
        steps = self._planned(found)
        await self._step(steps[Step.WEBHOOKS], self._delete_webhooks(found))
        async with taken_over(self._connection, found.leases, self._tempo):
            await self._step(steps[Step.LEADERS], self._settle(found))
            await self._step(steps[Step.GUARDS], self._delete(found.among(REGISTERED_GUARDS)))
            await self._free(found)
            await self._step(steps[Step.PROCESSES], self._stop(found))
            await self._free(await self._latecomers(found))
            await self._step(steps[Step.DEFINITIONS], self._delete_definitions(found))
        await self._step(steps[Step.ROLES], self._delete(found.among(ROLES)))
        await self._step(steps[Step.LEASES], self._delete(found.leases))
        await self._step(steps[Step.CERTIFICATES], self._delete(found.secrets))

    def _planned(self, found: Survey) -> dict[Step, PlannedStep]:
        return {each.step: each for each in plan(found, self._scope)}

    async def _step(self, planned: PlannedStep, doing: Awaitable[Iterable[str]]) -> None:
        failed = tuple(await doing)
        if planned.objects:
            self._report(StepResult(planned, failed))

    async def _delete_webhooks(self, found: Survey) -> Iterable[str]:
        for each in found.among(WEBHOOKS):
            await self._delete([each])
            await asyncio.sleep(self._tempo.settle_seconds / 2)
        return ()

    async def _settle(self, found: Survey) -> Iterable[str]:
        """Wait until API servers no longer call a webhook, and no process thinks that it leads."""
        if found.leases or found.among(WEBHOOKS):
            await asyncio.sleep(self._tempo.settle_seconds)
        return ()

    async def _free(self, found: Survey) -> None:
        """Let go what waits, open what is held, withdraw what is announced."""
        steps = self._planned(found)
        await self._step(steps[Step.LINE], self._let_go(found))
        await self._step(steps[Step.HOLDS], self._open(found.held_nodes))
        withdrawn = patch_pods(
            self._connection,
            found.notices,
            unmark_patch,
            content_type=MERGE_PATCH,
            tempo=self._tempo,
        )
        await self._step(steps[Step.NOTICES], withdrawn)

    async def _let_go(self, found: Survey) -> Iterable[str]:
        if self._scope.keeps_line:
            return ()
        return await patch_pods(
            self._connection, found.line, let_go_patch, content_type=STRATEGIC_PATCH, tempo=self._tempo
        )

    async def _open(self, nodes: Iterable[NodeName]) -> Iterable[str]:
        await self._delete([HELD_ROOM_OBJECT])
        limit = asyncio.Semaphore(self._tempo.at_once)

        async def opened(node: NodeName) -> str:
            async with limit:
                try:
                    await write_hold(self._connection, node, None)
                except ApiError as error:
                    return f"{node}: {error}"
                return ""

        return filter(None, await asyncio.gather(*map(opened, nodes)))

    async def _stop(self, found: Survey) -> Iterable[str]:
        """Scale what runs in the cluster to zero, and wait until processes no longer report themselves."""
        for each in found.workloads:
            if each.replicas:
                path = f"{each.path}/scale"
                action = f"patch {each.kind.lower()}s/scale"
                await self._connection.send("PATCH", path, _NO_REPLICAS, action=action, content_type=MERGE_PATCH)
        seen: dict[str, tuple[str, float]] = {}
        is_last = _now() + self._tempo.wait_seconds
        before: list[str] = []
        while left := await running(self._connection, seen=seen):
            if left != before:
                self._waits(left)
                before = left
            if _now() > is_last:
                raise ClusterError(
                    f"still running: {', '.join(left)}; stop them, then run `fairgate uninstall` again: it goes on "
                    "from here. Until then GPU pods are created as without Fairgate"
                )
            await asyncio.sleep(self._tempo.poll_seconds)
        return ()

    async def _latecomers(self, found: Survey) -> Survey:
        """Look again at what a process may have written while it was stopped, or a request that was on its way."""
        return replace(
            found,
            present=found.present - {HELD_ROOM_OBJECT},
            line=() if self._scope.keeps_line else tuple(await pods_in_line(self._connection)),
            notices=tuple(await pods_with_notice(self._connection)),
            held_nodes=tuple(await held_nodes(self._connection)),
        )

    async def _delete_definitions(self, found: Survey) -> Iterable[str]:
        """Delete the definitions one by one, each with its objects."""
        for each in () if self._scope.keeps_definitions else found.among(DEFINITIONS):
            await self._delete([each])
            await self._wait_gone(each)
        return ()

    async def _wait_gone(self, owned: OwnedObject) -> None:
        is_last = _now() + self._tempo.wait_seconds
        while True:
            if await find(self._connection, owned.path, action=f"get {owned.plural}") is None:
                return
            if _now() > is_last:
                raise ClusterError(
                    f"{owned.text} is being deleted for {self._tempo.wait_seconds:g} s: an object of it has a finalizer"
                )
            await asyncio.sleep(self._tempo.poll_seconds)

    async def _delete(self, objects: Iterable[OwnedObject]) -> Iterable[str]:
        for each in objects:
            try:
                await self._connection.send("DELETE", each.path, action=f"delete {each.plural}")
            except ApiError as error:
                if not error.is_missing:
                    raise
        return ()
