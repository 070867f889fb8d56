"""Gangs in the queue: which are complete and start as one, which wait for members, and whose members start alone.

Nothing of a gang starts before it is whole. So once a pod of it has started, those that come later (of an elastic
workload, or in the place of one that failed) start alone: a gang never waits for a pod that only a running one makes.
Where the object of a gang says which pods those are, room for them is judged and kept with the first ones. So it is
where a gang has not grown within the policy's bound: what makes its pods may wait for one of them to have a node.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import repeat
from typing import Final, NamedTuple

from webhook.core.admission.pod_rules import come_so_far, starts_whole, too_many
from webhook.core.line.gang_plans import GangPlan, GangPlans, GangSize, expected_members
from webhook.core.model.amounts import GangId, Uid
from webhook.core.model.constraints import MAX_MEMBERS
from webhook.core.model.policy import NO_TEAM
from webhook.core.model.reasons import Statement
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World

SETTLE_SECONDS: Final = 2
"""A gang of unknown size has come once no further pod of it came for so long."""

ORDERED_SECONDS: Final = 10
"""The same for a gang of a declared size whose pods may be made one after the other."""

LATE_SECONDS: Final = 5
"""How long a gang may take to come before its pods say for how many they wait: a text is a write."""


class GangEntries(NamedTuple):
    """The pods of a gang that start together, or of one that has started those that start alone.

    `alone` is None while no pod of it runs, which may come again: its members wait for each other then.
    """

    together: tuple[WaitingPod, ...] = ()
    alone: tuple[WaitingPod, ...] | None = None


class GangTimeout(NamedTuple):
    """A gang that was not complete in time: one of its pods, and what of it has come."""

    waiting: WaitingPod
    cause: Statement


class _Incomplete(NamedTuple):
    """A gang that waits for members: what it is judged again for."""

    name: str
    come: int
    size: GangSize
    others: int


class GangLine:
    """The gangs of waiting pods, kept by events. Times are in seconds of Unix time.

    `timeouts` are the gangs that did not come in time since they were last taken from it. `is_starting`: a pod is
    charged, or its start is not over.
    """

    def __init__(self, world: World, *, paused: Collection[Uid], is_starting: Callable[[Uid], bool]) -> None:
        self.timeouts: list[GangTimeout] = []
        self._world = world
        self._paused = paused
        self._is_starting = is_starting
        self._plans = GangPlans(world)
        self._gang_of: dict[Uid, GangId] = {}
        self._began: dict[GangId, int] = {}
        self._came: dict[GangId, int] = {}
        self._changed: dict[GangId, dict[Uid, None]] = {}
        self._incomplete: dict[GangId, _Incomplete] = {}
        self._started: set[GangId] = set()
        self._timed_out: set[GangId] = set()
        self._expected: dict[GangId, tuple[WaitingPod, ...]] = {}
        self._told_at = 0

    def __contains__(self, uid: Uid) -> bool:
        return uid in self._gang_of

    def note(self, uid: Uid, pod: WaitingPod | None, *, now: int) -> None:
        """Note that a pod came, changed, or no longer waits (None)."""
        before = self._gang_of.get(uid)
        gang = None if pod is None else gang_in_line(pod, self._world)
        if before is not None:
            self._changed.setdefault(before, {})[uid] = None
        if gang == before:
            return
        if before is not None:
            del self._gang_of[uid]
        if gang is not None:
            self._gang_of[uid] = gang
            self._came[gang] = now
            self._began.setdefault(gang, now)
            self._changed.setdefault(gang, {})[uid] = None

    def changed(self, *, now: int) -> Iterator[tuple[GangId, GangEntries]]:
        """Yield the gangs whose entries may be others than before."""
        for gang, found in self._incomplete.items():
            if self._is_due(gang, found, now=now):
                self._changed.setdefault(gang, {})
        changed, self._changed = self._changed, {}
        for gang, uids in changed.items():
            yield gang, self._entries(gang, uids, now=now)

    def unread(self, *, now: int) -> list[WaitingPod]:
        """Return one pod of each gang whose object is to be read now; some each second."""
        return self._plans.unread(self._incomplete, now=now)

    def has_unread(self, *, now: int) -> bool:
        """Whether a gang waits for its object to be read for the first time, and that may be done now."""
        return self._plans.has_unread(now=now)

    def learn(self, gang: GangId, plan: GangPlan) -> bool:
        """Set what the object of a gang says; return whether that is news."""
        is_news = gang in self._came and self._plans.learn(gang, plan)
        if is_news:
            self._changed.setdefault(gang, {})
        return is_news

    def is_partly_charged(self, pod: WaitingPod, *, charged: Collection[Uid], now: int) -> bool | None:
        """Whether a pod is charged while others of its gang, which has not started, are not: none of them may start.

        `charged` are the queued pods that the ledger lists, without those whose charges are being withdrawn. None if
        that depends on the object of the gang, which is to be read first.
        """
        gang = gang_in_line(pod, self._world)
        if gang is None or self._world.gangs.has_started(gang):
            return False
        members = self._world.waiting.of_gang(gang)
        others = [member for member in members if member.uid not in charged]
        if others and self._plans.is_to_be_read(gang, waited=now - self._began.get(gang, now)):
            self._plans.want(gang)
            return None
        size = self._plans.size(gang)
        if size.number:
            come = len(members) - len(others) + self._others(gang, size)
            return come + len(self._world.gang_reservations.of(gang)) < size.number
        return any(member.has_turn and member.uid not in self._paused for member in others)

    def late(self, *, now: int) -> Iterator[tuple[WaitingPod, Statement]]:
        """Yield the pods of gangs that take long to come, with what they wait for; each at most once a second."""
        if now == self._told_at:
            return
        self._told_at = now
        for gang, found in self._incomplete.items():
            waited = now - self._began[gang]
            if now - self._came[gang] < LATE_SECONDS and waited < self._timeout:
                continue
            members = self._world.waiting.of_gang(gang)
            cause = self._cause(gang, found, is_late=waited >= self._timeout)
            if waited >= self._timeout:
                self._time_out(gang, found, next(iter(members)))
            yield from ((pod, cause) for pod in members if not pod.is_held)

    @property
    def _timeout(self) -> int:
        return self._world.policy.queue.gang_timeout_seconds

    def _cause(self, gang: GangId, found: _Incomplete, *, is_late: bool) -> Statement:
        """Return for what a gang waits, and what was assumed where its object and its pods disagree."""
        number = found.size.number
        if number > MAX_MEMBERS:
            return too_many(found.name, number)
        cause = come_so_far(found.name, found.come, number)
        plan, declared = self._plans.plan(gang), self._plans.declared(gang)
        if plan is not None and plan.size and declared not in (0, plan.size, plan.size + len(plan.late)):
            words = "{members} ({source} says {said:,}, its pods {declared:,})"
            facts = {"members": cause, "source": plan.source, "said": plan.size, "declared": declared}
            cause = Statement(words, facts)
        if not is_late:
            return cause
        words = "{members} within {timeout:duration}: it uses nothing yet, and starts whole"
        if self._starts_in_part(gang, found.size):
            words = "{members} within {timeout:duration}: those that came start once there is room for the others, too"
        return Statement(words, {"members": cause, "timeout": self._timeout})

    def _entries(self, gang: GangId, uids: dict[Uid, None], *, now: int) -> GangEntries:
        world = self._world
        members = world.waiting.of_gang(gang)
        self._incomplete.pop(gang, None)
        self._expect(gang, ())
        if not members:
            self._forget(gang)
            return GangEntries()
        if world.gangs.has_started(gang):
            return GangEntries(alone=self._alone(gang, uids))
        self._started.discard(gang)
        if any(self._is_starting(member.uid) for member in members):
            return GangEntries()
        ready = sorted((member for member in members if self._may_start(member)), key=_age)
        size = self._plans.size(gang)
        others, number = self._others(gang, size), size.number
        come = len(ready) + others
        has_all_ready = len(ready) == len(members)
        is_whole = 0 < number <= min(come, MAX_MEMBERS + others)
        is_whole = is_whole or (has_all_ready and self._is_settled(gang, size, now=now))
        is_stalled = not is_whole and has_all_ready and self._is_stalled(gang, size, now=now)
        incomplete = _Incomplete(_name(members), come, size, others)
        is_unread = self._plans.is_to_be_read(gang, waited=now - self._began[gang])
        if not (ready and (is_whole or is_stalled)) or is_unread:
            self._incomplete[gang] = incomplete
            self._plans.want(gang)
            return GangEntries()
        if is_stalled:
            self._time_out(gang, incomplete, ready[0])
            return self._together(gang, ready, size, count=len(ready), absent=number - come)
        self._timed_out.discard(gang)
        return self._together(gang, ready, size, count=max(1, number - others) if number else len(ready))

    def _together(
        self, gang: GangId, ready: Sequence[WaitingPod], size: GangSize, *, count: int, absent: int = 0
    ) -> GangEntries:
        """Return the first `count` pods, and those that follow them: pods that came, or what they are expected to be.

        `absent` pods that the gang waits for without end are taken to be as large as its largest.
        """
        largest = max(ready, key=lambda member: member.pod.demand.gpus).pod
        late = (*repeat(largest, absent), *size.late)
        together = tuple(ready[: min(count + len(late), MAX_MEMBERS)])
        missing = late[max(0, len(together) - count) :][: MAX_MEMBERS - len(together)]
        self._expect(gang, expected_members(together, missing))
        return GangEntries(together=(*together, *self._expected.get(gang, ())))

    def _time_out(self, gang: GangId, found: _Incomplete, member: WaitingPod) -> None:
        """Note a gang that was not complete in time, once."""
        if gang not in self._timed_out:
            self._timed_out.add(gang)
            self.timeouts.append(GangTimeout(member, self._cause(gang, found, is_late=True)))

    def _expect(self, gang: GangId, pods: tuple[WaitingPod, ...]) -> None:
        """Replace the pods of a gang that are judged with it and do not exist yet."""
        expected = self._world.waiting.expected
        for pod in self._expected.pop(gang, ()):
            expected.pop(pod.uid, None)
        if pods:
            self._expected[gang] = pods
            expected.update((pod.uid, pod) for pod in pods)

    def _forget(self, gang: GangId) -> None:
        """Forget a gang that has no queued pods."""
        self._came.pop(gang, None)
        self._began.pop(gang, None)
        self._plans.forget(gang)
        self._started.discard(gang)
        self._timed_out.discard(gang)

    def _others(self, gang: GangId, size: GangSize) -> int:
        """Return how many pods of a gang exist that need no GPUs, where its size counts them."""
        return self._world.gangs.others(gang) if size.counts_all else 0

    def _may_start(self, pod: WaitingPod) -> bool:
        """Whether a pod may be judged now: it has its turn, is not paused, and has not begun."""
        return pod.has_turn and pod.uid not in self._paused and not self._is_starting(pod.uid)

    def _alone(self, gang: GangId, uids: dict[Uid, None]) -> tuple[WaitingPod, ...]:
        """Return the members of a started gang to add: all of them once, then those that changed."""
        waiting = self._world.waiting
        members = list(waiting.of_gang(gang))
        if gang in self._started:
            members = [pod for uid in uids if (pod := waiting.get(uid)) is not None]
        self._started.add(gang)
        return tuple(pod for pod in members if self._may_start(pod))

    def _is_due(self, gang: GangId, found: _Incomplete, *, now: int) -> bool:
        if found.others != self._others(gang, found.size) or self._world.gangs.has_started(gang):
            return True
        is_over = self._is_settled(gang, found.size, now=now) or self._is_stalled(gang, found.size, now=now)
        return is_over and not self._plans.is_to_be_read(gang, waited=now - self._began[gang])

    def _is_stalled(self, gang: GangId, size: GangSize, *, now: int) -> bool:
        """Whether no member came within the policy's bound, though more are expected."""
        return now - self._came[gang] >= self._timeout and self._starts_in_part(gang, size)

    def _starts_in_part(self, gang: GangId, size: GangSize) -> bool:
        """Whether a gang that does not grow starts: not one that is too large, or that kube-scheduler places whole."""
        pod = next(iter(self._world.waiting.of_gang(gang)), None)
        is_placed_whole = pod is not None and pod.pod.gang is not None and pod.pod.gang.is_pod_group
        return 0 < size.number <= MAX_MEMBERS and not is_placed_whole

    def _is_settled(self, gang: GangId, size: GangSize, *, now: int) -> bool:
        """Whether no member came for so long that none is expected, though the gang may be smaller than declared."""
        seconds = now - self._came[gang]
        if not size.number:
            return seconds > SETTLE_SECONDS
        if (plan := self._plans.plan(gang)) is not None and plan.size:
            return False  # its object says which pods follow others
        pod = next(iter(self._world.waiting.of_gang(gang)), None)
        is_ordered = pod is not None and pod.pod.gang is not None and pod.pod.gang.is_ordered
        return is_ordered and seconds > ORDERED_SECONDS


def gang_in_line(pod: WaitingPod, world: World) -> GangId | None:
    """Return the gang with which a waiting pod starts; None for one that starts alone."""
    gang = pod.pod.gang
    if gang is None or not starts_whole(gang, world.policy.team(pod.team) or NO_TEAM, world.policy):
        return None
    return gang.id


def _name(members: Collection[WaitingPod]) -> str:
    return next((pod.pod.gang.name for pod in members if pod.pod.gang is not None), "")


def _age(pod: WaitingPod) -> tuple[int, str]:
    return pod.created, pod.pod.name
