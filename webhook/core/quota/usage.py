"""The ledger's rules: what a team has taken, entry by entry, in sums that are always exact.

A Book is one team's page. An entry is `reserved` from the moment its creation was allowed until the pod itself is
seen, then `used`. Whoever holds the book decides when an entry may leave: only on evidence.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from webhook.core.model.amount import Units
from webhook.core.model.decision import Charge
from webhook.core.model.names import ANY_MODEL, GpuModel, Uid, User
from webhook.core.model.tier import Tier
from webhook.core.quota.holders import Holder, Holders, Holding

_K = TypeVar("_K", bound=str)


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


class TeamUsage:
    """One team's charges: entries by pod UID and their sums, in GPU units."""

    __slots__ = (
        "_by_model",
        "_by_user",
        "_entries",
        "_guaranteed",
        "_guaranteed_by_model",
        "_holders",
        "_holdings",
        "guaranteed",
        "reserved",
        "total",
        "waiting",
    )

    def __init__(self) -> None:
        self._entries: dict[Uid, Entry] = {}
        self._holdings: dict[str, Holding] = {}
        self._holders = Holders()
        self._guaranteed = Holders()
        self._by_user: dict[User, Holders] = {}
        self._by_model: dict[GpuModel, Holders] = {}
        self._guaranteed_by_model: dict[GpuModel, Holders] = {}
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
        return _total(self._by_user, user)

    def model(self, model: GpuModel) -> Units:
        """What is charged to one GPU model, and what may still end on it."""
        return _total(self._by_model, model) + _total(self._by_model, ANY_MODEL)

    def guaranteed_model(self, model: GpuModel) -> Units:
        """What is charged as guaranteed to one GPU model."""
        return _total(self._guaranteed_by_model, model)

    def largest_holders(self, count: int = 3) -> list[tuple[str, Units]]:
        """Name the holders of the most GPUs, the largest first, ties by name."""
        return self._holders.largest(count)

    def largest(
        self, count: int, *, user: User | None = None, model: GpuModel | None = None, is_guaranteed: bool = False
    ) -> list[Holder]:
        """Describe the holders of the most GPUs of the team, of one user, of one model or of the guaranteed share."""
        if is_guaranteed:
            found = self._guaranteed.largest(count) if model is None else _of(self._guaranteed_by_model, model, count)
        elif user is not None:
            found = _of(self._by_user, user, count)
        elif model is not None:
            found = self._on_model(model, count)
        else:
            found = self._holders.largest(count)
        return [self._described(name, gpus) for name, gpus in found]

    def _on_model(self, model: GpuModel, count: int) -> list[tuple[str, Units]]:
        """Name the holders on a model, with what of theirs may still end on it."""
        kinds = [held for key in (model, ANY_MODEL) if (held := self._by_model.get(key)) is not None]
        names = {name for held in kinds for name, _ in held.largest(count)}
        sums = [(name, sum(held.of(name) for held in kinds)) for name in names]
        return sorted(sums, key=lambda item: (-item[1], item[0]))[:count]

    def _described(self, name: str, gpus: Units) -> Holder:
        holding = self._holdings[name]
        is_waiting = holding.waiting == self._holders.of(name)
        return Holder(name, gpus, holding.user, holding.since, is_waiting)

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
        counts_as_guaranteed = charge.tier is Tier.GUARANTEED or entry.is_unlabeled
        if counts_as_guaranteed:
            self.guaranteed += gpus
        self._describe(entry, sign)
        name = entry.holder
        self._holders.change(name, gpus)
        if counts_as_guaranteed:
            self._guaranteed.change(name, gpus)
        if charge.user is not None:
            _change(self._by_user, charge.user, name, gpus)
        if charge.model is not None:
            _change(self._by_model, charge.model, name, gpus)
            if counts_as_guaranteed:
                _change(self._guaranteed_by_model, charge.model, name, gpus)

    def _describe(self, entry: Entry, sign: int) -> None:
        holding = self._holdings.get(entry.holder)
        if holding is None:
            holding = self._holdings[entry.holder] = Holding()
        holding.pods += sign
        if not holding.pods:
            del self._holdings[entry.holder]
            return
        if entry.is_waiting and not entry.is_reserved:
            holding.waiting += sign * entry.charge.gpus
        if sign > 0:
            if entry.charge.user is not None:
                holding.user = entry.charge.user
            if entry.created and (not holding.since or entry.created < holding.since):
                holding.since = entry.created


EMPTY_USAGE = TeamUsage()
"""What a team without any pod looks like; never written to."""


def _change(kinds: dict[_K, Holders], key: _K, name: str, gpus: Units) -> None:
    held = kinds.get(key)
    if held is None:
        held = kinds[key] = Holders()
    held.change(name, gpus)
    if not len(held):
        del kinds[key]


def _total(kinds: dict[_K, Holders], key: _K) -> Units:
    held = kinds.get(key)
    return 0 if held is None else held.total


def _of(kinds: dict[_K, Holders], key: _K, count: int) -> list[tuple[str, Units]]:
    held = kinds.get(key)
    return [] if held is None else held.largest(count)
