"""Explain and moves asked from the page.

Answers for the page, by the code of `explain` and `review`, each on a snapshot of the shared state.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from webhook.addons.history.meter import Recording, interval_of
from webhook.addons.history.reader import UsageOverTime, merged, read_usage, team_lines
from webhook.addons.history.store import HistoryError
from webhook.addons.history.usage.live import fetch_live
from webhook.addons.moves.reading import read_fragmented
from webhook.addons.moves.run import report_of as moves_report_of
from webhook.addons.moves.targets import make_room
from webhook.addons.page.http.answers import CodeHelp, Explained, LimitShown, MovesShown, Reviewed
from webhook.addons.page.live.cluster_state import ClusterState
from webhook.addons.page.live.readable import UNKNOWN, Readable
from webhook.addons.page.views.teams import DAY_SECONDS, Point, Viewer
from webhook.cli.codes import load_help
from webhook.cli.explain.outcome import eviction_line
from webhook.cli.explain.reclaim import POD, ClusterDetails, DetailsRequest, EvictedFor, Target, fetch_details
from webhook.cli.explain.report import LimitReport, report_of
from webhook.cli.explain.run import Found, explain_all
from webhook.cli.explain.steps import state_text, to_steps
from webhook.cli.explain.subjects import Existing, PodState, subject_of_pod
from webhook.cli.live_cluster import COMPLETE, Coverage
from webhook.cli.review.collect import Collected, collect
from webhook.cli.review.collect import Source as Manifest
from webhook.cli.review.evaluator import Item
from webhook.cli.review.results import WorldFacts
from webhook.cli.review.run import ReviewWorld, add_manifests, evaluated, to_json
from webhook.cli.world_source import WorldObjects, world_of
from webhook.cluster.api.client import ClusterError
from webhook.cluster.reads.listing import ReadScope
from webhook.core.explain.line_rows import EarlierWaits
from webhook.core.model.amounts import Uid, Unlimited, parse_amount, printable, shortened
from webhook.core.model.decision import Deny
from webhook.core.model.pod import Requester
from webhook.core.world.hidden_usage import Unnamed
from webhook.core.world.world import World
from webhook.files import InputError, SnapshotError, Snapshots, TooLongError
from webhook.kube.kinds.model import mapping, text
from webhook.kube.objects import keys
from webhook.kube.objects.keys import OWN_NAMESPACE
from webhook.kube.pod.pods import unix_seconds

_WIDTH: Final = 110
_LONGEST: Final = 1_024
_NODES: Final = 8
_FORM: Final = "the form"
_NOT_THERE: Final = Existing("", "", None, Uid(""), PodState.PENDING)
_FOR_ALL: Final = "You may not list all of them: ask an admin."
_WITHOUT_RECLAIM: Final = "reclaim: with so many pods, ask `fairgate explain` what it could do"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The live cluster behind the page, for what is read of it besides: Events, budgets, the evictor's Lease."""

    kubeconfig: Path | None


class CommandAnswers:
    """Answers by the commands' code. `cluster` is None for a file; `coverage` says what part was read."""

    def __init__(
        self,
        state: ClusterState,
        snapshots: Snapshots,
        *,
        cluster: Cluster | None,
        coverage: Callable[[], Coverage] = lambda: COMPLETE,
    ) -> None:
        help_of = load_help().items()
        self.codes: Mapping[str, CodeHelp] = {code: CodeHelp(each.cause, each.remedy) for code, each in help_of}
        self._state = state
        self._snapshots = snapshots
        self._cluster = cluster
        self._coverage = coverage

    async def explain(self, namespace: str, name: str, readable: Readable) -> Explained | None:
        """Explain a pod from what may be read; None where that has none of this name. Raises SnapshotError."""
        pod = readable.pod(namespace, name)
        if pod is None:
            return None
        viewer = readable.viewer
        reads_reclaim = viewer.sees_all and not mapping(pod.get("spec")).get("nodeName")
        target = Target(POD, ("v1",), name) if viewer.sees_events(namespace) else None
        request = DetailsRequest(target, namespace, OWN_NAMESPACE, reads_reclaim=reads_reclaim)
        details = await self._details(request)
        asked = _Asked(pod, namespace, details, readable)
        try:
            return await self._on_snapshot(asked, has_reclaim=reads_reclaim)
        except TooLongError:
            if not reads_reclaim:
                raise
            found = await self._on_snapshot(asked, has_reclaim=False)
            return msgspec.structs.replace(found, text=f"{found.text}\n{_WITHOUT_RECLAIM}\n")

    async def _details(self, request: DetailsRequest) -> ClusterDetails:
        """Return what is read of the cluster besides its state: nothing while that cannot be reached."""
        if self._cluster is None:
            return ClusterDetails()
        try:
            return await fetch_details(self._cluster.kubeconfig, request)
        except ClusterError as error:
            return ClusterDetails(notes=(f"Events, budgets and the evictor's Lease were not read: {error}",))

    async def _on_snapshot(self, asked: "_Asked", *, has_reclaim: bool) -> Explained:
        encoded = await self._snapshots.run(
            lambda: msgspec.json.encode(self._explained(asked, has_reclaim=has_reclaim))
        )
        return msgspec.json.decode(encoded, type=Explained)

    def _explained(self, asked: "_Asked", *, has_reclaim: bool) -> Explained:
        reading, readable = self._state.reading, asked.readable
        if readable.viewer.sees_all:
            kept = reading.objects
            objects = tuple(kept.all()) if has_reclaim else (asked.pod, *kept.of_kind("Node"))
            read, world = WorldObjects(objects, self._coverage()), reading.world
        else:
            read, world = self._reduced(readable)
        subject = subject_of_pod(asked.pod, namespace=asked.namespace, world=world)
        existing = subject.existing or _NOT_THERE
        resident = world.pod(existing.uid)  # explaining removes it
        waits = self._state.waits if readable.viewer.sees_all else EarlierWaits()
        found = Found([subject], read, world, asked.details, self._state.origin, lambda: waits)
        [explained], _ = explain_all(found, now=int(time.time()), has_reclaim=has_reclaim)
        if not readable.viewer.sees_all:
            # places and earlier waits follow from all pods, and nodes name those of other teams
            evicted = EvictedFor(moves_to=explained.evicted_for.moves_to)
            explained = replace(explained, line=None, evicted_for=evicted)
        report = report_of(explained)
        steps = to_steps(explained, policy_hash=world.policy.hash, width=_WIDTH, is_colored=False)
        owner = None if isinstance(subject.template, Deny) else subject.template.pod.owner
        return Explained(
            state=state_text(existing),
            kind=existing.state,
            node=existing.node,
            since=unix_seconds(existing.since),
            team=report.team or "",
            tier=existing.tier,
            gpus=report.gpus,
            user=report.user or (resident.user if resident is not None else "") or "",
            owner="" if owner is None else f"{owner.kind}/{owner.name}",
            eviction=eviction_line(explained, existing),
            waiting=report.line,
            limits=tuple(_limit(each) for each in report.limits if each.limit != Unlimited.UNLIMITED.value),
            nodes=tuple(report.nodes[:_NODES]),
            outcome=report.outcome,
            outcome_tier=report.tier or "",
            reasons=tuple((reason.code, reason.message) for reason in (*report.reasons, *report.warnings)),
            idle=report.idle or "",
            text="\n".join((steps.rstrip("\n"), *_limited(asked))) + "\n",
        )

    def _reduced(self, readable: Readable) -> tuple[WorldObjects, World]:
        """Return the objects that a viewer may read, and a world that is made of them alone."""
        read = WorldObjects(
            tuple(readable.objects()), _coverage_of(readable.viewer), Unnamed(readable.sums()), read_at=int(time.time())
        )
        try:
            return read, world_of(read, readable.policy(), name=self._state.origin)
        except InputError as error:
            raise SnapshotError(str(error)) from error

    async def review(self, manifest: bytes, readable: Readable, *, namespace: str, user: str) -> Reviewed:
        """Review manifests on what may be read. Raises SnapshotError."""
        encoded = await self._snapshots.run(
            lambda: msgspec.json.encode(self._reviewed(manifest, namespace, user, readable))
        )
        return msgspec.json.decode(encoded, type=Reviewed)

    def _reviewed(self, manifest: bytes, namespace: str, user: str, readable: Readable) -> Reviewed:
        collected = collect((Manifest(_FORM, manifest),), namespace=namespace)
        viewer, reading = readable.viewer, self._state.reading
        if not viewer.sees_all_pods and (problem := _beyond(collected, viewer)):
            return Reviewed(problem=problem)
        world = reading.world if viewer.sees_all else self._reduced(readable)[1]
        add_manifests(collected, world)
        facts = WorldFacts("cluster", self._state.origin, None, len(world.fleet), 0, world.policy.hash)
        ranges = tuple(reading.objects.of_kind("LimitRange")) if viewer.sees_all else ()
        is_known = reading.is_room_known and viewer.sees_all
        opened = ReviewWorld(world, facts, self._coverage(), is_known, limit_ranges=ranges)
        now_text = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        review = evaluated(collected.entries, collected, opened, requester=Requester(user), now_text=now_text)
        return Reviewed(msgspec.json.decode(to_json(review)))

    async def moves(self, readable: Readable) -> MovesShown:
        """Return the moves that would make room for pods that wait. Raises SnapshotError."""
        if not readable.viewer.sees_all:
            return MovesShown(problem=f"Moves are planned from all nodes and pods. {_FOR_ALL}")
        details = await self._details(DetailsRequest(None, "", OWN_NAMESPACE, reads_failures=True))
        try:
            encoded = await self._snapshots.run(lambda: msgspec.json.encode(self._moves(details)))
        except TooLongError:
            return MovesShown(problem="With so many pods, ask `fairgate defragment --dry-run`.")
        return msgspec.json.decode(encoded, type=MovesShown)

    def _moves(self, details: ClusterDetails) -> MovesShown:
        reading = self._state.reading
        read, now = WorldObjects(tuple(reading.objects.all()), self._coverage()), int(time.time())
        try:
            found = read_fragmented(
                read, reading.world.policy, details, name=self._state.origin, now=now, per_workload=1
            )
        except InputError as error:
            return MovesShown(problem=str(error))
        report = moves_report_of(make_room(found.targets, found.movement), found)
        return MovesShown(msgspec.to_builtins(report))


def _limit(report: LimitReport) -> LimitShown:
    limit, taken, with_it = (float(parse_amount(each)) for each in (report.limit, report.taken, report.with_the_pod))
    end = max(limit, with_it, 1.0)
    taken_percent = int(100 * taken / end)
    return LimitShown(
        of=report.of,
        limit=report.limit,
        taken=report.taken,
        with_the_pod=report.with_the_pod,
        holds=report.holds,
        percents=(taken_percent, int(100 * with_it / end) - taken_percent, int(100 * limit / end)),
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    pod: Mapping[str, Any]
    namespace: str
    details: ClusterDetails
    readable: Readable


def _coverage_of(viewer: Viewer) -> Coverage:
    """Return what a viewer may read, as a command would find it with their rights."""
    pods = ReadScope(
        "pods", viewer.sees_all_pods, () if viewer.namespaces is None else tuple(sorted(viewer.namespaces))
    )
    return Coverage((pods, ReadScope("nodes", viewer.nodes)))


def _limited(asked: _Asked) -> Iterator[str]:
    """Yield what was not read, what Fairgate wrote on a pod that waits, and what is left out for a viewer."""
    yield from asked.details.notes
    if asked.readable.viewer.sees_all:
        return
    written = text(mapping(mapping(asked.pod.get("metadata")).get("annotations")).get(keys.WAITING))
    if written:
        yield f"written on the pod: {shortened(printable(written), _LONGEST)}"
    yield f"nodes, reclaim and departments are left out: {UNKNOWN}"


def _beyond(collected: Collected, viewer: Viewer) -> str:
    """Return why manifests are not judged for a viewer of some namespaces; "" where they are.

    A Namespace among them could move a namespace to another team, whose pods the viewer may not see.
    """
    if collected.namespaces:
        return "You may not list pods in all namespaces, so a manifest of a Namespace is not judged."
    for entry in collected.entries:
        if isinstance(entry, Item):
            namespace = text(mapping(entry.object.get("metadata")).get("namespace")) or entry.namespace
            if not viewer.sees(namespace):
                return f"You may not list pods in namespace {namespace}, so what would run there is not judged."
    return ""


# The last day of each team for the page: from history files, or from the servers of the cluster.


STEP_SECONDS: Final = 900
"""A point of the line is the average of a quarter of an hour."""

AGAIN_SECONDS: Final = 300
"""Between two readings: an interval of the record is as long."""

Read = Callable[[int, int], Awaitable[list[Recording]]]
"""Reads the records between two times. Raises HistoryError, ClusterError."""


class RecordedUsage:
    """Keeps the last day of each team. Start `run` as a task."""

    def __init__(self, read: Read, *, clock: Callable[[], float] = time.time) -> None:
        self.why_not = "The use of the last 24 hours is being read."
        self._read = read
        self._clock = clock
        self._days: Mapping[str, Sequence[Point]] = {}

    def last_day(self, now: int) -> Mapping[str, Sequence[Point]]:  # noqa: ARG002 - five minutes old at most
        """Return the points of each team, as they were read last."""
        return self._days

    async def run(self) -> NoReturn:
        """Read again and again until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(AGAIN_SECONDS)

    async def refresh(self) -> None:
        """Read once; what was read before stays while it cannot be read."""
        until = int(self._clock())
        since = interval_of(until - DAY_SECONDS)
        try:
            rows = merged(await self._read(since, until))
        except (HistoryError, ClusterError) as error:
            self.why_not = f"The use of the last 24 hours is not known: {error}"
            return
        lines = team_lines(rows, since=since, until=until, step_seconds=STEP_SECONDS)
        self._days = {team: _points(line, since) for team, line in lines.items()}
        self.why_not = ""


def of_files(files: Sequence[Path]) -> Read:
    """Return what reads history files, those of several replicas together."""

    async def read(since: int, until: int) -> list[Recording]:
        return await asyncio.to_thread(lambda: [read_usage(file, since, until) for file in files])

    return read


def of_cluster(kubeconfig: Path | None) -> Read:
    """Return what asks the servers of a cluster."""

    async def read(since: int, until: int) -> list[Recording]:
        return await fetch_live(kubeconfig, since, until)

    return read


def _points(line: UsageOverTime, since: int) -> list[Point]:
    pairs = zip(line.guaranteed, line.preemptible, strict=True)
    return [
        Point(since + number * STEP_SECONDS, (guaranteed or 0.0) + (preemptible or 0.0), preemptible or 0.0)
        for number, (guaranteed, preemptible) in enumerate(pairs)
        if guaranteed is not None or preemptible is not None
    ]
