"""The ledger's rules: what a team has taken, entry by entry, in sums that are always exact.

A Book is one team's page. An entry is `reserved` from the moment its creation was allowed until the pod itself is
seen, then `used`. Whoever holds the book decides when an entry may leave: only on evidence.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nlargest
from typing import TypeVar

from webhook.core.amount import Units
from webhook.core.decision import Charge
from webhook.core.names import ANY_MODEL, GpuModel, Uid, User
from webhook.core.tier import Tier

_K = TypeVar("_K", bound=str)


@dataclass(frozen=True, slots=True)
class Entry:
    """One pod's charge. `holder` names who a person would look for: the controller, or the bare pod.

    `is_unlabelled`: the pod never passed the gate, so nothing says its tier; it counts against the guaranteed share.
    `is_waiting`: it is on no node yet.
    """

    charge: Charge
    holder: str
    is_reserved: bool = False
    is_unlabelled: bool = False
    is_waiting: bool = False


class Book:
    """One team's charges: entries by pod UID and their sums, in GPU units."""

    __slots__ = (
        "_by_holder",
        "_by_model",
        "_by_user",
        "_entries",
        "_guaranteed_by_model",
        "guaranteed",
        "reserved",
        "total",
        "waiting",
    )

    def __init__(self) -> None:
        self._entries: dict[Uid, Entry] = {}
        self._by_holder: dict[str, Units] = {}
        self._by_user: dict[User, Units] = {}
        self._by_model: dict[GpuModel, Units] = {}
        self._guaranteed_by_model: dict[GpuModel, Units] = {}
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
        return nlargest(count, sorted(self._by_holder.items()), key=lambda item: item[1])

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
        counts_as_guaranteed = charge.tier is Tier.GUARANTEED or entry.is_unlabelled
        if counts_as_guaranteed:
            self.guaranteed += gpus
        _sum(self._by_holder, entry.holder, gpus)
        if charge.user is not None:
            _sum(self._by_user, charge.user, gpus)
        if charge.model is not None:
            _sum(self._by_model, charge.model, gpus)
            if counts_as_guaranteed:
                _sum(self._guaranteed_by_model, charge.model, gpus)


EMPTY_BOOK = Book()
"""What a team without any pod looks like; never written to."""


def _sum(sums: dict[_K, Units], key: _K, amount: Units) -> None:
    left = sums.get(key, 0) + amount
    if left:
        sums[key] = left
    else:
        sums.pop(key, None)
