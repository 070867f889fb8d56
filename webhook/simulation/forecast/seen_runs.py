"""How long pods ran so far, as a watch shows it: what a process remembers to forecast from."""

from collections import Counter, deque
from collections.abc import Iterator
from itertools import chain
from typing import Final

from webhook.core.explain.likely_start import Run
from webhook.core.model.names import TeamName, Uid, User

ENDED: Final = 1_000
"""Runs that are remembered of pods that ended, shared by teams and users: one with many forgets its own first."""


class SeenRuns:
    """How long pods ran so far: those that run, and the latest that ended."""

    def __init__(self) -> None:
        self._running: dict[Uid, Run] = {}
        self._ended: dict[TeamName, dict[User | None, deque[Run]]] = {}
        self._number: Counter[TeamName] = Counter()

    def __iter__(self) -> Iterator[Run]:
        yield from self._running.values()
        for users in self._ended.values():
            yield from chain.from_iterable(users.values())

    def __contains__(self, uid: Uid) -> bool:
        return uid in self._running

    def add(self, run: Run | None) -> None:
        """Add a pod that runs, or that ended; None changes nothing."""
        if run is not None and run.ended:
            self._remember(run)
        elif run is not None:
            self._running[run.uid] = run

    def end(self, uid: Uid, *, now: int) -> None:
        """Note that a pod ended or was deleted, if it ran."""
        run = self._running.pop(uid, None)
        if run is not None:
            self._remember(run._replace(ended=max(now, run.started)))

    def _remember(self, run: Run) -> None:
        self._ended.setdefault(run.team, {}).setdefault(run.user, deque()).append(run)
        self._number[run.team] += 1
        if self._number.total() > ENDED:
            team = max(self._number, key=self._number.__getitem__)
            users = self._ended[team]
            user = max(users, key=lambda each: len(users[each]))
            users[user].popleft()
            self._number[team] -= 1
            if not users[user]:
                del users[user]
