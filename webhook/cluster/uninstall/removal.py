"""Carries an uninstallation out, step by step. Each step may be repeated: what is gone already is no error."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from webhook.cluster.api.client import MERGE_PATCH, STRATEGIC_PATCH, ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.cluster.api.one_object import find
from webhook.cluster.uninstall.leadership import taken_over
from webhook.cluster.uninstall.plan import PlannedStep, Step, plan
from webhook.cluster.uninstall.pod_writes import patch_pods
from webhook.cluster.uninstall.scope import Scope, Tempo
from webhook.cluster.uninstall.survey import Survey, held_nodes, pods_in_line, pods_with_notice, running
from webhook.cluster.writes.holds import write_hold
from webhook.core.model.names import NodeName
from webhook.kube.pod.let_go import let_go_patch, unmark_patch
from webhook.kube.registration.inventory import DEFINITIONS, HELD_ROOM, REGISTERED_GUARDS, ROLES, WEBHOOKS, OwnedObject

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
        await self._delete([HELD_ROOM])
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
            present=found.present - {HELD_ROOM},
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


def _now() -> float:
    return asyncio.get_running_loop().time()
