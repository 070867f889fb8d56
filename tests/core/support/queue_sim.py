"""A cluster in whole GPUs and discrete time, whose queue is released by the core."""

from collections import Counter
from dataclasses import dataclass, field

from webhook.core.line.entries import (
    Fits,
    KeepableNode,
    NoRoom,
    OverLimit,
    QueuedPod,
    QueueEntry,
    Way,
    entry_of,
    kept_nodes,
)
from webhook.core.line.line_pass import NextEntry, QueuePass
from webhook.core.line.order import Order, Standing, Version
from webhook.core.line.pod_queue import PodQueue
from webhook.core.model.constraints import Tier
from webhook.core.model.policy import QueueRules


def queued(name, team="a", gpus=1, *, created=0, **more) -> QueuedPod:
    more.setdefault("kind", gpus)
    more.setdefault("limits", (("team", team), ("user", team, more.get("user"))))
    return QueuedPod(f"uid-{name}", more.pop("namespace", team), name, team, gpus, created, **more)


def entry(name, team="a", gpus=1, **more) -> QueueEntry:
    return entry_of([queued(name, team, gpus, **more)])


def version_of(standing, held):
    own = standing._replace(departments=())
    return Version((own, held), hash(standing.departments))


@dataclass
class Table:
    """Standings as data."""

    standings: dict = field(default_factory=dict)
    holdings: dict = field(default_factory=dict)

    def version(self, team):
        return version_of(self.of(team), tuple(self.holdings.items()))

    def of(self, team):
        return self.standings.get(team, Standing(team))

    def held(self, team, user):
        return self.holdings.get((team, user), 0)


@dataclass
class Running:
    """A pod on a node, from `starts` on; before that its room is held for it while victims end."""

    entry: QueueEntry
    node: str
    tier: Tier
    starts: int
    ends: int


@dataclass
class Cluster:
    """Nodes by GPUs, teams by their shares, and what runs. It is its own `Standings`."""

    nodes: dict
    teams: dict
    limits: dict = field(default_factory=dict)
    grace: int = 0
    has_backfill: bool = True
    rules: QueueRules = field(default_factory=QueueRules)
    run_times: dict = field(default_factory=dict)
    running: list = field(default_factory=list)
    queue: PodQueue = field(default_factory=PodQueue)
    order: Order | None = None
    now: int = 0
    log: list = field(default_factory=list)
    kept: frozenset = frozenset()

    def version(self, team):
        held = tuple((e.entry.user, e.entry.gpus) for e in self.running if e.entry.team == team)
        return version_of(self.of(team), held)

    def of(self, team):
        used, borrowed = (
            sum(each.entry.gpus for each in self.running if each.entry.team == team and each.tier is tier)
            for tier in Tier
        )
        return self.teams[team]._replace(used=used, borrowed=borrowed)

    def held(self, team, user):
        return sum(e.entry.gpus for e in self.running if (e.entry.team, e.entry.user) == (team, user))

    def taken(self, *tiers):
        counts = Counter()
        for each in self.running:
            if each.tier in tiers:
                counts[each.node] += each.entry.gpus
        return counts

    def __call__(self, entry, *, way, kept):
        for limit in entry.limits:
            of = [each.entry.gpus for each in self.running if limit in each.entry.limits]
            if sum(of) + entry.gpus > self.limits.get(limit, 10**9):
                return OverLimit(limit)
        if way is Way.BACKFILL and not self.has_backfill:
            return NoRoom()
        if self.node_for(entry, way, kept) is not None:
            return Fits()
        if self.reclaims(entry, way):
            return NoRoom()
        taken = self.taken(*Tier)
        rooms = [KeepableNode(name, size - taken[name], size) for name, size in self.nodes.items()]
        if way is Way.IN_TURN:
            self.kept = kept_nodes([entry.gpus], rooms, before=self.kept)
            return NoRoom(self.kept)
        return NoRoom()

    def has_place(self, entry, limit, *, is_owed):
        """Whether a node has room for it once those end that its limit counts, or reclaim evicts."""
        stay = Counter()
        for each in self.running:
            leaves = each.tier is Tier.PREEMPTIBLE if is_owed else limit in each.entry.limits
            stay[each.node] += 0 if leaves else each.entry.gpus
        return any(size - stay[name] >= entry.gpus for name, size in self.nodes.items())

    def reclaims(self, entry, way):
        return way is Way.IN_TURN and self.of(entry.team).has_share_for(entry.lot)

    def node_for(self, entry, way, kept):
        """Return the node with the least room that is enough; what reclaim may evict is room, too."""
        counted = (Tier.GUARANTEED,) if self.reclaims(entry, way) else tuple(Tier)
        taken = self.taken(*counted)
        rooms = [(size - taken[name], name) for name, size in self.nodes.items() if name not in kept]
        return min((room for room in rooms if room[0] >= entry.gpus), default=(0, None))[1]

    def start(self, release: NextEntry):
        entry, way = release
        node, is_inside = self.node_for(entry, way, self.kept_for(way)), self.reclaims(entry, way)
        needed = entry.gpus - (self.nodes[node] - self.taken(*Tier)[node])
        evicted = []
        for each in [e for e in self.running if e.node == node and e.tier is Tier.PREEMPTIBLE]:
            if needed > 0:
                evicted.append(each)
                needed -= each.entry.gpus
        self.running = [each for each in self.running if each not in evicted]
        for each in evicted:
            self.queue.add(each.entry)
        starts = self.now + (self.grace if evicted else 0)
        tier = Tier.GUARANTEED if is_inside else Tier.PREEMPTIBLE
        self.running.append(Running(entry, node, tier, starts, starts + self.run_times.get(entry.key, 10**9)))
        self.log.append((starts, entry, way))

    def kept_for(self, way):
        return self.kept if way is Way.BACKFILL else frozenset()

    def release_all(self):
        """Release what may start now."""
        self.order = self.order or Order(self.queue, self)
        self.order.look()
        judged = QueuePass(self.order, self.rules, now=self.now)
        while (release := judged.next(self)) is not None:
            self.queue.remove(release.entry.key)
            self.start(release)

    def step(self):
        """Let a second pass."""
        self.now += 1
        self.running = [each for each in self.running if each.ends > self.now]
        self.release_all()

    def started(self, key):
        """Return when an entry started first; None if it has not."""
        return next((at for at, entry, _ in self.log if entry.key == key), None)
