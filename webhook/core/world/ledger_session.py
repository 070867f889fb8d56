"""One replica's hand on one team's page: what it read last, what it has promised, what it may write next.

Pure: it neither reads nor writes the object, somebody tells it what came of either. Every charge that the page may
hold is assumed in the world, so that whoever judges sees it; it leaves the world only after it left the page and the
view of the pods has come as far as the page was folded.
"""

from collections.abc import Iterable

from webhook.core.model.names import Namespace, Uid
from webhook.core.quota.in_flight import (
    EMPTY_LEDGER_RECORD,
    UNSEEN,
    Alive,
    Evidence,
    InFlightCharge,
    LedgerRecord,
    Unseen,
)
from webhook.core.world.world import World

_Name = tuple[Namespace, str]


class LedgerSession:
    """Keeps a page and the world together. `version` is that of the object as it was read last, 0 for none."""

    def __init__(self, world: World) -> None:
        self.page = EMPTY_LEDGER_RECORD
        self.version = 0
        self.identity = ""
        self.is_stale = False
        self._world = world
        self._draft: dict[Uid, InFlightCharge] = {}
        self._withdrawn: set[Uid] = set()
        self._carried: dict[Uid, InFlightCharge] = {}
        self._departed: dict[Uid, int] = {}
        self._found: dict[Uid, Evidence] = {}
        self._counted: dict[_Name, InFlightCharge] = {}  # which charge counts for all equal ones of its name …
        self._spare: dict[Uid, InFlightCharge] = {}  # … and those for which another counts
        self._is_in_doubt = False
        self._base = 0

    # -- what was read

    def see(self, page: LedgerRecord, *, version: int, identity: str, is_live: bool = False) -> None:
        """Take over the object as somebody wrote it; one that is older than what we know changes nothing.

        Unless it `is_live`, read after we lost a race: then etcd was restored from a backup. `identity` is the
        object's UID: one that was deleted by hand and made anew proves nothing about the flights that it lacks, so they
        are carried over.
        """
        is_restored = is_live and self.is_stale and version < self.version
        if version <= self.version and not is_restored:
            if version == self.version:
                self.is_stale = False
            return
        is_other = self.identity not in ("", identity)
        before, self.page = self.page, page
        self.version, self.identity, self.is_stale, self._is_in_doubt = version, identity, False, False
        for uid, flight in page.flights.items():
            if uid in before.flights and before.flights[uid].is_promotion != flight.is_promotion:
                self._found.pop(uid, None)
            self._draft.pop(uid, None)
            self._departed.pop(uid, None)
            self._assume(flight)
        for uid, flight in before.flights.items():
            if uid in page.flights:
                continue
            if is_other and uid not in self._withdrawn:
                self._carried[uid] = flight
            else:
                self._departed[uid] = page.folded
                self._found.pop(uid, None)
        self._withdrawn.intersection_update(page.flights)
        named = {_name(flight) for flight in (*page.flights.values(), *self._draft.values(), *self._spare.values())}
        self._counted = {name: flight for name, flight in self._counted.items() if name in named}
        self._carried = {uid: flight for uid, flight in self._carried.items() if uid not in page.flights}

    def lose(self) -> None:
        """Take in that the object is gone, deleted by hand: the next write makes it anew with all it held."""
        self._carried.update((uid, f) for uid, f in self.page.flights.items() if uid not in self._withdrawn)
        self.page = LedgerRecord({}, self.page.folded, self.page.turn)
        self.version, self.identity, self.is_stale = 0, "", False

    # -- what may be judged

    def is_safe(self, reached: int) -> bool:
        """Tell whether charges may be judged now, with the view of the pods at this resourceVersion."""
        return not self.is_stale and self.page.is_current_at(reached)

    def settle(self, reached: int) -> None:
        """Let go of charges that left the page, as far as the view has come."""
        for uid in [uid for uid, folded in self._departed.items() if folded <= reached]:
            del self._departed[uid]
            self._let_go(uid)
        for flight in [*self._spare.values()]:
            self._change_places(flight)

    def charge(self, flight: InFlightCharge) -> None:
        """Assume a charge that is to be in the next write; one that is on the page already, or again, stays there."""
        uid = flight.pod.uid
        self._withdrawn.discard(uid)
        self._carried.pop(uid, None)
        if not self.holds(flight):
            self._departed.pop(uid, None)
            self._draft[uid] = flight
            self._assume(flight)

    def carry(self, flight: InFlightCharge) -> None:
        """Have a charge that nobody asked for in the next write, however often that fails."""
        if flight.pod.uid not in self.page.flights:
            self._carried[flight.pod.uid] = flight

    def withdraw(self, uid: Uid) -> None:
        """Take back a charge whose caller never heard a yes."""
        self._withdrawn.add(uid)

    def note(self, uid: Uid, evidence: Evidence) -> None:
        """Take in what a live read says of a pod that the view does not show."""
        if uid in self.page.flights:
            self._found[uid] = evidence

    # -- what is written

    @property
    def must_write(self) -> bool:
        """Tell whether a write is due whatever the requests are."""
        return self._is_in_doubt or bool(self._carried) or not self._withdrawn.isdisjoint(self.page.flights)

    def holds(self, flight: InFlightCharge) -> bool:
        """Tell whether a charge, or a promotion, is on the page, where every replica finds it."""
        found = self.page.flights.get(flight.pod.uid)
        return found is not None and found.is_promotion == flight.is_promotion

    def promotions(self) -> Iterable[InFlightCharge]:
        """List the promotions on the page that are still to be carried out."""
        return [f for f in self.unseen() if f.is_promotion and f.pod.uid not in self._withdrawn]

    @property
    def can_compact(self) -> bool:
        """Tell whether the page lists charges that are settled."""
        return any(not isinstance(self._evidence(uid), Unseen) for uid in self.page.flights)

    def unseen(self) -> Iterable[InFlightCharge]:
        """List the charges on the page that nothing is known of yet."""
        return [flight for uid, flight in self.page.flights.items() if isinstance(self._evidence(uid), Unseen)]

    def next_record(self) -> LedgerRecord:
        """Make the page to write over the version that was read last."""
        self._base = self.version
        return self.page.turned(
            self._evidence, added={**self._carried, **self._draft}, withdrawn=self._withdrawn - self._draft.keys()
        )

    def discard_draft(self, *, is_in_doubt: bool = False) -> None:
        """Drop the draft: somebody else wrote first, or the write's fate is unknown (`is_in_doubt`).

        Unless the watch has brought a newer version meanwhile, nothing may be judged before the object was read again.
        A write in doubt may still land: the next one over the same version keeps it out.
        """
        if self.version == self._base:
            self.is_stale = True
            self._is_in_doubt = self._is_in_doubt or is_in_doubt
        for uid, flight in self._draft.items():
            if flight.is_promotion:
                self._world.cancel_promotion(uid)
            else:
                self._let_go(uid)
        self._draft.clear()

    def _assume(self, flight: InFlightCharge) -> None:
        """Count a charge, unless an equal one for a pod of the same name is counted: only one of them can be there."""
        uid, name = flight.pod.uid, _name(flight)
        if not (flight.is_promotion or flight.lingers):
            counted = self._counted.get(name)
            if counted is None or counted.pod.uid == uid or self._world.pod(counted.pod.uid) is None:
                self._counted[name] = flight
                self._spare.pop(uid, None)
            elif counted.charge == flight.charge:
                self._spare[uid] = flight
        self._world.assume(flight, is_counted=uid not in self._spare)

    def _change_places(self, spare: InFlightCharge) -> None:
        """Count a charge from now on if the one that counted for it is gone; or if its pod is there, and no other."""
        uid, counted = spare.pod.uid, self._counted[_name(spare)]
        is_there = isinstance(self._world.evidence(uid), Alive)
        still_counts = self._world.pod(counted.pod.uid) is not None
        if is_there and still_counts and isinstance(self._world.evidence(counted.pod.uid), Unseen):
            self._world.settle(counted.pod.uid)
            self._counted[_name(spare)] = spare
            del self._spare[uid]
            self._assume(counted)
        else:
            self._assume(spare)

    def _let_go(self, uid: Uid) -> None:
        self._spare.pop(uid, None)
        self._world.settle(uid)

    def _evidence(self, uid: Uid) -> Evidence:
        is_promotion = self.page.flights[uid].is_promotion
        shown = self._world.promotion(uid) if is_promotion else self._world.evidence(uid)
        return self._found.get(uid, UNSEEN) if isinstance(shown, Unseen) else shown


def _name(flight: InFlightCharge) -> _Name:
    return flight.pod.namespace, flight.pod.name
