"""Carries out moves, one plan at a time: places are kept first, then pods are evicted, and each step looks again.

What is under way is in the holds of nodes alone, so the next leader goes on with it. A plan that is no longer right is
stopped, and the next one is made from what is there then.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Final

from webhook.addons.moves.candidates import Move
from webhook.addons.moves.live import (
    Candidates,
    Found,
    LeftAlone,
    MovePreview,
    MoveRecord,
    MoveSearch,
    Templates,
    key_of,
)
from webhook.addons.moves.move_reporter import MoveMetrics, MoveReporter, Stopped
from webhook.cluster.api.client import ClusterError
from webhook.core.model.amounts import NodeName, Uid
from webhook.core.model.node import KeptPlace
from webhook.core.reclaim.holds import Beneficiary, EvictionTarget, NodeHold, Purpose
from webhook.core.reclaim.reclaim_plan import NoPlan, Round
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.evictor.addons import EvictorAddon, EvictorParts, Leading
from webhook.evictor.cluster_view import EvictorContext
from webhook.evictor.executor import Executor
from webhook.evictor.hold_manager import HOLD_SECONDS, HoldManager
from webhook.evictor.unevictable import LONG_SECONDS
from webhook.kube.ledger.reports import MoveEntry, shortened, written_at

LOOK_SECONDS: Final = 5.0
"""Between two searches for moves …"""

LOOK_SHARE: Final = 20
"""… or so many times as long as the last one took, if that is more."""

SEEN_SECONDS: Final = 2
"""The shortest notice: all replicas of the webhook are to see the places before the first replacement comes."""

STOPPED_SECONDS: Final = 30.0
"""After a plan was stopped: what it was stopped for, such as a pod that takes its share back, gets its room first."""

_log: Final = logging.getLogger("webhook.evictor.moves")


@dataclass(slots=True)
class _Plan:
    """The plan under way. `refused_before` are pods that reclaim could make no room for when it began."""

    found: Found
    refused_before: frozenset[Uid]
    is_evicting: bool = False

    @property
    def moves(self) -> tuple[Move, ...]:
        return self.found.room.moves


class Mover:
    """Moves pods for as long as this evictor leads. `problem` is why the API did not let it plan last, "" if it did."""

    def __init__(
        self, context: EvictorContext, manager: HoldManager, executor: Executor, reporter: MoveReporter
    ) -> None:
        self._view = context.cluster_view
        self._index = context.cluster_view.reclaim_index
        self._manager = manager
        self._executor = executor
        self._reporter = reporter
        self._record = MoveRecord(context.connection, context.clock)
        candidates = Candidates(self._view, self._left_alone, Templates(context.connection, self._view.world))
        self._search = MoveSearch(self._view, candidates, self._record, report=reporter.not_made, clock=context.clock)
        self._clock = context.clock
        self._plan: _Plan | None = None
        self._arrivals: set[Uid] = set()  # replacements that are on a node, while places are kept for others
        self._next_at = 0.0
        self.problem = ""
        manager.on_lost, manager.on_arrived = self._lost, self._arrived

    async def look(self, found: Round) -> None:
        """Do what is due, after reclaim `found` what it does; reclaim goes first."""
        self._claim()
        self._follow(found)
        world, clock = self._view.world, asyncio.get_running_loop().time
        if not (world.policy.is_enforced and world.policy.defragment.is_on):
            return
        is_busy = any(hold.has_moves for hold in self._manager.node_holds.values())
        if is_busy or found.moves or clock() < self._next_at:
            return
        began = clock()
        try:
            if (best := await self._search.next()) is not None:
                await self._begin(_Plan(best, frozenset(each.waiting.uid for each in found.refused)))
            self.problem = ""
        except ClusterError as error:
            if self.problem != str(error):
                self.problem = str(error)
                _log.warning("no moves are planned: %s", error)
        self._next_at = clock() + max(LOOK_SECONDS, LOOK_SHARE * (clock() - began))

    # -- what is under way

    def _claim(self) -> None:
        """Give each place to the pod that it is kept for, once that waits for a node; drop those that need none."""
        holds = [each for each in self._manager.node_holds.values() if each.places]
        self._arrivals = self._arrivals if holds else set()
        taken = self._kept() | self._arrivals
        new = self._new_since(min(hold.since for hold in holds)) if holds else {}
        for hold in holds:
            kept: list[KeptPlace] = []
            came: list[Beneficiary] = []
            for place in hold.places:
                gpu_pod = self._who_came(place, hold, new, taken)
                if gpu_pod is None:
                    kept.append(place)
                    continue
                taken.add(gpu_pod.uid)
                if gpu_pod.pod.node is None:
                    purpose = Purpose.MOVES if place.key == gpu_pod.uid else Purpose.MOVED
                    came.append(Beneficiary(gpu_pod.uid, gpu_pod.namespace, gpu_pod.name, purpose))
                    if place.replaces:
                        self._reporter.came(gpu_pod, hold.node, self._record.of(place.name))
                elif place.replaces:
                    self._arrivals.add(gpu_pod.uid)
                    self._reporter.arrived(f"{gpu_pod.namespace}/{gpu_pod.name}", gpu_pod.pod.node)
            if len(kept) < len(hold.places):
                until = int(self._clock()) + HOLD_SECONDS
                changed = replace(hold, places=tuple(kept), beneficiaries=(*hold.beneficiaries, *came))
                self._manager.replace(replace(changed, until=max(hold.until, until)))

    def _new_since(self, since: int) -> dict[str, list[ReclaimPod]]:
        """Return the pods that were created later, by the key of their controller."""
        found: dict[str, list[ReclaimPod]] = {}
        for gpu_pod in (*self._index.unplaced(), *self._index.on_nodes()):
            if gpu_pod.pod.created > since:
                found.setdefault(key_of(gpu_pod), []).append(gpu_pod)
        return found

    def _who_came(
        self, place: KeptPlace, hold: NodeHold, new: Mapping[str, list[ReclaimPod]], taken: Set[Uid]
    ) -> ReclaimPod | None:
        """Return the pod that a place is kept for, if it is there; a pod that comes at the same time may have it.

        `new` are the pods that came, by controller; those that are `taken` came for other places.
        """
        if not place.key:
            return None
        if (in_line := self._index.get(Uid(place.key))) is not None:
            return in_line if in_line.is_unplaced or in_line.pod.node is not None else None
        if place.replaces and not self._index.is_going(place.replaces):
            return None
        for gpu_pod in new.get(place.key, ()):
            is_new = gpu_pod.pod.created > hold.since  # no replacement comes before a notice
            if is_new and gpu_pod.uid not in taken and place.has_room_for(gpu_pod.demand):
                return gpu_pod
        return None

    def _follow(self, found: Round) -> None:
        """Take the next step of the plan, or stop it; without a plan, drop what no plan needs."""
        plan, listed = self._plan, self._index.evictions.listed()
        for hold in [each for each in self._manager.node_holds.values() if each.places]:
            self._keep_places(
                hold, lambda place: plan is not None or not self._stays(place.replaces) or place.replaces in listed
            )
        if plan is None:
            return
        if (reason := self._why_wrong(plan, found)) is not None:
            self._stop(plan, reason)
        elif not plan.is_evicting and all(self._manager.states(move.to) for move in plan.moves):
            self._evict(plan)
        elif not any(hold.has_moves for hold in self._manager.node_holds.values()):
            self._plan = None

    def _why_wrong(self, plan: _Plan, found: Round) -> Stopped | None:
        """Return why no more pods must be evicted for a plan; None where they may be, or none is left."""
        moving, listed = self._index.evictions.moving(), self._index.evictions.listed()
        kept = self._kept()
        for place in plan.found.room.places:
            pending = [move.pod.uid for move in place.moves if self._stays(move.pod.uid)]
            uid = plan.found.uid_of(place.target.name)
            if pending and uid and not self._waits(uid):
                return Stopped.NOT_NEEDED
            if any(each not in moving for each in pending) or (plan.is_evicting and pending and uid not in kept):
                return Stopped.ROOM_TAKEN
            if plan.is_evicting and any(each not in listed for each in pending):
                return Stopped.REFUSED
            if not plan.is_evicting and len(pending) < len(place.moves):
                return Stopped.ROOM_TAKEN
        new = {each.waiting.uid for each in found.refused if each.cause is not NoPlan.FITS} - plan.refused_before
        return Stopped.RECLAIM_FIRST if new and all(self._stays(move.pod.uid) for move in plan.moves) else None

    def _stop(self, plan: _Plan, reason: Stopped) -> None:
        """Evict no more pods for a plan: room that is made by now stays with its pod, the rest is given up."""
        ended = {place.replaces for hold in self._manager.node_holds.values() for place in hold.places}
        ended = {uid for uid in ended if self._stays(uid)}
        unmade = {
            plan.found.uid_of(place.target.name)
            for place in plan.found.room.places
            if any(self._stays(move.pod.uid) for move in place.moves)
        }
        for hold in list(self._manager.node_holds.values()):
            rest = tuple([b for b in hold.beneficiaries if b.purpose is not Purpose.MOVES or b.uid not in unmade])
            self._keep_places(
                replace(hold, beneficiaries=rest, targets=tuple([t for t in hold.targets if t.uid not in ended])),
                lambda place: place.replaces not in ended and (bool(place.replaces) or Uid(place.key) not in unmade),
            )
        self._plan = None
        self._next_at = asyncio.get_running_loop().time() + STOPPED_SECONDS
        self._reporter.stopped(reason, plan.found.names)

    def _evict(self, plan: _Plan) -> None:
        """Keep the room that is to be made, and have its pods evicted: all places are kept."""
        plan.is_evicting = True
        at = int(self._clock()) + self._notice_seconds
        until = at + self._manager.longest_grace(move.pod.uid for move in plan.moves) + HOLD_SECONDS
        for place in plan.found.room.places:
            hold, uid = self._manager.hold_of(place.node), plan.found.uid_of(place.target.name)
            wanted = plan.found.wanted.get(place.target.name)
            if wanted is not None and (pod := wanted.gpu_pod) is not None:
                made_for = Beneficiary(pod.uid, pod.namespace, pod.name, Purpose.MOVES)
                hold = replace(hold, beneficiaries=(*hold.beneficiaries, made_for))
            else:
                target = place.target
                hold = replace(
                    hold, places=(*hold.places, KeptPlace(uid, target.name, target.team, target.demand.requests))
                )
            targets = tuple([_target(move, uid, at) for move in place.moves])
            self._manager.replace(replace(hold, targets=(*hold.targets, *targets), until=max(hold.until, until)))

    def _lost(self, what: KeptPlace | Beneficiary) -> None:
        """Note that room was given up: neither is made for that pod again soon, nor is one moved that was not back."""
        uid = what.uid if isinstance(what, Beneficiary) else Uid(what.key)
        if isinstance(what, Beneficiary) and what.purpose is Purpose.MOVED:
            self._reporter.stopped(Stopped.NOT_BACK, f"{what.namespace}/{what.name}")
        elif isinstance(what, Beneficiary) or not what.replaces:
            self._manager.waiting.pause(uid, LONG_SECONDS)
        elif what.replaces and not self._stays(what.replaces):
            self._record.lost(what)
            self._reporter.stopped(Stopped.NOT_BACK, what.name)

    def _arrived(self, beneficiary: Beneficiary, node: NodeName) -> None:
        self._reporter.arrived(f"{beneficiary.namespace}/{beneficiary.name}", node)

    # -- the next plan

    async def _begin(self, plan: _Plan) -> None:
        """Keep the places of a plan, once the API server would evict its pods. Raises ClusterError."""
        now, moves, found = self._clock(), plan.moves, plan.found
        places = found.room.places
        targets = [_target(move, found.uid_of(place.target.name), 0) for place in places for move in place.moves]
        outcomes = await self._executor.try_out(targets, is_guarded=lambda _: True)
        for target in targets:
            if (outcome := outcomes.get(target.uid)) is not None:
                self._manager.unevictable.leave_alone(target, outcome)
        if outcomes:
            self._reporter.stopped(Stopped.REFUSED, found.names)
            return
        await self._record.add(_entry(move, place.target.name, now) for place in places for move in place.moves)
        if any(not self._stays(move.pod.uid) for move in moves):
            return
        at = int(now) + self._notice_seconds
        until = at + self._manager.longest_grace(move.pod.uid for move in moves) + HOLD_SECONDS
        for move in moves:
            victim, gpu_pod = move.pod.victim, self._index.staying(move.pod.uid)
            key = "" if gpu_pod is None else key_of(gpu_pod)
            name = f"{victim.namespace}/{victim.name}"
            kept = KeptPlace(key, name, victim.team, victim.demand.requests, victim.uid)
            hold = self._manager.hold_of(move.to)
            self._manager.replace(replace(hold, places=(*hold.places, kept), until=max(hold.until, until)))
        self._plan = plan
        self._reporter.planned(found.room, found.wanted.values(), at=at)

    # -- queries

    def _left_alone(self) -> LeftAlone:
        manager = self._manager
        paused = manager.unevictable.paused(), manager.waiting.paused(), manager.teams.paused()
        return LeftAlone(manager.node_holds, *paused)

    @property
    def _notice_seconds(self) -> int:
        policy = self._view.world.policy
        own = policy.defragment.notice_seconds
        return max(SEEN_SECONDS, policy.reclaim.notice_seconds if own is None else own)

    def _stays(self, uid: Uid) -> bool:
        return self._index.staying(uid) is not None

    def _waits(self, uid: Uid) -> bool:
        """Whether a pod waits, in the queue or for its scheduler."""
        gpu_pod = self._index.get(uid)
        return uid in self._view.world.waiting if gpu_pod is None else gpu_pod.is_unplaced

    def _kept(self) -> set[Uid]:
        """Return the pods that room is kept for, and the keys of places."""
        holds = self._manager.node_holds.values()
        return {b.uid for hold in holds for b in hold.beneficiaries} | {
            Uid(place.key) for hold in holds for place in hold.places
        }

    def _keep_places(self, hold: NodeHold, is_kept: Callable[[KeptPlace], bool]) -> None:
        """Drop the places of a hold that are not kept, of pods that left the queue, and of room that is made by now."""
        is_made = not hold.targets and hold.node not in self._index.leaving(now=self._clock())
        places = []
        for place in hold.places:
            is_needed = bool(place.replaces) or (self._waits(Uid(place.key)) if place.key else not is_made)
            if is_needed and is_kept(place):
                places.append(place)
        changed = replace(hold, places=tuple(places))
        if changed != self._manager.node_holds.get(hold.node):
            self._manager.replace(changed)


def _target(move: Move, beneficiary: Uid, at: int) -> EvictionTarget:
    victim = move.pod.victim
    return EvictionTarget(
        victim.uid,
        victim.namespace,
        victim.name,
        beneficiary,
        at,
        grace_seconds=victim.grace_seconds,
        is_moved=True,
    )


def _entry(move: Move, made_for: str, now: float) -> MoveEntry:
    victim = move.pod.victim
    return MoveEntry(
        at=written_at(now),
        pod=f"{victim.namespace}/{victim.name}",
        team=victim.team,
        workload=move.pod.workload,
        source=victim.node,
        destination=move.to,
        made_for=made_for,
    )


class Moves(EvictorAddon):
    """Moves in an evictor: made while it leads, after each round of reclaim; shown in a dry run."""

    def __init__(self, parts: EvictorParts) -> None:
        self._metrics = MoveMetrics(parts.metrics.registry)
        self._preview = MovePreview(parts.cluster_view, parts.connection, clock=parts.connection.unix_time)
        self._mover: Mover | None = None

    def lead(self, leading: Leading) -> Sequence[Coroutine[Any, Any, None]]:
        """Begin to move pods."""
        reporter = MoveReporter(leading.context, self._metrics)
        leading.reporter.on_moved = reporter.moved
        self._mover = Mover(leading.context, leading.manager, leading.executor, reporter)
        return ()

    def ended(self) -> None:
        """Move no more."""
        self._mover = None

    async def after_round(self, found: Round) -> None:
        """Do what is due."""
        if self._mover is not None:
            await self._mover.look(found)

    async def preview(self) -> list[str]:
        """Return what it would move."""
        return await self._preview.lines()

    def report(self) -> Mapping[str, Any]:
        """Return why it cannot plan moves; "" if it can, or does not lead."""
        return {"moving": "" if self._mover is None else shortened(self._mover.problem)}
