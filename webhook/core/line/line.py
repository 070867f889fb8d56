"""The queue as the world has it: entries of the waiting pods, kept by events, and the standing of each team."""

from collections.abc import Callable, Collection, Hashable, Iterable
from itertools import islice
from typing import Final

from webhook.core.admission.pools import allowed_pools
from webhook.core.line.entries import QueuedPod, entry_of
from webhook.core.line.gangs import GangEntries, GangLine
from webhook.core.line.order import DepartmentStanding, ModelShare, Standing, Version
from webhook.core.line.pod_queue import PastUses, PodQueue
from webhook.core.model.amounts import GangId, TeamName, Uid, Units, User
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.model.policy import NO_TEAM
from webhook.core.quota.shares import DepartmentUsage
from webhook.core.reclaim.reclaim_pods import is_protected_by
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World

TEAM: Final = "team"
USER: Final = "user"
MODEL: Final = "model"
SHARE: Final = "share"
DEPARTMENT: Final = "department"
"""The kinds of limits, the first part of their keys."""


class NeedKey:
    """What decides which nodes have room for a pod; its hash is computed once."""

    __slots__ = ("_hash", "_key")

    def __init__(self, key: Hashable) -> None:
        self._key = key
        self._hash = hash(key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NeedKey) and self._hash == other._hash and self._key == other._key


class WaitingEntries:
    """The entries of all pods that wait for their turn. Call `sync` before each pass, and `put_back` after a failure.

    Pods that have no turn (`WaitingPod.has_turn`) are left out, and those on their way: for as long as the ledger lists
    them, or they are among the caller's `active` ones, whose start is not over. `on_change` is called when there is
    something to look at. One view at a time listens to the world; `close` ends that.
    """

    def __init__(self, world: World, *, active: Collection[Uid] = frozenset()) -> None:
        self.queue = PodQueue()
        self.past = PastUses()
        self._world = world
        self._policy = world.policy
        self._edition = 0  # of the policy
        self._changed: dict[Uid, None] = dict.fromkeys(pod.uid for pod in world.waiting.all())
        self._active = active
        self._starting: set[Uid] = set()
        self._paused: set[Uid] = set()
        self.gangs = GangLine(world, paused=self._paused, is_starting=self.is_starting)
        self.on_change: Callable[[], None] = _ignore
        world.waiting.on_change = self.put_back

    def close(self) -> None:
        """Listen no longer: nothing accumulates for a view that is not synced."""
        self._world.waiting.on_change = _ignore_pod
        self._world.waiting.expected.clear()
        self.on_change = _ignore

    def put_back(self, uid: Uid) -> None:
        """Look at a pod again with the next `sync`."""
        self._changed[uid] = None
        self.on_change()

    def has_turn(self, pod: WaitingPod) -> bool:
        """Whether a pod may start when its turn comes: nothing holds it, it is not paused, and has not begun."""
        return pod.has_turn and pod.uid not in self._paused and not self.is_starting(pod.uid)

    def is_starting(self, uid: Uid) -> bool:
        """Whether a pod is charged, or its start is not over: until then another one might begin beside it."""
        return uid in self._active or self._world.is_assumed(uid)

    def pause(self, uid: Uid) -> None:
        """Give a pod no turn until `resume`, whatever happens to it."""
        self._paused.add(uid)

    def resume(self, uid: Uid) -> None:
        """Let a pod that rested have its turn again."""
        self._paused.discard(uid)
        self.put_back(uid)

    @property
    def is_synced(self) -> bool:
        """Whether `sync` has nothing to do."""
        return not self._changed

    def sync(self, *, now: int = 0, most: int | None = None) -> Iterable[Uid]:
        """Add, replace and remove the entries of the pods that changed, at `most` so many, and return these pods.

        After an edit of the policy that is all of them.
        """
        world = self._world
        if self._policy is not world.policy:
            self._policy = world.policy
            self._edition += 1
            self._changed = dict.fromkeys(pod.uid for pod in world.waiting.all())
        back = [uid for uid in self._starting if not self.is_starting(uid)]
        self._starting.difference_update(back)
        self._changed |= dict.fromkeys(back)
        changed = [*islice(self._changed, most)]
        for uid in changed:
            del self._changed[uid]
            self._sync_one(uid, now=now)
        for gang, entries in self.gangs.changed(now=now):
            self._set_gang(gang, entries)
        return changed

    def _set_gang(self, gang: GangId, entries: GangEntries) -> None:
        """Replace the entry of a gang, and add those of its members that start alone."""
        self.queue.remove(gang)
        if entries.alone is None:
            for member in self._world.waiting.of_gang(gang):
                self.queue.remove(member.uid)
        for pod in entries.alone or ():
            self.queue.add(entry_of((queued_pod(pod, self._world),)))
        if entries.together:
            self.queue.add(entry_of(queued_pod(pod, self._world)._replace(gang=gang) for pod in entries.together))

    def _sync_one(self, uid: Uid, *, now: int) -> None:
        pod, is_starting = self._world.waiting.get(uid), self.is_starting(uid)
        self.gangs.note(uid, pod, now=now)
        is_alone = uid not in self.gangs and uid not in self._paused
        if pod is not None and pod.has_turn and not is_starting and is_alone:
            self.queue.add(entry_of((queued_pod(pod, self._world),)))
            return
        self.queue.remove(uid)
        if pod is not None and is_starting:
            self._starting.add(uid)

    # -- standings

    def note_use(self, *, now: int) -> None:
        """Record what each team borrows, for the order by past use; `now` is in Unix seconds."""
        half_life = self._world.policy.queue.half_life_seconds
        if not half_life:
            self.past = PastUses()
            return
        borrowed = {team: usage.preemptible for team, usage in self._world.usage_by_team().items()}
        self.past.note(borrowed, now=now, half_life=half_life)

    def version(self, team: TeamName) -> Version:
        """Return what differs once the standing of a team, or what its users hold, has changed."""
        usage = self._world.usage(team)
        above = 0
        for level in usage.levels:
            above += level.changes
        return Version((self._edition, usage, usage.changes, self.past.average(team)), above)

    def of(self, team: TeamName) -> Standing:
        """Return a team's standing."""
        shares, usage = self._world.policy.team(team) or NO_TEAM, self._world.usage(team)
        return Standing(
            team,
            guaranteed=shares.gpus.guaranteed,
            used=usage.guaranteed,
            borrowed=usage.preemptible,
            weight=shares.weight,
            past=self.past.average(team),
            models={
                model: ModelShare(share.guaranteed, usage.guaranteed_model(model))
                for model, share in shares.models.items()
            },
            departments=tuple(_level(level) for level in usage.levels),
        )

    def held(self, team: TeamName, user: User | None) -> Units:
        """Return the GPU units of one user's pods in a team; for None, of all pods whose user is not known."""
        return self._world.usage(team).user(user)


def counted_by(limit: Hashable, world: World) -> Callable[[Charge], bool]:
    """Return whether a limit counts a charge, by its key among the limits of an entry."""
    kind, name, *user = limit if isinstance(limit, tuple) else (None, None)
    if kind == DEPARTMENT:
        names = (team.name for team in world.policy.teams if any(each.name == name for each in team.departments))
        teams = frozenset(names)
        return lambda charge: charge.team in teams
    if kind == USER:
        return lambda charge: charge.team == name and [charge.user] == user
    return lambda charge: charge.team == name


def _level(usage: DepartmentUsage) -> DepartmentStanding:
    department = usage.department
    return DepartmentStanding(
        department.gpus.guaranteed, usage.guaranteed, usage.preemptible, department.weight, department.name
    )


def _ignore() -> None:
    """Do nothing."""


def _ignore_pod(_uid: Uid) -> None:
    """Do nothing."""


def queued_pod(waiting: WaitingPod, world: World) -> QueuedPod:
    """Return a waiting pod as the queue orders it."""
    pod, team = waiting.pod, waiting.team
    pools = allowed_pools(pod, team, world).allowed
    names = frozenset(pool.name for pool in pools)
    siblings = (pod.namespace, tuple(sorted(pod.labels.items()))) if pod.topology else None
    domain = None if pod.gang is None else pod.gang.domain
    limits: list[Hashable] = [(TEAM, team)]
    if waiting.user is not None:
        limits.append((USER, team, waiting.user))
    if pod.requested_tier is Tier.GUARANTEED:
        limits.append((SHARE, team))
    shares = world.policy.team(team) or NO_TEAM
    limits.extend((DEPARTMENT, level.department.name) for level in world.usage(team).levels)
    limits.extend((MODEL, team, model) for model in shares.models)
    return QueuedPod(
        uid=waiting.uid,
        namespace=pod.namespace,
        name=pod.name,
        team=team,
        gpus=(world.with_claims(pod).demand if pod.needs_resolution else pod.demand).gpus,
        created=waiting.created,
        user=waiting.user,
        priority=waiting.priority,
        kind=NeedKey(
            (pod.demand, pod.constraints, names, pod.has_open_constraints, pod.topology, siblings, domain, pod.claims)
        ),
        requested_tier=pod.requested_tier,
        limits=tuple(limits),
        sites=names if world.policy.pools else None,
        is_evictable=not is_protected_by(world.policy.reclaim, pod.namespace, pod.labels),
    )
