"""The moves of the last day, and which workloads and teams are left alone since their pods did not come back.

The moves are kept in a Report, so that the bounds of an hour hold for the next leader, too.
"""

from collections.abc import Callable, Iterable
from typing import Final

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError
from webhook.cluster.writes.reports import read_report, write_report
from webhook.core.defragment.move_bounds import HOUR_SECONDS, PastMove
from webhook.core.model.kept_place import KeptPlace
from webhook.core.model.names import TeamName
from webhook.evictor.backoff import PodBackoff, TeamBackoff
from webhook.kube.ledger import reports
from webhook.kube.ledger.reports import MoveEntry

AWAY_SECONDS: Final = 6.0 * HOUR_SECONDS
"""How long the pods of a controller are not moved after one of them did not come back."""

KEPT_SECONDS: Final = 24 * HOUR_SECONDS
"""How long moves are shown …"""

SHOWN: Final = 100
"""… and how many, besides those of the last hour."""


class MoveRecord:
    """What was moved, and what did not come back. `clock` gives seconds of Unix time."""

    def __init__(self, connection: ApiConnection, clock: Callable[[], float]) -> None:
        self.away: PodBackoff[str] = PodBackoff(clock)
        self.teams: TeamBackoff[TeamName] = TeamBackoff(clock)
        self._connection = connection
        self._clock = clock
        self._entries: list[MoveEntry] = []
        self._is_read = False

    @property
    def past(self) -> list[PastMove]:
        """The moves as bounds read them."""
        return [PastMove(int(reports.read_at(each.at) or 0), each.workload) for each in self._entries]

    def of(self, pod: str) -> MoveEntry | None:
        """Return the latest move of a pod, by its name with its namespace."""
        return next((each for each in reversed(self._entries) if each.pod == pod), None)

    async def read(self) -> None:
        """Read what an earlier leader wrote, once. Raises ClusterError."""
        if self._is_read:
            return
        try:
            self._entries = list((await read_report(self._connection, reports.MOVES)).moves)
        except ApiError as error:
            if not error.is_missing:
                raise
        self._is_read = True

    async def add(self, moves: Iterable[MoveEntry]) -> None:
        """Write moves before they are made. Raises ClusterError; then none of them may be made."""
        now = self._clock()
        kept = [each for each in self._entries if (reports.read_at(each.at) or 0) > now - KEPT_SECONDS]
        hour = sum((reports.read_at(each.at) or 0) > now - HOUR_SECONDS for each in kept)
        entries = [*kept[-max(SHOWN, hour) :], *moves]
        await write_report(self._connection, reports.MOVES, reports.moves_patch(entries))
        self._entries = entries

    def lost(self, place: KeptPlace) -> None:
        """Record that a moved pod did not come back: its controller's pods are left alone, and then its team's."""
        self.away.pause(place.key, AWAY_SECONDS)
        self.teams.fail(place.team)
