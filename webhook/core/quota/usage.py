"""The ledger's rules: what a team has taken, entry by entry, in sums that are always exact.

A Book is one team's page. An entry is `reserved` from the moment its creation was allowed until the pod itself is
seen, then `used`. Whoever holds the book decides when an entry may leave: only on evidence.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from webhook.core.model.amount import Units
from webhook.core.model.decision import Charge
from webhook.core.model.names import ANY_MODEL, GpuModel, Uid, User
from webhook.core.model.tier import Tier
from webhook.core.quota.holders import Holder, Holders, Holding

_K = TypeVar("_K", bound=str)

_RANKED_CHANGES: Final = 1024
"""Changes after which the order of holders is dropped if no refusal asked for it: it costs each charge 10 us."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One pod's charge. `holder` names who a person would look for: the controller, or the bare pod.

    `is_unlabeled`: the pod never passed the gate, so nothing says its tier; it counts against the guaranteed share.
    `is_waiting`: it is on no node yet. `created` is in seconds of Unix time, 0 where that is not known.
    """

    charge: Charge
    holder: str
    is_reserved: bool = False
    is_unlabeled: bool = False
    is_waiting: bool = False
    created: int = 0

    @property
    def counts_as_guaranteed(self) -> bool:
        """Whether it counts against the guaranteed share."""
        return self.charge.tier is Tier.GUARANTEED or self.is_unlabeled


class TeamUsage:
    """One team's charges: entries by pod UID and their sums, in GPU units."""

    __slots__ = (
        "_by_model",
        "_by_user",
        "_changes_unasked",
        "_entries",
        "_guaranteed_by_model",
        "_holdings",
        "_rankings",
        "guaranteed",
        "reserved",
        "total",
        "waiting",
    )

    def __init__(self) -> None:
        self._entries: dict[Uid, Entry] = {}
        self._holdings: dict[str, Holding] = {}
        self._by_user: dict[User, Units] = {}
        self._by_model: dict[GpuModel, Units] = {}
        self._guaranteed_by_model: dict[GpuModel, Units] = {}
        self._rankings: _Rankings | None = None
        self._changes_unasked = 0
        self.total: Units = 0
        self.reserved: Units = 0
        self.guaranteed: Units = 0
        self.waiting: Units = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, uid: Uid) -> Entry | None:
        """Find a pod's entry."""
        return self._entries.get(uid)

    @property
    def used(self) -> Units:
        """What pods that were seen hold."""
        return self.total - self.reserved

    @property
    def preemptible(self) -> Units:
        """What is borrowed."""
        return self.total - self.guaranteed

    def user(self, user: User) -> Units:
        """What one user's pods hold in this team."""
        return self._by_user.get(user, 0)

    def model(self, model: GpuModel) -> Units:
        """What is charged to one GPU model, and what may still end on it."""
        return self._by_model.get(model, 0) + self._by_model.get(ANY_MODEL, 0)

    def guaranteed_model(self, model: GpuModel) -> Units:
        """What is charged as guaranteed to one GPU model."""
        return self._guaranteed_by_model.get(model, 0)

    def largest_holders(self, count: int = 3) -> list[tuple[str, Units]]:
        """Name the holders of the most GPUs, the largest first, ties by name."""
        return self._ranked().team.largest(count)

    def largest(
        self, count: int, *, user: User | None = None, model: GpuModel | None = None, is_guaranteed: bool = False
    ) -> list[Holder]:
        """Describe the holders of the most GPUs of the team, of one user, of one model or of the guaranteed share."""
        ranked = self._ranked()
        if is_guaranteed:
            found = ranked.guaranteed.largest(count) if model is None else _of(ranked.guaranteed_model, model, count)
        elif user is not None:
            found = _of(ranked.user, user, count)
        elif model is not None:
            found = ranked.on_model(model, count)
        else:
            found = ranked.team.largest(count)
        return [self._described(name, gpus) for name, gpus in found]

    def _ranked(self) -> "_Rankings":
        self._changes_unasked = 0
        if self._rankings is None:
            self._rankings = _Rankings(self._entries.values())
        return self._rankings

    def _described(self, name: str, gpus: Units) -> Holder:
        holding = self._holdings[name]
        return Holder(name, gpus, holding.user, holding.since, holding.waiting == holding.gpus)

    def entries(self) -> Iterator[tuple[Uid, Entry]]:
        """Go through all entries."""
        yield from self._entries.items()

    def charge(self, uid: Uid, entry: Entry) -> None:
        """Put a pod on the book; the same UID again replaces its entry, so a repeated call charges once."""
        self.release(uid)
        self._entries[uid] = entry
        self._add(entry, 1)

    def release(self, uid: Uid) -> None:
        """Take a pod off the book; one that is not there changes nothing."""
        if (entry := self._entries.pop(uid, None)) is not None:
            self._add(entry, -1)

    def _add(self, entry: Entry, sign: int) -> None:
        charge = entry.charge
        gpus = sign * charge.gpus
        self.total += gpus
        if entry.is_reserved:
            self.reserved += gpus
        if entry.is_waiting:
            self.waiting += gpus
        counts_as_guaranteed = entry.counts_as_guaranteed
        if counts_as_guaranteed:
            self.guaranteed += gpus
        if charge.user is not None:
            _change(self._by_user, charge.user, gpus)
        if charge.model is not None:
            _change(self._by_model, charge.model, gpus)
            if counts_as_guaranteed:
                _change(self._guaranteed_by_model, charge.model, gpus)
        self._describe(entry, sign, gpus)
        if self._rankings is not None:
            self._changes_unasked += 1
            if self._changes_unasked > _RANKED_CHANGES:
                self._rankings = None
            else:
                self._rankings.add(entry, gpus)

    def _describe(self, entry: Entry, sign: int, gpus: Units) -> None:
        holding = self._holdings.get(entry.holder)
        if holding is None:
            holding = self._holdings[entry.holder] = Holding()
        holding.pods += sign
        if not holding.pods:
            del self._holdings[entry.holder]
            return
        holding.gpus += gpus
        if entry.is_waiting and not entry.is_reserved:
            holding.waiting += gpus
        if sign > 0:
            if entry.charge.user is not None:
                holding.user = entry.charge.user
            if entry.created and (not holding.since or entry.created < holding.since):
                holding.since = entry.created


EMPTY_USAGE = TeamUsage()
"""What a team without any pod looks like; never written to."""


class _Rankings:
    """Holders by what each limit counts, in GPU units."""

    __slots__ = ("guaranteed", "guaranteed_model", "model", "team", "user")

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.team = Holders()
        self.guaranteed = Holders()
        self.user: dict[User, Holders] = {}
        self.model: dict[GpuModel, Holders] = {}
        self.guaranteed_model: dict[GpuModel, Holders] = {}
        for entry in entries:
            self.add(entry, entry.charge.gpus)

    def add(self, entry: Entry, gpus: Units) -> None:
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
        """Name the holders on a model, with what of theirs may still end on it."""
        kinds = [held for key in (model, ANY_MODEL) if (held := self.model.get(key)) is not None]
        names = {name for held in kinds for name, _ in held.largest(count)}
        sums = [(name, sum(held.of(name) for held in kinds)) for name in names]
        return sorted(sums, key=lambda item: (-item[1], item[0]))[:count]


def _change(sums: dict[_K, Units], key: _K, gpus: Units) -> None:
    left = sums.get(key, 0) + gpus
    if left:
        sums[key] = left
    else:
        sums.pop(key, None)


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
