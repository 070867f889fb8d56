"""Webhook configurations, policy published.

What the tasks of the leader share: the cluster as this replica sees it, and the ways to change and report it.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from webhook.cluster.api.client import ApiConnection, ClusterError
from webhook.cluster.ledger.ledger import ApiLedger
from webhook.cluster.writes.events import EventWriter, OwnerEvent
from webhook.cluster.writes.registration import SyncResult, sync_registration, why_unreachable
from webhook.cluster.writes.reports import ReportWriter
from webhook.core.model.amounts import UNASSIGNED, plural
from webhook.core.model.pod import Pod, Resident
from webhook.core.model.policy import Policy
from webhook.core.world.world import World
from webhook.kube.ledger import reports
from webhook.kube.ledger.reports import PolicyReport
from webhook.kube.objects.events import Event, EventReason, ObjectRef
from webhook.kube.registration.inventory import (
    excluding_keys,
    excluding_labels,
    objects_from_policy,
    unreviewed_namespaces,
)
from webhook.observe.logs import Logs
from webhook.policy.build import published
from webhook.policy.documents import Files
from webhook.policy.watch import InForce


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderContext:
    """One candidate's view and tools. `why_stale` returns why the world may not be current, None if it is.

    `notify_owner` queues Events on the owners of pods.
    """

    connection: ApiConnection
    world: World
    ledger: ApiLedger
    events: EventWriter
    logs: Logs
    is_leading: Callable[[], bool]
    why_stale: Callable[[], str | None]
    notify_owner: Callable[[OwnerEvent], None]

    def report(self, pod: Resident | Pod, reason: EventReason, text: str) -> None:
        """Record an Event on a pod."""
        self.events.record(Event(ObjectRef("Pod", pod.namespace, pod.name, pod.uid), reason, text))


# A task of the leader: publishes the policy in force as a Report that viewers may read.


CHECK_SECONDS: Final = 2.0
"""Between two checks whether another policy is in force."""

REPEAT_SECONDS: Final = 60.0
"""The same policy is written again after so long: the report may have been deleted."""


class PolicyPublisher:
    """Publishes the policy while `run` runs."""

    def __init__(self, connection: ApiConnection, in_force: Callable[[], InForce], logs: Logs) -> None:
        self.writer = ReportWriter(connection, reports.POLICY)
        self._in_force = in_force
        self._logs = logs
        self._written: PolicyReport | None = None
        self._written_at = float("-inf")

    async def run(self) -> None:
        """Keep the report current until cancelled."""
        self._written = None  # another leader may have written since
        while True:
            await self.publish()
            await asyncio.sleep(CHECK_SECONDS)

    async def publish(self) -> None:
        """Write the report if the policy changed or the last write was too long ago."""
        now = asyncio.get_running_loop().time()
        policy, files = self._in_force()
        written = self._written
        is_same = written is not None and (written.hash, written.enforce) == (policy.hash, policy.enforce.value)
        if is_same and now - self._written_at < REPEAT_SECONDS:
            return
        report = written if written is not None and is_same else await asyncio.to_thread(report_of, policy, files)
        if await self.writer.write(reports.report_patch(reports.POLICY, report)) is None:
            return
        self._written_at = now
        if not is_same:
            self._logs.event.info("policy published", policy=policy.hash, bytes=len(report.documents))
        self._written = report


def report_of(policy: Policy, files: Files) -> PolicyReport:
    """Return the report of a policy; a policy that is too large is omitted, and the report says so."""
    documents, omitted = published(files), ""
    if (size := len(documents.encode())) > reports.MAX_POLICY_BYTES:
        documents = ""
        omitted = f"the policy has {size:,} bytes, and at most {reports.MAX_POLICY_BYTES:,} are published"
    return PolicyReport(policy.hash, policy.enforce.value, documents, omitted)


# A task of the leader: updates existing webhook configurations and guards to match the policy.


SYNC_SECONDS: Final = 5.0
"""Between two syncs: an edit of the policy is rare, and its mount takes longer to change than this."""
SYNC_OPEN_SECONDS: Final = 1.0
"""Between two syncs while a webhook fails open that should not: its CA is published at about the same time."""
RESTORE_SECONDS: Final = 10.0
"""How long a webhook configuration is missing before it is created again: `fairgate uninstall` deletes them, and a
leader notices within 2 s that it does not lead anymore."""
LONGEST_PAUSE_SECONDS: Final = 600.0
"""Between two writes of an object that others keep changing back: the first pause is one sync, each next one double."""


class _Write(NamedTuple):
    """An object as it was written, how often in a row, and until when it is not written again."""

    content: dict[str, Any]
    times: int
    until: float


class RegistrationLoop:
    """Updates webhook configurations and guards while `run` runs. `problem` is why they do not match the policy.

    `why_not_serving` returns why this server cannot answer reviews now. No webhook is set to fail closed before the
    server can, and the API server has reached it once through the Service. An object that others change back is
    written again at growing intervals. Labels by which they exclude namespaces are guarded as labels of tenancy.
    A webhook configuration that is deleted is created again where RBAC allows it, as this leader last saw it.
    `is_static`: API servers have the webhooks from files, so none is `missing`.
    """

    def __init__(
        self, context: LeaderContext, *, why_not_serving: Callable[[], str | None], is_static: bool = False
    ) -> None:
        self.problem: str | None = None
        self.missing: tuple[str, ...] = ()
        self._is_static = is_static
        self._last: dict[str, dict[str, Any]] = {}
        self._missing_since: float | None = None
        self._made: tuple[Policy, tuple[str, ...], list[dict[str, Any]]] | None = None
        self._is_open = False
        self._is_reached = False
        self._excluding: tuple[str, ...] = ()
        self._narrowed: tuple[dict[str, Any], ...] = ()
        self._writes: dict[str, _Write] = {}
        self._paused: set[str] = set()
        self._connection = context.connection
        self._world = context.world
        self._logs = context.logs
        self._why_not_serving = why_not_serving

    async def run(self) -> None:
        """Sync until cancelled. What was deleted before this term is not created again: an uninstallation may have."""
        self._last, self._missing_since = {}, None
        while True:
            await self.sync()
            await asyncio.sleep(SYNC_OPEN_SECONDS if self._is_open else SYNC_SECONDS)

    def unreviewed(self) -> Iterator[str]:
        """Yield how many namespaces of each team others exclude from the webhooks."""
        for team, names in unreviewed_namespaces(self._narrowed, self._world).items() if self._narrowed else ():
            if team != UNASSIGNED:
                yield f"{plural(len(names), 'namespace')} of team {team}"

    async def sync(self) -> None:
        """Sync once; a problem is logged once."""
        problem = None
        try:
            done, cause = await self._sync()
        except ClusterError as error:
            problem = str(error)
        else:
            self._is_open = bool(done.open)
            if done.changed:
                policy = self._world.policy.hash
                self._logs.event.info("registration changed", objects=list(done.changed), policy=policy)
            self._note(done)
            found = [*self.missing]
            found += [f"{', '.join(done.open)}: failurePolicy stays Ignore, {cause}"] if done.open else []
            found += done.unbound
            if contested := sorted(name for name, each in self._writes.items() if each.times > 1):
                found.append(f"others change {', '.join(contested)} back: written again at growing intervals")
            problem = "; ".join(found) or None
        if problem is not None and problem != self.problem:
            self._logs.event.warning("registration not kept in step", why=problem)
        self.problem = problem

    async def _sync(self) -> tuple[SyncResult, str]:
        """Sync what is possible now; return the result, and why a webhook still fails open, if any does."""
        wanted = self._wanted()
        why_not = self._why_not_serving()
        if why_not is not None:
            cause = f"this server is not ready: {why_not}"
            return await self._write(wanted, is_served=False), cause
        done = await self._write(wanted, is_served=self._is_reached)
        if done.open and not self._is_reached:
            why_not = await why_unreachable(self._connection, done.probes)
            if why_not is not None:
                return done, why_not
            self._is_reached = True
            closed = await self._write(wanted, is_served=True)
            done = closed._replace(changed=done.changed | closed.changed)
        return done, "there is no caBundle yet"

    def _wanted(self) -> list[dict[str, Any]]:
        """Return the objects as they are to be; they are made again only for another policy, or other exclusions."""
        policy, excluding = self._world.policy, self._excluding
        if self._made is None or self._made[0] is not policy or self._made[1] != excluding:
            self._made = policy, excluding, objects_from_policy(policy, excluding=excluding)
        return self._made[2]

    async def _write(self, wanted: list[dict[str, Any]], *, is_served: bool) -> SyncResult:
        now = asyncio.get_running_loop().time()
        self._paused = {name for name, each in self._writes.items() if each.until > now}
        is_lost = self._missing_since is not None and now - self._missing_since >= RESTORE_SECONDS
        return await sync_registration(
            self._connection,
            wanted,
            is_served=is_served,
            paused=self._paused,
            deleted=self._last if is_lost and self._why_not_serving() is None else {},
        )

    def _note(self, done: SyncResult) -> None:
        """Note what was written, and what stayed as it was written before."""
        now, paused = asyncio.get_running_loop().time(), {name: self._writes[name] for name in self._paused}
        self.missing = () if self._is_static else done.missing
        if not self.missing:
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = now
        self._last |= done.configurations
        present = done.configurations.values()
        if (excluding := excluding_labels(present)) != self._excluding:
            self._logs.event.warning("others exclude namespaces from the webhooks", labels=list(excluding))
            self._excluding = excluding
        self._narrowed = tuple(each for each in present if excluding_keys([each]))
        before, self._writes = self._writes, paused
        for name, content in done.changed.items():
            last = before.get(name)
            times = last.times if last is not None and last.content == content else 0
            pause = min(SYNC_SECONDS * (2**times - 1), LONGEST_PAUSE_SECONDS)
            self._writes[name] = _Write(content, times + 1, now + pause)
