"""Measures usage: adds up GPU-seconds from the changes of a world, exactly, between any two of them.

Pure: the time is an argument, in seconds of Unix time. A pod counts from the moment a change is noted to the moment of
the next one. Amounts are kept by interval until the caller drops them, so that a failed write loses nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Final, NamedTuple

from webhook.core.explain.cluster_use import ClusterUse, PodsOnNodes, PodUse
from webhook.core.explain.job_waits import Start
from webhook.core.model.amount import ONE_GPU, Units
from webhook.core.model.names import GangId, NodeName, TeamName, Uid
from webhook.core.model.node import NO_MODEL
from webhook.core.model.policy import Policy
from webhook.core.model.tier import Tier
from webhook.core.world.world import World
from webhook.history.job_starts import JobPod, JobStarts
from webhook.history.usage_row import (
    INTERVAL_SECONDS,
    MAX_USERS,
    OF_USE,
    OTHERS,
    UsageKey,
    UsageKind,
    UsageRow,
    bounded,
    interval_of,
    started_key,
)

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
