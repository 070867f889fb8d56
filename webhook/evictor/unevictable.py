"""Pods whose evictions fail: backoff and what is said of them.

Backoff: victims that cannot be evicted now, and waiting pods and teams that did not use their room.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Generic, TypeVar

from webhook.cluster.writes.evictions import EvictionObstacle, Later, Refused
from webhook.core.model.amounts import Namespace, Uid
from webhook.core.model.constraints import Tier
from webhook.core.reclaim.holds import EvictionTarget, own_target, targets_of
from webhook.core.reclaim.limit_plan import LimitMove
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_plan import Move
from webhook.core.reclaim.reclaim_pods import ReclaimPod

_K = TypeVar("_K", bound=str)

TRIES: Final = 2
"""How often room is made for one pod that does not use it, before the long pause: what its scheduler knows and Fairgate
does not see costs others no more than that."""

PAUSE_SECONDS: Final = 5.0
"""Pause after the second try whose room others took; it doubles with each …"""

SHORT_PAUSES: Final = 3
"""… so often."""

LONG_SECONDS: Final = 600.0
"""Pause after the last: something is wrong that evictions do not solve. It doubles with each further try …"""

LONGEST_SECONDS: Final = 4 * 3600.0
"""… up to this."""

TOGETHER_SECONDS: Final = 1.0
"""Failed tries within so long count as one: the deletion of a Job deletes all of its pods."""

FREE_TRIES: Final = 2
"""Failed tries of a team without a pause: users change their minds."""


@dataclass(slots=True)
class _Pauses(Generic[_K]):
    """Until when each key pauses, by the given clock."""

    clock: Callable[[], float]
    _until: dict[_K, float] = field(default_factory=dict)

    def pause(self, key: _K, seconds: float) -> None:
        """Pause a key; a longer pause of it ends."""
        self._until[key] = self.clock() + seconds

    def paused(self) -> frozenset[_K]:
        """Return the keys that pause now."""
        now = self.clock()
        self._until = {key: until for key, until in self._until.items() if until > now}
        return frozenset(self._until)

    def next_end(self) -> float | None:
        """Return when the next pause ends; None where none does."""
        return min(self._until.values(), default=None)


@dataclass(slots=True)
class PodBackoff(_Pauses[_K]):
    """Counts failed tries by key."""

    _tries: dict[_K, int] = field(default_factory=dict)
    _unused: dict[_K, int] = field(default_factory=dict)

    def fail(self, key: _K, *, is_own_fault: bool) -> float | None:
        """Count a failed try; return the pause if it is the long one, else None.

        Where other pods took the room, pauses are short.
        """
        if is_own_fault:
            unused = self._unused[key] = self._unused.get(key, 0) + 1
            if unused < TRIES:
                return None
            seconds = min(LONGEST_SECONDS, LONG_SECONDS * 2.0 ** min(unused - TRIES, 20))
            self.pause(key, seconds)
            return seconds
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        if tries > 1:
            self.pause(key, PAUSE_SECONDS * 2 ** min(tries - 2, SHORT_PAUSES))
        return None

    def given_up(self) -> list[_K]:
        """Return the keys that have the long pause, or are tried once more after it."""
        return [key for key, unused in self._unused.items() if unused >= TRIES]

    def forget(self, key: _K) -> None:
        """Forget a key: the pod is placed or gone."""
        self._until.pop(key, None)
        self._tries.pop(key, None)
        self._unused.pop(key, None)


@dataclass(slots=True)
class TeamBackoff(_Pauses[_K]):
    """Makes teams that waste evictions wait longer with each; new pod names or successes do not reset it.

    Wasted evictions are forgotten by time only, one for each LONG_SECONDS.
    """

    _wasted: dict[_K, tuple[float, float]] = field(default_factory=dict)

    def fail(self, key: _K) -> float:
        """Count evictions that served no pod; return the pause that follows, 0 where none does or it has begun."""
        now = self.clock()
        at, before = self._wasted.get(key, (now, 0.0))
        if before and now - at < TOGETHER_SECONDS:
            return 0.0
        wasted = max(0.0, before - (now - at) / LONG_SECONDS) + 1
        self._wasted[key] = now, wasted
        seconds = min(LONG_SECONDS, PAUSE_SECONDS * 2 ** (wasted - FREE_TRIES - 1)) if wasted > FREE_TRIES else 0.0
        if seconds:
            self._until[key] = max(self._until.get(key, 0.0), now + seconds)
        return seconds


# Victims that the API server did not evict: why, how often, until when each is left alone, and which may be like them.
#
# A victim is tried again after a pause that doubles with each failure, so that one that never goes is planned for a
# number of times that grows with the logarithm of the time, and others are chosen meanwhile.


FIRST_SECONDS: Final = 60.0
"""How long a victim is left alone after its first failure; twice as long after each further one …"""


LONGEST_BUDGET_SECONDS: Final = LONG_SECONDS
"""The same where a disruption budget refused: it may allow the eviction any time."""

LISTED: Final = 5
"""Victims in the evictor's report, of those that fail and of those that do not end."""

MOST: Final = 10_000
"""Victims that are remembered, the latest ones."""

PEERS: Final = 32
"""Pods of a namespace that are tried together once the API server refused one of it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The last failure to evict a pod, and how many there were."""

    namespace: Namespace
    name: str
    refused: Refused
    times: int

    @property
    def is_lasting(self) -> bool:
        """Whether it stays so until an admin changes something: no budget may let the pod go later."""
        return self.refused.obstacle is not EvictionObstacle.BUDGET


class Unevictable:
    """The failures by victim. A pod is forgotten once it no longer exists."""

    def __init__(self, reclaim_index: ReclaimIndex, clock: Callable[[], float]) -> None:
        self._reclaim_index = reclaim_index
        self._clock = clock
        self._failures: OrderedDict[Uid, Failure] = OrderedDict()
        self._pauses: PodBackoff[Uid] = PodBackoff(clock)
        self._hard: set[Uid] = set()  # of those: left alone even where budgets do not count
        self._refusing: PodBackoff[Namespace] = PodBackoff(clock)  # whose pods the API server lately did not evict

    # -- which victims to try

    def paused(self) -> frozenset[Uid]:
        """Return the victims that are left alone now."""
        return self._pauses.paused()

    def immovable(self) -> frozenset[Uid]:
        """Return those of them that are left alone even for pods that waited past their budgets."""
        self._hard &= self.paused()
        return frozenset(self._hard)

    def next_end(self) -> float | None:
        """Return when the next victim may be tried again; None where none is left alone."""
        return self._pauses.next_end()

    def is_guarded(self, target: EvictionTarget) -> bool:
        """Whether a disruption budget may cover a victim, so that only the Eviction API may decide on it."""
        victim = self._reclaim_index.victim_index.get(target.uid)
        return victim is None or self._reclaim_index.may_be_refused(victim)

    def doubtful(self, moves: Iterable[Move | LimitMove]) -> list[EvictionTarget]:
        """Return the victims of plans that the API server may not evict.

        Disruption budgets say so beforehand. Nothing else does, such as a policy of the cluster, but what it refused
        once it is likely to refuse again.
        """
        refusing = self._refusing.paused()
        return [
            target
            for move in moves
            for target, victim in zip(targets_of((move,), at=0), move.victims, strict=True)
            if victim.namespace in refusing
            or victim.uid in self._failures
            or self._reclaim_index.may_be_refused(victim)
        ]

    def peers(self, refused: Iterable[EvictionTarget]) -> list[EvictionTarget]:
        """Return more victims from the namespaces of refused ones: each by itself would cost a plan and a dry run."""
        namespaces = {target.namespace for target in refused} & self._refusing.paused()
        if not namespaces:
            return []
        evictions = self._reclaim_index.evictions
        known = self.paused() | evictions.listed() | evictions.listed_for_limits()
        found = (
            own_target(each, grace_seconds=each.grace_seconds)
            for each in self._reclaim_index.victim_index
            if each.namespace in namespaces and each.uid not in known
        )
        return list(islice(found, PEERS))

    # -- what failed

    def tried(self, target: EvictionTarget, outcome: Refused | Later) -> Refused | Later:
        """Return what a dry run says of a victim: one without an answer says enough where others were refused."""
        is_refused = isinstance(outcome, Later) and target.namespace in self._refusing.paused()
        return Refused(outcome.why, EvictionObstacle.FAILURE) if is_refused else outcome

    def leave_alone(self, target: EvictionTarget, outcome: Refused | Later) -> float:
        """Exclude a victim for a while, and return for how many seconds: the API server does not evict it."""
        if isinstance(outcome, Later):
            self._rest(target.uid, outcome.seconds, is_hard=target.is_past_budgets)
            return outcome.seconds
        if outcome.obstacle is not EvictionObstacle.BUDGET or not self.is_guarded(target):
            self._refusing.pause(target.namespace, LONG_SECONDS)
        before = self._failures.pop(target.uid, None)
        times = 1 if before is None else before.times + 1
        failure = self._failures[target.uid] = Failure(target.namespace, target.name, outcome, times)
        if len(self._failures) > MOST:
            self._forget(next(iter(self._failures)))
        longest = LONGEST_SECONDS if failure.is_lasting else LONGEST_BUDGET_SECONDS
        seconds = min(longest, FIRST_SECONDS * 2.0 ** min(times - 1, 20))
        self._rest(target.uid, seconds, is_hard=failure.is_lasting or target.is_past_budgets)
        return seconds

    def tidy(self) -> None:
        """Forget the pods that no longer exist."""
        for uid in [uid for uid in (*self._failures, *self.paused()) if self._reclaim_index.get(uid) is None]:
            self._forget(uid)

    def lasting(self) -> list[Failure]:
        """Return the failures that stay until an admin changes something, the latest first."""
        return [failure for failure in reversed(self._failures.values()) if failure.is_lasting]

    def counts(self) -> dict[str, int]:
        """Return how many borrowing pods each obstacle keeps, and how many are stuck."""
        found = Counter(str(failure.refused.obstacle) for failure in self._failures.values())
        return {**found, "stuck": len(self.stuck())}

    def stuck(self) -> list[ReclaimPod]:
        """Return the borrowing pods that should have ended by now: kubelet does not end them, or is gone."""
        stuck = self._reclaim_index.stuck(now=self._clock())
        return [gpu_pod for gpu_pod in stuck if gpu_pod.pod.tier is Tier.PREEMPTIBLE]

    def texts(self) -> list[str]:
        """Return the first of those that only people can help, with the reason."""
        failed = [f"{each.namespace}/{each.name}: {each.refused.why}" for each in self.lasting()[:LISTED]]
        stuck = [
            f"{each.namespace}/{each.name}: it terminates on node {each.pod.node}, and its grace period is over"
            for each in self.stuck()[:LISTED]
        ]
        return failed + stuck

    def _rest(self, uid: Uid, seconds: float, *, is_hard: bool) -> None:
        self._pauses.pause(uid, seconds)
        (self._hard.add if is_hard else self._hard.discard)(uid)

    def _forget(self, uid: Uid) -> None:
        self._failures.pop(uid, None)
        self._pauses.forget(uid)
        self._hard.discard(uid)
