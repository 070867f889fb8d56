"""Refused requests, counted by each replica, summed over all of them by the leader. Pure.

A replica publishes how many it refused since its start, by team and code; names of pods stay where they are. So what a
tenant can make large is one number.
"""

from collections import Counter, deque
from collections.abc import Mapping
from typing import Final

from webhook.core.model.notify_rules import NotifyRules
from webhook.core.model.text import duration, plural
from webhook.kube.ledger.reports import MAX_REFUSED, RefusedReport, ReplicaReport
from webhook.notify.message import Severity, State, item

FRESH_SECONDS: Final = 10.0
"""How long published counts stay the same: otherwise each refusal would be a write."""

MAX_CODES: Final = 10
"""Codes that a message lists, the most frequent ones."""

_Key = tuple[str, str]


class RefusalCounter:
    """Counts what one replica refuses."""

    def __init__(self) -> None:
        self._counts: Counter[_Key] = Counter()
        self._published: list[RefusedReport] = []
        self._published_at = float("-inf")

    def note(self, team: str, code: str) -> None:
        """Count a refused request. It costs a decision less than a microsecond."""
        self._counts[team, code] += 1

    def published(self, now: float) -> list[RefusedReport]:
        """Return the counts since the start, the same for FRESH_SECONDS."""
        if now - self._published_at >= FRESH_SECONDS:
            most = self._counts.most_common(MAX_REFUSED)
            self._published = [RefusedReport(team, code, count) for (team, code), count in sorted(most)]
            self._published_at = now
        return self._published


class RefusalWindow:
    """The refusals of all replicas within a time."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[_Key, int]] = {}
        self._recent: deque[tuple[float, _Key, int]] = deque()

    def update(self, replicas: Mapping[str, ReplicaReport], now: float) -> None:
        """Add what the replicas counted since the last update; what a process counted before it was seen is old."""
        seen: dict[str, dict[_Key, int]] = {}
        for process, report in replicas.items():
            before = self._seen.get(process)
            counts = {(each.team, each.code): each.count for each in report.refused}
            for key, count in counts.items():
                if before is not None and (more := count - before.get(key, 0)) > 0:
                    self._recent.append((now, key, more))
            seen[process] = {**(before or {}), **counts}
        self._seen = seen

    def forget(self) -> None:
        """Forget everything: another process counts."""
        self._seen = {}
        self._recent.clear()

    def states(self, rules: NotifyRules, now: float) -> dict[str, State]:
        """Return the teams with more refusals than the rules allow."""
        while self._recent and now - self._recent[0][0] > rules.refusals_within_seconds:
            self._recent.popleft()
        by_team: dict[str, Counter[str]] = {}
        for _, (team, code), count in self._recent:
            by_team.setdefault(team, Counter())[code] += count
        within = duration(rules.refusals_within_seconds)
        return {
            team: State(
                Severity.WARNING,
                f"team {team}: {plural(codes.total(), 'refused request')} within {within}",
                tuple(item(f"{code}: {count:,}") for code, count in codes.most_common(MAX_CODES)),
            )
            for team, codes in by_team.items()
            if codes.total() > rules.refusals
        }
