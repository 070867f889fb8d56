"""Has controllers try again once their pods would be admitted: what the leader does when room comes back."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.cluster.watch.event_stream import EventStream
from webhook.core.admission.refused_owners import MissingPods, RefusedOwner, Retries
from webhook.core.model.decision import Deny
from webhook.core.world.world import World
from webhook.kube.objects.events import EventReason, ObjectRef
from webhook.kube.objects.owners import path_of
from webhook.kube.reclaim.controller_retries import RefusalEvent, refused_owner, retry_patch
from webhook.kube.reclaim.holds import rfc3339
from webhook.kube.workloads.expand import expand
from webhook.kube.workloads.model import Json, Unknown, mapping
from webhook.kube.workloads.table import kind_table
from webhook.observe.logs import Logs
from webhook.simulation.simulate import read_template

SELECTOR: Final = f"reason={EventReason.REFUSED},reportingComponent=fairgate"
READ_AT_ONCE: Final = 4
"""Objects that are read in one look; looks are at least a quarter of a second apart."""

SECONDS: Final = 5.0
"""How long one request may take: the leader has more to do."""

_MERGE: Final = "application/merge-patch+json"


class Retrier:
    """Nudges owners of refused pods. Start `listen` as a task while leading; `look` whenever the books change."""

    def __init__(
        self,
        connection: ApiConnection,
        world: World,
        logs: Logs,
        *,
        is_leading: Callable[[], bool],
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.nudges = 0
        self._connection = connection
        self._world = world
        self._logs = logs
        self._is_leading = is_leading
        self._wake = wake
        self._clock = clock
        self._retries = Retries()
        self._stream = EventStream(connection, RefusalEvent, selector=SELECTOR, take=self._hear)

    async def listen(self) -> None:
        """Hear of refusals, those of other replicas too, while policy wants it; until cancelled."""
        self._retries.clear()
        listening: asyncio.Task[None] | None = None
        try:
            while True:
                if self._is_wanted and listening is None:
                    listening = asyncio.create_task(self._stream.run())
                elif not self._is_wanted and listening is not None:
                    listening.cancel()
                    listening = None
                    self._retries.clear()
                await asyncio.sleep(SECONDS)
        finally:
            if listening is not None:
                listening.cancel()

    async def look(self) -> None:
        """Have the controllers try again whose pods would be admitted by now."""
        if not (self._is_wanted and len(self._retries)):
            return
        for owner in self._retries.unread(now=self._clock(), count=READ_AT_ONCE):
            await self._read(owner)
        for owner in self._retries.due(self._world, now=self._clock()):
            if self._is_leading():
                await self._nudge(owner)

    @property
    def _is_wanted(self) -> bool:
        policy = self._world.policy
        return policy.is_enforced and policy.defaults.retry_refused

    def _hear(self, event: RefusalEvent) -> None:
        owner = refused_owner(event)
        if owner is not None:
            self._retries.note(owner, now=self._clock())
            self._wake()

    async def _read(self, owner: RefusedOwner) -> None:
        path = _path(owner)
        if path is None:
            self._retries.forget(owner)
            return
        try:
            body = await self._connection.send("GET", path, action=f"get {path.split('/')[-2]}", seconds=SECONDS)
            found = list(self._missing(owner, msgspec.json.decode(body)))
        except ApiError:
            self._retries.forget(owner)
        except (ClusterError, ValueError, RecursionError):
            return
        else:
            self._retries.learn(owner, found)

    def _missing(self, owner: RefusedOwner, document: Json) -> Iterator[MissingPods]:
        """Read which pods an object would create, and how many of them are missing."""
        if mapping(document.get("metadata")).get("uid") != owner.controller.uid:
            return
        kinds = kind_table(self._world.policy.workloads.kinds)
        workload = expand(document, kinds=kinds, namespace=owner.namespace)
        if workload is None or isinstance(workload, Unknown):
            return
        for pods in workload.pod_sets:
            if not pods.template:
                continue
            template = read_template(pods.template, namespace=owner.namespace, world=self._world)
            if not isinstance(template, Deny):
                yield MissingPods(template.pod, _missing_of(document, pods.count))

    async def _nudge(self, owner: RefusedOwner) -> None:
        path = _path(owner)
        if path is None:
            return
        controller = owner.controller
        patch = retry_patch(controller.uid, at=rfc3339(int(time.time())))
        action = f"patch {path.split('/')[-2]}"
        try:
            await self._connection.send("PATCH", path, patch, action=action, content_type=_MERGE, seconds=SECONDS)
        except ApiError:
            self._retries.forget(owner)
        except ClusterError:
            return
        else:
            self.nudges += 1
            named = {"namespace": owner.namespace, "kind": controller.kind, "name": controller.name}
            self._logs.event.info("retry requested", **named)


def _path(owner: RefusedOwner) -> str | None:
    api_version, kind, name, uid = owner.controller
    return path_of(ObjectRef(kind, owner.namespace, name, uid, api_version))


def _missing_of(document: Json, wanted: int | None) -> int:
    """Tell how many pods of an object are missing, as its status says."""
    status = mapping(document.get("status"))
    there = next(
        (each for key in ("active", "replicas", "currentNumberScheduled") if isinstance(each := status.get(key), int)),
        0,
    )
    return 1 if wanted is None else max(0, wanted - there)
