"""The cluster as all viewers of the page share it: one world, its kept objects, the decisions, and the rows of the map.

Changes are only noted; `changed_rows` computes the rows of the nodes that they touched.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from webhook.core.explain.past import Past
from webhook.core.explain.range_scores import RangeScores
from webhook.core.model.autoscaler import Autoscaler
from webhook.core.model.names import NodeName
from webhook.core.model.policy import Policy
from webhook.core.model.text import natural_sort_key
from webhook.core.world.world import World
from webhook.kube.ledger.reports import SILENT_SECONDS, Report, evictor_leads, scores_of
from webhook.kube.nodes.autoscalers import objects_of
from webhook.page.live.kept_objects import KeptObjects, path_of
from webhook.page.views.decisions import DecisionLog, of_pod
from webhook.page.views.gpu_map import MapRow, RowReader, encode
from webhook.simulation.forecast.seen_runs import SeenRuns

NO_EVICTOR: Final = "no evictor is known to lead"


def is_fresh() -> str | None:
    """Return that nothing is out of date."""
    return None


def _first_sequence() -> int:
    """Return a number that no earlier process has reached: pages that stayed open see that they are behind."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Reading:
    """What was read of a cluster or a file. `is_room_known`: all nodes and pods are there.

    `notes` say what the user of the page may not read.
    """

    world: World
    objects: KeptObjects
    notes: tuple[str, ...] = ()
    is_room_known: bool = True
    runs: SeenRuns = field(default_factory=SeenRuns)


@dataclass(slots=True)
class ClusterState:
    """What is shown. `origin` names the source; `why_stale` is why it is out of date, None while it is not.

    `problem` is why nothing is shown, "" while something is. `on_change` is called at each change. `saved` is when the
    file was written, in seconds of Unix time; 0 for a live cluster. `scores` are how likely starts came true,
    `evictor_at` when an evictor that leads reported last, None where that is not watched.
    """

    reading: Reading
    origin: str
    domain: str
    why_stale: Callable[[], str | None] = is_fresh
    problem: str = ""
    decisions: DecisionLog = field(default_factory=DecisionLog)
    on_change: Callable[[], None] = lambda: None
    rows: dict[NodeName, MapRow] = field(default_factory=dict)
    encoded: dict[NodeName, bytes] = field(default_factory=dict)
    sequence: int = field(default_factory=_first_sequence)
    saved: int = 0
    scores: RangeScores = field(default_factory=RangeScores)
    evictor_at: float | None = None
    _reader: RowReader | None = None
    _rejecting: frozenset[NodeName] = frozenset()
    _dirty: dict[NodeName, None] = field(default_factory=dict)

    @property
    def world(self) -> World:
        """The world that is shown."""
        return self.reading.world

    def past(self, now: float) -> Past:
        """Return what likely starts are made of besides the world."""
        leads = self.evictor_at is None or now - self.evictor_at <= SILENT_SECONDS
        return Past(self.reading.runs, scores=self.scores, no_evictor="" if leads else NO_EVICTOR)

    def note_report(self, report: Report, now: float) -> None:
        """Note what Fairgate publishes of itself."""
        if report.starts:
            self.scores = scores_of(report)
        if evictor_leads(report, now=None):
            self.evictor_at = now

    def touch(self, *nodes: NodeName | None) -> None:
        """Note that something changed, on these nodes if any."""
        self._dirty.update((name, None) for name in nodes if name is not None)
        self.on_change()

    def touch_all(self) -> None:
        """Note that every node may have changed."""
        self.touch(*(node.name for node in self.world.fleet.nodes()), *self.rows)

    def tick(self, now: int) -> None:
        """Set the time, in Unix seconds: room may no longer be promised, and other nodes may reject pods."""
        self.world.tick(now)
        before, self._rejecting = self._rejecting, frozenset(each.node for each in self.world.rejecting_nodes.closed())
        if changed := before ^ self._rejecting:
            self.touch(*changed)

    def set_policy(self, policy: Policy) -> None:
        """Decide by another policy from now on."""
        self.world.set_policy(policy)
        self._reader = None
        self.touch_all()

    def note_autoscalers(self, found: frozenset[Autoscaler], now: float) -> None:
        """Note which autoscalers the cluster has, for explanations as well: they read objects."""
        for made in objects_of(Autoscaler, at=now):
            self.reading.objects.remove(made["kind"], path_of(made))
        for made in objects_of(found, at=now):
            self.reading.objects.set(made)
        self.touch_all()

    def replace(self, reading: Reading) -> None:
        """Show another reading of the same source, with the decisions on its pods."""
        self.reading = reading
        for pod in reading.objects.of_kind("Pod"):
            if (admitted := of_pod(pod)) is not None:
                self.decisions.add(admitted)
        self._reader = None
        self.touch_all()

    def take_dirty(self) -> list[NodeName]:
        """Return the nodes that were touched since the last call."""
        taken = list(self._dirty)
        self._dirty.clear()
        return taken

    def changed_rows(self, nodes: Iterable[NodeName]) -> Iterator[tuple[NodeName, MapRow | None]]:
        """Update the rows of these nodes; yield those that differ now, None for a node that went."""
        if self._reader is None:
            self._reader = RowReader(self.world, domain=self.domain)
        for name in nodes:
            node = self.world.fleet.get(name)
            row = None if node is None else self._reader.row(node)
            if row is None:
                if self.rows.pop(name, None) is not None:
                    del self.encoded[name]
                    yield name, None
                continue
            written = encode(row)
            if self.encoded.get(name) != written:
                self.rows[name], self.encoded[name] = row, written
                yield name, row

    def sorted_rows(self) -> list[MapRow]:
        """Return all rows, gpu-2 before gpu-10."""
        return [self.rows[name] for name in sorted(self.rows, key=natural_sort_key)]
