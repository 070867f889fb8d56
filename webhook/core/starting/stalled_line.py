"""Whether the line stands still: the first pod in it may start now, and is not released.

It watches what passes lead to, apart from them: whatever keeps them from a start is noticed here.
"""

from collections.abc import Hashable, Iterable
from itertools import islice
from typing import Final

from webhook.core.line.entries import Fits, Never, OverLimit, QueueEntry
from webhook.core.line.judged_pod import BorrowedRoom, judge_pod
from webhook.core.model.amounts import TeamName, Uid
from webhook.core.world.world import World

STALLED_SECONDS: Final = 30
"""A release follows within a second, and within ten where ledgers or patches are slow."""

MOST: Final = 8
"""Entries that are judged in one look."""


class StalledLine:
    """For how long the same pod has been first and could have started. Times are in seconds of Unix time."""

    def __init__(self, world: World) -> None:
        self.seconds = 0
        self._world = world
        self._first: tuple[Uid, TeamName] | None = None
        self._since = 0

    def look(self, entries: Iterable[QueueEntry], *, now: int) -> None:
        """Judge the first entry of each team, in the order of the line; none of them once the line is left alone."""
        first = self._startable(islice(entries, MOST))
        if first is None or first != self._first:
            self._first, self._since = first, now
        self.seconds = max(0, now - self._since)

    @property
    def problem(self) -> str:
        """Return that the line stands still, "" if it does not."""
        if self._first is None or self.seconds < STALLED_SECONDS:
            return ""
        team, seconds = self._first[1], self.seconds
        return f"the first queued pod, of team {team}, may start now, and has not been released for {seconds} s"

    def _startable(self, entries: Iterable[QueueEntry]) -> tuple[Uid, TeamName] | None:
        """Return the first pod that starts next, with its team; None if one before it waits for room."""
        closed: set[Hashable] = set()
        for entry in entries:
            uid = entry.pods[0].uid
            waiting = self._world.waiting.get(uid)
            if waiting is None or self._world.is_assumed(uid) or not closed.isdisjoint(entry.limits):
                continue
            if entry.pods[0].gang is not None:
                return None  # as a whole it is judged by passes alone
            judged = judge_pod(waiting, self._world, BorrowedRoom(self._world))
            match judged.verdict:
                case Fits() if not judged.takes_back:
                    return uid, entry.team
                case OverLimit(limit):
                    closed.add(limit)
                case Never():
                    pass
                case _:
                    return None
        return None
