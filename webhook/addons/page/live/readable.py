"""What a viewer may read.

The queue as all viewers share it: computed on a snapshot, at most every few seconds, however many look.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, Generic, TypeVar

import msgspec

from webhook.addons.page.live.cluster_state import ClusterState
from webhook.addons.page.views.decisions import ADMITTED, QUEUED, Decision, Hit, search
from webhook.addons.page.views.gpu_map import MapRow, Summary, seen_by, summary_of
from webhook.addons.page.views.teams import (
    IdlePod,
    ShareRow,
    Viewer,
    bypassed_rows,
    idle_rows,
    minimums_of,
    own_teams,
    share_rows,
)
from webhook.cli.queue.rows import WaitingReport, short, waiting_report
from webhook.core.explain.line_rows import QueueReader, QueueRow, written_reason
from webhook.core.explain.pod_rows import BypassedPod
from webhook.core.explain.team_rows import FreeRow, MinimumRow, board_of
from webhook.core.model.amounts import UNASSIGNED, PoolName, TeamName
from webhook.core.model.policy import Policy, Pool
from webhook.core.placement.best_nodes import GpuInventory, gpu_inventory
from webhook.core.world.hidden_usage import Totals
from webhook.core.world.waiting_pods import WaitingPod
from webhook.files import SnapshotError, Snapshots

SECONDS: Final = 4.0
"""How long a line is shown before it is computed again."""

REST: Final = 4
"""A line, or the failure to compute it, is shown for at least so many times as long as that took."""

FIRST: Final = 1_000
OF_NAMESPACE: Final = 100
"""Pods that are shown: the first of all, and the first of each namespace."""


T = TypeVar("T")


class LineRow(msgspec.Struct, frozen=True):
    """A waiting pod, what Fairgate wrote on it, for those who may not see what it waits for, and its gang."""

    pod: WaitingReport
    written: str
    gang: str


class Line(msgspec.Struct, frozen=True):
    """The queue: how many wait in all, how many in each namespace, and the rows that are shown."""

    waiting: int
    by_namespace: dict[str, int]
    rows: tuple[LineRow, ...]


class Shared(Generic[T]):
    """What all viewers see of a cluster. Requests that come at the same time share one computation."""

    def __init__(self, snapshots: Snapshots, compute: Callable[[], T], kind: Any) -> None:  # noqa: ANN401 - a type
        self._snapshots = snapshots
        self._compute = compute
        self._kind = kind
        self._lock = asyncio.Lock()
        self._found: T | SnapshotError = SnapshotError("not computed")
        self._until = -1.0

    async def get(self) -> T:
        """Return what was computed last, at most a few seconds ago. Raises SnapshotError."""
        async with self._lock:
            clock = asyncio.get_running_loop().time
            if (began := clock()) >= self._until:
                self._found = await self._read()
                self._until = clock() + max(SECONDS, REST * (clock() - began))
            if isinstance(self._found, SnapshotError):
                raise self._found
            return self._found

    async def _read(self) -> T | SnapshotError:
        def compute() -> bytes:
            return msgspec.msgpack.encode(self._compute())

        try:
            found: T = msgspec.msgpack.decode(await self._snapshots.run(compute), type=self._kind)
        except SnapshotError as error:
            return error
        return found


class SharedLine:
    """The queue of a cluster, and who could claim which GPUs, for all viewers."""

    def __init__(self, state: ClusterState, snapshots: Snapshots) -> None:
        self._state = state
        self._line = Shared(snapshots, lambda: line_of(state, now=int(time.time())), Line)
        self._free = Shared(snapshots, lambda: board_of(state.world).free, tuple[FreeRow, ...])

    async def line(self) -> Line:
        """Return the present line. Raises SnapshotError."""
        return await self._line.get() if len(self._state.world.waiting) else Line(0, {}, ())

    async def free(self) -> tuple[FreeRow, ...]:
        """Return the GPUs of each model as `fairgate status` does; nothing where that cannot be computed."""
        try:
            return await self._free.get()
        except SnapshotError:
            return ()


def line_of(state: ClusterState, *, now: int) -> Line:
    """Return the queue of a state, which must not change meanwhile."""
    reading = state.reading
    reader = QueueReader(reading.world, waits=state.waits, is_room_known=reading.is_room_known, now=now)
    found = reader.in_order()
    counts = Counter(str(waiting.pod.namespace) for waiting in found)
    return Line(len(found), dict(counts), tuple(_row(reader.row(waiting)) for waiting in _shown(found)))


def _shown(found: list[WaitingPod]) -> Iterator[WaitingPod]:
    taken: Counter[str] = Counter()
    for number, waiting in enumerate(found):
        namespace = waiting.pod.namespace
        taken[namespace] += 1
        if number < FIRST or taken[namespace] <= OF_NAMESPACE:
            yield waiting


def _row(row: QueueRow) -> LineRow:
    found = msgspec.structs.replace(waiting_report(row), facts={}, cause=short(row.cause))
    gang = row.waiting.pod.gang
    return LineRow(found, short(written_reason(row.waiting).text), "" if gang is None else str(gang.id))


# The one filter between the shared state and an answer: what one viewer may read, as the API server would show it.
#
# A viewer who may list all pods and nodes reads the state itself. Any other viewer reads
# - of the pods, their decisions and their places in the queue: those of the namespaces in which they may list pods;
# - of nodes: what `gpu_map.seen_by` leaves;
# - of Events: those of namespaces in which they may list Events, too;
# - of teams: the sums of their own, which every refusal names, and no holder that they do not see.
#
# Explanations and reviews for them are made from `objects`, with `policy` and `sums`: names that are not in there
# cannot come out of it, in whatever text.


Json = Mapping[str, Any]

UNKNOWN: Final = "you may not list all nodes and pods"
"""Why what depends on all nodes and pods is not said; as the commands say it."""

_OF_NAMESPACES: Final = frozenset(
    {
        *("Pod", "ResourceClaim", "ResourceClaimTemplate", "HorizontalPodAutoscaler"),
        *("PodGroup", "PodDisruptionBudget", "LimitRange"),
    }
)
_OF_NODES: Final = frozenset({"Node", "ResourceSlice", "DeviceTaintRule"})
_OF_ALL: Final = frozenset({"PersistentVolume", "TeamLedger"})
"""Kinds that name objects of all namespaces."""


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """The queued pods that a viewer may see: how many there are, and those that are shown, those of a gang together.

    `teams` are the teams of all of them.
    """

    waiting: int
    groups: tuple[tuple[WaitingReport, ...], ...]
    teams: tuple[str, ...]

    @property
    def rows(self) -> Iterator[WaitingReport]:
        """Yield the pods that are shown."""
        return chain.from_iterable(self.groups)


class Readable:
    """What one viewer may read of a state."""

    def __init__(self, state: ClusterState, viewer: Viewer) -> None:
        self.viewer = viewer
        self._state = state

    def rows(self) -> Iterator[MapRow]:
        """Yield the nodes of the map in order."""
        for row in self._state.sorted_rows():
            if (seen := seen_by(row, self.viewer)) is not None:
                yield seen

    def encoded_rows(self) -> Iterable[bytes]:
        """Return the same as JSON, as they were encoded when they changed where all may be read."""
        return self._state.encoded.values() if self.viewer.sees_all else map(msgspec.json.encode, self.rows())

    def models(self) -> list[GpuInventory]:
        """Return the GPUs of each model, and how many are free; nothing where that is not known."""
        world = self._state.world
        return list(gpu_inventory(world.fleet, world.policy)) if self.viewer.sees_all else []

    def shares(self, *, holders: int = 5) -> list[ShareRow]:
        """Return teams, and departments where all pods may be seen, with the largest holders."""
        return share_rows(self._state.world, self.viewer, holders=holders)

    def idle(self, *, most: int) -> list[IdlePod] | None:
        """Return the pods that do not use their GPUs; None where policy does not measure that."""
        world = self._state.world
        return None if world.policy.idle is None else idle_rows(world, self.viewer, most=most)

    def minimums(self, *, most: int) -> tuple[list[MinimumRow], int]:
        """Return the workloads that are to keep some replicas, and how many more there are."""
        return minimums_of(self._state.world, self.viewer, most=most)

    def bypassed(self, *, most: int) -> tuple[list[BypassedPod], int]:
        """Return the pods without a decision of Fairgate, and how many more there are."""
        return bypassed_rows(self._state.world, self.viewer, most=most)

    def summary(self) -> Summary:
        """Return the numbers of the cluster; of the teams of the viewer where not all pods may be seen."""
        nodes = tuple(self._state.sums.values()) if self.viewer.sees_all else ()
        return summary_of(self._state.world, map(TeamName, self.teams()), self.models(), nodes)

    def teams(self) -> list[str]:
        """Return the teams that are shown: in the order of policy, then those that it does not know."""
        world = self._state.world
        named = dict.fromkeys([*(str(team.name) for team in world.policy.teams), *sorted(world.usage_by_team())])
        if self.viewer.sees_all_pods:
            return list(named)
        own = own_teams(world, self.viewer)
        return [name for name in named if name in own]

    def line(self, line: Line, *, team: str = "", user: str = "") -> WaitingRows:
        """Return the queued pods: of one team, and of users with a part of a name.

        What a pod waits for follows from all nodes and pods. Where not all may be read, it is what Fairgate wrote on
        the pod, with its place in its team.
        """
        waiting, rows = line.waiting, line.rows
        if not self.viewer.sees_all:
            taken: Counter[str] = Counter()
            seen = []
            for row in line.rows:
                namespace = row.pod.namespace
                taken[namespace] += 1
                if self.viewer.sees(namespace) and taken[namespace] <= OF_NAMESPACE:
                    seen.append(msgspec.structs.replace(row, pod=_as_written(row)))
            waiting = sum(count for namespace, count in line.by_namespace.items() if self.viewer.sees(namespace))
            rows = tuple(seen)
        groups: dict[str, list[WaitingReport]] = {}
        for row in rows:
            pod = row.pod
            if (not team or pod.team == team) and user.lower() in (pod.user or "").lower():
                groups.setdefault(row.gang or f"{pod.namespace}/{pod.name}", []).append(pod)
        teams = tuple(sorted({row.pod.team for row in rows}))
        return WaitingRows(waiting, tuple(tuple(group) for group in groups.values()), teams)

    def decisions(self, *, words: str, kind: str) -> list[Decision]:
        """Return decisions of one kind, and with all of these words: the newest first, admissions after all others."""
        found = self._state.decisions.newest(self.viewer, words=words, kind=kind)
        return sorted(found, key=lambda each: each.kind in (ADMITTED, QUEUED))

    def kinds(self) -> list[str]:
        """Return the kinds of these decisions."""
        return self._state.decisions.kinds(self.viewer)

    def hits(self, query: str) -> list[Hit]:
        """Return the pods that match a text."""
        return search(query, self._state.world, self.viewer)

    def pod(self, namespace: str, name: str) -> Json | None:
        """Return a pod; None where there is none of this name that may be seen."""
        return self._state.reading.objects.get("Pod", f"{namespace}/{name}") if self.viewer.sees(namespace) else None

    def objects(self) -> Iterator[Json]:
        """Return the objects that a decision is made from; PriorityClasses and DeviceClasses are everyone's."""
        return self._state.reading.objects.among(self._sees_object)

    def policy(self) -> Policy:
        """Return the policy as far as it is about the teams of the viewer: no other team, department or pool."""
        policy = self._state.world.policy
        if self.viewer.sees_all_pods:
            return policy
        own = own_teams(self._state.world, self.viewer)
        teams = tuple(replace(team, departments=()) for team in policy.teams if team.name in own)
        pools = tuple(_of_teams(pool, own) for pool in policy.pools if any(map(pool.admits, own)))
        if policy.pools and not pools:
            pools = (Pool(PoolName("of others"), teams=frozenset()),)  # without any pool, all nodes would be one
        return replace(policy, teams=teams, departments=(), pools=pools)

    def sums(self) -> tuple[Totals, ...]:
        """Return what the teams of the viewer hold in all, for what pods of theirs are not shown."""
        if self.viewer.sees_all_pods:
            return ()
        world = self._state.world
        found = ((team, world.usage(team)) for team in sorted(own_teams(world, self.viewer)))
        return tuple(Totals(team, usage.total, usage.preemptible, usage.waiting) for team, usage in found)

    def _sees_object(self, kind: str, path: str) -> bool:
        if kind in _OF_NAMESPACES:
            return self.viewer.sees(path.partition("/")[0])
        if kind == "Namespace":
            return self.viewer.sees(path)
        if kind in _OF_ALL:
            return self.viewer.sees_all
        return self.viewer.nodes if kind in _OF_NODES else True


def _as_written(row: LineRow) -> WaitingReport:
    pod = row.pod
    return msgspec.structs.replace(
        pod,
        place=None,
        place_in_team=None if pod.team == UNASSIGNED else pod.place_in_team,
        code="",
        cause=row.written,
        holders=[],
        earlier_starts=None,
        stated_run_time=None,
    )


def _of_teams(pool: Pool, teams: Iterable[str]) -> Pool:
    """Return a pool that names no team but these."""
    return pool if pool.teams is None else replace(pool, teams=pool.teams & frozenset(teams))
