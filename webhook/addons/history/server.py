"""The history in a server: usage is recorded, answered for, published by the leader, and exported as metrics."""

import asyncio
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

import click
import msgspec
from aiohttp import web

from webhook.addons.history import reader
from webhook.addons.history.gpu_time import GpuTimeMetrics, watch_history
from webhook.addons.history.meter import Recording, UsageRow
from webhook.addons.history.reader import By, merged, observed_hours, usage_by, whole_intervals
from webhook.addons.history.recorder import UsageRecorder
from webhook.addons.history.store import DEFAULT_DAYS, DEFAULT_MEGABYTES, HistoryBounds, HistoryError
from webhook.cli.options import option, path_option
from webhook.cluster.api.client import ApiConnection, ClusterError
from webhook.cluster.reads.installation import CallerRights
from webhook.cluster.writes.reports import ReportWriter
from webhook.core.model.pod import Pod
from webhook.core.model.reasons import Reason
from webhook.kube.admission.reviews import Review
from webhook.kube.ledger import reports
from webhook.kube.ledger.reports import TeamHours, UsagePeriod, UsageReport
from webhook.kube.objects.keys import AUDIENCE, TOKEN_HEADER, USAGE_PATH
from webhook.server.addons import ServedCluster, ServerAddon, ServerParts, Task
from webhook.server.http.app import Handler
from webhook.server.http.replies import HttpError, RequestTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `fairgate serve`. Calling it makes the add-on."""

    history: Path | None = path_option(
        "--history",
        help="Record usage in this file, for `fairgate usage` and `fairgate replay`. Each replica needs its own.",
    )
    history_days: int = option(
        "--history-days",
        type=click.IntRange(min=1),
        default=DEFAULT_DAYS,
        metavar="DAYS",
        help="How long the history is kept.",
    )
    history_megabytes: int = option(
        "--history-megabytes",
        type=click.IntRange(min=16),
        default=DEFAULT_MEGABYTES,
        metavar="MB",
        help="How large its file may become; before that the oldest days are deleted.",
    )

    def __call__(self, parts: ServerParts) -> ServerAddon:
        """Return the history of one server."""
        bounds = HistoryBounds(days=self.history_days, megabytes=self.history_megabytes)
        return History(parts, path=self.history, bounds=bounds)


class History(ServerAddon):
    """The recorder and what is made of it. Without a path usage is measured and exported, and not kept."""

    def __init__(self, parts: ServerParts, *, path: Path | None, bounds: HistoryBounds) -> None:
        self.recorder = recorder = UsageRecorder(parts.world, parts.logs, path=path, bounds=bounds)
        self._gpu_time = GpuTimeMetrics(parts.metrics.registry)
        parts.metrics.registry.register(self._gpu_time)
        self._gpu_time.watch(recorder.gpu_seconds, nodes=recorder.nodes, use=recorder.use)
        recorder.meter.on_start = self._gpu_time.started
        self._endpoint = UsageEndpoint(recorder)
        self._routes: dict[str, Handler] = {}
        self._tasks: dict[str, Task] = {}
        if path is not None:
            self._routes[USAGE_PATH] = self._endpoint.get
            watch_history(parts.metrics, lambda: recorder.problem, lambda: recorder.dropped)

    def report(self) -> Mapping[str, Any]:
        """Return why usage is not written to disk, if it is not."""
        return {"history": reports.shortened(self.recorder.problem)} if self.recorder.problem else {}

    def note(self, kind: str, found: msgspec.Struct | None, handle: str) -> None:
        """Record what a pod became."""
        self.recorder.note(kind, found, handle)

    def refused(self, review: Review, pod: Pod | None, reason: Reason) -> None:
        """Count a refused request, and the GPUs that it asked for."""
        self.recorder.refused(review, pod, reason)

    def connected(self, cluster: ServedCluster) -> None:
        """Record the cluster once it was read, and publish what was recorded."""
        self.recorder.watch(cluster.why_stale, wait_synced=cluster.wait_synced, in_force=cluster.in_force)
        self._endpoint.rights = CallerRights(cluster.connection, audience=AUDIENCE)
        publisher = UsagePublisher(cluster.connection, self.recorder)
        self._tasks = {"usage": self._gpu_time.run, "usage report": publisher.run}

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return the recorder."""
        return (self.recorder.run(),)

    def leading(self) -> Mapping[str, Task]:
        """Return what counts GPU-seconds, and what publishes usage."""
        return self._tasks

    def routes(self) -> Mapping[str, Handler]:
        """Return what answers for the history."""
        return self._routes


# A task of the leader: publishes what teams used in the last days, for people who may not read the history itself.


DAYS: Final = (1, 7, 30)
"""The periods that are published."""

USAGE_PAUSE_SECONDS: Final = 600.0
"""Between two writes."""

_FIRST_SECONDS: Final = 5.0
_DAY: Final = 86_400


class UsagePublisher:
    """Publishes the usage while `run` runs; nothing where no history is recorded."""

    def __init__(self, connection: ApiConnection, recorder: UsageRecorder) -> None:
        self.writer = ReportWriter(connection, reports.USAGE)
        self._recorder = recorder

    async def run(self) -> None:
        """Keep the report current until cancelled."""
        await asyncio.sleep(_FIRST_SECONDS)
        while True:
            await self.publish(time.time())
            await asyncio.sleep(USAGE_PAUSE_SECONDS)

    async def publish(self, now: float) -> None:
        """Write the report as of now, in Unix seconds."""
        try:
            days = {str(number): await self._period(number, now) for number in DAYS}
        except HistoryError:
            return
        report = UsageReport(reports.written_at(now), days)
        await self.writer.write(reports.report_patch(reports.USAGE, report))

    async def _period(self, days: int, now: float) -> UsagePeriod:
        since, until = whole_intervals(now - days * _DAY, now)
        rows = await self._recorder.read(since, until, step_seconds=until - since, most=reader.MAX_ROWS)
        return await asyncio.to_thread(period_of, rows, since, until)


def period_of(rows: Iterable[UsageRow], since: int, until: int) -> UsagePeriod:
    """Return the sums of teams from recorded rows."""
    found = merged([Recording("the leader", tuple(rows))])
    teams = [TeamHours(**msgspec.structs.asdict(each.rounded())) for each in usage_by(found, By.TEAM)]
    return UsagePeriod(since, until, round(observed_hours(found), 2), teams)


# GET /usage: what was recorded of a time range, for callers who may list the pods of all namespaces.


AT_ONCE: Final = 2
"""Requests at a time; others get a 429, so that reviews keep the processor."""
_LATEST: Final = 1 << 40


class UsageEndpoint:
    """Answers from what this replica recorded. Without `rights` no caller can be checked, and none is answered."""

    def __init__(self, recorder: UsageRecorder) -> None:
        self.rights: CallerRights | None = None
        self._recorder = recorder
        self._running = 0

    async def get(self, request: web.BaseRequest, _target: RequestTarget) -> web.Response:
        """Handle GET /usage?since=SECONDS&until=SECONDS; with &of=pods the pods that came, for `fairgate replay`."""
        if self._running >= AT_ONCE:
            raise HttpError(429, "TooManyRequests", "other requests for usage are answered now", retry_after_seconds=2)
        self._running += 1
        try:
            await self._check(request.headers.get(TOKEN_HEADER, ""))
            query = parse_qs(request.raw_path.partition("?")[2])
            since, until = _range(query)
            answer = self._pods if query.get("of") == ["pods"] else self._answer
            return web.Response(body=await answer(since, until), content_type="application/json")
        finally:
            self._running -= 1

    async def _check(self, token: str) -> None:
        if self.rights is None:
            raise HttpError(403, "Forbidden", "this server has no cluster that could say what a caller may see")
        try:
            why = await self.rights.why_not_all_pods(token)
        except ClusterError as error:
            raise HttpError(503, "NotReady", f"the caller's rights are not known: {error}") from error
        if why is not None:
            raise HttpError(403, "Forbidden", why)

    async def _answer(self, since: int, until: int) -> bytes:
        try:
            step = reader.step_seconds(since, until)
            rows = await self._recorder.read(since, until, step_seconds=step, most=reader.MAX_ROWS + 1)
        except HistoryError as error:
            raise HttpError(404, "NoHistory", str(error)) from error
        if len(rows) > reader.MAX_ROWS:
            text = f"more than {reader.MAX_ROWS:,} rows; ask for a shorter time"
            raise HttpError(413, "TooManyRows", text)
        return await asyncio.to_thread(reader.encode, rows)

    async def _pods(self, since: int, until: int) -> bytes:
        try:
            found = await self._recorder.read_pods(since, until)
        except HistoryError as error:
            raise HttpError(404, "NoHistory", str(error)) from error
        if len(found.pods) > reader.MAX_PODS:
            text = f"{len(found.pods):,} pods, and at most {reader.MAX_PODS:,} are sent: ask for a shorter time"
            raise HttpError(413, "TooManyRows", text)
        return await asyncio.to_thread(msgspec.json.encode, found)


def _range(query: Mapping[str, list[str]]) -> tuple[int, int]:
    try:
        since, until = int(query["since"][0]), int(query["until"][0])
    except (KeyError, ValueError):
        raise HttpError(400, "InvalidRange", "expected since and until in whole seconds of Unix time") from None
    if not 0 <= since < until <= _LATEST:
        raise HttpError(400, "InvalidRange", "since must be before until")
    return since, until
