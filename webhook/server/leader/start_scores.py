"""Scores of likely starts, and the log of runs.

Remembers how long the pods of the watch ran, for forecasts: each replica does, since any may lead next.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, NoReturn

import msgspec

from webhook.cluster.api.client import ClusterError
from webhook.cluster.writes.reports import ReportWriter, read_report
from webhook.core.explain.line_places import NO_SCORE, RangeScores, Run, StartRange
from webhook.core.explain.line_rows import Past
from webhook.core.model.amounts import TeamName, Uid
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World
from webhook.files import SnapshotError, Snapshots
from webhook.kube.ledger import reports
from webhook.kube.objects import objects
from webhook.kube.pod.outcomes import run_of
from webhook.server.leader.registration_loop import LeaderContext
from webhook.simulation.forecast.forecast import Forecast
from webhook.simulation.forecast.run_times import SeenRuns


class RunLog:
    """Remembers runs as `runs`, and hands each change on to `then`."""

    def __init__(
        self,
        world: World,
        then: Callable[[str, msgspec.Struct | None, str], None],
        clock: Callable[[], float],
    ) -> None:
        self.runs = SeenRuns()
        self._world = world
        self._then = then
        self._clock = clock

    def note(self, kind: str, found: msgspec.Struct | None, handle: str) -> None:
        """Note an object of a watched kind that changed, None if it is gone; after the world applied it."""
        self._then(kind, found, handle)
        uid = Uid(handle)
        if kind != "pods":
            return
        if found is None:
            self.runs.end(uid, now=int(self._clock()))
        elif uid not in self.runs and isinstance(found, objects.Pod):
            charge = self._world.charge_of(uid)
            self.runs.add(None if charge is None else run_of(found, uid, charge))


# A task of the leader: forecasts likely starts now and then, and scores each range by what happened.
#
# Of a pod one range at a time is open. It is scored when the pod starts, or once its end has passed. What came of the
# ranges is published as a Report, from which the next leader goes on; ranges that are open are lost with the leader.


FORECAST_SECONDS: Final = 300.0
"""Between two forecasts: each takes some seconds of a processor, in a process of its own."""

LOOK_SECONDS: Final = 5
"""Between two looks for pods that started: a start is seen at most so late."""

PUBLISH_SECONDS: Final = 60.0
"""Between two writes of the report."""

MOST_OPEN: Final = 1_000
OPEN_OF_TEAM: Final = 100
"""Ranges that are open at once, and those of one team: its pods are not to outweigh those of others."""

_SECONDS: Final = 10
_MORE_BYTES: Final = 256 << 20
_NICE: Final = 10
"""Limits of the process that forecasts: seconds of a processor, memory beside the server's own, its priority."""


class _Open(NamedTuple):
    """A range that is not scored yet, and when it was forecast, in seconds of Unix time."""

    at: int
    found: StartRange
    team: TeamName


class StartScorer:
    """Forecasts and scores while `run` runs. `results` counts the ranges that this replica scored."""

    def __init__(self, context: LeaderContext, *, runs: Iterable[Run], clock: Callable[[], float]) -> None:
        self.results = NO_SCORE
        self.scores = RangeScores()
        self.writer = ReportWriter(context.connection, reports.STARTS)
        self._connection = context.connection
        self._world = context.world
        self._logs = context.logs
        self._runs = runs
        self._why_stale = context.why_stale
        self._clock = clock
        self._snapshots = Snapshots(seconds=_SECONDS, more_bytes=_MORE_BYTES)
        self._open: dict[Uid, _Open] = {}
        self._problem = ""

    async def run(self) -> NoReturn:
        """Forecast and score until cancelled."""
        self._open.clear()
        self.scores = reports.scores_of(await self._read(reports.STARTS))
        loop = asyncio.get_running_loop()
        forecast_at, publish_at, published = loop.time(), loop.time() + PUBLISH_SECONDS, self.results
        while True:
            if self._why_stale() is None:
                self.look(int(self._clock()))
                if loop.time() >= forecast_at and len(self._world.waiting):
                    await self.forecast()
                    forecast_at = loop.time() + FORECAST_SECONDS
            if loop.time() >= publish_at and self.results != published:
                if await self.writer.write(reports.starts_patch(self.scores)) is not None:
                    published = self.results
                publish_at = loop.time() + PUBLISH_SECONDS
            await asyncio.sleep(LOOK_SECONDS)

    def look(self, now: int) -> None:
        """Score the ranges of pods that started, and those whose end has passed."""
        waiting = self._world.waiting
        for uid, each in list(self._open.items()):
            has_started = uid not in waiting
            if has_started and self._world.pod(uid) is None:
                del self._open[uid]  # it was deleted
            elif has_started or now - each.at > each.found.latest + LOOK_SECONDS:
                del self._open[uid]
                added = self.scores.note(each.found, now - each.at, slack=LOOK_SECONDS)
                self.results = self.results.plus(added)

    async def forecast(self) -> None:
        """Forecast the starts of pods in line that have no open range."""
        now, chosen = int(self._clock()), list(self._chosen())
        if not chosen:
            return
        found = await self._read(reports.REPLICAS)
        leads = found is not None and reports.evictor_leads(found, now=self._clock())
        past = Past(self._runs, no_evictor="" if leads else "no evictor leads")
        uids = [pod.uid for pod in chosen]
        try:
            encoded = await self._snapshots.run(lambda: _forecast(self._world, past, uids, now=now))
        except SnapshotError as error:
            self._note(str(error))
            return
        ranges = msgspec.msgpack.decode(encoded, type=dict[str, tuple[int, int]])
        for pod in chosen:
            if (known := ranges.get(pod.uid)) is not None:
                self._open[pod.uid] = _Open(now, StartRange(*known), pod.team)

    def _chosen(self) -> Iterator[WaitingPod]:
        """Yield the pods to forecast: of each team as many at most, the oldest first."""
        of_team = Counter(each.team for each in self._open.values())
        total = of_team.total()
        for pod in sorted(self._world.waiting.all(), key=lambda pod: (pod.created, pod.uid)):
            if total >= MOST_OPEN:
                return
            if pod.uid not in self._open and pod.has_turn and of_team[pod.team] < OPEN_OF_TEAM:
                of_team[pod.team] += 1
                total += 1
                yield pod

    async def _read(self, name: str) -> reports.Report | None:
        try:
            return await read_report(self._connection, name)
        except ClusterError:
            return None

    def _note(self, problem: str) -> None:
        """Log why there is no forecast, once."""
        if problem != self._problem:
            self._problem = problem
            self._logs.event.warning("likely starts not scored", why=problem)


def _forecast(world: World, past: Past, uids: list[Uid], *, now: int) -> bytes:
    """Return the likely starts of pods, in a process of its own."""
    os.nice(_NICE)
    forecast = Forecast(world, past.runs, now=now, clock=time.process_time, no_evictor=past.no_evictor)
    found = {uid: forecast(uid) for uid in uids}
    return msgspec.msgpack.encode({uid: tuple(each) for uid, each in found.items() if isinstance(each, StartRange)})
