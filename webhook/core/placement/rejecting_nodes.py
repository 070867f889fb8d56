"""Nodes whose kubelet rejects the pods that it gets, by team: kept off for minutes, tried again by one pod at a time.

A node that lost a GPU stays Ready and looks empty, so it gets pod after pod, and each one fails at once. A team whose
pods were rejected there STRIKES times in a row is kept off the node, twice as long after each rejection that follows.
A pod of the team that starts there ends that.

A team is kept off a node by rejections of its own pods alone: some pods are rejected for what they ask for, such as two
replicas of a time-sliced GPU, and a tenant may create any number of them. Other teams take a node that is closed to
some team last, until a pod of any team starts there.

After a reboot kubelet admits again the pods that it had, while its device plugin offers nothing yet, and rejects them.
That says nothing of new pods: such a rejection has the time of the pod's start, and is not counted where a pod of the
namespace is known to have started then or later.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from webhook.core.model.names import Namespace, NodeName, TeamName, Uid
from webhook.core.model.node import Node
from webhook.core.model.pod import NO_UID
from webhook.core.placement.fleet import Fleet

STRIKES: Final = 3
"""Rejections in a row that close a node to a team: one or two are a race, as with a device that is not free yet."""

FIRST_SECONDS: Final = 300
LONGEST_SECONDS: Final = 3600
"""How long a node is closed at first, and at most: a device plugin restarts in a minute, a node is repaired in hours,
and each try costs a pod."""

TRY_SECONDS: Final = 120
"""How long one pod tries a node before the next one may: kubelet rejects within seconds, images take minutes."""

REMEMBERED_SECONDS: Final = 3600
"""How long a node is taken last after it was closed, or had its last rejection: then it is like any other."""

MOST_NODES: Final = 256
"""Nodes that are remembered for each team, those with the latest rejections."""

_MOST_EARLY: Final = 64
"""Outcomes of a namespace's pods on a node that are kept until the time is known, the latest."""

_SWEEP_SECONDS: Final = 60
_MOST_UIDS: Final = 64
"""Pods rejected by a node within one second that are distinguished."""


class Rejection(NamedTuple):
    """A pod that kubelet rejected at its admission; `at` is in Unix seconds, by the clock of its node."""

    node: NodeName
    namespace: Namespace
    uid: Uid
    at: int
    reason: str


class Start(NamedTuple):
    """A pod with GPUs that kubelet admitted: it runs, or has run. `at` as in a Rejection."""

    node: NodeName
    namespace: Namespace
    at: int


class ClosedNode(NamedTuple):
    """A node that rejected the pods of a team: how many in a row, the last reason, and until when it is closed to it.

    `since` is the time of the rejection that closed it. `until` may be over: then one pod at a time tries it.
    """

    node: NodeName
    team: TeamName
    rejections: int
    reason: str
    since: int
    until: int


class AvoidedNodes(NamedTuple):
    """Bitmaps of the nodes that a pod may not use now, and of those that it takes last."""

    closed: int = 0
    last: int = 0


NOTHING_AVOIDED: Final = AvoidedNodes()


class _Record:
    """What a node did with the pods of a team; `last` is the time of the latest rejection."""

    __slots__ = ("at_last", "last", "reason", "rejections", "since", "times", "tried_by", "tried_until", "until")

    def __init__(self) -> None:
        self.at_last: set[Uid] = set()
        self.last = 0
        self.reason, self.tried_by = "", NO_UID
        self._trust()

    def _trust(self) -> None:
        """Count from nothing."""
        self.rejections = self.times = self.since = self.until = self.tried_until = 0

    def reject(self, uid: Uid, at: int, reason: str) -> bool:
        """Count a rejection; False where it is counted already, or older than others."""
        if at < self.last or uid in self.at_last or (at == self.last and len(self.at_last) >= _MOST_UIDS):
            return False
        if self.is_over(at):
            self._trust()
        if at > self.last:
            self.last, self.at_last = at, set()
        self.at_last.add(uid)
        self.rejections += 1
        self.reason = reason
        if at >= self.until and (self.times or self.rejections >= STRIKES):  # else it was on its way before that
            self.since, self.until = at, at + min(LONGEST_SECONDS, FIRST_SECONDS << min(self.times, 10))
            self.times += 1
            self.tried_until = 0
        return True

    def start(self, at: int) -> bool:
        """Trust the node again if a pod started after its last rejection; return whether that is new."""
        if at <= self.last or not self.rejections:
            return False
        self._trust()
        return True

    def is_closed(self, now: int) -> bool:
        """Whether no pod of the team may be placed there now."""
        return now < self.until or now < self.tried_until

    def is_over(self, now: int) -> bool:
        """Whether it is to be forgotten."""
        return max(self.last, self.until) + REMEMBERED_SECONDS <= now


class RejectingNodes:
    """The nodes that rejected pods. While there are none, `records` is empty, and nothing costs more than that look.

    What comes before the first `tick` is counted with it, in the order of time: a list has no order.
    """

    def __init__(self, team_of: Callable[[Namespace], TeamName] = TeamName) -> None:
        self.records: dict[TeamName, dict[NodeName, _Record]] = {}
        self._team_of = team_of
        self._now = 0
        self._early: dict[tuple[NodeName, Namespace], list[Rejection | Start]] = {}
        self._created: dict[NodeName, int] = {}  # of all nodes
        self._started: dict[NodeName, dict[Namespace, int]] = {}  # the latest start of each namespace on each node
        self._avoided: dict[TeamName, AvoidedNodes] = {}  # for this fleet, until this time
        self._suspects: int | None = None
        self._fleet: Fleet | None = None
        self._valid_until = 0
        self._sweep_at = 0

    # -- events

    def note(self, outcome: Rejection | Start) -> None:
        """Count what a kubelet did with a pod; the same pod again changes nothing."""
        if self._now:
            self._count(outcome)
            self._forget(outcome.node)  # in a list that is read again there are old ones
            return
        early = self._early.setdefault((outcome.node, outcome.namespace), [])
        early.append(outcome)
        if len(early) > 2 * _MOST_EARLY:
            early.sort(key=_time_of)
            del early[:-_MOST_EARLY]

    def try_out(self, node: NodeName, namespace: Namespace, uid: Uid) -> None:
        """Note that a pod is placed on a node: no other pod of its team tries it meanwhile."""
        record = self._record(node, namespace)
        if record is not None and record.times and not record.is_closed(self._now):
            record.tried_until, record.tried_by = self._now + TRY_SECONDS, uid
            self._change()

    def give_up(self, node: NodeName | None, namespace: Namespace, uid: Uid) -> None:
        """Note that a pod is not placed there after all: another one may try the node."""
        record = None if node is None else self._record(node, namespace)
        if record is not None and record.tried_by == uid:
            record.tried_until, record.tried_by = 0, NO_UID
            self._change()

    def set_node(self, node: Node) -> None:
        """Note a node that came or changed: one that was created since it rejected pods is another node."""
        self._created[node.name] = node.created
        if not self.records:
            return
        for team in [team for team, records in self.records.items() if node.name in records]:
            if self.records[team][node.name].last <= node.created:
                self._drop(team, node.name)
        self._change()

    def remove_node(self, name: NodeName) -> None:
        """Forget a node that is gone."""
        self._created.pop(name, None)
        self._started.pop(name, None)
        for team in [team for team, records in self.records.items() if name in records]:
            self._drop(team, name)
        if self.records:
            self._change()

    def tick(self, now: int) -> None:
        """Set the time, in Unix seconds."""
        self._now = now
        if self._early:
            early, self._early = self._early, {}
            for outcome in sorted((each for several in early.values() for each in several), key=_time_of):
                self._count(outcome)
            self._sweep_at = now
        if self.records and now >= self._sweep_at:
            self._sweep_at = now + _SWEEP_SECONDS
            for node in {node for records in self.records.values() for node in records}:
                self._forget(node)
        if now >= self._valid_until:
            self._change()

    # -- queries

    def avoided(self, team: TeamName, fleet: Fleet) -> AvoidedNodes:
        """Return the nodes that the pods of a team may not use now, and those that they take last."""
        if not self.records:
            return NOTHING_AVOIDED
        if fleet is not self._fleet:
            self._change()
            self._fleet = fleet
        found = self._avoided.get(team)
        if found is None:
            found = self._avoided[team] = self._avoided_by(team, fleet)
        return found

    def closed_to(self, fleet: Fleet) -> dict[TeamName, int]:
        """Return the nodes that the pods of each team may not use now."""
        return {team: bits for team in self.records if (bits := self.avoided(team, fleet).closed)}

    def closed(self) -> Iterator[ClosedNode]:
        """Yield the nodes that were closed and not used since, for each team."""
        nodes = {node for records in self.records.values() for node in records}
        for node in sorted(nodes):
            yield from self.on(node)

    def on(self, node: NodeName) -> Iterator[ClosedNode]:
        """Yield the same of one node."""
        for team, records in self.records.items():
            record = records.get(node)
            if record is not None and record.times:
                yield ClosedNode(
                    node,
                    team,
                    rejections=record.rejections,
                    reason=record.reason,
                    since=record.since,
                    until=record.until,
                )

    # -- the records

    def _record(self, node: NodeName, namespace: Namespace) -> _Record | None:
        return self.records.get(self._team_of(namespace), {}).get(node) if self.records else None

    def _forget(self, node: NodeName) -> None:
        for team, records in list(self.records.items()):
            record = records.get(node)
            if record is not None and record.is_over(self._now):
                self._drop(team, node)

    def _count(self, outcome: Rejection | Start) -> None:
        team = self._team_of(outcome.namespace)
        if isinstance(outcome, Start):
            self._count_start(team, outcome)
            return
        at, created = min(outcome.at, self._now), self._created.get(outcome.node)
        if created is None or at <= max(created, self._started.get(outcome.node, {}).get(outcome.namespace, 0)):
            return  # of a node that is gone, or of the one before: its failed pods are updated once more as they go
        records = self.records.setdefault(team, {})
        record = records.get(outcome.node)
        if record is None:
            record = records[outcome.node] = _Record()
        if record.reject(outcome.uid, at, outcome.reason):
            self._change()
        if len(records) > MOST_NODES:
            self._drop(team, min(records, key=lambda name: records[name].last))

    def _count_start(self, team: TeamName, start: Start) -> None:
        started = self._started.setdefault(start.node, {})
        if start.at <= started.get(start.namespace, 0):
            return
        started[start.namespace] = start.at
        if not any(start.node in records for records in self.records.values()):
            return
        self._change()
        record = self.records.get(team, {}).get(start.node)
        if record is not None and record.start(start.at):
            self._change()

    def _drop(self, team: TeamName, node: NodeName) -> None:
        records = self.records[team]
        del records[node]
        if not records:
            del self.records[team]
        self._change()

    def _change(self) -> None:
        self._avoided.clear()
        self._suspects = None
        self._valid_until = self._now + REMEMBERED_SECONDS

    def _avoided_by(self, team: TeamName, fleet: Fleet) -> AvoidedNodes:
        closed, last, now = 0, self._all_suspects(fleet), self._now
        for node, record in self.records.get(team, {}).items():
            if record.is_closed(now):
                closed |= fleet.bit(node)
            elif record.rejections:
                last |= fleet.bit(node)
        return AvoidedNodes(closed, last & ~closed)

    def _all_suspects(self, fleet: Fleet) -> int:
        """Return the nodes that are closed to any team, or were, and on which no pod has started since."""
        if self._suspects is None:
            self._suspects, now = 0, self._now
            for records in self.records.values():
                for node, record in records.items():
                    until = max(record.until, record.tried_until)
                    if now < until:
                        self._valid_until = min(self._valid_until, until)
                    if record.times and record.last >= max(self._started.get(node, {}).values(), default=0):
                        self._suspects |= fleet.bit(node)
        return self._suspects


def _time_of(outcome: Rejection | Start) -> tuple[int, bool]:
    return outcome.at, isinstance(outcome, Start)
