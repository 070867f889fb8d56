"""Plays a load.

Pods that are created: each gets the decision of the webhook, and starts, waits or is refused by it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import IntEnum
from heapq import heappop, heappush
from itertools import count
from typing import Final

from webhook.addons.simulation.cluster import PodOf, SimulatedCluster, SimulatedReclaim, binding_for, with_hold
from webhook.addons.simulation.runs import RefusedPods, Runs
from webhook.addons.simulation.task import (
    DEFAULT_SETTINGS,
    Eviction,
    Evictions,
    Refusals,
    Settings,
    Task,
    TaskRecord,
    TaskState,
)
from webhook.cli.addons import SIMULATED_MOVES, ask
from webhook.core.admission.admission import admit
from webhook.core.admission.assessment import assess
from webhook.core.admission.queueing import reasons_never_to_start
from webhook.core.line.gang_plans import ended_reservations
from webhook.core.model.amounts import Uid
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Admit, Charge, Deny, NotApplicable, Queue, Retry
from webhook.core.model.pod import CONTROLLER, Pod, Requester
from webhook.core.model.reasons import LIMITS, NO_ROOM, Code, Reason
from webhook.core.starting.starts import AssumedStarts
from webhook.core.tiers.tier_changes import all_tier_changes
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World

_TRIED_AGAIN: Final = LIMITS | NO_ROOM | {Code.QUEUE_FULL}
"""The codes of refusals that end when other pods end or start."""

GANG_LOOKS: Final = (1, 3, 9)
"""Seconds after a change at which the queue is looked at again while gangs wait: some rest after a judgment."""


class Arrivals:
    """Creates pods. `queued` wait in the queue, `refused` are those that their controllers create again.

    `created` and `joined` count the pods that were created, and those that were queued. `look_at` is called with
    times at which the queue is to be looked at.
    """

    def __init__(
        self, cluster: SimulatedCluster, runs: Runs, settings: Settings, *, look_at: Callable[[int], None]
    ) -> None:
        self.refused = RefusedPods()
        self._cluster = cluster
        self._world = cluster.world
        self._runs = runs
        self._settings = settings
        self._look_at = look_at
        self.queued: dict[Uid, PodOf] = {}
        self.created = 0
        self.joined = 0
        self._released = 0
        self._seen = self._room_changes

    def create(self, pod_of: PodOf) -> None:
        """Create a pod."""
        self.created += 1
        pod_of.record.state = TaskState.WAITING
        if not self._decide(pod_of):
            pod_of.record.refusals += 1
            self.refused.add(pod_of)

    def retry(self) -> bool:
        """Create refused pods again if a pod ended or left the queue since; return whether any was not refused."""
        if not len(self.refused) or self._seen == self._room_changes:
            return False
        self._seen = self._room_changes
        return self.refused.retry(self._decide)

    def release(self, uid: Uid, admitted: Admit) -> None:
        """Take the gate of a pod that was released from the queue."""
        pod_of = self.queued.pop(uid)
        self._released += 1
        nodes = admitted.node_choice.nodes
        self._start(pod_of, admitted, fits=bool(nodes) and self._cluster.has_room_for_promise(uid, nodes[0], admitted))

    @property
    def _room_changes(self) -> tuple[int, int]:
        """What may have made room on nodes, under limits or in the queue."""
        return self._cluster.changes, self._released

    def _decide(self, pod_of: PodOf) -> bool:
        """Create a pod by the decision of the webhook; return False where it is refused for now."""
        task, world = pod_of.record.task, self._world
        if not world.policy.is_enforced:
            self._pass_by(pod_of, Charge(task.team, Tier.PREEMPTIBLE, pod_of.pod.demand.gpus))
            return True
        decision = admit(pod_of.pod, _requester(pod_of), world)
        match decision:
            case Admit():
                self._admit(pod_of, decision)
            case Queue(team=team, user=user):
                self._join(pod_of)
                priority, created = task.priority, world.now
                world.set_waiting(WaitingPod(pod_of.pod, team, user=user, priority=priority, created=created))
            case NotApplicable(charge=charge):
                self._pass_by(pod_of, charge)
            case Deny(reasons=reasons):
                pod_of.record.refused = reasons
                if {reason.code for reason in reasons} <= _TRIED_AGAIN and self._comes_back(pod_of):
                    return False
                pod_of.record.state = TaskState.REFUSED
            case Retry():
                return False
        return True

    def _join(self, pod_of: PodOf) -> None:
        self.queued[pod_of.uid] = pod_of
        self.joined += 1
        for seconds in GANG_LOOKS if pod_of.pod.gang is not None else ():
            self._look_at(self._world.now + seconds)

    def _comes_back(self, pod_of: PodOf) -> bool:
        """Whether a refused pod is created again, and could start if its team held nothing."""
        if self._settings.refusals is not Refusals.RETRY:
            return False
        assessed = assess(pod_of.pod, _requester(pod_of), self._world)
        return assessed.early_decision is None and not reasons_never_to_start(assessed, self._world)

    def _admit(self, pod_of: PodOf, admitted: Admit) -> None:
        nodes = admitted.node_choice.nodes
        self._start(pod_of, admitted, fits=bool(nodes) and self._world.fleet.fits(nodes[0], admitted.demand))

    def _start(self, pod_of: PodOf, admitted: Admit, *, fits: bool) -> None:
        """Create an admitted pod; kube-scheduler binds it to the webhook's first choice if that has room."""
        self._cluster.admit(pod_of, admitted)
        if fits:
            self._runs.start(pod_of, admitted.node_choice.nodes[0])

    def _pass_by(self, pod_of: PodOf, charge: Charge | None) -> None:
        """Leave a pod to kube-scheduler alone."""
        self._cluster.pass_by(pod_of, charge if charge is not None and charge.gpus else None)


def _requester(pod_of: PodOf) -> Requester:
    user = pod_of.record.task.user
    return CONTROLLER if user is None else Requester(user)


# Discrete events through the decisions of the webhook, the leader and the evictor: pods come, wait, start, end.
#
# Each event changes the world as the cluster's watch would. Then everything that an installation does by itself is done
# until nothing changes: promotions, kube-scheduler's bindings, releases from the queue, retries, reclaim. Every
# decision is the core's own, on the core's own world. The same tasks, world and settings give the same result.


AT_ONCE: Final = 64
"""Pods that one pass over the queue starts, as in the leader."""

RESTART_SECONDS: Final = 1
"""When the controller of an evicted pod creates it again."""

MAX_TURNS: Final = 1_000
"""Turns at one moment before time goes on: pods that displace each other must not stop the simulation."""


class _Kind(IntEnum):
    """Events at one moment, in this order."""

    END = 0
    CREATE = 1
    LOOK = 2


_Event = tuple[int, _Kind, int, TaskRecord | Uid | None]


class Simulation:
    """One run. `on_time` is called after each moment at which something happened, with everything settled.

    `come` counts the pods that were created, `moves` those that were evicted to make room for waiting ones.
    """

    def __init__(
        self,
        world: World,
        tasks: Iterable[Task],
        *,
        settings: Settings = DEFAULT_SETTINGS,
    ) -> None:
        self.world = world
        self.records: list[TaskRecord] = []
        self.cluster = SimulatedCluster(world)
        self.evictions: list[Eviction] = []
        self.moves = 0
        self.on_time: Callable[[Simulation], None] = _ignore
        self._numbers = count(1)
        self._events: list[_Event] = []
        for task in tasks:
            self.add(task)
        self._looks: set[int] = set()
        self._reclaim = SimulatedReclaim(self.cluster, wake=self.look_at)
        self._settings = settings
        self._runs = Runs(
            self.cluster,
            checkpoint_seconds=settings.checkpoint_seconds,
            end_at=self._end_at,
            look_at=self.look_at,
        )
        self._arrivals = Arrivals(self.cluster, self._runs, settings, look_at=self.look_at)
        moves_in = ask(SIMULATED_MOVES)
        self._moves = None if moves_in is None else moves_in(self.cluster, self._arrivals.refused, settings)
        self._starts = AssumedStarts(world)
        self._released_at: object = None
        self._promoted_at: object = None
        for resident in world.pods():
            if resident.demand.gpus or resident.demand.devices:
                self.cluster.adopt(resident)
        for waiting in world.waiting.all():
            self._adopt_queued(waiting)

    @property
    def come(self) -> int:
        """Return how many pods were created."""
        return self._arrivals.created

    @property
    def now(self) -> int:
        """The present moment, in seconds of Unix time."""
        return self.world.now

    def waiting_pods(self) -> Iterator[Pod]:
        """Yield the pods that wait: in the queue, in kube-scheduler, and those that were refused for now."""
        yield from (pod_of.pod for pod_of in self._arrivals.queued.values())
        yield from (pod_of.pod for pod_of in self.cluster.unbound.values())
        yield from (pod_of.pod for pod_of in self._arrivals.refused)

    def reasons_to_wait(self) -> Iterator[tuple[TaskRecord, tuple[Reason, ...]]]:
        """Yield why tasks have not started now, as far as they were judged since the last change."""
        for uid, judged in self._starts.blocked.items():
            pod_of = self._arrivals.queued.get(uid)
            if pod_of is not None and judged.reason is not None:
                yield pod_of.record, (judged.reason,)
        for pod_of in self._arrivals.refused:
            yield pod_of.record, pod_of.record.refused

    def end_pod(self, uid: Uid, *, at: int) -> None:
        """Let a pod that the world has from the beginning end at a time."""
        self._runs.end_later(uid, at=at)

    def _adopt_queued(self, waiting: WaitingPod) -> None:
        """Have a pod of the world's own queue run to the end once it starts."""
        pod = waiting.pod
        if pod.gang is not None and self.world.gangs.has_started(pod.gang.id):
            pod = pod._replace(gang=None)  # its run does not depend on members that run already
        task = Task(
            name=pod.name,
            pod=pod,
            team=waiting.team,
            created=waiting.created,
            seconds=None,
            user=waiting.user,
            priority=waiting.priority,
        )
        self._arrivals.queued[waiting.uid] = PodOf(TaskRecord(task), waiting.uid, pod)

    def run(self, *, until: int | None = None) -> None:
        """Go through all events, or those up to a time."""
        while self._events and (until is None or self._events[0][0] <= until):
            now = self._events[0][0]
            self.world.tick(now)
            for kind in _Kind:
                if self._do(now, kind):
                    self._settle()
            for due in (self.world.stages.next_due(), None if self._moves is None else self._moves.next_look()):
                if due is not None:
                    self.look_at(max(now + 1, due))
            self._looks.discard(now)
            self.on_time(self)

    def add(self, task: Task) -> TaskRecord:
        """Add a task that comes at its time; return what will come of it."""
        record = TaskRecord(task)
        self.records.append(record)
        self._push(task.created, _Kind.CREATE, record)
        return record

    def look_at(self, at: int) -> None:
        """Look at a later time what may be done, whether anything happens then or not."""
        if at not in self._looks:
            self._looks.add(at)
            self._push(at, _Kind.LOOK, None)

    # -- events

    def _do(self, now: int, kind: _Kind) -> bool:
        """Do the events of one kind that are due; return whether there were any."""
        had_any = False
        while self._events and self._events[0][0] == now and self._events[0][1] is kind:
            subject = heappop(self._events)[3]
            had_any = True
            if isinstance(subject, TaskRecord):
                self._create(subject)
            elif subject is not None and self._runs.is_due(subject):
                self._runs.end(subject)
        return had_any

    def _create(self, record: TaskRecord) -> None:
        uid = Uid(f"{record.task.name}~{next(self._numbers)}")
        self._arrivals.create(PodOf(record, uid, record.task.pod._replace(uid=uid)))

    def _end_at(self, uid: Uid, at: int) -> None:
        self._push(at, _Kind.END, uid)

    def _push(self, at: int, kind: _Kind, subject: TaskRecord | Uid | None) -> None:
        heappush(self._events, (at, kind, next(self._numbers), subject))

    # -- what follows from a change

    def _settle(self) -> None:
        """Do what an installation does by itself, until nothing changes."""
        for _ in range(MAX_TURNS):
            # the leader looks at the queue 0.02 s after a change, and at tiers and refused pods later
            changes = [self._bind(), self._release(), self._promote(), self._arrivals.retry(), self._take_back()]
            if not any(changes) and not self._move_pods():
                return

    def _promote(self) -> bool:
        """Change tiers as the leader does."""
        world, has_changed = self.world, False
        state = self.cluster.version, world.waiting.wanted
        if not world.policy.is_enforced or state == self._promoted_at:
            return False
        self._promoted_at = state
        for change in all_tier_changes(world):
            self.cluster.set_tier(change.pod.uid, change.charge.tier)
            has_changed = True
        return has_changed

    def _bind(self) -> bool:
        """Bind pods that wait in kube-scheduler; equal pods fail alike."""
        if not self.cluster.unbound:
            return False
        failed: set[object] = set()
        has_bound = False
        with self.cluster.as_bound():
            for pod_of in list(self.cluster.unbound.values()):
                held = self._reclaim.hold_of(pod_of.uid)
                where = pod_of.constraints if held is None else with_hold(pod_of.constraints, held.id)
                kind = (where, pod_of.pod.demand)
                found = None if kind in failed else binding_for(pod_of.pod, where, self.world.fleet)
                if found is None:
                    failed.add(kind)
                    continue
                self._runs.start(pod_of, found.node)
                pod_of.is_free_choice = found.is_free_choice
                has_bound = True
        return has_bound

    def _release(self) -> bool:
        """Release pods from the queue as the leader does."""
        self._end_reservations()
        if not len(self.world.waiting):
            return False
        state = self.now, self.cluster.changes, self._arrivals.joined
        if state == self._released_at:
            return False  # since the last pass usage only grew
        turns = self._starts.due(now=self.now, count=AT_ONCE)
        self._released_at = state if len(turns) < AT_ONCE else None
        for turn in turns:
            if turn.is_reservation:
                self.look_at(self.now + self.world.policy.queue.gang_timeout_seconds)
            else:
                self._arrivals.release(turn.waiting.uid, turn.admit)
        for uid, judged in self._starts.blocked.items():
            waiting = self.world.waiting.get(uid)
            if waiting is not None and waiting.gang_whole != judged.gang_whole:
                self.world.set_waiting(replace(waiting, gang_whole=judged.gang_whole))
        return bool(turns)

    def _end_reservations(self) -> None:
        """End what is kept for pods of gangs that did not come in time, or whose gang has ended."""
        for lost in ended_reservations(self.world, is_needed=False, is_in_view=lambda _: True):
            for reservation in lost.reservations:
                self.world.drop_reservation(reservation.pod.uid)
                self.cluster.changes += 1

    def _take_back(self) -> bool:
        """Reclaim GPUs as the evictor does."""
        if not self._settings.has_evictor:
            return False
        has_plan = self._reclaim.look()
        has_evicted = False
        for target in self._reclaim.due():
            has_evicted = True
            self._evict(target.uid, target.name)
        return has_plan or has_evicted

    def _move_pods(self) -> bool:
        """Evict pods whose replacements have room elsewhere, as `moves` says."""
        moved = [] if self._moves is None else self._moves.due()
        for uid in moved:
            self._evict(uid, self.cluster.pods[uid].record.task.name)
        self.moves += len(moved)
        return bool(moved)

    def _evict(self, uid: Uid, name: str) -> None:
        record = self._runs.evict(uid)
        self.evictions.append(Eviction(self.now, name, record))
        if record is not None and self._settings.evictions is Evictions.RESTART:
            self._push(self.now + RESTART_SECONDS, _Kind.CREATE, record)


def _ignore(_simulation: Simulation) -> None:
    """Do nothing."""
