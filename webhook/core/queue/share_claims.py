"""For which entries the share of their team accumulates: else others of lower priority would use it up without end.

An entry that asks for more than is left of its team's share borrows, so it comes after all that fits inside the share,
also after entries of its own team that have a lower priority. Once it has waited for long, those are behind it again.
"""

from collections.abc import Container, Hashable, Set

from webhook.core.model.names import TeamName
from webhook.core.queue.pod_queue import PodQueue
from webhook.core.queue.queued_pod import QueueEntry

_NONE: frozenset[Hashable] = frozenset()


class ShareClaims:
    """The keys of these entries by team, as they were judged last; one pass after the other."""

    def __init__(self) -> None:
        self._claims: dict[TeamName, set[Hashable]] = {}

    def of(self, team: TeamName) -> Set[Hashable]:
        """Return the keys of a team's entries."""
        return self._claims.get(team, _NONE)

    def keep(self, queue: PodQueue, team: TeamName) -> None:
        """Keep those of a team that still are in the queue."""
        if (keys := self._claims.get(team)) is not None:
            keys.difference_update([key for key in keys if queue.get(key) is None])
            if not keys:
                del self._claims[team]

    def keep_teams(self, teams: Container[TeamName]) -> None:
        """Forget those of all other teams."""
        for team in [team for team in self._claims if team not in teams]:
            del self._claims[team]

    def note(self, entry: QueueEntry, *, is_claim: bool) -> bool:
        """Record whether an entry waits, and has done so for long; return whether that is news."""
        if is_claim is (entry.key in self.of(entry.team)):
            return False
        if is_claim:
            self._claims.setdefault(entry.team, set()).add(entry.key)
        else:
            self._claims[entry.team].remove(entry.key)
        return True
