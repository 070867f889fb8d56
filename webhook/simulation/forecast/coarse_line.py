"""The line in coarse steps, from the present on.

The line played on without the decisions on single pods: order between teams, limits, and room on nodes.

It continues a simulation of which the work that may be spent is over: a start costs a tenth here. Ranks between teams
and room on nodes are the core's, the order inside a team is that of its line. Left out are departments, limits of users
and models, gangs, and reclaim.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from heapq import heappop, heappush, nsmallest
from typing import Final, NamedTuple

from webhook.core.admission.assessment import assess
from webhook.core.explain.line_places import Run, places
from webhook.core.line.entries import Lot
from webhook.core.line.line import queued_pod
from webhook.core.line.order import Rank, Standing, rank
from webhook.core.model.amounts import UNASSIGNED, NodeName, TeamName, Uid, Units, Unlimited, exact_units
from webhook.core.model.demand import Demand
from webhook.core.model.pod import NO_RUN_TIME, Pod, Requester, Resident, RunTime
from webhook.core.model.policy import NO_TEAM, Policy
from webhook.core.placement.fleet import Fleet
from webhook.core.world.nameless import is_sum_of_team
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World
from webhook.simulation.forecast.run_times import Likeness

ROWS: Final = 32
"""Kinds of pods of each team that are looked at: the first of each may start ahead of others that do not fit."""

COMPARED: Final = 64
"""Nodes with room among which the fullest is taken."""

_ANY_LOT: Final = Lot(None, 0, None, None, None, is_evictable=True)


class CoarsePod(NamedTuple):
    """A pod that waits: `nodes` are the slots of the fleet that it may use; `seconds` is how long it will run."""

    uid: Uid
    team: TeamName
    demand: Demand
    nodes: int
    seconds: int


class CoarseRun(NamedTuple):
    """A pod that runs until a time; `node` is None where it is on none that is known."""

    uid: Uid
    ends: int
    team: TeamName
    demand: Demand
    node: NodeName | None


_Row = tuple[TeamName, Demand, int]


def _row(pod: CoarsePod) -> _Row:
    """Return what pods have in common that fit, or do not fit, alike."""
    return pod.team, pod.demand, pod.nodes


class _Place(NamedTuple):
    """A pod by its number in line, which no other pod has."""

    number: int
    pod: CoarsePod


class _Team:
    """What a team holds, and its line: rows of equal pods, each in the order of the line."""

    def __init__(self, name: TeamName, policy: Policy) -> None:
        shares = policy.team(name) or NO_TEAM
        self._standing = Standing(name, guaranteed=shares.gpus.guaranteed, weight=shares.weight)
        self._limit = None if isinstance(shares.gpus.limit, Unlimited) else shares.gpus.limit
        self.held: Units = 0
        self.rows: dict[_Row, deque[_Place]] = {}

    def add(self, place: _Place) -> None:
        """Add a pod behind the others."""
        self.rows.setdefault(_row(place.pod), deque()).append(place)

    def take(self, pod: CoarsePod) -> None:
        """Take the first pod of a row out of the line."""
        row = self.rows[_row(pod)]
        row.popleft()
        if not row:
            del self.rows[_row(pod)]

    def rank(self, pod: CoarsePod) -> Rank:
        """Return the place of the team among the others, if this pod is its next."""
        inside = min(self.held, self._standing.guaranteed)
        standing = self._standing._replace(used=inside, borrowed=self.held - inside)
        return rank(standing, standing.rank_class(_ANY_LOT._replace(gpus=pod.demand.gpus)))

    def has_room(self, pod: CoarsePod) -> bool:
        """Whether the limit of the team has room for a pod."""
        return self._limit is None or self.held + pod.demand.gpus <= self._limit


class CoarseLine:
    """Pods in line and pods that run on the nodes of a fleet, which it changes; `undo` sets it back."""

    def __init__(
        self,
        policy: Policy,
        fleet: Fleet,
        *,
        running: Iterable[CoarseRun],
        line: Iterable[CoarsePod],
    ) -> None:
        self._policy = policy
        self._fleet = fleet
        self._teams: dict[TeamName, _Team] = {}
        self._ends: list[tuple[int, int, CoarseRun]] = []
        self._number = 0
        self._changes: dict[Uid, tuple[CoarseRun, int]] = {}
        self.is_cut = False
        for run in running:
            self._team(run.team).held += run.demand.gpus
            self._push(run)
        for number, pod in enumerate(line):
            self._team(pod.team).add(_Place(number, pod))

    def starts(self, *, now: int, until: int, most: int) -> dict[Uid, int]:
        """Return when the pods in line start, by a time and after at most so many ends; the others are left out.

        `is_cut` says afterwards whether there were more ends.
        """
        found: dict[Uid, int] = {}
        for _ in range(most):
            found |= {pod.uid: now for pod in self._start(now)}
            if not (self._ends and any(team.rows for team in self._teams.values())) or self._ends[0][0] > until:
                return found
            now = self._ends[0][0]
            while self._ends and self._ends[0][0] <= now:
                run = heappop(self._ends)[2]
                self._team(run.team).held -= run.demand.gpus
                self._use(run, -1)
        self.is_cut = True
        return found

    def undo(self) -> None:
        """Set the fleet back."""
        for run, sign in self._changes.values():
            if sign and run.node is not None:
                self._fleet.take(run.node, run.demand, sign=-sign, holder=run.uid)
        self._changes.clear()

    def _use(self, run: CoarseRun, sign: int) -> None:
        """Take the room of a pod on its node, or give it back."""
        if run.node is not None:
            self._fleet.take(run.node, run.demand, sign=sign, holder=run.uid)
            before = self._changes.get(run.uid, (run, 0))[1]
            self._changes[run.uid] = run, before + sign

    def _start(self, now: int) -> list[CoarsePod]:
        """Start what fits, team after team by rank; return it."""
        started: list[CoarsePod] = []
        kept = 0
        blocked: set[_Row] = set()
        turns = self._turns(self._teams, blocked)
        while turns:
            pod = turns.pop(0)[2]
            team = self._teams[pod.team]
            room = self._fleet.with_room(pod.demand, pod.nodes & self._fleet.open_bits) if team.has_room(pod) else 0
            if not room & ~kept:
                blocked.add(_row(pod))
                if not room and team.has_room(pod):
                    kept |= self._next_free(pod, kept)
                continue
            team.take(pod)
            team.held += pod.demand.gpus
            run = CoarseRun(pod.uid, now + pod.seconds, pod.team, pod.demand, self._fullest(pod, room & ~kept))
            self._use(run, 1)
            self._push(run)
            started.append(pod)
            others = [turn for turn in turns if turn[2].team != pod.team]
            turns = sorted(others + self._turns((pod.team,), blocked))
        return started

    def _turns(self, teams: Iterable[TeamName], blocked: set[_Row]) -> list[tuple[Rank, int, CoarsePod]]:
        """Return the first pods of the rows of these teams, in their order."""
        found = []
        for name in teams:
            team = self._teams[name]
            heads = nsmallest(ROWS, (row[0] for row in team.rows.values()))
            found += [(team.rank(pod), number, pod) for number, pod in heads if _row(pod) not in blocked]
        return sorted(found)

    def _fullest(self, pod: CoarsePod, room: int) -> NodeName:
        """Return the node with the fewest free devices, of the first that have room."""
        fleet = self._fleet
        slots = fleet.slots_of(room)[:COMPARED]
        names = fleet.names(slots)
        if not pod.demand.devices:
            return names[0]
        free = fleet.free_at(slots, pod.demand.devices[0][0])
        return min(zip(free, names, strict=True))[1]

    def _next_free(self, pod: CoarsePod, kept: int) -> int:
        """Return the slot of the node that is to be free first for a pod that fits nowhere."""
        fleet = self._fleet
        able = fleet.with_capacity(pod.demand, pod.nodes & fleet.open_bits) & ~kept
        slots = fleet.slots_of(able)
        if not slots or not pod.demand.devices:
            return 0
        free = fleet.free_at(slots, pod.demand.devices[0][0])
        best = max(range(len(slots)), key=lambda index: (free[index], -index))
        return 1 << slots[best]

    def _team(self, name: TeamName) -> _Team:
        found = self._teams.get(name)
        if found is None:
            found = self._teams[name] = _Team(name, self._policy)
        return found

    def _push(self, run: CoarseRun) -> None:
        self._number += 1
        heappush(self._ends, (run.ends, self._number, run))


# What a forecast begins with: the present world, read once, from which each sample makes a world of its own.


MAX_LINE: Final = 1_000
"""Pods of the line that are played; those behind follow at the pace of these."""

_MAX_KINDS: Final = 256
"""Kinds of pods whose nodes are looked for; those of further ones are taken to be all."""

_EVERYWHERE: Final = -1

_NO_REQUESTER: Final = Requester("")


class Running(NamedTuple):
    """A pod that holds GPUs, and since when it runs."""

    resident: Resident
    since: int
    likeness: Likeness
    run_time: RunTime


class Waiting(NamedTuple):
    """A pod in line."""

    pod: WaitingPod
    likeness: Likeness


class Present:
    """The pods, the line and the nodes of a world at a moment.

    `places` are those of all pods in line, `line` has the first of them, without gangs that are `incomplete`. Demands
    are resolved: devices are counted, and no claim is looked up again. Pods that were admitted and are on no node yet
    run from now on, on the first node that was chosen for them.
    """

    def __init__(self, world: World, runs: Iterable[Run], *, now: int) -> None:
        self.world = world
        self.now = now
        known = {run.uid: run for run in runs if not run.ended}
        self.running = [
            _running(resident, known.get(resident.uid), world, now)
            for resident in world.pods()
            if resident.uid not in world.waiting and not is_sum_of_team(resident)
        ]
        found = places(world)
        self.places = {uid: place.overall for uid, place in found.items()}
        first = sorted(found, key=lambda uid: self.places[uid])[:MAX_LINE]
        pods = (world.waiting.get(uid) for uid in first)
        self.line = [_waiting(pod, world) for pod in pods if pod is not None and _is_whole(pod, world)]
        self.incomplete = {pod.uid for pod in world.waiting.all() if not _is_whole(pod, world)}

    def age(self, running: Running) -> int:
        """Return for how many seconds a pod has run."""
        return self.now - running.since

    def world_of_its_own(self) -> World:
        """Return a new world with the same nodes, pods and line; room that nodes keep for a moment is open in it."""
        world, before = World(self.world.policy), self.world
        world.autoscalers = before.autoscalers
        world.tick(self.now)
        for namespace in before.namespaces():
            world.set_namespace(namespace)
        for priority_class in before.priority_classes.values():
            world.set_priority_class(priority_class)
        for node in before.fleet.nodes():
            world.set_node(node.unheld)
        world.sort_nodes()
        world.minimums.copy_scalers(before.minimums)
        for each in self.running:
            world.set_pod(each.resident)
        for waiting in self.line:
            world.set_waiting(waiting.pod)
        return world

    @cached_property
    def shared_world(self) -> World:
        """A world for one sample after the other: each sets it back."""
        return self.world_of_its_own()

    @cached_property
    def slots(self) -> dict[Uid, int]:
        """The slots of the nodes that each pod of the line may use, as worlds of their own number them."""
        world, known = self.shared_world, dict[object, int]()
        found = {}
        for waiting, _ in self.line:
            queued = queued_pod(waiting, world)
            key = queued.team, queued.kind
            if key not in known and len(known) < _MAX_KINDS:
                known[key] = _slots(waiting, world)
            found[waiting.uid] = known.get(key, _EVERYWHERE)
        return found

    @cached_property
    def kinds(self) -> int:
        """How many kinds of pods wait: one of each is judged."""
        return len({(each.likeness, each.pod.pod.demand, each.pod.pod.constraints) for each in self.line})

    @property
    def size(self) -> int:
        """What a world of its own consists of."""
        return len(self.world.fleet) + len(self.running) + len(self.line)


def _waiting(waiting: WaitingPod, world: World) -> Waiting:
    """Return a pod in line, with its demand resolved."""
    pod = waiting.pod
    if pod.needs_resolution:
        pod = pod._replace(demand=world.with_claims(pod).demand, claims=(), shares_by="", slices=())
    likeness = Likeness(waiting.team, exact_units(pod.demand.gpus), waiting.user)
    return Waiting(replace(waiting, pod=pod), likeness)


def _slots(waiting: WaitingPod, world: World) -> int:
    assessed = assess(waiting.pod, _NO_REQUESTER, world).of_user(waiting.user)
    slots = 0
    for pool in assessed.pools.allowed:
        slots |= world.fleet.matching(world.pools.joined(assessed.pod.constraints, pool))
    return world.fleet.with_capacity(assessed.pod.demand, slots)


def _is_whole(waiting: WaitingPod, world: World) -> bool:
    """Whether a pod is alone, or all members of its gang have come."""
    gang = waiting.pod.gang
    return gang is None or world.gangs.has_started(gang.id) or len(world.waiting.of_gang(gang.id)) >= gang.size


def _running(resident: Resident, run: Run | None, world: World, now: int) -> Running:
    charge = world.charge_of(resident.uid)
    team = UNASSIGNED if charge is None else charge.team
    user = resident.user if charge is None else charge.user
    since = min(now, run.started if run is not None else resident.created or now)
    found = resident._replace(node=world.node_of(resident.uid), claims=(), shares_by="", slices=())
    said = NO_RUN_TIME if run is None else run.run_time
    return Running(found, since, Likeness(team, exact_units(resident.demand.gpus), user), said)


def as_created(resident: Resident) -> Pod:
    """Return what the controller of a pod would create again, as far as the world knows it."""
    return Pod(resident.namespace, resident.demand, name=resident.name, owner=resident.owner, replica=resident.replica)
