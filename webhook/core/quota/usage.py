"""What a team uses.

In which ledger object the charges of a team are written: the team's own, or that of a department.

All teams below a department with a limit share one object, so that one compare-and-swap guards every limit. A change of
policy moves a team from one object to another while replicas charge pods, some of them by the older policy. At any time
at most one object is open for charges of a team:

- The team's own record has the `epoch` of its last move, odd while the charges go to the department `home`. Its own
  object is open while the epoch is even.
- The record of a department has the epoch of each of its `members`; it is open for those whose epoch is odd.

A team moves in by two writes: its own record closes with the next odd epoch, then the department admits that epoch. It
moves out by two: the department closes the epoch, by the next even one, then the team's own record opens with that.
An epoch that was closed is never opened again, so a replica that acts late changes nothing. Any replica may do the
second write. Charges of earlier objects stay there until they end or are seen: `left` names these objects, so that
a replica charges nothing before its view of them is recent enough.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from webhook.core.model.amounts import ANY_MODEL, DepartmentName, GpuModel, TeamName, Uid, Units, User, add_to
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.quota.shares import DepartmentUsage, Holder, HolderDetails, Holders, KeptRoom

_NO_MEMBERS: Final[Mapping[TeamName, int]] = {}
_NONE_LEFT: Final[Mapping[DepartmentName, int]] = {}
_PREFIX: Final = "department "


class Moves(NamedTuple):
    """The moves in one record: `home`, `epoch` and `left` in a team's own, `members` in a department's.

    `left` has the closing epoch in the objects of departments that may still hold charges of the team.
    """

    epoch: int = 0
    home: DepartmentName | None = None
    left: Mapping[DepartmentName, int] = _NONE_LEFT
    members: Mapping[TeamName, int] = _NO_MEMBERS

    @property
    def is_away(self) -> bool:
        """Whether the team's charges go to a department's object."""
        return self.epoch % 2 == 1

    def is_open_for(self, team: TeamName) -> bool:
        """Whether the department's object takes charges of a team."""
        return self.members.get(team, 0) % 2 == 1

    def sent(self, home: DepartmentName, *, epoch: int) -> "Moves":
        """Close a team's own record: its charges go to a department from now on."""
        return self if self.is_away or epoch <= self.epoch else self._replace(epoch=epoch, home=home)

    def joined(self, team: TeamName, *, epoch: int) -> "Moves":
        """Open a department's record for a team, unless this or a later epoch was opened or closed before."""
        return self if self.members.get(team, 0) >= epoch else self._with_member(team, epoch)

    def closed(self, team: TeamName, *, epoch: int) -> "Moves":
        """Close a department's record for a team, if that epoch is still open."""
        is_open = self.is_open_for(team) and self.members[team] == epoch
        return self._with_member(team, epoch + 1) if is_open else self

    def returned(self, *, epoch: int) -> "Moves":
        """Open a team's own record once the department closed it with this epoch."""
        if not self.is_away or self.home is None or epoch <= self.epoch:
            return self
        return self._replace(epoch=epoch, home=None, left={**self.left, self.home: epoch})

    def settled(self, department: DepartmentName, *, epoch: int) -> "Moves":
        """Forget a department that no longer holds charges of the team."""
        if self.left.get(department) != epoch:
            return self
        return self._replace(left={name: each for name, each in self.left.items() if name != department})

    def after(self, before: "Moves") -> "Moves":
        """Return the later state of each part: an object that was deleted by hand must not open an epoch again."""
        late = {team: epoch for team, epoch in before.members.items() if epoch > self.members.get(team, 0)}
        own = before if before.epoch > self.epoch else self
        return self if own is self and not late else own._replace(members={**self.members, **late})

    def _with_member(self, team: TeamName, epoch: int) -> "Moves":
        return self._replace(members={**self.members, team: epoch})


NO_MOVES: Final = Moves()


def department_ledger(name: DepartmentName) -> TeamName:
    """Return the name of a department's ledger among those of teams: a space keeps it apart from every team."""
    return TeamName(_PREFIX + name)


def department_of(ledger: TeamName) -> DepartmentName | None:
    """Return the department of a ledger; None for a team's own."""
    return DepartmentName(ledger.removeprefix(_PREFIX)) if ledger.startswith(_PREFIX) else None


# A team's usage: the charge of each pod, with sums that are always exact.
#
# An entry is `reserved` from the moment the pod's creation is allowed until the pod itself is seen, then `used`. The
# caller decides when an entry may leave: only on evidence.


_K = TypeVar("_K", bound=str)

_REPLICA_SET: Final = "/ReplicaSet/"
_REVISIONS: Final = 16
"""ReplicaSets of one Deployment that are looked at: it mostly has two with pods, and a tenant makes any number."""

_RANKED_CHANGES: Final = 1024
"""Changes after which the order of holders is dropped if no refusal asked for it: it costs each charge 10 us."""


@dataclass(frozen=True, slots=True)
class UsageEntry:
    """One pod's charge. `holder` is the name of the controller, or of the bare pod.

    `is_unlabeled`: the pod bypassed the webhook, so it has no tier; it counts against the guaranteed share.
    `is_waiting`: it is on no node yet. `is_leaving`: it is deleted. `created` is in seconds of Unix time, 0 where that
    is not known.
    """

    charge: Charge
    holder: str
    is_reserved: bool = False
    is_unlabeled: bool = False
    is_waiting: bool = False
    is_leaving: bool = False
    created: int = 0

    @property
    def lingers(self) -> bool:
        """Whether it is what a pod deleted by force left: its node may still run it."""
        return self.is_reserved and self.is_leaving

    @property
    def counts_as_guaranteed(self) -> bool:
        """Whether it counts against the guaranteed share."""
        return self.charge.tier is Tier.GUARANTEED or self.is_unlabeled


class TeamUsage:
    """One team's charges: entries by pod UID and their sums, in GPU units.

    `levels` are the departments above the team, the nearest first: each change reaches them, too.
    """

    __slots__ = (
        "_by_model",
        "_by_user",
        "_changes_unasked",
        "_details",
        "_entries",
        "_guaranteed_by_model",
        "_of_known",
        "_rankings",
        "_revisions",
        "changes",
        "guaranteed",
        "kept",
        "levels",
        "lingered",
        "lingering",
        "lingering_pods",
        "reserved",
        "total",
        "waiting",
    )

    def __init__(self, levels: tuple[DepartmentUsage, ...] = ()) -> None:
        self.levels = levels
        self._entries: dict[Uid, UsageEntry] = {}
        self._details: dict[str, HolderDetails] = {}
        self._revisions: dict[str, dict[str, None]] = {}  # the ReplicaSets of a name up to its last hyphen
        self._by_user: dict[User, Units] = {}
        self._of_known: Units = 0
        self._by_model: dict[GpuModel, Units] = {}
        self._guaranteed_by_model: dict[GpuModel, Units] = {}
        self._rankings: _Rankings | None = None
        self._changes_unasked = 0
        self.kept = KeptRoom()
        self.changes = 0  # how often a charge was added or subtracted
        self.total: Units = 0
        self.reserved: Units = 0
        self.guaranteed: Units = 0
        self.waiting: Units = 0
        self.lingering: Units = 0  # of pods that were deleted by force, a part of what is reserved
        self.lingering_pods = 0
        self.lingered: Units = 0  # the same, with those whose charges ended a moment ago

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, uid: Uid) -> UsageEntry | None:
        """Find a pod's entry."""
        return self._entries.get(uid)

    def lingering_uids(self) -> Iterator[Uid]:
        """Yield the charges that pods deleted by force left."""
        return (uid for uid, entry in self._entries.items() if entry.lingers) if self.lingering_pods else iter(())

    @property
    def used(self) -> Units:
        """The units of pods that exist."""
        return self.total - self.reserved

    @property
    def preemptible(self) -> Units:
        """The units of pods that may be evicted."""
        return self.total - self.guaranteed

    def user(self, user: User | None) -> Units:
        """Return the units of one user's pods in this team; for None, of all pods whose user is not known."""
        return self.total - self._of_known if user is None else self._by_user.get(user, 0)

    def model(self, model: GpuModel) -> Units:
        """Return the units charged to one GPU model, and those that may still end on it."""
        return self._by_model.get(model, 0) + self._by_model.get(ANY_MODEL, 0)

    def guaranteed_model(self, model: GpuModel) -> Units:
        """Return the guaranteed units charged to one GPU model."""
        return self._guaranteed_by_model.get(model, 0)

    def largest_holders(self, count: int = 3) -> list[tuple[str, Units]]:
        """Return the largest holders of GPUs, the largest first, ties by name."""
        return self._ranked().team.largest(count)

    def largest(
        self, count: int, *, user: User | None = None, model: GpuModel | None = None, is_guaranteed: bool = False
    ) -> list[Holder]:
        """Return details of the largest holders in the team, of one user, of one model or of the guaranteed share."""
        ranked = self._ranked()
        if is_guaranteed:
            found = ranked.guaranteed.largest(count) if model is None else _of(ranked.guaranteed_model, model, count)
        elif user is not None:
            found = _of(ranked.user, user, count)
        elif model is not None:
            found = ranked.on_model(model, count)
        else:
            found = ranked.team.largest(count)
        return [self._with_details(name, gpus) for name, gpus in found]

    def other_revisions(self, holder: str) -> list[tuple[str, Units]]:
        """Return the other ReplicaSets of a ReplicaSet's Deployment that hold GPUs, with these: a few of them."""
        names = islice(self._revisions.get(holder.rpartition("-")[0], ()), _REVISIONS)
        return [(name, self._details[name].gpus) for name in names if name != holder]

    def keep_room(self, team: TeamName, gpus: Units, *, line: Units, share: Units) -> None:
        """Keep room of the team's limit, and of those above it, for waiting pods of so many units (0: none).

        `line` are the units of all of its queued pods: for them only what deleted pods leave is kept. `share` is the
        team's guaranteed share: no more is kept than what is left of it.
        """
        for kept in (self.kept, *(level.kept for level in self.levels)):
            kept.set(team, gpus, line=line, share=share, usage=self)

    def linger(self, gpus: Units) -> None:
        """Add so many units to what pods deleted by force hold, or (negative) held until a moment ago."""
        self.lingered += gpus
        for level in self.levels:
            level.lingered += gpus

    def emptied(self) -> "TeamUsage":
        """Return the usage of the same team if neither it nor any other held anything."""
        return TeamUsage(tuple(DepartmentUsage(level.department) for level in self.levels))

    def _ranked(self) -> "_Rankings":
        self._changes_unasked = 0
        if self._rankings is None:
            self._rankings = _Rankings(self._entries.values())
        return self._rankings

    def _with_details(self, name: str, gpus: Units) -> Holder:
        details = self._details[name]
        return Holder(
            name,
            gpus,
            details.user,
            details.since,
            is_waiting=details.waiting == details.gpus,
            is_leaving=details.leaving == details.gpus,
        )

    def entries(self) -> Iterator[tuple[Uid, UsageEntry]]:
        """Return all entries by pod UID."""
        yield from self._entries.items()

    def charge(self, uid: Uid, entry: UsageEntry) -> None:
        """Put a pod on the book; the same UID again replaces its entry, so a repeated call charges once."""
        self.release(uid)
        self._entries[uid] = entry
        self._add(entry, 1)

    def release(self, uid: Uid) -> None:
        """Take a pod off the book; one that is not there changes nothing."""
        if (entry := self._entries.pop(uid, None)) is not None:
            self._add(entry, -1)

    def _add(self, entry: UsageEntry, sign: int) -> None:
        charge = entry.charge
        gpus = sign * charge.gpus
        self.changes += 1
        self.total += gpus
        if entry.is_reserved:
            self._add_reserved(entry, gpus, sign)
        if entry.is_waiting:
            self.waiting += gpus
        counts_as_guaranteed = entry.counts_as_guaranteed
        if counts_as_guaranteed:
            self.guaranteed += gpus
        if charge.user is not None:
            add_to(self._by_user, charge.user, gpus)
            self._of_known += gpus
        if charge.model is not None:
            add_to(self._by_model, charge.model, gpus)
            if counts_as_guaranteed:
                add_to(self._guaranteed_by_model, charge.model, gpus)
        for level in self.levels:
            level.change(
                charge,
                gpus,
                is_reserved=entry.is_reserved,
                is_lingering=entry.lingers,
                is_waiting=entry.is_waiting,
                is_guaranteed=counts_as_guaranteed,
            )
        self._update_details(entry, sign, gpus)
        if self._rankings is not None:
            self._changes_unasked += 1
            if self._changes_unasked > _RANKED_CHANGES:
                self._rankings = None
            else:
                self._rankings.add(entry, gpus)

    def _add_reserved(self, entry: UsageEntry, gpus: Units, sign: int) -> None:
        self.reserved += gpus
        if entry.lingers:
            self.lingering += gpus
            self.lingering_pods += sign
            self.linger(gpus)

    def _set_revision(self, holder: str, *, is_there: bool) -> None:
        if _REPLICA_SET not in holder:
            return
        name = holder.rpartition("-")[0]
        revisions = self._revisions.setdefault(name, {})
        if is_there:
            revisions[holder] = None
        elif len(revisions) > 1:
            del revisions[holder]
        else:
            del self._revisions[name]

    def _update_details(self, entry: UsageEntry, sign: int, gpus: Units) -> None:
        details = self._details.get(entry.holder)
        if details is None:
            details = self._details[entry.holder] = HolderDetails()
            self._set_revision(entry.holder, is_there=True)
        details.pods += sign
        if not details.pods:
            del self._details[entry.holder]
            self._set_revision(entry.holder, is_there=False)
            return
        details.gpus += gpus
        if entry.is_waiting and not entry.is_reserved:
            details.waiting += gpus
        if entry.is_leaving:
            details.leaving += gpus
        if sign > 0:
            if entry.charge.user is not None:
                details.user = entry.charge.user
            if entry.created and (not details.since or entry.created < details.since):
                details.since = entry.created


EMPTY_USAGE = TeamUsage()
"""The usage of a team without pods; never written to."""


class _Rankings:
    """Holders by what each limit counts, in GPU units."""

    __slots__ = ("guaranteed", "guaranteed_model", "model", "team", "user")

    def __init__(self, entries: Iterable[UsageEntry]) -> None:
        self.team = Holders()
        self.guaranteed = Holders()
        self.user: dict[User, Holders] = {}
        self.model: dict[GpuModel, Holders] = {}
        self.guaranteed_model: dict[GpuModel, Holders] = {}
        for entry in entries:
            self.add(entry, entry.charge.gpus)

    def add(self, entry: UsageEntry, gpus: Units) -> None:
        """Add an entry's GPUs to the sums of its holder; negative ones where the entry leaves."""
        name, charge = entry.holder, entry.charge
        self.team.change(name, gpus)
        if charge.user is not None:
            _rank(self.user, charge.user, name, gpus)
        if charge.model is not None:
            _rank(self.model, charge.model, name, gpus)
        if entry.counts_as_guaranteed:
            self.guaranteed.change(name, gpus)
            if charge.model is not None:
                _rank(self.guaranteed_model, charge.model, name, gpus)

    def on_model(self, model: GpuModel, count: int) -> list[tuple[str, Units]]:
        """Return the largest holders on a model, including their units that may still end on it."""
        kinds = [held for key in (model, ANY_MODEL) if (held := self.model.get(key)) is not None]
        names = {name for held in kinds for name, _ in held.largest(count)}
        sums = [(name, sum(held.of(name) for held in kinds)) for name in names]
        return sorted(sums, key=lambda item: (-item[1], item[0]))[:count]


def _rank(kinds: dict[_K, Holders], key: _K, name: str, gpus: Units) -> None:
    held = kinds.get(key)
    if held is None:
        held = kinds[key] = Holders()
    held.change(name, gpus)
    if not len(held):
        del kinds[key]


def _of(kinds: dict[_K, Holders], key: _K, count: int) -> list[tuple[str, Units]]:
    held = kinds.get(key)
    return [] if held is None else held.largest(count)
