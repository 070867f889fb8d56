"""Holds by node.

What is to be done next: on one node, or for one pod that room under limits is kept for.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from webhook.cluster.writes.evictions import Evicted, EvictionObstacle, Later, Outcome, Refused
from webhook.core.model.amounts import NodeName, TeamName, Uid
from webhook.core.model.node import KeptPlace
from webhook.core.placement.unused_nodes import NodeChanges
from webhook.core.reclaim.evictions import Attempts
from webhook.core.reclaim.holds import Beneficiary, EvictionTarget, NodeHold, Purpose
from webhook.core.reclaim.reclaim_plan import Move
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.core.reclaim.refused_nodes import RefusedNodes
from webhook.core.reclaim.snapshot import current, holds, is_served, is_short, waits_for
from webhook.evictor.cluster_view import EvictorContext
from webhook.evictor.reporter import EvictionReporter, SentEviction
from webhook.evictor.unevictable import PodBackoff, TeamBackoff, Unevictable


@dataclass(frozen=True, slots=True)
class NodeActions:
    """The pending actions on one node.

    `node_hold` is None where nothing is held; `is_news`: the node does not state that yet. `first` are those
    of `to_tolerate` without any toleration yet. `to_wake` are those for which kube-scheduler is to try the room again.
    """

    node: NodeName
    node_hold: NodeHold | None
    is_news: bool
    to_tolerate: tuple[Beneficiary, ...] = ()
    first: frozenset[Uid] = frozenset()
    to_wake: tuple[Beneficiary, ...] = ()
    notices: tuple[tuple[EvictionTarget, TeamName], ...] = ()
    evictions: tuple[EvictionTarget, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.is_news or self.to_tolerate or self.to_wake or self.notices or self.evictions)


@dataclass(frozen=True, slots=True)
class LimitActions:
    """The pending actions for one queued pod that room under limits is kept for.

    `since` is when that began. Nothing else is done before the pod states it (`is_marked`). `team` is that of the pod.
    """

    place: NodeName
    waiting: Beneficiary
    team: TeamName
    since: int
    is_marked: bool
    notices: tuple[EvictionTarget, ...] = ()
    evictions: tuple[EvictionTarget, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return self.is_marked and not (self.notices or self.evictions)


# Whether kube-scheduler is behind: a pod that it has not come to yet is not at fault for room that it does not use.
#
# kube-scheduler takes pods by priority, and of equal ones the pod that waits longest. Once it has come to a pod that
# came later, it has come to this one too.


BACKOFF_SECONDS: Final = 15.0
"""How much later another pod must have come: kube-scheduler pauses up to 10 s for a pod that it could not place."""

IDLE_SECONDS: Final = 15.0
"""kube-scheduler that came to no GPU pod for so long is not behind: it has nothing to do. Pods that only wait prove
nothing, since anyone may create thousands that fit nowhere."""


class SchedulerProgress:
    """What each scheduler has come to, against when the room of each held node was free."""

    def __init__(self, attempts: Attempts, *, clock: Callable[[], float], changes: NodeChanges | None = None) -> None:
        self._attempts = attempts
        self._changes = changes or NodeChanges()
        self._looked_free: dict[Uid, int] = {}
        self._unused: dict[Uid, set[NodeName]] = {}
        self._clock = clock
        self._began = clock()
        self._count = Counter(attempts.count)
        self._active_at: dict[str, float] = {}  # by scheduler
        self._free_since: dict[NodeName, float] = {}

    def look(self) -> None:
        """Take note of the pods that schedulers came to since the last look."""
        for scheduler, count in self._attempts.count.items():
            if count != self._count[scheduler]:
                self._count[scheduler], self._active_at[scheduler] = count, self._clock()

    def set_free(self, node: NodeName, *, is_free: bool) -> None:
        """Record whether all room that a node keeps is free now."""
        if is_free:
            self._free_since.setdefault(node, self._clock())
        else:
            self._free_since.pop(node, None)

    def note_free(self, uids: Iterable[Uid]) -> None:
        """Record to which waiting pods nodes look free now."""
        now = int(self._clock())
        self._looked_free = {uid: self._looked_free.get(uid, now) for uid in uids}

    def note_unused(self, uid: Uid, node: NodeName) -> None:
        """Record that a pod did not use the room that a node kept free for it."""
        self._unused.setdefault(uid, set()).add(node)

    def forget_others(self, waiting: Container[Uid]) -> list[Uid]:
        """Forget the pods that no longer wait among those that did not use their room, and return them."""
        gone = [uid for uid in self._unused if uid not in waiting]
        for uid in gone:
            del self._unused[uid]
        return gone

    def refused_nodes(self) -> RefusedNodes:
        """Return what is known of the reports of schedulers."""
        return RefusedNodes(
            now=int(self._clock()),
            changes=self._changes,
            is_behind=self.has_not_tried,
            looked_free=self._looked_free,
            tried=self._unused,
        )

    def is_behind(self, node: NodeName, gpu_pod: ReclaimPod) -> bool:
        """Whether the scheduler of a pod may not have come to it yet in the room that a node keeps for it."""
        since = self._free_since.get(node)
        return since is None or self.has_not_tried(gpu_pod, since)

    def has_not_tried(self, gpu_pod: ReclaimPod, since: float) -> bool:
        """Whether the scheduler of a pod may not have come to it since a time."""
        latest = self._attempts.latest.items()
        came = (at for (name, priority), at in latest if name == gpu_pod.scheduler and priority <= gpu_pod.priority)
        if max(came, default=0) > since + BACKOFF_SECONDS:
            return False
        return self._clock() < max(since, self._active_at.get(gpu_pod.scheduler, self._began)) + IDLE_SECONDS


# Manages the holds of all nodes for one leader: adds plans, ends holds, and returns the next actions for each node.
#
# The table of evictions has the state of each victim; a new leader takes over the holds that the nodes state.


HOLD_SECONDS: Final = 60
"""How long a node keeps room after the last progress, such as a victim that is gone: time to be scheduled, many times
over. With many waiting pods each takes longer, and room that is given up was freed for nothing."""

LONGEST_SECONDS: Final = 300
"""How long a node keeps room at most beyond the notice and the longest grace period: progress of one of its pods must
not keep room for another that never starts."""

SHORT_SECONDS: Final = 30.0
"""A pod that ends so soon after it was placed did not use the room that others were evicted for."""

UNSEEN_SECONDS: Final = 30.0
"""How long the watch may not show an eviction that was accepted, before it counts as not done."""

PATIENCE_SECONDS: Final = 60.0
"""How long one eviction is put off before the victim counts as not evicted, and another is chosen."""


class HoldManager:
    """The holds and all that is in progress.

    `on_lost` is called with each place for a pod to come, and each moved pod, that is given up, `on_arrived` with each
    moved pod that is on a node.
    """

    def __init__(
        self, context: EvictorContext, eviction_reporter: EvictionReporter, *, new_id: Callable[[], str]
    ) -> None:
        cluster_view, clock = context.cluster_view, context.clock
        self.unevictable = Unevictable(cluster_view.reclaim_index, clock)
        self.waiting: PodBackoff[Uid] = PodBackoff(clock)
        self.teams: TeamBackoff[TeamName] = TeamBackoff(clock)
        self.on_lost: Callable[[KeptPlace | Beneficiary], None] = lambda _: None
        self.on_arrived: Callable[[Beneficiary, NodeName], None] = lambda _, __: None
        self._cluster_view = cluster_view
        self._reclaim_index = cluster_view.reclaim_index
        self._evictions = cluster_view.reclaim_index.evictions
        self._reporter = eviction_reporter
        self._clock = clock
        self._new_id = new_id
        self._written: dict[NodeName, NodeHold | None] = {}
        self._let_in: set[tuple[Uid, str]] = set()
        self._woken: set[tuple[Uid, str]] = set()
        self._waiting_since: dict[Uid, float] = {}
        attempts, changes = cluster_view.reclaim_index.attempts, cluster_view.world.rejecting_nodes.changes
        self.scheduler = SchedulerProgress(attempts, clock=clock, changes=changes)
        self._placed: dict[Uid, tuple[float, TeamName]] = {}  # pods that others were evicted for, placed lately

    # -- input of plans

    @property
    def node_holds(self) -> Mapping[NodeName, NodeHold]:
        """The holds by node."""
        return self._evictions.holds

    def paused(self) -> set[Uid]:
        """Return the waiting pods for which nothing is planned now."""
        teams = self.teams.paused()
        found = {gpu_pod.uid for gpu_pod in self._reclaim_index.waiting() if gpu_pod.team in teams} if teams else set()
        return found | self.waiting.paused()

    def without_effect(self) -> list[ReclaimPod]:
        """Return the waiting pods for which room was made so often without effect that no more is."""
        found = map(self._reclaim_index.get, self.waiting.given_up())
        return [gpu_pod for gpu_pod in found if gpu_pod is not None and gpu_pod.is_waiting]

    def under_way(self) -> Counter[TeamName]:
        """Return how many waiting pods of each team have held room that is free, or whose victims may go now.

        Victims that have their notice, or their time to end, are not what kube-scheduler waits for.
        """
        now = self._clock()
        leaving = self._reclaim_index.leaving(now=now)
        ready = (
            hold
            for hold in self.node_holds.values()
            if hold.node not in leaving and all(target.at <= now for target in hold.targets)
        )
        return Counter(hold.waiting.team for hold in holds(self._reclaim_index, ready))

    def is_guarded(self, target: EvictionTarget) -> bool:
        """Whether only the Eviction API may decide on a victim: budgets may cover it, or it need not go."""
        return target.is_moved or self.unevictable.is_guarded(target)

    def was_put_off(self, target: EvictionTarget) -> bool:
        """Whether the API server requested to send an eviction again later."""
        known = self._evictions.get(target.uid)
        return known is not None and known.put_off_since is not None

    def states(self, node: NodeName) -> bool:
        """Whether a node states all of the hold that it has."""
        node_hold = self.node_holds.get(node)
        return node_hold is not None and node_hold.is_stated_by(self._written.get(node), late=HOLD_SECONDS // 2)

    def next_due(self) -> float | None:
        """Return when something is due without an event; None where nothing is."""
        times = [
            *(self._end_of(node_hold) for node_hold in self.node_holds.values()),
            *self._evictions.next_due(),
            *(at + UNSEEN_SECONDS for at in self._evictions.awaited().values()),
        ]
        ends = [pauses.next_end() for pauses in (self.unevictable, self.waiting, self.teams)]
        return min([*times, *(end for end in ends if end is not None)], default=None)

    # -- changes

    def resume(self) -> None:
        """Take over the holds that an earlier leader wrote on nodes; deadlines start again, since clocks differ."""
        now = self._clock()
        until = int(now) + HOLD_SECONDS
        self._evictions.restart(now=now)
        for node, found in self._cluster_view.marked.items():
            if found is not None:
                self._written[node] = found
                kept_until = max(until, *(t.at + HOLD_SECONDS for t in found.targets), 0)
                since = min(found.since, int(now)) or int(now)
                self._evictions.pick_up(replace(found, until=kept_until, since=since), noticed=self._is_noticed)

    def note_waiting(self, waiting: Iterable[Uid]) -> None:
        """Record which pods wait, to report later for how long; drop pods that neither wait nor have held room."""
        now = self._clock()
        beneficiaries = [each.uid for node_hold in self.node_holds.values() for each in node_hold.beneficiaries]
        self._waiting_since = {uid: self._waiting_since.get(uid, now) for uid in (*waiting, *beneficiaries)}
        for uid in self.scheduler.forget_others(self._waiting_since):
            self.waiting.forget(uid)

    def accept(self, moves: Iterable[Move], *, notice_seconds: int) -> None:
        """Add plans; nothing is done yet."""
        now = self._clock()
        at = int(now) + notice_seconds
        emptied = self._reclaim_index.empty_at(now=now)
        for move in moves:
            before = self.hold_of(move.node)
            empty_at = max(at + self.longest_grace(v.uid for v in move.victims), emptied.get(move.node, 0))
            self._keep(move.node, before.joined(move, at=at, until=empty_at + HOLD_SECONDS))

    def hold_of(self, node: NodeName) -> NodeHold:
        """Return the hold of a node, or a new one that keeps nothing yet."""
        return self.node_holds.get(node) or NodeHold(self._new_id(), node, 0, (), since=int(self._clock()))

    def replace(self, node_hold: NodeHold) -> None:
        """Have a node keep this and nothing else; nothing is done yet."""
        is_left = node_hold.keeps_room or node_hold.targets
        self._keep(node_hold.node, node_hold if is_left else None)

    def abandon(self) -> None:
        """Give up all holds and evict no pod: policy is no longer enforced."""
        for node in list(self.node_holds):
            self._keep(node, None)

    def tidy(self) -> list[EvictionTarget]:
        """End holds that are over or will not have their room; return the announced targets that are not evicted."""
        now = self._clock()
        self._note_short_lives()
        self.scheduler.look()
        self._reclaim_index.expire(before=now - UNSEEN_SECONDS)
        self.unevictable.tidy()
        served = self._evictions.beneficiaries()
        leaving, fleet = self._reclaim_index.leaving(now=now), self._cluster_view.world.fleet
        # places first: what is evicted for moves depends on them
        for node, node_hold in sorted(self.node_holds.items(), key=lambda each: bool(each[1].targets)):
            kept, has_room = current(node_hold, self._reclaim_index, fleet, leaving=leaving.get(node, ()))
            kept = self._prolonged(node_hold, kept)
            self._report_dropped(node_hold, kept, served)
            self._note_room(node, kept, has_room=has_room, is_left=node in leaving)
            kept = self._continued(kept, has_room=has_room)
            if kept != node_hold:
                self._keep(node, kept)
        self._evictions.end_finished(self._reclaim_index.is_placed, now=now)
        return [target for target in self._evictions.take_withdrawn() if not self._reclaim_index.is_going(target.uid)]

    def node_actions(self, node: NodeName) -> NodeActions:
        """Return the pending actions on a node."""
        node_hold, now = self.node_holds.get(node), self._clock()
        if node_hold is None:
            written, marked = self._written, self._cluster_view.marked
            is_marked = written[node] is not None if node in written else node in marked
            return NodeActions(node, None, is_news=is_marked)
        get = self._reclaim_index.get
        found = {each.uid: get(each.uid) for each in node_hold.beneficiaries}
        waiting = {b.uid: found[b.uid] for b in node_hold.beneficiaries if waits_for(b, found[b.uid])}
        teams = {uid: gpu_pod.team for uid, gpu_pod in waiting.items() if gpu_pod is not None}
        teams |= {Uid(place.key): place.team for place in node_hold.places}
        announced = self._evictions.unannounced(node_hold, now=now)
        return NodeActions(
            node,
            node_hold,
            is_news=not (self.states(node) and self._evictions.is_written(node_hold)),
            to_tolerate=tuple(
                [b for b in node_hold.beneficiaries if b.uid in waiting and not self._is_in(b, node_hold)]
            ),
            first=frozenset(
                uid for uid, gpu_pod in waiting.items() if gpu_pod is not None and not gpu_pod.has_tolerations
            ),
            to_wake=tuple(
                [
                    b
                    for b in node_hold.beneficiaries
                    if (gpu_pod := waiting.get(b.uid)) is not None and self._is_asleep(b, gpu_pod, node_hold)
                ]
            ),
            notices=tuple([(t, teams[t.beneficiary]) for t in announced if t.beneficiary in teams]),
            evictions=self._evictions.due(node_hold, now=now),
        )

    # -- results

    def wrote(self, node: NodeName, node_hold: NodeHold | None) -> None:
        """Record that a node states its hold."""
        self._written[node] = node_hold
        if node_hold is None:
            ids = {each.id for each in self.node_holds.values()}
            self._let_in = {pair for pair in self._let_in if pair[1] in ids}
            self._woken = {pair for pair in self._woken if pair[1] in ids}
        else:
            self._evictions.written(node_hold)

    def admitted(self, beneficiary: Beneficiary, node_hold: NodeHold) -> None:
        """Record that a waiting pod tolerates the taint of a hold."""
        self._let_in.add((beneficiary.uid, node_hold.id))

    def woke(self, beneficiary: Beneficiary, node_hold: NodeHold) -> None:
        """Record that kube-scheduler was made to try a waiting pod again."""
        self._woken.add((beneficiary.uid, node_hold.id))

    def noticed(self, target: EvictionTarget, node: NodeName) -> None:
        """Record that a victim's annotations announce its eviction."""
        self._evictions.noticed(target, node)

    def started(self, uid: Uid, team: TeamName) -> None:
        """Record that a pod has started that others were evicted for: without effect if it ends soon."""
        self._placed[uid] = self._clock(), team

    def begin(self, target: EvictionTarget, node: NodeName) -> SentEviction | None:
        """Count a victim's eviction as sent; None where it is not to be evicted now, for a pod that the node takes."""
        hold, fleet = self.node_holds.get(node), self._cluster_view.world.fleet
        for each in () if hold is None else hold.beneficiaries:
            if each.uid == target.beneficiary and not is_served(each, node, self._reclaim_index, fleet):
                return None
        is_due = not self._reclaim_index.is_going(target.uid) and self._evictions.send(target.uid, node)
        return self._reporter.sent(target) if is_due else None

    def answered(self, eviction: SentEviction, outcome: Outcome) -> None:
        """Record the response of the API server to an eviction."""
        target, now = eviction.target, self._clock()
        if isinstance(outcome, Later):
            waited = self._evictions.put_off(target.uid, now=now, seconds=outcome.seconds)
            if waited >= PATIENCE_SECONDS:
                outcome = Refused(outcome.why, EvictionObstacle.FAILURE)
        seconds = self.unevictable.leave_alone(target, outcome) if isinstance(outcome, Refused) else 0.0
        self._reporter.evicted(eviction, outcome, now=int(now), pause_seconds=seconds)
        match outcome:
            case Evicted():
                self._reclaim_index.accept(target.uid, now=now, was_there=outcome is not Evicted.GONE)
            case Refused():
                self._evictions.refuse(target.uid)
            case Later():
                pass

    def _keep(self, node: NodeName, node_hold: NodeHold | None) -> None:
        self._evictions.keep(node, node_hold, is_going=self._reclaim_index.is_going)
        if node_hold is None:
            self.scheduler.set_free(node, is_free=False)

    def _is_in(self, beneficiary: Beneficiary, node_hold: NodeHold) -> bool:
        """Whether a waiting pod tolerates the taint of a hold, by a patch of this leader or of an earlier one."""
        gpu_pod = self._reclaim_index.get(beneficiary.uid)
        holds = () if gpu_pod is None else gpu_pod.holds
        return (beneficiary.uid, node_hold.id) in self._let_in or node_hold.id in holds

    def _is_asleep(self, beneficiary: Beneficiary, gpu_pod: ReclaimPod, node_hold: NodeHold) -> bool:
        """Whether kube-scheduler had time to try a pod in room that is free, and may not know that it is.

        Its hints say nothing of a pod that is gone and whose anti-affinity selected namespaces by their labels: it
        would try again after five minutes, when others may have the room, and keep the pod off as that one did.
        """
        is_done = gpu_pod.in_line is not None or (beneficiary.uid, node_hold.id) in self._woken
        return not is_done and not self.scheduler.is_behind(node_hold.node, gpu_pod)

    def _is_noticed(self, uid: Uid) -> bool:
        gpu_pod = self._reclaim_index.get(uid)
        return gpu_pod is not None and bool(gpu_pod.pod.notice_at)

    def _report_dropped(self, before: NodeHold, after: NodeHold | None, served: Mapping[Uid, TeamName]) -> None:
        """Report the pods of a hold that are placed, and count those that ended: others were evicted for nothing."""
        for beneficiary in before.beneficiaries:
            if after is None or beneficiary not in after.beneficiaries:
                gpu_pod, team = self._reclaim_index.get(beneficiary.uid), served.get(beneficiary.uid)
                if waits_for(beneficiary, gpu_pod):
                    self._reporter.broken((beneficiary,), node=before.node, why="the node takes it no longer")
                    self._lose(beneficiary, is_own_fault=False)
                    continue
                self.waiting.forget(beneficiary.uid)
                since = self._waiting_since.pop(beneficiary.uid, None)
                node = None if gpu_pod is None else gpu_pod.pod.node
                if team is not None and node is not None:
                    self._placed[beneficiary.uid] = self._clock(), team
                elif team is not None:
                    self.waste(team)
                if beneficiary.purpose is Purpose.MOVED and node is not None:
                    self.on_arrived(beneficiary, node)
                elif since is not None and node is not None:
                    self._reporter.placed(beneficiary, node=node, seconds=self._clock() - since)

    def _note_short_lives(self) -> None:
        """Count pods that ended soon after they were placed: users who delete and create pods again cause a backoff."""
        now = self._clock()
        for uid, (at, team) in list(self._placed.items()):
            if self._reclaim_index.is_going(uid):
                self.waste(team)
            if self._reclaim_index.is_going(uid) or at + SHORT_SECONDS < now:
                del self._placed[uid]

    def waste(self, team: TeamName) -> None:
        """Record that evictions for a team served no pod: after a few, nothing is evicted for it for a while."""
        if seconds := self.teams.fail(team):
            self._reporter.paused(team, seconds=seconds)

    def _prolonged(self, before: NodeHold, kept: NodeHold | None) -> NodeHold | None:
        """Extend a hold where victims left or waiting pods were placed since the last look."""
        if kept is None or (kept.beneficiaries, kept.targets) == (before.beneficiaries, before.targets):
            return kept
        grace_seconds = self.longest_grace(t.uid for t in set(before.targets).difference(kept.targets))
        return replace(kept, until=max(kept.until, int(self._clock()) + grace_seconds + HOLD_SECONDS))

    def longest_grace(self, victims: Iterable[Uid]) -> int:
        """Return how long the last of these pods may take to end."""
        bound = self._cluster_view.world.policy.reclaim.longest_grace_seconds
        grace = [gpu_pod.grace_seconds for uid in victims if (gpu_pod := self._reclaim_index.get(uid)) is not None]
        return min(bound, max(grace, default=0))

    def _end_of(self, node_hold: NodeHold) -> int:
        """Return until when a node keeps its room at most."""
        policy = self._cluster_view.world.policy
        rules, notice = policy.reclaim, max(policy.reclaim.notice_seconds, policy.defragment.notice_seconds or 0)
        return min(node_hold.until, node_hold.since + notice + rules.longest_grace_seconds + LONGEST_SECONDS)

    def _note_room(self, node: NodeName, node_hold: NodeHold | None, *, has_room: bool, is_left: bool) -> None:
        """Record whether all room that a node keeps is free. `is_left`: pods are leaving the node."""
        is_free = has_room and node_hold is not None and bool(node_hold.beneficiaries) and not node_hold.targets
        if is_free and is_left and node_hold is not None:
            is_free = not is_short(node_hold, self._reclaim_index, self._cluster_view.world.fleet, leaving=())
        self.scheduler.set_free(node, is_free=is_free)

    def _continued(self, node_hold: NodeHold | None, *, has_room: bool) -> NodeHold | None:
        """Return a hold that goes on, with more time where only kube-scheduler is behind; of another, what is left."""
        if node_hold is None or not node_hold.keeps_room:
            return node_hold
        now, kept = self._clock(), node_hold
        if (
            not kept.targets
            and self._end_of(kept) < now
            and any(self._may_come(b, kept.node) for b in kept.beneficiaries)
        ):
            kept = replace(kept, until=int(now) + HOLD_SECONDS)
        if has_room and self._end_of(kept) >= now:
            return kept
        self._give_up(kept, has_room=has_room)
        return kept.given_up()

    def _may_come(self, beneficiary: Beneficiary, node: NodeName) -> bool:
        """Whether kube-scheduler may not have come yet to a pod that room is kept for; to a queued one it cannot."""
        gpu_pod = self._reclaim_index.get(beneficiary.uid)
        return gpu_pod is not None and (gpu_pod.in_line is not None or self.scheduler.is_behind(node, gpu_pod))

    def _give_up(self, node_hold: NodeHold, *, has_room: bool) -> None:
        """Give up a hold. The waiting pods themselves are the cause where kube-scheduler came to them in free room."""
        if any(each.purpose is Purpose.RECLAIM for each in node_hold.beneficiaries):
            self._reporter.broken(
                node_hold.beneficiaries,
                node=node_hold.node,
                why="its time is over" if has_room else "the reserved GPUs are gone",
            )
        is_there = has_room and not node_hold.targets
        for place in node_hold.places:
            self.on_lost(place)
        for beneficiary in node_hold.beneficiaries:
            is_own_fault = is_there and not self._may_come(beneficiary, node_hold.node)
            if is_own_fault and (gpu_pod := self._reclaim_index.get(beneficiary.uid)) is not None:
                self.scheduler.note_unused(beneficiary.uid, node_hold.node)
                self.waste(gpu_pod.team)
            self._lose(beneficiary, is_own_fault=is_own_fault)

    def _lose(self, beneficiary: Beneficiary, *, is_own_fault: bool) -> None:
        """Note that room is kept for a pod no longer, though it waits."""
        if beneficiary.purpose is not Purpose.RECLAIM:
            self.on_lost(beneficiary)
        if beneficiary.purpose is Purpose.MOVED:
            return
        if (seconds := self.waiting.fail(beneficiary.uid, is_own_fault=is_own_fault)) is not None:
            self._reporter.gave_up(beneficiary, seconds=seconds)
