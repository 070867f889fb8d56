"""One replica's session with a team's ledger object: its last read state, the charges to write next.

Pure: it neither reads nor writes the object; the caller reports the results of both. Every charge that the object may
hold is assumed in the world, so that each decision counts it. A charge leaves the world only after it left the object
and the watched pods have reached the resourceVersion up to which the object was folded.

A charge is drafted as soon as its pod is judged, also during a write. The draft is of the state that the next write is
made from: a version that another process wrote ends it, and its pods are judged again.
"""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import replace

from webhook.core.model.amounts import Namespace, TeamName, Uid
from webhook.core.quota.charges import (
    EMPTY_LEDGER_RECORD,
    UNSEEN,
    Alive,
    Evidence,
    InFlightCharge,
    LedgerRecord,
    Unseen,
)
from webhook.core.quota.usage import Moves
from webhook.core.world.world import World

_PodName = tuple[Namespace, str]


Amendment = Callable[[LedgerRecord], LedgerRecord]
"""A change of a record besides its charges; returns the same record where it does not apply."""


def _by_none_other(_: Uid) -> bool:
    return False


def _always() -> bool:
    return True


class LedgerSession:
    """Keeps a ledger object and the world consistent. `version` is the object's as last read, 0 for none.

    `is_held_by_another`: whether another object lists a charge, which therefore stays in the world.
    """

    def __init__(self, world: World, *, is_held_by_another: Callable[[Uid], bool] = _by_none_other) -> None:
        self.record = EMPTY_LEDGER_RECORD
        self.version = 0
        self.identity = ""
        self.is_stale = False
        self._world = world
        self._draft: dict[Uid, InFlightCharge] = {}
        self._sent: dict[Uid, InFlightCharge] = {}  # the draft in a write without a result yet
        self._sent_record: LedgerRecord | None = None
        self._withdrawn: dict[Uid, Callable[[], bool]] = {}  # with what says whether that still holds
        self._room_since: dict[Uid, int] = {}  # the version in which room that is kept was first seen
        self._replaced: dict[Uid, Uid] = {}  # by draft: the listed charge that ends with its write
        self._carried: dict[Uid, InFlightCharge] = {}
        self._leaving: dict[Uid, int] = {}
        self._live_reads: dict[Uid, Evidence] = {}
        self._counted: dict[_PodName, InFlightCharge] = {}  # by pod name: the one charge that counts among equal ones …
        self._duplicates: dict[Uid, InFlightCharge] = {}  # … and the others, which do not count
        self._is_in_doubt = False
        self._base = 0
        self._amendments: dict[object, Amendment] = {}
        self._is_held_by_another = is_held_by_another

    # -- reads

    def see(self, record: LedgerRecord, *, version: int, identity: str) -> None:
        """Take over the object as read or watched; an older version than the known one changes nothing.

        `identity` is the object's UID: an object that was deleted by hand and created again proves nothing about the
        charges it lacks, so they are written again.
        """
        if version <= self.version:
            if version == self.version:
                self.is_stale = False
            return
        is_other = self.identity not in ("", identity)
        self._drop_outdated_drafts(record)
        before = self.record
        if is_other:
            self._restore_moves(record, before)
        self.record = record
        self._amendments = {key: amend for key, amend in self._amendments.items() if amend(record) is not record}
        self.version, self.identity, self.is_stale, self._is_in_doubt = version, identity, False, False
        for uid, flight in record.flights.items():
            if uid in before.flights and before.flights[uid].is_promotion != flight.is_promotion:
                self._live_reads.pop(uid, None)
            self._draft.pop(uid, None)
            self._sent.pop(uid, None)
            self._replaced.pop(uid, None)
            self._leaving.pop(uid, None)
            if uid not in self._replaced.values():
                self._assume(flight)
        for uid, flight in before.flights.items():
            if uid in record.flights:
                continue
            if is_other and not self._is_ending(uid):
                self._carried[uid] = flight
            else:
                self._leaving[uid] = record.folded
                self._live_reads.pop(uid, None)
        self._room_since = {uid: self._room_since.get(uid, version) for uid, f in record.flights.items() if f.until}
        self._withdrawn = {uid: holds for uid, holds in self._withdrawn.items() if uid in record.flights}
        drafts = (*self._sent.values(), *self._draft.values())
        listed = (*record.flights.values(), *drafts, *self._duplicates.values())
        named = {_name(flight) for flight in listed}
        self._counted = {name: flight for name, flight in self._counted.items() if name in named}
        self._carried = {uid: flight for uid, flight in self._carried.items() if uid not in record.flights}

    def lose(self) -> None:
        """Record that the object was deleted by hand: the next write creates it with all its charges."""
        self._carried.update((uid, f) for uid, f in self.record.flights.items() if not self._is_ending(uid))
        self._restore_moves(EMPTY_LEDGER_RECORD, self.record)
        self.record = LedgerRecord({}, self.record.folded, self.record.turn, self.record.moves)
        self.version, self.identity, self.is_stale = 0, "", False

    def _restore_moves(self, record: LedgerRecord, before: LedgerRecord) -> None:
        """Have the next write restore the moves of an object that was deleted by hand."""
        if record.moves.after(before.moves) is not record.moves:
            self._amendments["restore"] = lambda found: with_moves(found, found.moves.after(before.moves))

    # -- judging

    def is_safe(self, reached: int) -> bool:
        """Whether charges may be judged now, with the pods watched up to this resourceVersion."""
        return not self.is_stale and self.record.is_current_at(reached)

    def shows_gang_of(self, uid: Uid, reached: int) -> bool:
        """Whether pods watched up to this resourceVersion show the gang for which room is kept, if it still is there.

        Its pods were there when its room was charged. Those that were folded since were seen by then, or are by now.
        Compares versions of two kinds, which are of one sequence where one etcd keeps both.
        """
        return self.is_safe(reached) and reached >= self._room_since.get(uid, 0)

    def drop_released(self, reached: int) -> None:
        """Drop charges that left the object, as far as the watch has come."""
        for uid in [uid for uid, folded in self._leaving.items() if folded <= reached]:
            del self._leaving[uid]
            self._release(uid)
        for flight in [*self._duplicates.values()]:
            self._swap_duplicate(flight)

    def charge(self, flight: InFlightCharge, *, replaces: Uid | None = None) -> None:
        """Assume a charge and add it to the next write, unless the object lists it already.

        One that is listed is assumed again: judging it may have dropped what was assumed for it. The same write ends
        the charge that it `replaces`; if the write fails, that one is kept.
        """
        uid = flight.pod.uid
        self._withdrawn.pop(uid, None)
        if replaces is not None and replaces in self.record.flights and not self.holds(flight):
            self._replaced[uid] = replaces
            self._world.drop_reservation(replaces)
        self._carried.pop(uid, None)
        if not self.holds(flight):
            self._leaving.pop(uid, None)
            if uid not in self._sent:
                self._draft[uid] = flight
        self._assume(flight)

    def carry(self, flight: InFlightCharge) -> None:
        """Add a charge without a waiting request to the next writes, until one of them succeeds."""
        if flight.pod.uid not in self.record.flights:
            self._carried[flight.pod.uid] = flight

    def carry_left(self, flights: Iterable[InFlightCharge], *, most: int) -> None:
        """Add what pods deleted by force left to the next writes, so that at most so many of a team are listed."""
        listed = Counter(each.charge.team for each in self.record.flights.values() if each.is_left)
        for flight in flights:
            if flight.pod.uid not in self.record.flights and listed[flight.charge.team] < most:
                listed[flight.charge.team] += 1
                self.carry(flight)

    def is_mostly_of(self, team: TeamName) -> bool:
        """Whether a team has its part of the listed charges, or more."""
        listed = Counter(each.charge.team for each in self.record.flights.values())
        return listed[team] * len(listed) >= listed.total()

    def withdraw(self, uid: Uid, *, if_still: Callable[[], bool] = _always) -> None:
        """Take back a charge that will certainly not take effect; `if_still` is asked at each write."""
        self._withdrawn[uid] = if_still

    def note(self, uid: Uid, evidence: Evidence) -> None:
        """Record the result of a live read for a pod that the watch does not show."""
        if uid in self.record.flights:
            self._live_reads[uid] = evidence

    def amend(self, key: object, amendment: Amendment) -> None:
        """Have the next writes make a change, until it is made or no longer applies; `key` identifies it."""
        if amendment(self.record) is not self.record:
            self._amendments[key] = amendment

    def lists(self, uid: Uid) -> bool:
        """Whether the object lists a charge, or may list it after the next write or a late view."""
        maps = (self.record.flights, self._draft, self._sent, self._carried, self._leaving)
        return any(uid in each for each in maps)

    @property
    def is_settled(self) -> bool:
        """Whether all charges are counted, without `drop_released`: no two are for pods of one name."""
        return not self._duplicates

    @property
    def drafts(self) -> Collection[Uid]:
        """The pods whose charges the next write adds."""
        return self._draft.keys()

    def drop_drafts(self, uids: Collection[Uid] | None = None) -> None:
        """Drop charges that the next write was to add, by default all: what was judged no longer holds."""
        if self._draft:
            dropped = [uid for uid in self._draft if uids is None or uid in uids]
            self._drop({uid: self._draft.pop(uid) for uid in dropped})

    # -- writes

    @property
    def has_amendments(self) -> bool:
        """Whether a change besides charges is to be written."""
        return bool(self._amendments)

    @property
    def must_write(self) -> bool:
        """Whether a write is due even without requests."""
        has_changes = bool(self._carried) or bool(self._amendments)
        return self._is_in_doubt or has_changes or any(map(self._is_withdrawn, self.record.flights))

    def holds(self, flight: InFlightCharge) -> bool:
        """Whether a charge, or a promotion, is in the object, where every replica finds it."""
        found = self.record.flights.get(flight.pod.uid)
        return found is not None and found.is_promotion == flight.is_promotion

    def promotions(self) -> Iterable[InFlightCharge]:
        """Return the promotions in the object that are still to be carried out."""
        return self._pending([flight for flight in self.record.flights.values() if flight.is_promotion])

    def pending(self, among: Container[Uid]) -> Iterable[InFlightCharge]:
        """Return the charges of these pods in the object without any evidence yet, but for those that are withdrawn."""
        found = [flight for uid, flight in self.record.flights.items() if uid in among]
        return self._pending([flight for flight in found if not flight.is_promotion])

    def _pending(self, listed: Iterable[InFlightCharge]) -> Iterable[InFlightCharge]:
        unseen = [flight for flight in listed if isinstance(self._evidence(flight.pod.uid), Unseen)]
        return [flight for flight in unseen if not self._is_withdrawn(flight.pod.uid)]

    @property
    def can_compact(self) -> bool:
        """Whether the object lists charges that are confirmed or over."""
        return any(not isinstance(self._evidence(uid), Unseen) for uid in self.record.flights)

    def unseen(self) -> Iterable[InFlightCharge]:
        """Return the charges in the object without any evidence yet."""
        return [flight for uid, flight in self.record.flights.items() if isinstance(self._evidence(uid), Unseen)]

    def next_record(self) -> LedgerRecord:
        """Return the state to write over the version that was read last."""
        self._base = self.version
        self._sent |= self._draft
        self._draft = {}
        withdrawn = set(filter(self._is_withdrawn, self._withdrawn)) - self._sent.keys()
        added = {**self._carried, **self._sent}
        record = self.record.turned(self._evidence, added=added, withdrawn=withdrawn.union(self._replaced.values()))
        for amend in self._amendments.values():
            record = amend(record)
        self._sent_record = record
        return record

    def discard_draft(self, *, is_in_doubt: bool = False) -> None:
        """Discard the draft: another writer was first, or the result of the write is unknown (`is_in_doubt`).

        Unless the watch has delivered a newer version since, nothing may be judged before the object is read again. A
        write in doubt may still arrive; the next write over the same version rejects it.
        """
        if self.version == self._base:
            self.is_stale = True
            self._is_in_doubt = self._is_in_doubt or is_in_doubt
        sent, self._sent, self._sent_record = self._sent, {}, None
        self._drop(sent)
        self.drop_drafts()

    def _drop(self, drafts: Mapping[Uid, InFlightCharge]) -> None:
        for uid, flight in drafts.items():
            if flight.is_promotion:
                self._world.cancel_promotion(uid)
            else:
                self._release(uid)
        replaced = [self._replaced.pop(uid, None) for uid in drafts]
        for listed in [self.record.flights.get(uid) for uid in replaced if uid is not None]:
            if listed is not None:
                self._assume(listed)

    def _drop_outdated_drafts(self, record: LedgerRecord) -> None:
        """Drop the draft, unless a new version is the write on its way: the watch may show it before its result."""
        sent = self._sent_record
        is_sent = not self._draft or (
            sent is not None
            and self.version == self._base
            and (record.turn, record.folded) == (sent.turn, sent.folded)
            and record.flights.keys() == sent.flights.keys()
            and all(record.flights[uid].charge == flight.charge for uid, flight in self._sent.items())
        )
        if not is_sent:
            self.drop_drafts()

    def _is_ending(self, uid: Uid) -> bool:
        return self._is_withdrawn(uid) or uid in self._replaced.values()

    def _is_withdrawn(self, uid: Uid) -> bool:
        return uid in self._withdrawn and self._withdrawn[uid]()

    def _assume(self, flight: InFlightCharge) -> None:
        """Count a charge, unless an equal charge for a pod of the same name is counted: only one such pod can exist."""
        uid, name = flight.pod.uid, _name(flight)
        if not (flight.is_promotion or flight.lingers):
            counted = self._counted.get(name)
            if counted is None or counted.pod.uid == uid or self._world.pod(counted.pod.uid) is None:
                self._counted[name] = flight
                self._duplicates.pop(uid, None)
            elif counted.charge == flight.charge:
                self._duplicates[uid] = flight
        self._world.assume(flight, is_counted=uid not in self._duplicates)

    def _swap_duplicate(self, duplicate: InFlightCharge) -> None:
        """Count a duplicate if the counted charge is gone, or if the duplicate's pod exists and the other does not."""
        uid, counted = duplicate.pod.uid, self._counted[_name(duplicate)]
        exists = isinstance(self._world.evidence(uid), Alive)
        is_counted = self._world.pod(counted.pod.uid) is not None
        if exists and is_counted and isinstance(self._world.evidence(counted.pod.uid), Unseen):
            self._world.drop_reservation(counted.pod.uid)
            self._counted[_name(duplicate)] = duplicate
            del self._duplicates[uid]
            self._assume(counted)
        else:
            self._assume(duplicate)

    def _release(self, uid: Uid) -> None:
        self._duplicates.pop(uid, None)
        if not self._is_held_by_another(uid):
            self._world.drop_reservation(uid)

    def _evidence(self, uid: Uid) -> Evidence:
        is_promotion = self.record.flights[uid].is_promotion
        watched = self._world.evidence(uid, is_promotion=is_promotion)
        return self._live_reads.get(uid, UNSEEN) if isinstance(watched, Unseen) else watched


def with_moves(record: LedgerRecord, moves: Moves, *, folded: int = 0) -> LedgerRecord:
    """Return a record with other moves, folded at least up to a resourceVersion; the same record if nothing changes."""
    if moves is record.moves and folded <= record.folded:
        return record
    return replace(record, moves=moves, folded=max(folded, record.folded))


def _name(flight: InFlightCharge) -> _PodName:
    return flight.pod.namespace, flight.pod.name
