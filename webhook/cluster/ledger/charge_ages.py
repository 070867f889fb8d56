"""For how long this process has known each charge of a ledger, by its own clock."""

from collections.abc import Callable, Iterable

from webhook.core.model.names import Uid
from webhook.core.quota.in_flight import InFlightCharge


class ChargeAges:
    """When each charge was first seen; `clock` is the event loop's."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._first_seen: dict[Uid, float] = {}

    def __contains__(self, uid: Uid) -> bool:
        return uid in self._first_seen

    def keep(self, uids: Iterable[Uid]) -> None:
        """Set which charges there are: the others are forgotten, and new ones are first seen now."""
        now = self._clock()
        self._first_seen = {uid: self._first_seen.get(uid, now) for uid in uids}

    def begin(self, uid: Uid) -> None:
        """See a charge for the first time now."""
        self._first_seen[uid] = self._clock()

    def is_late(self, flight: InFlightCharge, unseen_seconds: float = 0.0) -> bool:
        """Return whether it is too late for a charge's pod to appear, or to linger.

        Room that is kept for a pod gets so long besides: the leader's start loop ends it in its time, and reports that.
        """
        now = self._clock()
        grace = unseen_seconds if flight.until else 0.0
        return now - self._first_seen.get(flight.pod.uid, now) > (flight.lingers or unseen_seconds) + grace
