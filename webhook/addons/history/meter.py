"""GPU-seconds by pod.

The moments at which jobs start: single pods, and gangs once none of their pods waits any more.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from fractions import Fraction
from hashlib import sha256
from typing import Final, NamedTuple

from webhook.core.explain.line_rows import BOUNDS, SIZES, Start, bound_of, size_of
from webhook.core.explain.node_rows import ClusterUse, PodsOnNodes, PodUse
from webhook.core.model.amounts import ONE_GPU, GangId, NodeName, TeamName, Uid, Units
from webhook.core.model.constraints import Tier
from webhook.core.model.node import NO_MODEL
from webhook.core.model.policy import Policy
from webhook.core.world.world import World


class JobPod(NamedTuple):
    """A pod that waits or is on a node. `created` is in seconds of Unix time, 0 where unknown."""

    gpus: Units
    created: int
    gang: GangId | None
    is_on_node: bool


class JobStarts:
    """Pods as they were last seen; of a gang those that started since it was counted last."""

    def __init__(self) -> None:
        self._pods: dict[Uid, JobPod] = {}
        self._waiting: dict[GangId, set[Uid]] = {}
        self._started: dict[GangId, list[JobPod]] = {}

    def set(self, uid: Uid, pod: JobPod | None, *, now: float) -> Start | None:
        """Note what a pod is now, None if it is gone; returns the job that started by that."""
        before = self._pods.pop(uid, None)
        if before is not None and before.gang is not None:
            self._leave(before.gang, uid)
        if pod is None:
            return None if before is None or before.gang is None else self._whole(before.gang, now)
        self._pods[uid] = pod
        is_start = pod.is_on_node and (before is None or not before.is_on_node)
        if pod.gang is None:
            return _start([pod], now) if is_start else None
        if not pod.is_on_node:
            self._waiting.setdefault(pod.gang, set()).add(uid)
        elif is_start:
            self._started.setdefault(pod.gang, []).append(pod)
        return self._whole(pod.gang, now)

    def _leave(self, gang: GangId, uid: Uid) -> None:
        waiting = self._waiting.get(gang, set())
        waiting.discard(uid)
        if not waiting:
            self._waiting.pop(gang, None)

    def _whole(self, gang: GangId, now: float) -> Start | None:
        return None if gang in self._waiting else _start(self._started.pop(gang, []), now)


def _start(pods: list[JobPod], now: float) -> Start | None:
    if not pods or not all(pod.created for pod in pods):
        return None
    gpus = float(sum(pod.gpus for pod in pods) / ONE_GPU)
    return Start(size_of(gpus), max(0.0, now - min(pod.created for pod in pods)))


# The rows of recorded usage: what was held, awaited, free or refused in one interval, by team, user and GPU model.
#
# A row is a whole amount, never a difference: writing it twice changes nothing.


INTERVAL_SECONDS: Final = 300
"""Length of an interval. Its rows are written again until it is over."""

MAX_USERS: Final = 50
"""Users of a team with rows of their own in one interval: a tenant may have any number of ServiceAccounts."""
OTHERS: Final = "others"
"""The user of the row for all further users."""

MAX_TEXT: Final = 200
"""Characters of a stored name. User names have no limit in Kubernetes."""
_DIGEST: Final = 8


class UsageKind(StrEnum):
    """What a row counts. GPU-seconds, unless it says otherwise.

    HELD_GUARANTEED and HELD_PREEMPTIBLE are GPUs of pods on nodes, HELD_IDLE those of them that are not used. WAITING
    are GPUs of pods that exist and have no node. UNUSED is a team's guaranteed share beyond what its guaranteed pods
    hold.
    FREE are free GPUs of schedulable nodes, by model. REFUSED are requests, REFUSED_GPUS what they asked for, in GPUs.
    OBSERVED are seconds in which the recorder saw the cluster's events as they came. The USE kinds are the amounts of
    ClusterUse, times seconds. STARTED are jobs that started, by the class of their size and the group of their wait.
    LOST is work of evicted pods that is done again, MOVED that of pods that were moved to make room, SAVED work that
    would be, had they not saved it after their warning.
    """

    HELD_GUARANTEED = "guaranteed"
    HELD_PREEMPTIBLE = "preemptible"
    HELD_IDLE = "held_idle"
    WAITING = "waiting"
    UNUSED = "unused"
    FREE = "free"
    REFUSED = "refused"
    REFUSED_GPUS = "refused_gpus"
    OBSERVED = "observed"
    USE_GPUS = "use_gpus"
    USE_HELD = "use_held"
    USE_NODES = "use_nodes"
    USE_PARTLY = "use_partly"
    USE_SPREAD = "use_spread"
    USE_BEYOND = "use_beyond"
    STARTED = "started"
    LOST = "lost"
    MOVED = "moved"
    SAVED = "saved"


OF_USE: Final = (
    UsageKind.USE_GPUS,
    UsageKind.USE_HELD,
    UsageKind.USE_NODES,
    UsageKind.USE_PARTLY,
    UsageKind.USE_SPREAD,
    UsageKind.USE_BEYOND,
)
"""The kinds of ClusterUse's amounts, in its order."""


OF_EVICTIONS: Final = (UsageKind.LOST, UsageKind.MOVED, UsageKind.SAVED)
"""The kinds that are known once an evicted pod has ended, and count in the interval of its end."""


class UsageKey(NamedTuple):
    """What an amount belongs to; "" where a field does not apply."""

    kind: UsageKind
    team: str = ""
    user: str = ""
    model: str = ""


class UsageRow(NamedTuple):
    """An amount of one interval. `start` is Unix time; `department` the path of the team's departments, by `/`."""

    start: int
    key: UsageKey
    amount: float
    department: str = ""


class Recording(NamedTuple):
    """What one recorder saw: `name` is its file or replica."""

    name: str
    rows: tuple[UsageRow, ...]


def started_key(start: Start) -> UsageKey:
    """Return what a job that started counts to: its class and group are in the place of the model."""
    return UsageKey(UsageKind.STARTED, model=f"{start.size}/{bound_of(start.wait):g}")


def group_of(key: UsageKey) -> tuple[str, float] | None:
    """Return the class of size and the upper bound of the waits that such a key counts; None where it names none."""
    return _GROUPS.get(key.model)


_GROUPS: Final = {f"{size}/{bound:g}": (size, bound) for size in SIZES for bound in BOUNDS}


def interval_of(time: float) -> int:
    """Return the start of the interval that a time is in."""
    return int(time // INTERVAL_SECONDS) * INTERVAL_SECONDS


def bounded(text: str, longest: int = MAX_TEXT) -> str:
    """Return a text of bounded length; a longer one keeps its beginning, and a digest that tells it from others."""
    if not text.isascii():
        text = text.encode(errors="replace").decode()  # half a character, as JSON may have, fits no file
    if len(text) <= longest:
        return text
    digest = sha256(text.encode()).hexdigest()[:_DIGEST]
    return f"{text[: longest - _DIGEST - 1]}~{digest}"


# Measures usage: adds up GPU-seconds from the changes of a world, exactly, between any two of them.
#
# Pure: the time is an argument, in seconds of Unix time. A pod counts from the moment a change is noted to the moment
# of the next one. Amounts are kept by interval until the caller drops them, so that a failed write loses nothing.


MAX_INTERVALS: Final = 288
"""Intervals that are kept in memory while they cannot be written: a day."""

_OBSERVED: Final = UsageKey(UsageKind.OBSERVED)


class _Holding(NamedTuple):
    """What a pod counts as now, the node on which it does, and what it starts with."""

    key: UsageKey
    gpus: Units
    node: NodeName | None
    gang: GangId | None
    created: int
    idle_since: int = 0

    @property
    def idle_key(self) -> UsageKey:
        """What its GPUs count as besides, while they are not used."""
        return self.key._replace(kind=UsageKind.HELD_IDLE)

    @property
    def place(self) -> PodUse | None:
        """What it holds on its node."""
        return None if self.node is None else PodUse(self.node, self.gpus, self.gang)

    @property
    def job_pod(self) -> JobPod:
        """The part of a job that it is."""
        return JobPod(self.gpus, self.created, self.gang, self.node is not None)


class Meter:
    """Amounts of usage by interval.

    For metrics `totals` are the sums by key without users since the start, `on_nodes` what pods hold now, and
    `on_start` is called for each job that starts.
    """

    def __init__(self) -> None:
        self.totals: dict[UsageKey, float] = {}
        self.on_nodes = PodsOnNodes()
        self.on_start: Callable[[Start], None] = _no_start
        self._starts = JobStarts()
        self.dropped = 0
        self._policy: Policy | None = None
        self._pods: dict[Uid, _Holding] = {}
        self._guaranteed: dict[str, Units] = {}
        self._levels: dict[UsageKey, Units] = {}
        self._since: dict[UsageKey, float] = {}
        self._intervals: dict[int, dict[UsageKey, float]] = {}
        self._written_before = 0
        self._users: dict[tuple[int, str], set[str]] = {}

    # -- changes

    def update(self, uids: Iterable[Uid], world: World, now: float, *, is_first: bool = False) -> None:
        """Count these pods as what they are now in the world, from `now` on; `is_first`: they were there before it."""
        teams: set[str] = set()
        for uid in uids:
            before, holding = self._pods.get(uid), holding_of(uid, world)
            if holding == before:
                continue
            for each, sign in ((before, -1), (holding, 1)):
                if each is not None:
                    self._change(each.key, sign * each.gpus, now)
                    teams.add(each.key.team)
                    if each.idle_since:
                        self._change(each.idle_key, sign * each.gpus, now)
            was_idle = is_first or (before is not None and bool(before.idle_since))
            if holding is not None and holding.idle_since and not was_idle:  # it was idle before that was known
                since = max(holding.idle_since, holding.created, now - MAX_INTERVALS * INTERVAL_SECONDS)
                self.add(holding.idle_key, float(holding.gpus / ONE_GPU) * max(0.0, now - since), now)
            self.on_nodes.set(uid, None if holding is None else holding.place)
            start = self._starts.set(uid, None if holding is None else holding.job_pod, now=now)
            if start is not None and not is_first:
                self.add(started_key(start), 1, now)
                self.on_start(start)
            if holding is None:
                del self._pods[uid]
            else:
                self._pods[uid] = holding
        for team in teams:
            self._set_unused(TeamName(team), world.policy, now)

    def set_policy(self, policy: Policy, now: float) -> None:
        """Compare with the shares of a policy, from `now` on; what is held is compared as it changes."""
        if policy is self._policy:
            return
        self._policy = policy
        known = {key.team for key in self._levels if key.kind is UsageKind.UNUSED}
        for name in known | {team.name for team in policy.teams}:
            self._set_unused(TeamName(name), policy, now)

    def set_free(self, free: Mapping[str, Units], now: float) -> None:
        """Set the free GPUs of each model, from `now` on."""
        known = {key.model for key in self._levels if key.kind is UsageKind.FREE}
        for model in known | free.keys():
            self._set(UsageKey(UsageKind.FREE, model=bounded(model)), free.get(model, 0), now)

    def set_use(self, use: ClusterUse, now: float) -> None:
        """Set how the nodes are used, from `now` on."""
        for kind, amount in zip(OF_USE, use, strict=True):
            self._set(UsageKey(kind), Fraction(amount) * ONE_GPU, now)

    def advance(self, now: float, *, is_observed: bool) -> None:
        """Add up everything until `now`; `is_observed`: the world was current all the time since the last call."""
        if is_observed:
            self._set(_OBSERVED, ONE_GPU, now)
        else:
            self._levels.pop(_OBSERVED, None)
            self._since.pop(_OBSERVED, None)
        for key in list(self._levels):
            self._settle(key, now)

    def move(self, now: float) -> None:
        """Continue from `now`, without counting the time since the last call: the clock was set."""
        self._since = dict.fromkeys(self._since, now)

    def add(self, key: UsageKey, amount: float, at: float) -> None:
        """Add an amount of the moment `at`, such as a refusal."""
        self._add(key._replace(team=bounded(key.team), user=bounded(key.user)), amount, interval_of(at))

    def backfill(self, world: World, *, since: float, until: float) -> None:
        """Add what the pods of the world held in a time that no process recorded, from their creation; at most a day.

        It is not in `totals`: these begin with the process.
        """
        since = max(since, until - MAX_INTERVALS * INTERVAL_SECONDS)
        for uid, holding in self._pods.items():
            pod = world.pod(uid)
            waiting = world.waiting.get(uid)
            created = pod.created if pod is not None else waiting.created if waiting is not None else until
            self._spread(holding.key, holding.gpus, max(since, created), until, is_live=False)

    # -- rows

    def resume(self, rows: Iterable[UsageRow]) -> None:
        """Continue intervals whose first part was written by an earlier process."""
        for row in rows:
            amounts = self._intervals.setdefault(row.start, {})
            amounts[row.key] = amounts.get(row.key, 0.0) + row.amount
            if row.key.user:
                self._users.setdefault((row.start, row.key.team), set()).add(row.key.user)

    def rows(self, policy: Policy) -> list[UsageRow]:
        """Return all rows that are kept, the oldest first; rows without an amount are left out."""
        paths = department_paths(policy)
        return [
            UsageRow(start, key, amount, paths.get(key.team, ""))
            for start in sorted(self._intervals)
            for key, amount in self._intervals[start].items()
            if amount
        ]

    def drop_rows(self) -> None:
        """Drop all rows: another process wrote what they say."""
        self._intervals.clear()
        self._users.clear()

    def drop_before(self, start: int) -> None:
        """Drop the rows of earlier intervals: they are written. What a clock that goes back adds counts later."""
        self._written_before = max(self._written_before, start)
        for each in [each for each in self._intervals if each < start]:
            del self._intervals[each]
        for user in [each for each in self._users if each[0] < start]:
            del self._users[user]

    # -- levels

    def _set_unused(self, team: TeamName, policy: Policy, now: float) -> None:
        found = policy.team(team)
        share = 0 if found is None else found.gpus.guaranteed
        self._set(UsageKey(UsageKind.UNUSED, team=bounded(team)), max(0, share - self._guaranteed.get(team, 0)), now)

    def _change(self, key: UsageKey, gpus: Units, now: float) -> None:
        self._set(key, self._levels.get(key, 0) + gpus, now)
        if key.kind is UsageKind.HELD_GUARANTEED:
            self._guaranteed[key.team] = self._guaranteed.get(key.team, 0) + gpus

    def _set(self, key: UsageKey, gpus: Units, now: float) -> None:
        self._settle(key, now)
        if gpus:
            self._levels[key] = gpus
            self._since.setdefault(key, now)
            self.totals.setdefault(key._replace(user=""), 0.0)  # a series starts at 0, as `increase` requires
        else:
            self._levels.pop(key, None)
            self._since.pop(key, None)

    def _settle(self, key: UsageKey, now: float) -> None:
        """Add what a level amounts to since it was last added; a clock that went back adds nothing."""
        if key in self._levels:
            self._spread(key, self._levels[key], self._since[key], now)
            self._since[key] = now

    def _spread(self, key: UsageKey, gpus: Units, start: float, end: float, *, is_live: bool = True) -> None:
        while start < end:
            interval = interval_of(start)
            until = min(end, interval + INTERVAL_SECONDS)
            self._add(key, float(gpus / ONE_GPU) * (until - start), interval, is_live=is_live)
            start = until

    def _add(self, key: UsageKey, amount: float, interval: int, *, is_live: bool = True) -> None:
        if is_live:
            total = key._replace(user="")
            self.totals[total] = self.totals.get(total, 0.0) + amount
        interval = max(interval, self._written_before)
        if key.user:
            users = self._users.setdefault((interval, key.team), set())
            if key.user not in users and len(users) >= MAX_USERS:
                key = key._replace(user=OTHERS)
            else:
                users.add(key.user)
        amounts = self._intervals.get(interval)
        if amounts is None:
            amounts = self._intervals[interval] = {}
            self._drop_oldest()
        amounts[key] = amounts.get(key, 0.0) + amount

    def _drop_oldest(self) -> None:
        while len(self._intervals) > MAX_INTERVALS:
            oldest = min(self._intervals)
            self.dropped += len(self._intervals[oldest])
            self.drop_before(oldest + INTERVAL_SECONDS)


def holding_of(uid: Uid, world: World) -> _Holding | None:
    """Return what a pod counts as now; None if it is gone, or admitted and not seen yet."""
    if (waiting := world.waiting.get(uid)) is not None:
        key = UsageKey(UsageKind.WAITING, bounded(waiting.team), bounded(waiting.user or ""))
        gpus = waiting.pod.demand.gpus
        gang = None if waiting.pod.gang is None else waiting.pod.gang.id
        return _Holding(key, gpus, None, gang, waiting.created) if gpus else None
    pod, entry = world.pod(uid), world.entry_of(uid)
    if pod is None or entry is None or entry.is_reserved or not entry.charge.gpus:
        return None
    team, user = bounded(entry.charge.team), bounded(entry.charge.user or "")
    if pod.node is None:
        return _Holding(UsageKey(UsageKind.WAITING, team, user), entry.charge.gpus, None, pod.gang, pod.created)
    node = world.fleet.get(pod.node)
    is_guaranteed = entry.is_unlabeled or entry.charge.tier is Tier.GUARANTEED  # as on the ledger
    kind = UsageKind.HELD_GUARANTEED if is_guaranteed else UsageKind.HELD_PREEMPTIBLE
    key = UsageKey(kind, team, user, bounded(NO_MODEL if node is None else node.model))
    idle_since = pod.idle_since if world.policy.idle is not None else 0
    return _Holding(key, entry.charge.gpus, pod.node, pod.gang, pod.created, idle_since)


def _no_start(_start: Start) -> None:
    return


def department_paths(policy: Policy) -> dict[str, str]:
    """Return the path of departments above each team, the highest first; "" for teams without any."""
    return dict(_paths(policy))


def _paths(policy: Policy) -> Iterator[tuple[str, str]]:
    for team in policy.teams:
        yield team.name, "/".join(each.name for each in reversed(team.departments))
