"""A team's usage: the charge of each pod, with sums that are always exact.

An entry is `reserved` from the moment the pod's creation is allowed until the pod itself is seen, then `used`. The
caller decides when an entry may leave: only on evidence.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from webhook.core.model.amount import Units
from webhook.core.model.decision import Charge
from webhook.core.model.names import ANY_MODEL, GpuModel, Uid, User
from webhook.core.model.tier import Tier
from webhook.core.quota.holders import Holder, HolderDetails, Holders

_K = TypeVar("_K", bound=str)


@dataclass(frozen=True, slots=True)
class Entry:
    """One pod's charge. `holder` is the object a person would look for: the controller, or the bare pod.

    `is_unlabeled`: the pod bypassed the webhook, so its tier is unknown; it counts against the guaranteed share.
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
        "_details",
        "_entries",
        "_guaranteed",
        "_guaranteed_by_model",
        "_holders",
        "guaranteed",
        "reserved",
        "total",
        "waiting",
    )

    def __init__(self) -> None:
        self._entries: dict[Uid, Entry] = {}
        self._details: dict[str, HolderDetails] = {}
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
        """Return a pod's entry; None where it has none."""
        return self._entries.get(uid)

    @property
    def used(self) -> Units:
        """Return the units of pods that were seen."""
        return self.total - self.reserved

    @property
    def preemptible(self) -> Units:
        """Return the borrowed units."""
        return self.total - self.guaranteed

    def user(self, user: User) -> Units:
        """Return the units of one user's pods in this team."""
        return _total(self._by_user, user)

    def model(self, model: GpuModel) -> Units:
        """Return the units charged to one GPU model, and those that may still end on it."""
        return _total(self._by_model, model) + _total(self._by_model, ANY_MODEL)

    def guaranteed_model(self, model: GpuModel) -> Units:
        """Return the guaranteed units charged to one GPU model."""
        return _total(self._guaranteed_by_model, model)

    def largest_holders(self, count: int = 3) -> list[tuple[str, Units]]:
        """Return the largest holders of GPUs, the largest first, ties by name."""
        return self._holders.largest(count)

    def largest(
        self, count: int, *, user: User | None = None, model: GpuModel | None = None, is_guaranteed: bool = False
    ) -> list[Holder]:
        """Return details of the largest holders in the team, of one user, of one model or of the guaranteed share."""
        if is_guaranteed:
            found = self._guaranteed.largest(count) if model is None else _top(self._guaranteed_by_model, model, count)
        elif user is not None:
            found = _top(self._by_user, user, count)
        elif model is not None:
            found = self._on_model(model, count)
        else:
            found = self._holders.largest(count)
        return [self._with_details(name, gpus) for name, gpus in found]

    def _on_model(self, model: GpuModel, count: int) -> list[tuple[str, Units]]:
        """Return the largest holders on a model, including their units that may still end on it."""
        sums_by_key = [holders for key in (model, ANY_MODEL) if (holders := self._by_model.get(key)) is not None]
        names = {name for holders in sums_by_key for name, _ in holders.largest(count)}
        sums = [(name, sum(holders.of(name) for holders in sums_by_key)) for name in names]
        return sorted(sums, key=lambda item: (-item[1], item[0]))[:count]

    def _with_details(self, name: str, gpus: Units) -> Holder:
        details = self._details[name]
        is_waiting = details.waiting == self._holders.of(name)
        return Holder(name, gpus, details.user, details.since, is_waiting)

    def entries(self) -> Iterator[tuple[Uid, Entry]]:
        """Return all entries by pod UID."""
        yield from self._entries.items()

    def charge(self, uid: Uid, entry: Entry) -> None:
        """Add a pod's entry; the same UID again replaces its entry, so a repeated call charges once."""
        self.release(uid)
        self._entries[uid] = entry
        self._add(entry, 1)

    def release(self, uid: Uid) -> None:
        """Remove a pod's entry; an unknown pod changes nothing."""
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
        self._update_details(entry, sign)
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

    def _update_details(self, entry: Entry, sign: int) -> None:
        details = self._details.get(entry.holder)
        if details is None:
            details = self._details[entry.holder] = HolderDetails()
        details.pods += sign
        if not details.pods:
            del self._details[entry.holder]
            return
        if entry.is_waiting and not entry.is_reserved:
            details.waiting += sign * entry.charge.gpus
        if sign > 0:
            if entry.charge.user is not None:
                details.user = entry.charge.user
            if entry.created and (not details.since or entry.created < details.since):
                details.since = entry.created


EMPTY_USAGE = TeamUsage()
"""The usage of a team without pods; never written to."""


def _change(sums_by_key: dict[_K, Holders], key: _K, name: str, gpus: Units) -> None:
    holders = sums_by_key.get(key)
    if holders is None:
        holders = sums_by_key[key] = Holders()
    holders.change(name, gpus)
    if not len(holders):
        del sums_by_key[key]


def _total(sums_by_key: dict[_K, Holders], key: _K) -> Units:
    holders = sums_by_key.get(key)
    return 0 if holders is None else holders.total


def _top(sums_by_key: dict[_K, Holders], key: _K, count: int) -> list[tuple[str, Units]]:
    holders = sums_by_key.get(key)
    return [] if holders is None else holders.largest(count)
