"""The moves that an evictor would make now, as lines: the next plan as the mover would find it, without any action."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ClusterError
from webhook.core.defragment.movable_pod import Stays
from webhook.evictor.cluster_view import ClusterView
from webhook.evictor.moves.candidates import Candidates, LeftAlone
from webhook.evictor.moves.move_reporter import NotMade, moves_text
from webhook.evictor.moves.record import MoveRecord
from webhook.evictor.moves.search import MoveSearch
from webhook.evictor.moves.templates import Templates

LOOK_SECONDS: Final = 10.0
"""Between two searches; a search takes tenths of a second in a large cluster."""


class MovePreview:
    """Looks for moves now and then, and shows what was found last in between."""

    def __init__(self, cluster_view: ClusterView, connection: ApiConnection, *, clock: Callable[[], float]) -> None:
        self._view = cluster_view
        self._connection = connection
        self._clock = clock
        self._candidates = Candidates(cluster_view, self._left_alone, Templates(connection, cluster_view.world))
        self._lines: list[str] = []
        self._next_at = 0.0

    async def lines(self) -> list[str]:
        """Return the plan that comes first, and why there is none for other pods; nothing where policy has no moves."""
        if not self._view.world.policy.defragment.is_on:
            return []
        clock = asyncio.get_running_loop().time
        if clock() >= self._next_at:
            self._lines = await self._look()
            self._next_at = clock() + LOOK_SECONDS
        return self._lines

    async def _look(self) -> list[str]:
        if any(hold.has_moves for hold in self._left_alone().holds.values()):
            return ["moves are under way: the next ones are planned after them"]
        lines: list[str] = []

        def note(refused: Iterable[NotMade], _stays: Mapping[Stays, int]) -> None:
            lines.extend(
                f"{', '.join(each.target.name for each in found.wanted)}: no pods would be moved for it: {found.why}"
                for found in refused
            )

        record = MoveRecord(self._connection, self._clock)
        try:
            found = await MoveSearch(self._view, self._candidates, record, report=note, clock=self._clock).next()
        except ClusterError as error:
            return [f"no moves are planned: {error}"]
        if found is not None:
            node, moves = found.room.places[0].node, moves_text(found.room)
            lines.insert(0, f"{found.names}: would get room on {node} by {moves}")
        return lines

    def _left_alone(self) -> LeftAlone:
        """Return what an evictor that leads now holds; which pods it leaves alone for a while only that one knows."""
        return LeftAlone({node: hold for node, hold in self._view.marked.items() if hold is not None})
