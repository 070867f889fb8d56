"""Nodes that kubelets refuse pods on, or that are absent.

Nodes that left or shrank recently: a node that reboots, or whose device plugin restarts, comes back.

Such a node is remembered for an hour, or until an operator has finished with it, so that a pod that only this node
could hold is not reported as one that never fits. A node counts by what it has at its best: its capacity says so while
a device is unhealthy, and for five minutes after a device plugin is gone. A kubelet that restarts without the plugin,
and a driver whose ResourceSlices are withdrawn, report nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from webhook.core.model.amounts import Namespace, NodeName, ResourceName, TeamName, Uid
from webhook.core.model.constraints import Constraints
from webhook.core.model.demand import Demand
from webhook.core.model.node import Maintenance, Node
from webhook.core.model.pod import NO_UID, Pod, Resident
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.unused_nodes import NodeChanges, UnusedNodes

ABSENT_SECONDS: Final = 3600
"""How long a node is expected back: a reboot takes minutes, a driver upgrade less than an hour."""

_MAX_NODES: Final = 1000
"""The largest number of nodes remembered, the latest ones."""


class AbsentNodes:
    """The resources of nodes before they left or shrank; `maintained` are the nodes that operators change."""

    def __init__(self) -> None:
        self.maintained: dict[NodeName, Maintenance] = {}
        self._fleet = Fleet()
        self._left_at: dict[NodeName, int | None] = {}  # None until the time is known; in the order of leaving

    def note(self, before: Node, now: Node | None = None) -> None:
        """Record that a node is gone, or its present state."""
        before = before.recovered
        if now is not None and now.labels == before.labels and not _shrank(now.recovered, before):
            return
        remembered = self._fleet.get(before.name)
        self._left_at.pop(before.name, None)
        self._left_at[before.name] = None
        self._fleet.set(before if remembered is None else _larger(remembered, before))
        if len(self._left_at) > _MAX_NODES:
            self._forget(next(iter(self._left_at)))

    def note_maintenance(self, node: Node) -> None:
        """Record whether an operator changes a node."""
        if node.maintenance is not None:
            self.maintained[node.name] = node.maintenance
        elif self.maintained:
            self.maintained.pop(node.name, None)

    def tick(self, now: int) -> None:
        """Forget nodes that have been absent for too long. A node is absent from the first tick after it left.

        Of nodes that are `maintained` the time does not run.
        """
        for name, left_at in list(self._left_at.items()):
            if left_at is None or name in self.maintained:
                self._left_at[name] = now
            elif left_at + ABSENT_SECONDS <= now:
                self._forget(name)

    def get(self, name: NodeName) -> Node | None:
        """Return a node as it was; None where it is not remembered."""
        return self._fleet.get(name)

    def capable(self, demand: Demand, constraints: Constraints) -> list[NodeName]:
        """Return the absent nodes that could hold the demand if they were back, and empty."""
        return self._fleet.names_of(self._fleet.with_capacity(demand, self._fleet.matching(constraints)))

    def offers(self, resource: ResourceName) -> bool:
        """Whether any absent node had this resource."""
        return self._fleet.offers(resource)

    def _forget(self, name: NodeName) -> None:
        del self._left_at[name]
        self._fleet.remove(name)


def _shrank(now: Node, before: Node) -> bool:
    return any(now.allocatable.get(name, 0) < amount for name, amount in before.allocatable.items())


def _larger(one: Node, other: Node) -> Node:
    """Return the larger amounts of two states of a node: one that fails device by device shrinks in steps."""
    names = one.allocatable.keys() | other.allocatable.keys()
    most = {name: max(one.allocatable.get(name, 0), other.allocatable.get(name, 0)) for name in names}
    devices = max(one.devices, other.devices, key=lambda devices: sum(devices.capacities))
    return replace(other, allocatable=most, devices=devices)


# Nodes whose kubelet rejects the pods that it gets, by team and shape: kept off for minutes, then tried by one pod.
#
# A node that lost a GPU stays Ready and looks empty, so it gets pod after pod, and each one fails at once. A team whose
# pods were rejected there STRIKES times in a row is kept off the node, twice as long after each rejection that follows.
# A pod of the team that starts there ends that.
#
# What is closed is the shape that was rejected: pods that ask for as much or more. That six GPUs are not aligned says
# nothing of a pod of one.
#
# A team is kept off a node by rejections of its own pods alone: some pods are rejected for what they ask for, such as
# two replicas of a time-sliced GPU, and a tenant may create any number of them. Other teams take a node that is closed
# to some team last, until a pod of any team starts there.
#
# After a reboot kubelet admits again the pods that it had, while its device plugin offers nothing yet, and rejects
# them. That says nothing of new pods: such a rejection has the time of the pod's start, and is not counted where a pod
# of the team is known to have started then or later. So one start is kept for each team and node, the latest.


STRIKES: Final = 3
"""Rejections in a row that close a node to a team: one or two are a race, as with a device that is not free yet."""

FIRST_SECONDS: Final = 300
LONGEST_SECONDS: Final = 3600
"""How long a node is closed at first, and at most: a plugin restarts in a minute, a node is repaired in hours."""

TRY_SECONDS: Final = 120
"""How long one pod tries a node before the next one may: kubelet rejects within seconds."""

REMEMBERED_SECONDS: Final = 3600
"""How long a node is taken last after its last closing or rejection."""

MOST_NODES: Final = 256
"""Nodes that are remembered for each team, those with the latest rejections."""
_MOST_SHAPES, _MOST_KNOWN = 8, 1024
"""Shapes of a team that are remembered for each node, the latest; and answers for pods that are kept."""

_MOST_EARLY: Final = 64
"""Outcomes of a namespace's pods on a node that are kept until the time is known, the latest."""

_SWEEP_SECONDS: Final = 60
_MOST_UIDS: Final = 64
"""Pods rejected by a node within one second that are distinguished."""

Shape = tuple[tuple[ResourceName, int], ...]
"""What a pod asks for, as far as it may be the cause of its rejection: the amounts of some resources, sorted."""

ANY_SHAPE: Final[Shape] = ()


class Rejection(NamedTuple):
    """A pod that kubelet rejected at its admission; `at` is in Unix seconds, by the clock of its node."""

    node: NodeName
    namespace: Namespace
    uid: Uid
    at: int
    reason: str
    shape: Shape = ANY_SHAPE


class Start(NamedTuple):
    """A pod with GPUs that kubelet admitted: it runs, or has run. `at` as in a Rejection.

    `written` is the same time as kubelet writes it: RFC 3339 in UTC to the second, which sorts as time does. `requests`
    are all that it asks for.
    """

    node: NodeName
    namespace: Namespace
    at: int
    written: str
    requests: Shape = ANY_SHAPE


class ClosedNode(NamedTuple):
    """A node that rejected pods of a team and shape: how many in a row, the last reason, until when it is closed to it.

    `since` is the time of the rejection that closed it. `until` may be over: then one pod at a time tries it.
    """

    node: NodeName
    team: TeamName
    rejections: int
    reason: str
    since: int
    until: int
    shape: Shape = ANY_SHAPE

    @property
    def size(self) -> str:
        """Return which of the team's pods it rejected, as a text after their number; "" where all of them."""
        devices = [f"{name} {amount}" for name, amount in self.shape if "/" in name]
        return f" with {' and '.join(devices)} or more" if devices else ""

    def is_for(self, team: TeamName, demand: Demand) -> bool:
        """Whether it is closed to a pod of a team."""
        return self.team == team and _has_shape(demand.requests, self.shape)


class AvoidedNodes(NamedTuple):
    """Bitmaps of the nodes that a pod may not use now (`unused` for its scheduler), and of those that it takes last."""

    closed: int = 0
    last: int = 0
    unused: int = 0


NOTHING_AVOIDED: Final = AvoidedNodes()


class _Record:
    """What a node did with the pods of a team and a shape; `last` is the time of the latest rejection."""

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
        self.records: dict[TeamName, dict[NodeName, dict[Shape, _Record]]] = {}
        self.changes = NodeChanges()
        self.unused = UnusedNodes()
        self._team_of = team_of
        self._now = 0
        self._early: dict[tuple[NodeName, Namespace], list[Rejection | Start]] = {}
        self._created: dict[NodeName, int] = {}  # of all nodes
        self._started: dict[NodeName, dict[TeamName, Start]] = {}  # the latest of each team on each node
        self._avoided: dict[tuple[TeamName, Shape], AvoidedNodes] = {}  # for this fleet, until this time
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

    @property
    def latest(self) -> int:
        """The time of the latest outcome that was noted before the first tick, in Unix seconds; 0 for none."""
        return max((each.at for several in self._early.values() for each in several), default=0)

    def has_started_since(self, node: NodeName, namespace: Namespace, written: str) -> bool:
        """Whether a start at this time changes nothing: a pod of the same team started there then or later."""
        started = self._started.get(node)
        latest = None if started is None else started.get(self._team_of(namespace))
        return latest is not None and written <= latest.written

    def try_out(self, node: NodeName, namespace: Namespace, uid: Uid, demand: Demand) -> None:
        """Note that a pod is placed on a node: no other pod of its team that may be rejected tries it meanwhile."""
        if not self.records:
            return
        for shape, record in self._of(node, namespace).items():
            if record.times and not record.is_closed(self._now) and _has_shape(demand.requests, shape):
                record.tried_until, record.tried_by = self._now + TRY_SECONDS, uid
                self._change()

    def give_up(self, node: NodeName | None, namespace: Namespace, uid: Uid) -> None:
        """Note that a pod is not placed there after all: another one may try the node."""
        for record in () if node is None else self._of(node, namespace).values():
            if record.tried_by == uid:
                record.tried_until, record.tried_by = 0, NO_UID
                self._change()

    def set_node(self, node: Node, *, before: Node | None) -> None:
        """Note a node that came or changed: one that was created since it rejected pods is another node."""
        self._created[node.name] = node.created
        if node != before:
            self.changes.note(node.name)
        if not self.records:
            return
        for team in [team for team, records in self.records.items() if node.name in records]:
            if _last(self.records[team][node.name]) <= node.created:
                self._drop(team, node.name)
        self._change()

    def remove_pod(self, uid: Uid, pod: Resident | None) -> None:
        """Note a pod that is gone: its node has changed."""
        self.unused.forget(uid)
        if pod is not None and pod.node is not None:
            self.changes.note(pod.node)

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
        self.changes.tick(now)
        self.unused.tick(now, self.changes)
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

    def __bool__(self) -> bool:
        return bool(self.records or self.unused.closed)

    def avoided(self, team: TeamName, pod: Pod | Resident, fleet: Fleet) -> AvoidedNodes:
        """Return the nodes that a pod of a team may not use now, and those that it takes last."""
        found = self._rejecting(team, pod.demand, fleet)
        unused = self.unused.closed_to(pod, fleet)
        return AvoidedNodes(found.closed | unused, found.last & ~unused, unused) if unused else found

    def _rejecting(self, team: TeamName, demand: Demand, fleet: Fleet) -> AvoidedNodes:
        if not self.records:
            return NOTHING_AVOIDED
        if fleet is not self._fleet or len(self._avoided) >= _MOST_KNOWN:
            self._change()
            self._fleet = fleet
        found = self._avoided.get((team, demand.requests))
        if found is None:
            found = self._avoided[team, demand.requests] = self._avoided_by(team, demand.requests, fleet)
        return found

    def closed(self) -> Iterator[ClosedNode]:
        """Yield the nodes that were closed and not used since, for each team and shape."""
        nodes = {node for records in self.records.values() for node in records}
        for node in sorted(nodes):
            yield from self.on(node)

    def on(self, node: NodeName) -> Iterator[ClosedNode]:
        """Yield the same of one node."""
        for team, records in self.records.items():
            for shape, record in records.get(node, {}).items():
                if record.times:
                    yield ClosedNode(
                        node,
                        team,
                        rejections=record.rejections,
                        reason=record.reason,
                        since=record.since,
                        until=record.until,
                        shape=shape,
                    )

    # -- the records

    def _of(self, node: NodeName, namespace: Namespace) -> dict[Shape, _Record]:
        return self.records.get(self._team_of(namespace), {}).get(node, {}) if self.records else {}

    def _forget(self, node: NodeName) -> None:
        for team, records in list(self.records.items()):
            if node in records and all(record.is_over(self._now) for record in records[node].values()):
                self._drop(team, node)

    def _count(self, outcome: Rejection | Start) -> None:
        team = self._team_of(outcome.namespace)
        if isinstance(outcome, Start):
            self._count_start(team, outcome)
            return
        at, created = min(outcome.at, self._now), self._created.get(outcome.node)
        if created is None or at <= created:
            return  # of a node that is gone, or of the one before: its failed pods are updated once more as they go
        started = self._started.get(outcome.node, {}).get(team)
        if started is not None and outcome.at <= started.at:
            return
        records = self.records.setdefault(team, {})
        by_shape = records.setdefault(outcome.node, {})
        by_shape.setdefault(outcome.shape, _Record())
        for shape, record in by_shape.items():  # a larger pod would have been rejected, too
            if _has_shape(shape, outcome.shape) and record.reject(outcome.uid, at, outcome.reason):
                self._change()
        if len(by_shape) > _MOST_SHAPES:
            del by_shape[min(by_shape, key=lambda shape: by_shape[shape].last)]
        if len(records) > MOST_NODES:
            self._drop(team, min(records, key=lambda name: _last(records[name])))

    def _count_start(self, team: TeamName, start: Start) -> None:
        if start.node not in self._created:
            return
        started = self._started.setdefault(start.node, {})
        latest = started.get(team)
        if start.at <= (0 if latest is None else latest.at):
            return
        started[team] = start
        if not any(start.node in records for records in self.records.values()):
            return
        self._change()
        for shape, record in self.records.get(team, {}).get(start.node, {}).items():
            if _has_shape(start.requests, shape) and record.start(start.at):
                self._change()

    def _drop(self, team: TeamName, node: NodeName) -> None:
        records = self.records[team]
        del records[node]
        if not records:
            del self.records[team]
        self._change()

    def _change(self) -> None:
        self._avoided.clear()
        self._valid_until = self._now + REMEMBERED_SECONDS

    def _avoided_by(self, team: TeamName, requests: Shape, fleet: Fleet) -> AvoidedNodes:
        """Return the same: to other teams a node is the last that is closed to any, and where no pod started since."""
        closed, last, now = 0, 0, self._now
        for other, records in self.records.items():
            for node, by_shape in records.items():
                started = max((each.at for each in self._started.get(node, {}).values()), default=0)
                for shape, record in by_shape.items():
                    if now < (until := max(record.until, record.tried_until)):
                        self._valid_until = min(self._valid_until, until)
                    if not _has_shape(requests, shape):
                        continue
                    if other == team and record.is_closed(now):
                        closed |= fleet.bit(node)
                    elif record.rejections if other == team else record.times and record.last >= started:
                        last |= fleet.bit(node)
        return AvoidedNodes(closed, last & ~closed)


def _has_shape(requests: Shape, shape: Shape) -> bool:
    """Whether a pod asks for as much of everything as one that was rejected."""
    if not shape:
        return True
    asked = dict(requests)
    return all(asked.get(name, 0) >= amount for name, amount in shape)


def _last(by_shape: Mapping[Shape, _Record]) -> int:
    return max(record.last for record in by_shape.values())


def _time_of(outcome: Rejection | Start) -> tuple[int, bool]:
    return outcome.at, isinstance(outcome, Start)
