"""For which entries the share of their team accumulates: else others of lower priority would use it up without end.

An entry that asks for more than is left of its team's share borrows, so it comes after all that fits inside the share,
also after entries of its own team that have a lower priority. Once it has waited for long, those are behind it again.

Where starts take all the time there is, no pass comes to an entry that borrows. So one that waits for long is presumed
to claim the share, until it is judged to wait for something that the share does not help with.
"""

from collections.abc import Callable, Container, Hashable, Set

from webhook.core.model.names import TeamName
from webhook.core.queue.pod_queue import PodQueue
from webhook.core.queue.queued_pod import QueueEntry
from webhook.core.queue.verdict import Fits, NoRoom, OverLimit, Verdict

_NONE: frozenset[Hashable] = frozenset()


def waits_for_share(verdict: Verdict | None, counts_all: Callable[[Hashable], bool]) -> bool | None:
    """Whether what an entry waits for may come of its team's share: room, or a limit that counts all of the team.

    None where it waits for nothing, or was not judged. `counts_all` says whether a limit does.
    """
    match verdict:
        case Fits() | None:
            return None
        case NoRoom():
            return True
        case OverLimit(limit):
            return counts_all(limit)
        case _:
            return False


class ShareClaims:
    """The keys of these entries by team, one pass after the other; `denied` are those that wait for something else."""

    def __init__(self) -> None:
        self._claims: dict[TeamName, set[Hashable]] = {}
        self._denied: dict[TeamName, set[Hashable]] = {}

    def of(self, team: TeamName) -> Set[Hashable]:
        """Return the keys of a team's entries."""
        return self._claims.get(team, _NONE)

    def keep(self, queue: PodQueue, team: TeamName) -> None:
        """Keep those of a team that still are in the queue."""
        for sets in (self._claims, self._denied):
            if (keys := sets.get(team)) is not None:
                keys.difference_update([key for key in keys if queue.get(key) is None])
                if not keys:
                    del sets[team]

    def keep_teams(self, teams: Container[TeamName]) -> None:
        """Forget those of all other teams."""
        for sets in (self._claims, self._denied):
            for team in [team for team in sets if team not in teams]:
                del sets[team]

    def presume(self, entry: QueueEntry) -> bool:
        """Record a claim of an entry that has waited for long, unless it is denied; return whether that is news."""
        return entry.key not in self._denied.get(entry.team, _NONE) and self.note(entry, is_claim=True)

    def note(self, entry: QueueEntry, *, is_claim: bool, is_denied: bool = False) -> bool:
        """Record what was judged of an entry; return whether that is news."""
        _record(self._denied, entry, is_in=is_denied)
        return _record(self._claims, entry, is_in=is_claim)


def _record(sets: dict[TeamName, set[Hashable]], entry: QueueEntry, *, is_in: bool) -> bool:
    """Record whether an entry is in the set of its team; return whether that is news."""
    if is_in is (entry.key in sets.get(entry.team, _NONE)):
        return False
    if is_in:
        sets.setdefault(entry.team, set()).add(entry.key)
    else:
        sets[entry.team].remove(entry.key)
    return True
