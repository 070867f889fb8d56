"""Records while the server runs.

A clock of Unix time that runs evenly: a step of the system's clock is taken over only when the caller asks.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from webhook.core.admission.assessment import charged_user
from webhook.core.explain.node_rows import ClusterUse, capacities
from webhook.core.model.amounts import ONE_GPU, Uid, Units
from webhook.core.model.constraints import Tier
from webhook.core.model.node import NO_MODEL
from webhook.core.model.pod import Pod, Requester
from webhook.core.model.reasons import Reason
from webhook.core.placement.best_nodes import gpu_inventory
from webhook.core.world.world import World
from webhook.history.evicted_work import PODS, EvictedWork, Notes, PodLog
from webhook.history.meter import OF_EVICTIONS, Meter, UsageKey, UsageKind, UsageRow, bounded, interval_of
from webhook.history.reader import RecordedTrace, read_usage, recorded_trace
from webhook.history.store import Batch, HistoryBounds, HistoryError, HistoryStore, PodRow, Recorded
from webhook.kube.admission.reviews import Review
from webhook.kube.objects import objects
from webhook.observe.gpu_time import EvictedGpus, GpuHolder, NodeGpus
from webhook.observe.logs import Logs
from webhook.policy.build import published
from webhook.policy.watch import InForce

_STEP_SECONDS: Final = 1.0
"""A difference from which on the system's clock was set; smaller ones are slewed by the system itself."""


class SteadyClock:
    """Returns Unix time that advances with the monotonic clock."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._offset = wall() - monotonic()

    def __call__(self) -> float:
        """Return the time."""
        return self._monotonic() + self._offset

    def has_been_set(self) -> bool:
        """Whether the system's clock was set since the last call; the time is then the system's again."""
        offset = self._wall() - self._monotonic()
        if abs(offset - self._offset) < _STEP_SECONDS:
            return False
        self._offset = offset
        return True


# From a refused request to its row: who asked, by the same rules as for a pod that is charged, and for how much.


def refusal_row(review: Review, pod: Pod | None, reason: Reason, world: World) -> PodRow:
    """Return the row of a refused request; `pod` is None where it could not be read: then it asks for no GPU."""
    team = world.tenancy(review.namespace).team_name
    generated = "" if review.pod is None else review.pod.metadata.generate_name
    row = PodRow("", bounded(review.namespace), bounded(review.name or generated), team=bounded(team), code=reason.code)
    if pod is None:
        return row._replace(user=bounded(review.username))
    return row._replace(
        owner="" if pod.owner is None else bounded(f"{pod.owner.kind}/{pod.owner.name}"),
        user=bounded(charged_user(pod, Requester(review.username), world) or ""),
        gpus=float(pod.demand.gpus / ONE_GPU),
    )


# What a meter measured since its start, and what it measures now, as metrics.


_TIERS: Final = {UsageKind.HELD_GUARANTEED: Tier.GUARANTEED, UsageKind.HELD_PREEMPTIBLE: Tier.PREEMPTIBLE}


def gpu_seconds_of(meter: Meter) -> dict[GpuHolder | EvictedGpus, float]:
    """Return what pods held on nodes, by team, model and tier, and what evictions of pods lost and saved, by team."""
    found: dict[GpuHolder | EvictedGpus, float] = {}
    for key, amount in list(meter.totals.items()):
        if (tier := _TIERS.get(key.kind)) is not None:
            found[GpuHolder(key.team, key.model, tier.value)] = amount
            for kind in OF_EVICTIONS:  # a series starts at 0, as `increase` requires
                found.setdefault(EvictedGpus(key.team, kind.value), 0.0)
        elif key.kind in OF_EVICTIONS:
            work = EvictedGpus(key.team, key.kind.value)
            found[work] = found.get(work, 0.0) + amount
    return found


def nodes_of(meter: Meter, world: World) -> list[NodeGpus]:
    """Return the GPUs of each node that has some, as policy weighs them, and how many of them pods hold."""
    found, held_on = [], meter.on_nodes.held_on
    for name, capacity in capacities(world.fleet.nodes(), world.policy).items():
        node, used = world.fleet.get(name), held_on.get(name, 0)
        model = NO_MODEL if node is None else node.model
        found.append(NodeGpus(name, model, float(capacity / ONE_GPU), float(used / ONE_GPU)))
    return found


def use_of(meter: Meter, world: World) -> ClusterUse:
    """Return how the nodes are used now."""
    return meter.on_nodes.use(capacities(world.fleet.nodes(), world.policy))


# Records usage while the server runs: measures it on the event loop, and writes it in a thread of its own.
#
# Every replica records all pods, and the refusals that it answered itself: no replica depends on the leader, and none
# has a gap when another one ends. Nothing here makes a decision wait: a change of a pod is noted in a dictionary, and
# what cannot be written stays in bounded memory until it can.


TICK_SECONDS: Final = 10.0
"""Between two batches: what a kill can take from this replica's record."""
AT_ONCE: Final = 64
"""Pods in one turn of the event loop, about a millisecond: reviews have priority."""
_LATE_SECONDS: Final = 60.0
"""A tick that is later than this was not observed: the process did not run."""
_PRUNE_TICKS: Final = 60


class UsageRecorder:
    """Measures usage while `run` runs, and writes it to a file if there is a path.

    `problem` is why nothing can be written, `until` the time until which usage was measured last. `on_refused` is
    called with each refused request.
    """

    def __init__(
        self,
        world: World,
        logs: Logs,
        *,
        path: Path | None = None,
        bounds: HistoryBounds = HistoryBounds(),  # noqa: B008 - frozen
        clock: SteadyClock | None = None,
    ) -> None:
        self.problem: str | None = None
        self.bugs = 0
        self.meter = Meter()
        self.on_refused: Callable[[PodRow], None] = _no_one
        self._world = world
        self._logs = logs
        self._path = path
        self._bounds = bounds
        self._why_stale: Callable[[], str | None] = _never_stale
        self._wait_synced: Callable[[], Awaitable[None]] = _no_wait
        self._in_force: Callable[[], InForce] | None = None
        self._clock = clock or SteadyClock()
        self._store: HistoryStore | None = None
        self._thread = ThreadPoolExecutor(1, "history")
        self.pods = PodLog(world, self._clock)
        self._evicted = EvictedWork(world)
        self._unwritten: Notes | None = None
        self._changed: dict[Uid, None] = {}
        self._started = 0.0
        self.until = 0.0
        self._is_due = False
        self._use = ClusterUse()
        self._writing = asyncio.Lock()

    def watch(
        self,
        why_stale: Callable[[], str | None],
        *,
        wait_synced: Callable[[], Awaitable[None]],
        in_force: Callable[[], InForce] | None = None,
    ) -> None:
        """Begin once a world that is fed by a cluster is complete; `why_stale` returns why it may not be current.

        `in_force` returns the policy in force with its files, which are recorded, too.
        """
        self._why_stale, self._wait_synced, self._in_force = why_stale, wait_synced, in_force

    async def run(self) -> None:
        """Record until cancelled; then write what is left."""
        await self._wait_synced()
        await self._start()
        ticks = 0
        try:
            while True:
                await self.flush(is_pruning=ticks % _PRUNE_TICKS == 0)
                ticks += 1
                await asyncio.sleep(TICK_SECONDS)
        finally:
            self._stop()

    def note(self, kind: str, found: msgspec.Struct | None, handle: str) -> None:
        """Note an object of a watched kind that changed, None if it is gone; after the world applied it."""
        with self._harmless():
            if kind == PODS and (found is None or isinstance(found, objects.Pod)):
                for key, gpu_seconds in self._evicted.note(found, Uid(handle), now := self._clock()):
                    self.meter.add(key, gpu_seconds, now)
            if self._path is not None:
                self.pods.note(kind, found, handle)

    @property
    def dropped(self) -> int:
        """The rows that were dropped, since they could not be written or were too many."""
        return self.meter.dropped + self.pods.dropped + self.bugs

    def refused(self, review: Review, pod: Pod | None, reason: Reason) -> None:
        """Count a refused request, and the GPUs that it asked for; `pod` is None where it could not be read."""
        with self._harmless():
            now, row = self._clock(), refusal_row(review, pod, reason, self._world)
            self.meter.add(UsageKey(UsageKind.REFUSED, row.team, row.user), 1, now)
            self.meter.add(UsageKey(UsageKind.REFUSED_GPUS, row.team, row.user), row.gpus, now)
            self.on_refused(row)
            if self._path is not None and pod is not None:
                self.pods.refused(row, review.pod)

    def gpu_seconds(self) -> dict[GpuHolder | EvictedGpus, float]:
        """Return the GPU-seconds that pods held on nodes, and those of evictions, from the start until now."""
        if self.until:
            self._measure()
        return gpu_seconds_of(self.meter)

    def nodes(self) -> list[NodeGpus]:
        """Return the GPUs of each node, and how many of them pods hold now."""
        return nodes_of(self.meter, self._world)

    def use(self) -> ClusterUse:
        """Return how the nodes were used when it was measured last."""
        return self._use

    async def read(self, since: int, until: int, *, step_seconds: int, most: int) -> Sequence[UsageRow]:
        """Return what is recorded of a time range, until now, summed by steps. Raises HistoryError."""
        if self._path is None:
            raise HistoryError("this server records no history: start it with --history FILE")
        await self.flush()
        found = await asyncio.to_thread(read_usage, self._path, since, until, step_seconds=step_seconds, most=most)
        return found.rows

    async def read_pods(self, since: int, until: int) -> RecordedTrace:
        """Return what came in a time range, until now. Raises HistoryError."""
        if self._path is None:
            raise HistoryError("this server records no history: start it with --history FILE")
        await self.flush()
        return await asyncio.to_thread(recorded_trace, self._path, since, until)

    async def flush(self, *, is_pruning: bool = False) -> None:
        """Measure until now, and write."""
        async with self._writing:
            now = self._measure()
            if self._path is None:
                self.meter.drop_before(interval_of(now))
                return
            loop = asyncio.get_running_loop()
            try:
                if self._store is None:
                    await self._open(self._path)
                self._unwritten = self._unwritten or self._take_notes()
                rows = self.meter.rows(self._world.policy)
                write = partial(self._write, rows, now, self._unwritten, is_pruning=is_pruning)
                await loop.run_in_executor(self._thread, write)
            except HistoryError as error:
                self._report(str(error))
            except Exception as error:  # a row that cannot be written must stop neither decisions nor later rows
                self._report(f"a bug: {type(error).__name__}: {error}")
                self._logs.event.error("bug", part="history", exc_info=error)
                self.bugs, self._unwritten = self.bugs + 1, None
            else:
                self._report(None)
                self._unwritten = None
                self.meter.drop_before(interval_of(now))

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        """Log a bug, the first time, and count it: who changes the world or decides must not fail for the record."""
        try:
            yield
        except Exception as error:
            self.bugs += 1
            if self.bugs == 1:
                self._logs.event.error("bug", part="history", exc_info=error)

    # -- measuring

    async def _start(self) -> None:
        self._world.notify_of_pods(self._note)
        self._started = self.until = self._clock()
        uids = [pod.uid for pod in self._world.pods()] + [pod.uid for pod in self._world.waiting.all()]
        for first in range(0, len(uids), AT_ONCE):
            self.meter.update(uids[first : first + AT_ONCE], self._world, self._started, is_first=True)
            await asyncio.sleep(0)

    def _note(self, uid: Uid) -> None:
        self._changed[uid] = None
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._update)

    def _update(self) -> None:
        """Measure the pods that changed, after the event that changed them."""
        self._is_due = False
        uids = [*self._changed][:AT_ONCE]
        for uid in uids:
            del self._changed[uid]
        self.meter.update(uids, self._world, self._clock())
        if self._changed and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._update)

    def _measure(self) -> float:
        now = self._clock()
        is_observed = self._why_stale() is None and now - self.until < _LATE_SECONDS
        self.meter.set_policy(self._world.policy, now)
        self.meter.set_free(_free(self._world), now)
        self._use = use_of(self.meter, self._world)
        self.meter.set_use(self._use, now)
        self.meter.advance(now, is_observed=is_observed)
        if self._clock.has_been_set():
            now = self._clock()
            self.meter.move(now)
        self.until = now
        return now

    # -- writing

    async def _open(self, path: Path) -> None:
        """Open the file, and continue what an earlier process recorded there."""
        loop = asyncio.get_running_loop()
        store, recorded = await loop.run_in_executor(self._thread, _opened, path, self._bounds)
        self._store = store
        if recorded is None:
            return
        now = self._clock()
        if recorded.until > self._started:  # the process before this one still recorded when this one had started
            self.meter.drop_rows()
            self._started = now
            self.meter.move(now)
        alive = [pod.uid for pod in self._world.pods()] + [pod.uid for pod in self._world.waiting.all()]
        await loop.run_in_executor(self._thread, partial(store.end_missing, alive, at=recorded.until))
        self.meter.resume(recorded.rows)
        self.meter.backfill(self._world, since=recorded.until, until=self._started)
        self._logs.event.info("history continued", path=str(path), gap_seconds=round(self._started - recorded.until, 1))

    def _write(self, rows: Sequence[UsageRow], now: float, notes: Notes, *, is_pruning: bool = False) -> None:
        if self._store is None:
            return
        if is_pruning:
            self._store.prune(now)
        self._store.write(Batch(rows, now, notes.trace()))

    def _take_notes(self) -> Notes:
        if self._in_force is not None:
            policy, files = self._in_force()
            self.pods.note_policy(policy.hash, lambda: published(files))
        return self.pods.take()

    def _stop(self) -> None:
        self._world.notify_of_pods(lambda _uid: None)
        self._thread.shutdown()
        now = self._measure()
        if self._store is None:
            return
        try:
            for notes in filter(None, (self._unwritten, self._take_notes())):
                self._write(self.meter.rows(self._world.policy), now, notes)
        except HistoryError as error:
            self._report(str(error))
        self._store.close()
        self._store = None

    def _report(self, problem: str | None) -> None:
        """Log when writing begins to fail, for another reason, or works again."""
        if problem is not None and problem != self.problem:
            self._logs.event.error("history not written", why=problem, kept="in memory, for a day")
        elif problem is None and self.problem is not None:
            self._logs.event.info("history written again", path=str(self._path))
        self.problem = problem


def _no_one(_row: PodRow) -> None:
    return None


def _never_stale() -> None:
    return None


async def _no_wait() -> None:
    return


def _opened(path: Path, bounds: HistoryBounds) -> tuple[HistoryStore, Recorded | None]:
    store = HistoryStore(path, bounds)
    try:
        return store, store.recorded()
    except HistoryError:
        store.close()
        raise


def _free(world: World) -> dict[str, Units]:
    free: dict[str, Units] = {}
    for each in gpu_inventory(world.fleet, world.policy):
        free[each.model] = free.get(each.model, 0) + each.free
    return free
