"""Room that is kept for pods of gangs that have started, and that are made only once the first of them run.

A reservation is a charge in the ledger without a pod, so it counts in every replica. It ends when the pod comes that it
is for, and by its time in any case.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from webhook.core.model.amount import Units
from webhook.core.model.names import GangId, Uid
from webhook.core.quota.in_flight import InFlightCharge

RESERVED: Final = "reserved:"
"""Begins the UID of a reservation, which no pod has."""


class GangReservations:
    """The reservations that the ledger lists, by gang; kept by the world."""

    def __init__(self) -> None:
        self._by_gang: dict[GangId, dict[Uid, InFlightCharge]] = {}
        self._gang_of: dict[Uid, GangId] = {}

    def __contains__(self, gang: GangId) -> bool:
        return gang in self._by_gang

    def gangs(self) -> Iterable[GangId]:
        """Return the gangs that have reservations."""
        return [*self._by_gang]

    def of(self, gang: GangId) -> Sequence[InFlightCharge]:
        """Return the reservations of a gang."""
        return [*self._by_gang.get(gang, {}).values()]

    def fitting(self, gang: GangId, gpus: Units) -> InFlightCharge | None:
        """Return a reservation of a gang for a pod of so many GPU units; None where none is so large.

        It is the smallest that is large enough.
        """
        fitting = [reservation for reservation in self.of(gang) if reservation.charge.gpus >= gpus]
        return min(fitting, key=lambda reservation: (reservation.charge.gpus, reservation.pod.uid), default=None)

    def set(self, flight: InFlightCharge) -> None:
        """Add a charge, if it is a reservation."""
        gang = flight.pod.gang
        if flight.until and gang is not None:
            self._by_gang.setdefault(gang, {})[flight.pod.uid] = flight
            self._gang_of[flight.pod.uid] = gang

    def discard(self, uid: Uid) -> None:
        """Remove a charge; one that is no reservation changes nothing."""
        gang = self._gang_of.pop(uid, None)
        if gang is not None:
            reservations = self._by_gang[gang]
            del reservations[uid]
            if not reservations:
                del self._by_gang[gang]
