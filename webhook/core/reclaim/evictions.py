"""Evictions under way, failures, pods that never start.

Which pods each scheduler has come to already. Pure.
"""

from collections import Counter
from collections.abc import Callable, Iterable, KeysView, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from typing import Any, Final, NamedTuple

from webhook.core.model.amounts import NodeName, TeamName, Uid
from webhook.core.reclaim.holds import EvictionTarget, NodeHold, hold_under_limits, is_limit_place, limit_place
from webhook.core.reclaim.limit_plan import LimitMove
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.core.reclaim.victims import NOTHING_LEFT, FailureBudget, Loss, Remaining, WorkloadId


@dataclass(slots=True)
class Attempts:
    """How many GPU pods each scheduler placed or found no room for, and when the latest of each priority came to it.

    A pod comes when it is created, and again when its scheduler first finds no room for it: it is then behind all that
    came before. A pod that names its node itself is not among them: no scheduler had it.
    """

    count: Counter[str] = field(default_factory=Counter)
    latest: dict[tuple[str, int], int] = field(default_factory=dict)

    def add(self, *, scheduler: str, priority: int, came: int) -> None:
        """Count a pod that a scheduler came to; `came` is in seconds of Unix time."""
        self.count[scheduler] += 1
        self.latest[scheduler, priority] = max(came, self.latest.get((scheduler, priority), 0))


# The table of evictions: every victim that was chosen, from its plan until its room is used or given up. Pure.
#
# The evictor drives it, and no other object stores the state of a victim. A new leader reads its state from nodes and
# pods; the rest is not needed, since a second eviction of the same UID changes nothing.


RATE_SECONDS: Final = 60
"""How long an eviction counts against what its team may lose per minute."""


class Progress(StrEnum):
    """How far one eviction is.

    PLANNED: chosen. HELD: the node that keeps the room lists it. NOTICED: the victim's annotations announce it.
    SENT: the request is sent and not answered yet, or accepted and the watch does not show it yet. GONE: the
    pod terminates or ended. PLACED: the waiting pod has a node. GIVEN_UP: the victim stays, or its room served no pod.
    """

    PLANNED = "planned"
    HELD = "held"
    NOTICED = "noticed"
    SENT = "sent"
    GONE = "gone"
    PLACED = "placed"
    GIVEN_UP = "given up"


TRANSITIONS: Final[Mapping[Progress, frozenset[Progress]]] = {
    Progress.PLANNED: frozenset({Progress.HELD, Progress.GONE, Progress.GIVEN_UP}),
    Progress.HELD: frozenset({Progress.NOTICED, Progress.SENT, Progress.GONE, Progress.GIVEN_UP}),
    Progress.NOTICED: frozenset({Progress.SENT, Progress.GONE, Progress.GIVEN_UP}),
    Progress.SENT: frozenset({Progress.PLANNED, Progress.HELD, Progress.NOTICED, Progress.GONE, Progress.GIVEN_UP}),
    Progress.GONE: frozenset({Progress.PLACED, Progress.GIVEN_UP}),
    Progress.PLACED: frozenset(),
    Progress.GIVEN_UP: frozenset(),
}
"""All legal steps. Only PLACED and GIVEN_UP end an eviction; the victim may be chosen again afterwards."""

_SENDABLE: Final = frozenset({Progress.HELD, Progress.NOTICED})


@dataclass(frozen=True, slots=True)
class Eviction:
    """One victim, the node whose hold it belongs to, and how far its eviction is. Times are seconds of Unix time.

    `is_listed`: the hold still lists it as to be evicted. `is_held`: its node lists it for its beneficiary.
    `is_noticed`: its annotations announce it, in any state. It is not sent before `retry_at`, and `put_off_since` is
    when it was put off first, None where it never was. `accepted_at` is when the API server accepted it, None before;
    `lost_by` and `lost_for` are the teams of the victim and of the waiting pod then, None where the victim was gone
    already. `is_asked`: the API server has not answered yet.
    """

    target: EvictionTarget
    node: NodeName
    state: Progress = Progress.PLANNED
    is_listed: bool = True
    is_held: bool = False
    is_noticed: bool = False
    retry_at: float = 0.0
    put_off_since: float | None = None
    accepted_at: float | None = None
    lost_by: TeamName | None = None
    lost_for: TeamName | None = None
    is_asked: bool = False

    @property
    def is_over(self) -> bool:
        """Whether it ended."""
        return not TRANSITIONS[self.state]


class LimitChange(NamedTuple):
    """The holds of room under limits that ended, and the plans for which others began."""

    ended: tuple[NodeHold, ...]
    begun: tuple[LimitMove, ...]


class Evictions:
    """The evictions by victim, and the holds that they belong to by node. A victim is in it once."""

    def __init__(self) -> None:
        self._by_uid: dict[Uid, Eviction] = {}
        self._node_holds: dict[NodeName, NodeHold] = {}
        self._limit_holds: dict[NodeName, NodeHold] = {}
        self._awaited: dict[Uid, float] = {}  # when each of them was accepted

    # -- queries

    @property
    def holds(self) -> Mapping[NodeName, NodeHold]:
        """The holds of nodes; their targets are the listed evictions."""
        return self._node_holds

    @property
    def limit_holds(self) -> Mapping[NodeName, NodeHold]:
        """The holds of room under limits, one for each pod that waits for it."""
        return self._limit_holds

    def get(self, uid: Uid) -> Eviction | None:
        """Return the eviction of a victim, the latest one."""
        return self._by_uid.get(uid)

    def awaited(self) -> Mapping[Uid, float]:
        """Return the victims that the API server evicts and that the watch does not show so yet, and since when."""
        return self._awaited

    def listed(self) -> set[Uid]:
        """Return the victims that the hold of a node still lists."""
        return {target.uid for hold in self.holds.values() for target in hold.targets}

    def moving(self) -> set[Uid]:
        """Return the pods for whose replacements a node keeps a place."""
        return {place.replaces for hold in self.holds.values() for place in hold.places}

    def listed_for_limits(self) -> set[Uid]:
        """Return the victims that a hold of room under limits still lists."""
        return {target.uid for hold in self.limit_holds.values() for target in hold.targets}

    def is_written(self, hold: NodeHold) -> bool:
        """Whether the node of a hold lists all of its targets, for the right beneficiaries."""
        return all(self._by_uid[target.uid].is_held for target in hold.targets)

    def due(self, hold: NodeHold, *, now: float) -> tuple[EvictionTarget, ...]:
        """Return the targets of a hold that are to be evicted now."""
        return tuple([t for t in hold.targets if t.at <= now and self._by_uid[t.uid].retry_at <= now])

    def unannounced(self, hold: NodeHold, *, now: float) -> list[EvictionTarget]:
        """Return the targets of a hold whose time has not come and whose pods do not announce it yet."""
        return [t for t in hold.targets if t.at > now and not self._by_uid[t.uid].is_noticed]

    def next_due(self) -> list[float]:
        """Return when each listed victim is due."""
        holds = chain(self._node_holds.values(), self._limit_holds.values())
        return [max(t.at, self._by_uid[t.uid].retry_at) for hold in holds for t in hold.targets]

    def losses(self, team_of: Callable[[Uid], TeamName | None], *, now: float) -> dict[TeamName, int]:
        """Return how many pods each team lost within the last minute, or is about to lose."""
        found: dict[TeamName, int] = {}
        for uid, each in self._by_uid.items():
            is_recent = each.accepted_at is not None and each.accepted_at > now - RATE_SECONDS
            team = each.lost_by if is_recent else None
            team = team_of(uid) if team is None and each.is_listed else team
            if team is not None:
                found[team] = found.get(team, 0) + 1
        return found

    def beneficiaries(self) -> dict[Uid, TeamName]:
        """Return the waiting pods for which others were evicted, with their teams."""
        return {
            each.target.beneficiary: each.lost_for
            for each in self._by_uid.values()
            if each.lost_for is not None and not each.is_over
        }

    # -- transitions

    def keep(self, node: NodeName, hold: NodeHold | None, *, is_going: Callable[[Uid], bool]) -> None:
        """Replace the hold of a node: new targets are planned, those that it no longer lists are gone or given up."""
        holds = self._holds_like(node)
        before = holds.get(node)
        listed = {} if hold is None else {target.uid: target for target in hold.targets}
        for target in before.targets if before is not None else ():
            if target.uid not in listed:
                self._unlist(target.uid, is_gone=is_going(target.uid))
        for uid, target in listed.items():
            known = self._by_uid.get(uid)
            if known is None or known.is_over or (known.state is Progress.GONE and not known.is_listed):
                self._by_uid[uid] = Eviction(target, node, is_noticed=known is not None and known.is_noticed)
            else:
                is_held = known.is_held and known.is_listed and known.target == target
                self._by_uid[uid] = replace(known, target=target, node=node, is_listed=True, is_held=is_held)
        if hold is not None:
            holds[node] = hold
        else:
            holds.pop(node, None)

    def keep_limits(
        self,
        moves: Iterable[LimitMove],
        *,
        since: int,
        at: int,
        is_going: Callable[[Uid], bool],
        may_begin: Callable[[LimitMove], bool],
    ) -> LimitChange:
        """Keep the holds of room under limits for the pods of these plans, begin others, and end the rest.

        New victims are evicted from `at` on. A hold begins, at `since`, where `may_begin` says so.
        """
        wanted = {limit_place(move.waiting.uid): move for move in moves}
        ended = [hold for place, hold in self._limit_holds.items() if place not in wanted]
        begun = [move for place, move in wanted.items() if place not in self._limit_holds and may_begin(move)]
        for hold in ended:
            self.keep(hold.node, None, is_going=is_going)
        for place, hold in list(self._limit_holds.items()):
            self.keep(place, hold.retargeted(wanted[place], at=at), is_going=is_going)
        for move in begun:
            hold = hold_under_limits(move, since=since).retargeted(move, at=at)
            self.keep(hold.node, hold, is_going=is_going)
        return LimitChange(tuple(ended), tuple(begun))

    def pick_up(self, hold: NodeHold, *, noticed: Callable[[Uid], bool]) -> None:
        """Take over a hold that an earlier leader wrote on its node; of two that list one victim, the first counts."""
        known = self._by_uid
        targets = [t for t in hold.targets if t.uid not in known or not known[t.uid].is_listed]
        hold = replace(hold, targets=tuple(targets))
        self.keep(hold.node, hold, is_going=lambda _: False)
        self.written(hold)
        for target in hold.targets:
            if noticed(target.uid):
                self.noticed(target, hold.node)

    def restart(self, *, now: float) -> None:
        """Forget what an earlier term of this process did, except accepted evictions that the watch does not show."""
        self._by_uid = {uid: self._by_uid[uid] for uid in self._awaited}
        self._node_holds, self._limit_holds = {}, {}
        for uid in list(self._awaited):
            self._move(uid, Progress.SENT, accepted_at=now, is_listed=False, lost_by=None, lost_for=None)

    def written(self, hold: NodeHold) -> None:
        """The node of a hold lists its targets."""
        for target in hold.targets:
            known = self._by_uid.get(target.uid)
            if known is not None and known.node == hold.node and known.target == target:
                state = Progress.HELD if known.state is Progress.PLANNED else known.state
                self._move(target.uid, state, is_held=True)

    def noticed(self, target: EvictionTarget, node: NodeName) -> None:
        """The victim's annotations announce its eviction; that must be taken back where it was given up meanwhile."""
        known = self._by_uid.setdefault(target.uid, Eviction(target, node, Progress.GIVEN_UP, is_listed=False))
        state = Progress.NOTICED if known.state is Progress.HELD else known.state
        self._move(target.uid, state, is_noticed=True)

    def send(self, uid: Uid, node: NodeName) -> bool:
        """Begin to evict a victim for the hold of a node; False where it must not be evicted (again)."""
        known = self._by_uid.get(uid)
        if known is None or known.node != node or not (known.is_listed and known.is_held):
            return False
        if known.state not in _SENDABLE:
            return False
        self._move(uid, Progress.SENT, accepted_at=None, lost_by=None, lost_for=None, is_asked=True)
        return True

    def put_off(self, uid: Uid, *, now: float, seconds: float) -> float:
        """The API server requests to send an eviction again later; return for how many seconds it has been put off."""
        known = self._by_uid.get(uid)
        if known is None:
            return 0.0
        since = now if known.put_off_since is None else known.put_off_since
        if known.state is Progress.SENT:
            self._move(uid, _before_sent(known), retry_at=now + seconds, put_off_since=since, is_asked=False)
        else:
            self._move(uid, known.state, is_asked=False)
        return now - since

    def refuse(self, uid: Uid) -> None:
        """The API server does not evict a victim: its hold does without it."""
        known = self._by_uid.get(uid)
        if known is not None:
            if known.is_listed:
                holds = self._holds_like(known.node)
                holds[known.node] = holds[known.node].without(uid)
            is_given_up = not (known.is_over or known.state is Progress.GONE)
            state = Progress.GIVEN_UP if is_given_up else known.state
            self._move(uid, state, is_listed=False, is_asked=False)

    def accept(
        self, uid: Uid, *, now: float, lost_by: TeamName | None = None, lost_for: TeamName | None = None
    ) -> None:
        """The API server evicts a victim, or no longer has it."""
        known = self._by_uid[uid]
        self._move(uid, known.state, accepted_at=now, lost_by=lost_by, lost_for=lost_for, is_asked=False)

    def gone(self, uid: Uid) -> None:
        """The watch shows that a pod terminates or ended."""
        known = self._by_uid.get(uid)
        if known is not None and Progress.GONE in TRANSITIONS[known.state]:
            self._move(uid, Progress.GONE)

    def expire(self, *, before: float) -> list[Uid]:
        """Count the evictions as not done that were accepted until then and never showed; return their victims."""
        found = [uid for uid, at in self._awaited.items() if at <= before]
        for uid in found:
            self._move(uid, _before_sent(self._by_uid[uid]))
        return found

    def end_finished(self, is_placed: Callable[[Uid], bool], *, now: float) -> None:
        """End the evictions whose beneficiaries no longer wait for their hold; drop ended ones that do not count.

        One without an answer counts: the watch may show its victim gone, and the room used, before the answer comes.
        """
        for uid, each in list(self._by_uid.items()):
            if each.state is Progress.GONE and not each.is_listed and not self._is_kept_for(each):
                self._move(uid, Progress.PLACED if is_placed(each.target.beneficiary) else Progress.GIVEN_UP)
            elif each.is_over and not (each.is_noticed or each.is_asked) and _is_old(each, now):
                del self._by_uid[uid]

    def take_withdrawn(self) -> list[EvictionTarget]:
        """Return the targets that were announced and are no longer listed, once."""
        found = [each.target for each in self._by_uid.values() if each.is_noticed and not each.is_listed]
        for target in found:
            self._move(target.uid, self._by_uid[target.uid].state, is_noticed=False)
        return found

    def _holds_like(self, place: NodeName) -> dict[NodeName, NodeHold]:
        return self._limit_holds if is_limit_place(place) else self._node_holds

    def _unlist(self, uid: Uid, *, is_gone: bool) -> None:
        state = self._by_uid[uid].state
        if state not in (Progress.SENT, Progress.GONE):  # the answer decides on one that is sent
            state = Progress.GONE if is_gone else Progress.GIVEN_UP
        self._move(uid, state, is_listed=False)

    def _is_kept_for(self, eviction: Eviction) -> bool:
        hold = self._holds_like(eviction.node).get(eviction.node)
        return hold is not None and any(each.uid == eviction.target.beneficiary for each in hold.beneficiaries)

    def _move(self, uid: Uid, state: Progress, **changes: Any) -> None:  # noqa: ANN401 - fields of an Eviction
        """Make a legal transition and change other fields with it. Raises ValueError where it is not legal."""
        known = self._by_uid[uid]
        if state is not known.state and state not in TRANSITIONS[known.state]:
            raise ValueError(f"eviction of {uid}: {known.state} cannot become {state}")
        moved = self._by_uid[uid] = replace(known, state=state, **changes)
        if moved.state is Progress.SENT and moved.accepted_at is not None:
            self._awaited[uid] = moved.accepted_at
        else:
            self._awaited.pop(uid, None)


def _is_old(eviction: Eviction, now: float) -> bool:
    """Whether an eviction no longer counts against what its team may lose."""
    return (eviction.accepted_at or 0.0) <= now - RATE_SECONDS


def _before_sent(eviction: Eviction) -> Progress:
    """Return the state of an eviction that was sent and did not happen."""
    if not eviction.is_listed:
        return Progress.GIVEN_UP
    if not eviction.is_held:
        return Progress.PLANNED
    return Progress.NOTICED if eviction.is_noticed else Progress.HELD


# Failures by workload: those in its status, and the evictions that its status does not show yet.
#
# Kept by events. An eviction counts from when it is made: the status of a workload shows it only some time later, and
# its failure budget must not look untouched until then.


_NO_PODS: Final[dict[Uid, bool]] = {}


class FailureCount:
    """The workloads that count failures, and their pods."""

    def __init__(self) -> None:
        self._budgets: dict[WorkloadId, FailureBudget] = {}
        self._evicted: dict[WorkloadId, int] = {}  # failures there will be at least
        self._pods: dict[WorkloadId, dict[Uid, bool]] = {}  # whether they leave
        self._going: dict[WorkloadId, int] = {}

    def has_budget(self, gpu_pod: ReclaimPod) -> bool:
        """Whether a pod belongs to a workload that fails after some failures."""
        return gpu_pod.workload is not None and (gpu_pod.loss is not Loss.COUNTED or gpu_pod.workload in self._budgets)

    def remaining(self, workloads: Iterable[WorkloadId], expected: Iterable[ReclaimPod]) -> dict[WorkloadId, Remaining]:
        """Return what these workloads have left; `expected` are pods that will be evicted."""
        found = {workload: self._remaining(workload) for workload in workloads}
        for gpu_pod in expected:
            if gpu_pod.workload in found:
                left, pods = found[gpu_pod.workload]
                found[gpu_pod.workload] = Remaining(left - (gpu_pod.loss is not Loss.HARMLESS), pods - 1)
        return found

    def pods(self, workload: WorkloadId) -> KeysView[Uid]:
        """Return the pods of a workload."""
        return self._pods.get(workload, _NO_PODS).keys()

    def set_pod(self, gpu_pod: ReclaimPod, *, is_going: bool) -> None:
        """Add a pod, or what changed of it."""
        workload = gpu_pod.workload
        if workload is not None:
            pods = self._pods.setdefault(workload, {})
            self._going[workload] = self._going.get(workload, 0) + is_going - pods.get(gpu_pod.uid, False)
            pods[gpu_pod.uid] = is_going

    def remove_pod(self, gpu_pod: ReclaimPod) -> None:
        """Remove a pod that ended or has another controller."""
        workload = gpu_pod.workload
        if workload is not None and gpu_pod.uid in (pods := self._pods.get(workload, _NO_PODS)):
            self._going[workload] -= pods.pop(gpu_pod.uid)
            if not pods:
                del self._pods[workload], self._going[workload]

    def set_budget(self, workload: WorkloadId, budget: FailureBudget | None) -> bool:
        """Set a workload's budget; return whether it began or ceased to have one."""
        is_change = (budget is None) == (workload in self._budgets)
        if budget is None:
            self._budgets.pop(workload, None)
            self._evicted.pop(workload, None)
        else:
            self._budgets[workload] = budget
            if self._evicted.get(workload, 0) <= budget.failed:
                self._evicted.pop(workload, None)
        return is_change

    def evicted(self, gpu_pod: ReclaimPod) -> None:
        """Count the eviction of a pod, which its workload's status will show."""
        workload = gpu_pod.workload
        if (
            workload is not None
            and gpu_pod.loss is Loss.COUNTED
            and (budget := self._budgets.get(workload)) is not None
        ):
            self._evicted[workload] = max(self._evicted.get(workload, 0), budget.failed) + 1

    def _remaining(self, workload: WorkloadId) -> Remaining:
        pods = len(self._pods.get(workload, _NO_PODS)) - self._going.get(workload, 0)
        budget = self._budgets.get(workload)
        if budget is None:
            return Remaining(NOTHING_LEFT.left, pods)
        return Remaining(budget.limit - max(budget.failed, self._evicted.get(workload, 0)), pods)
