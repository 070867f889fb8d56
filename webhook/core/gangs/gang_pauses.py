"""What judging gangs may cost: large ones pause after a judgment, and a pass judges so many members of a team."""

from collections import Counter
from collections.abc import Hashable
from typing import Final, NamedTuple

from webhook.core.model.gang import MAX_MEMBERS
from webhook.core.model.names import TeamName
from webhook.core.queue.queued_pod import QueueEntry
from webhook.core.queue.verdict import Fits, Never, Verdict

MEMBERS_PER_PASS: Final = MAX_MEMBERS + 12
"""Members of one team's gangs that are judged in a pass: a judgment takes 0.1 ms, and no team may slow down others."""

MEMBERS_PER_SECOND: Final = 64
"""A gang that may not start is judged again after a second for so many of its members: small ones with each pass."""

_PAUSE_SECONDS: Final = 4
"""How long a team's gangs pause once it has used up a pass, so that those behind them have their turn in the next."""


class _Pause(NamedTuple):
    until: int
    members: tuple[Hashable, ...]
    verdict: Verdict


class GangPauses:
    """The verdicts on gangs that are not judged again yet. Times are in seconds of Unix time."""

    def __init__(self) -> None:
        self._pauses: dict[Hashable, _Pause] = {}
        self._judged: Counter[TeamName] = Counter()
        self._blocked: dict[TeamName, list[tuple[QueueEntry, Verdict]]] = {}

    def begin(self, *, now: int) -> None:
        """Begin a pass."""
        self._pauses = {key: pause for key, pause in self._pauses.items() if now < pause.until}
        self._judged.clear()
        self._blocked.clear()

    def known(self, entry: QueueEntry, *, now: int, extra: int = 0) -> Verdict | None:
        """Return the verdict on a gang that is not to be judged now; None for one that is.

        `extra` is what its judgment costs beside that of its members, in members.
        """
        pause = self._pauses.get(entry.key)
        if pause is not None and now < pause.until and pause.members == _members(entry):
            return pause.verdict
        if self._judged[entry.team] and self._judged[entry.team] + len(entry.pods) + extra > MEMBERS_PER_PASS:
            for each, verdict in self._blocked.pop(entry.team, ()):
                self._pause(each, verdict, until=now + _PAUSE_SECONDS)
            return Never()
        return None

    def note(self, entry: QueueEntry, verdict: Verdict, *, now: int, extra: int = 0) -> None:
        """Note a judgment; `extra` as in `known`."""
        cost = len(entry.pods) + extra
        self._judged[entry.team] += cost
        if isinstance(verdict, Fits):
            return
        self._blocked.setdefault(entry.team, []).append((entry, verdict))
        if cost >= MEMBERS_PER_SECOND:
            self._pause(entry, verdict, until=now + cost // MEMBERS_PER_SECOND)

    def _pause(self, entry: QueueEntry, verdict: Verdict, *, until: int) -> None:
        self._pauses[entry.key] = _Pause(until, _members(entry), verdict)


def _members(entry: QueueEntry) -> tuple[Hashable, ...]:
    return tuple(pod.uid for pod in entry.pods)
