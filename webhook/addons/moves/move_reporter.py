"""Events and logs of moves, and the pods that they are for.

A waiting pod that room is sought for, as the evictor sees it.
"""

from collections import Counter as Counts
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge

from webhook.addons.moves.candidates import (
    WHY_IT_STAYS,
    WHY_NO_MOVES,
    WHY_NOT_NOW,
    Bound,
    Move,
    NoMoves,
    Room,
    Stays,
    Target,
)
from webhook.core.model.amounts import ONE_GPU, TeamName, Uid, Units, gpu_number, plural, plural_gpus
from webhook.core.reclaim.holds import EvictionTarget, own_target
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.core.world.waiting_pods import WaitingPod
from webhook.evictor.cluster_view import EvictorContext
from webhook.kube.ledger.reports import MoveEntry
from webhook.kube.nodes.holds import rfc3339
from webhook.kube.objects.events import EventReason


@dataclass(frozen=True, slots=True)
class Wanted:
    """A pod that room is sought for. `gpu_pod` is set for one in kube-scheduler, `waiting` for one in the queue."""

    target: Target
    gpu_pod: ReclaimPod | None = None
    waiting: WaitingPod | None = None

    @property
    def uid(self) -> Uid:
        """Its UID."""
        found = self.gpu_pod or self.waiting
        return Uid("") if found is None else found.uid


# Metrics of the moves that the evictor makes.


class Stopped(StrEnum):
    """Why a plan ended before all of its pods were moved, or with one that did not come back."""

    ROOM_TAKEN = "RoomTaken"
    NOT_NEEDED = "NotNeeded"
    RECLAIM_FIRST = "ReclaimFirst"
    REFUSED = "Refused"
    NOT_BACK = "NotBack"


WHY_STOPPED: Final = {
    Stopped.ROOM_TAKEN: "other pods took room that was reserved for it",
    Stopped.NOT_NEEDED: "the pod that it was made for no longer waits for it",
    Stopped.RECLAIM_FIRST: "a team takes back its guaranteed share first",
    Stopped.REFUSED: "the API server does not evict one of its pods",
    Stopped.NOT_BACK: "the replacement of a moved pod did not come to its place in time",
}
"""The same for people, of a plan."""


class MoveMetrics:
    """What is moved; labels are teams and enums, never pods."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._plans = Counter("fairgate_moves_plans", "Plans of moves that began.", registry=registry)
        self._moved = Counter(
            "fairgate_moves_pods", "Pods evicted to be moved, by their team.", ["team"], registry=registry
        )
        self._back = Counter(
            "fairgate_moves_arrived", "Moved pods whose replacements are on a node again.", registry=registry
        )
        self._lost = Counter(
            "fairgate_moves_lost_gpu_seconds",
            "GPU-seconds since moved pods' last checkpoints, or starts: work that is done again.",
            ["team"],
            registry=registry,
        )
        self._stopped = Counter(
            "fairgate_moves_stopped",
            "Plans that were stopped, and moved pods that did not come back. `reason`: RoomTaken, NotNeeded, "
            "ReclaimFirst, Refused, NotBack.",
            ["reason"],
            registry=registry,
        )
        self._waiting = Gauge(
            "fairgate_moves_waiting_pods",
            "Pods and gangs that wait, and for which no moves are made now. `cause`: NoNode, TooFewFree, "
            "NotEnoughMovable, TooMuchWork, NoDomain, MovesPerHour, LostPerGpu, NotWorthIt.",
            ["cause"],
            registry=registry,
        )
        self._causes = (*(each for each in NoMoves if each is not NoMoves.FITS), *Bound)
        for reason in Stopped:
            self._stopped.labels(reason)
        self.refused({})

    def began(self) -> None:
        """Count a plan."""
        self._plans.inc()

    def moved(self, team: TeamName, *, gpu_unit_seconds: Units) -> None:
        """Count a pod that was evicted to be moved, and the work that is done again."""
        self._moved.labels(team).inc()
        self._lost.labels(team).inc(float(gpu_unit_seconds / ONE_GPU))

    def arrived(self) -> None:
        """Count a moved pod that is on a node again."""
        self._back.inc()

    def stopped(self, reason: Stopped) -> None:
        """Count a plan that was stopped."""
        self._stopped.labels(reason).inc()

    def refused(self, causes: Mapping[str, int]) -> None:
        """Set for how many pods and gangs no moves are made, by cause."""
        for cause in self._causes:
            self._waiting.labels(cause).set(causes.get(cause, 0))


# Reports moves: in the log before any action, as Events on the pods and their controllers, as metrics.


_NAMED: Final = 5
_CAUSES: Final = 2
"""Reasons why other pods stay that an Event names, the most frequent ones."""


class NotMade(NamedTuple):
    """A pod or a gang for which no moves are made now."""

    wanted: tuple[Wanted, ...]
    cause: NoMoves | Bound

    @property
    def why(self) -> str:
        """The cause for people."""
        return WHY_NOT_NOW[self.cause] if isinstance(self.cause, Bound) else WHY_NO_MOVES[self.cause]


class MoveReporter:
    """Reports what one evictor moves."""

    def __init__(self, context: EvictorContext, metrics: MoveMetrics) -> None:
        self._publish = context.report
        self._publish_on_controller = context.report_on_controller
        self._index = context.cluster_view.reclaim_index
        self._logs = context.logs
        self._metrics = metrics
        self._reported: dict[Uid, NoMoves | Bound] = {}

    def planned(self, room: Room, wanted: Iterable[Wanted], *, at: int) -> None:
        """Report a plan, before anything is done."""
        self._metrics.began()
        node, names = room.places[0].node, ", ".join(place.target.name for place in room.places)
        moves = [{"pod": _name(move), "from": move.pod.node, "to": move.to} for move in room.moves]
        lost = gpu_number(room.lost_work)
        self._logs.event.info("moves planned", room_for=names, node=node, moves=moves, lost_gpu_seconds=lost)
        text = f"room is made on node {node} by {plural(len(room.moves), 'move')} of other pods"
        for each in wanted:
            self._publish_on(each, EventReason.MAKING_ROOM, text)
        for move in room.moves:
            first = room.places[0].target
            made_for = f"pods of team {first.team} ({plural_gpus(first.demand.gpus)} each)"
            why = f"it moves to node {move.to}, which makes room for {made_for} on node {move.pod.node}"
            notice = f"will be evicted at {rfc3339(at)}: {why}. Save your work until then"
            self._publish(move.pod.victim, EventReason.EVICTION_PLANNED, notice)

    def not_made(self, refused: Iterable[NotMade], stays: Mapping[Stays, int]) -> None:
        """Report pods for which no moves are made, once for each cause."""
        there = {each.uid: (each, found) for found in refused for each in found.wanted}
        self._metrics.refused(Counts(str(found.cause) for found in {id(f): f for _, f in there.values()}.values()))
        self._reported = {uid: cause for uid, cause in self._reported.items() if uid in there}
        ranked = sorted(stays.items(), key=lambda each: (-each[1], each[0]))[:_CAUSES]
        others = "".join(f"; {plural(count, 'pod')} may not move: {WHY_IT_STAYS[why]}" for why, count in ranked)
        for uid, (wanted, found) in there.items():
            if self._reported.get(uid) is not found.cause:
                self._reported[uid] = found.cause
                name = wanted.target.name
                self._logs.event.info("no moves", pod=name, cause=str(found.cause), stays=dict(stays))
                text = f"no pods are moved to make room for it now: {found.why}{others}"
                self._publish_on(wanted, EventReason.CANNOT_MAKE_ROOM, text)

    def moved(self, target: EvictionTarget, gpu_pod: ReclaimPod, now: int) -> str:
        """Report that a pod was evicted to be moved, and return why."""
        self._metrics.moved(gpu_pod.team, gpu_unit_seconds=gpu_pod.demand.gpus * gpu_pod.lost_seconds(now))
        holds = self._index.evictions.holds.values()
        to = next((hold.node for hold in holds for place in hold.places if place.replaces == target.uid), "")
        where = f"node {to} reserves room for its replacement" if to else "its controller creates it again"
        waiting = self._index.get(target.beneficiary)
        team = None if waiting is None else f"a pod of team {waiting.team} ({plural_gpus(waiting.demand.gpus)})"
        made_for = f"room for {team or 'larger pods'}"
        why = f"it made {made_for} on node {gpu_pod.pod.node}, and {where}"
        self._publish(target, EventReason.MOVED, f"evicted to be moved: {why}")
        text = f"pod {target.name} was evicted to be moved: {why}"
        self._publish_on_controller(gpu_pod, EventReason.MOVED, text, series=EventReason.MOVED)
        return why

    def came(self, gpu_pod: ReclaimPod, node: str, move: MoveEntry | None) -> None:
        """Report that the replacement of a moved pod waits for its place."""
        if move is not None:
            made_for = " to make room for a larger pod" if move.made_for else ""
            why = f"it replaces pod {move.pod}, which was moved from node {move.source}{made_for}"
            self._publish(gpu_pod, EventReason.MOVED, f"{why}: node {node} reserves room for it")

    def arrived(self, name: str, node: str) -> None:
        """Report that the replacement of a moved pod is on a node."""
        self._metrics.arrived()
        self._logs.event.info("moved pod placed", pod=name, node=node)

    def stopped(self, reason: Stopped, names: str) -> None:
        """Report that a plan for these pods ended early, or that a moved pod did not come back."""
        self._metrics.stopped(reason)
        self._logs.event.warning("moves stopped", pods=names, reason=str(reason), why=WHY_STOPPED[reason])

    def _publish_on(self, wanted: Wanted, reason: EventReason, text: str) -> None:
        if wanted.gpu_pod is not None:
            self._publish(wanted.gpu_pod, reason, text)
            self._publish_on_controller(wanted.gpu_pod, reason, text, series=reason)
        elif wanted.waiting is not None:
            self._publish(own_target(wanted.waiting.pod), reason, text)


def moves_text(room: Room) -> str:
    """Return the moves of a plan, the first ones by name."""
    listed = ", ".join(f"{_name(move)} to {move.to}" for move in room.moves[:_NAMED])
    more = len(room.moves) - _NAMED
    return f"{plural(len(room.moves), 'move')}: {listed}" + (f" and {more} more" if more > 0 else "")


def _name(move: Move) -> str:
    return f"{move.pod.victim.namespace}/{move.pod.victim.name}"
