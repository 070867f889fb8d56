"""Controllers triggered again; rejections.

A task of the leader: makes controllers retry once their refused pods would be admitted.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from webhook.cluster.api.client import MERGE_PATCH, ApiError, ClusterError
from webhook.cluster.watch.event_stream import EventStream
from webhook.core.admission.refused_owners import MissingPods, RefusedOwner, Retries
from webhook.core.model.amounts import NodeName, TeamName
from webhook.core.model.decision import Deny
from webhook.core.placement.rejecting_nodes import ClosedNode
from webhook.kube.admission.templates import read_template
from webhook.kube.kinds.model import Json, Unknown, mapping
from webhook.kube.kinds.table import kind_table, path_of
from webhook.kube.nodes.holds import rfc3339
from webhook.kube.objects import bounds
from webhook.kube.objects.events import Event, EventReason, ObjectRef
from webhook.kube.pod.outcomes import RefusalEvent, refused_owner, retry_patch
from webhook.kube.workloads.expand import expand
from webhook.server.leader.registration_loop import LeaderContext

SELECTOR: Final = f"reason={EventReason.REFUSED},reportingComponent=fairgate"
READ_AT_ONCE: Final = 4
"""Objects read in one reconciliation; these are at least a quarter of a second apart."""

SECONDS: Final = 5.0
"""Timeout of one request: the leader has other tasks."""


class Retrier:
    """Patches owners of refused pods. Run `watch_refusals` while leading, and `request_due` when usage changes."""

    def __init__(
        self, context: LeaderContext, *, wake: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.requested = 0
        self._context = context
        self._connection = context.connection
        self._world = context.world
        self._wake = wake
        self._clock = clock
        self._retries = Retries()
        self._stream = EventStream(context.connection, RefusalEvent, selector=SELECTOR, receive=self._note)

    async def watch_refusals(self) -> None:
        """Watch the refusals of all replicas, while the policy enables retries, until cancelled."""
        self._retries.clear()
        watching: asyncio.Task[None] | None = None
        try:
            while True:
                if self._is_enabled and watching is None:
                    watching = asyncio.create_task(self._stream.run())
                elif not self._is_enabled and watching is not None:
                    watching.cancel()
                    watching = None
                    self._retries.clear()
                await asyncio.sleep(SECONDS)
        finally:
            if watching is not None:
                watching.cancel()

    async def request_due(self) -> None:
        """Request a retry from the controllers whose pods would be admitted by now."""
        if not (self._is_enabled and len(self._retries)):
            return
        for owner in self._retries.unread(now=self._clock(), count=READ_AT_ONCE):
            await self._read(owner)
        for owner in self._retries.due(self._world, now=self._clock()):
            if self._context.is_leading():
                await self._request(owner)

    @property
    def _is_enabled(self) -> bool:
        policy = self._world.policy
        return policy.is_enforced and policy.defaults.retry_refused

    def _note(self, event: RefusalEvent) -> None:
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
            if len(body or b"") > bounds.LARGE_BYTES:  # tenants choose it, and the leader has other things to do
                self._retries.forget(owner)
                return
            found = list(self._missing(owner, msgspec.json.decode(body)))
        except ApiError:
            self._retries.forget(owner)
        except (ClusterError, ValueError, RecursionError):
            return
        else:
            self._retries.learn(owner, found)

    def _missing(self, owner: RefusedOwner, document: Json) -> Iterator[MissingPods]:
        """Return the pods that an object would create, and how many of them are missing."""
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

    async def _request(self, owner: RefusedOwner) -> None:
        path = _path(owner)
        if path is None:
            return
        controller = owner.controller
        patch = retry_patch(controller.uid, at=rfc3339(int(time.time())))
        action = f"patch {path.split('/')[-2]}"
        try:
            await self._connection.send("PATCH", path, patch, action=action, content_type=MERGE_PATCH, seconds=SECONDS)
        except ApiError:
            self._retries.forget(owner)
        except ClusterError:
            return
        else:
            self.requested += 1
            fields = {"namespace": owner.namespace, "kind": controller.kind, "name": controller.name}
            self._context.logs.event.info("retry requested", **fields)


def _path(owner: RefusedOwner) -> str | None:
    api_version, kind, name, uid = owner.controller
    return path_of(ObjectRef(kind, owner.namespace, name, uid, api_version))


def _missing_of(document: Json, wanted: int | None) -> int:
    """Return how many pods of an object are missing, by its status."""
    status = mapping(document.get("status"))
    existing = next(
        (each for key in ("active", "replicas", "currentNumberScheduled") if isinstance(each := status.get(key), int)),
        0,
    )
    return 1 if wanted is None else max(0, wanted - existing)


# Writes Events on the nodes that reject pods, once each time a node is closed to a team.


class RejectionReporter:
    """Reports each closing once. A new leader reports it again, with the same Event, which is then not a new one."""

    def __init__(self, context: LeaderContext) -> None:
        self._events = context.events
        self._world = context.world
        self._reported: set[tuple[NodeName, TeamName, int]] = set()

    def report_new(self) -> None:
        """Report the nodes that were closed since the last call."""
        found = {(each.node, each.team, each.since): each for each in self._world.rejecting_nodes.closed()}
        for key in found.keys() - self._reported:
            self._report(found[key])
        self._reported = set(found)

    def texts(self) -> Iterator[str]:
        """Yield what each node did with the pods of a team, for the report of this replica."""
        for each in self._world.rejecting_nodes.closed():
            yield (
                f"node {each.node}: the last {each.rejections} pods of team {each.team}{each.size} were rejected there "
                f"({each.reason}); closed to them until {_time(each.until)}"
            )

    def _report(self, closed: ClosedNode) -> None:
        text = (
            f"rejected pods of team {closed.team}{closed.size} at their admission ({closed.reason}): Fairgate places "
            f"no more of them here until {_time(closed.until)}; then one pod at a time tries the node, until one starts"
        )
        about = ObjectRef("Node", "", closed.node, closed.node)  # by its name, as in the Events of kubelets
        self._events.record(Event(about, EventReason.REJECTS_PODS, text))


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S UTC")
