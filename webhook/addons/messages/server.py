"""What a server sends as messages: refusals above a rate, limits near their end, trouble. All of it lasts for a while.

The leader does it for all, from the reports of all processes. A replica that cannot read the Lease, such as for an API
server that is away, reports its own trouble, since it cannot know whether any replica leads.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from certs.authority import CertificateError, read_certificates, why_not_renewed
from webhook.addons.messages.alerts import Severity, State, Subject, bounded
from webhook.addons.messages.evictor import notify_secrets_option
from webhook.addons.messages.notifier import Notifier, watch_notify
from webhook.cli.options import of
from webhook.core.model.amounts import Limit, Units, Unlimited, duration, gpus_text, plural, plural_gpus
from webhook.core.model.pod import Pod
from webhook.core.model.policy_addons import NotifyKind, NotifyRules
from webhook.core.model.reasons import Reason
from webhook.core.world.world import World
from webhook.kube.admission.reviews import Review
from webhook.kube.ledger.reports import (
    MAX_NODES,
    MAX_REFUSED,
    SILENT_SECONDS,
    RefusedReport,
    ReplicaReport,
    read_at,
    shortened,
    written_at,
)
from webhook.server.addons import ServedCluster, ServerAddon, ServerParts

LOOK_SECONDS: Final = 5.0
"""Between two looks: reports of processes are up to ten seconds old, and a look at a thousand teams takes 0.6 ms."""


# Refused requests, counted by each replica, summed over all of them by the leader. Pure.
#
# A replica publishes how many it refused since its start, by team and code; names of pods stay where they are. So what
# a tenant can make large is one number.


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

    def states(self, rules: NotifyRules, now: float) -> dict[Subject, State]:
        """Return the teams with more refusals than the rules allow."""
        while self._recent and now - self._recent[0][0] > rules.refusals_within_seconds:
            self._recent.popleft()
        by_team: dict[str, Counter[str]] = {}
        for _, (team, code), count in self._recent:
            by_team.setdefault(team, Counter())[code] += count
        within = duration(rules.refusals_within_seconds)
        return {
            Subject(NotifyKind.REFUSALS, team, Severity.WARNING): State(
                f"team {team}: {plural(codes.total(), 'refused request')} within {within}",
                tuple(f"{code}: {count:,}" for code, count in codes.most_common(MAX_CODES)),
            )
            for team, codes in by_team.items()
            if codes.total() > rules.refusals
        }


# Trouble with certificates, the ledger, the policy and processes, from what the processes report. Pure.


SETTLE_SECONDS: Final = 60.0
"""How long trouble must last: a process that starts, or drains, is not ready for a while."""


_TITLES: Final = {
    "certificate": "a certificate is not usable, or not renewed",
    "ledger": "the ledger of GPUs is behind, or not available",
    "world": "a server does not see the cluster as it is",
    "policy": "an edit of the policy is not in force",
    "registration": "the webhook configurations do not match the policy",
    "election": "a process cannot take part in the election of a leader",
    "process": "a process no longer reports",
    "serving": "a server does not serve",
    "line": "queued pods that may start are not released",
}
"""The conditions, which are the subjects of messages, with a line for people."""


def trouble_states(replicas: Mapping[str, ReplicaReport], now: float) -> dict[Subject, State]:
    """Return the conditions that do not hold in some process; `now` is in seconds of Unix time."""
    found: dict[Subject, State] = {}
    for process, report in sorted(replicas.items()):
        for condition, text in _troubles(report, now):
            subject = Subject(NotifyKind.TROUBLE, condition, Severity.CRITICAL, process)
            found.setdefault(subject, State(_TITLES[condition], (bounded(text),), SETTLE_SECONDS))
    return found


def _troubles(report: ReplicaReport, now: float) -> Iterator[tuple[str, str]]:
    """Yield each condition that does not hold, with the reason."""
    at = read_at(report.at)
    if at is None or now - at > SILENT_SECONDS:
        yield "process", f"its last report is of {report.at}"
        return
    for text in report.not_ready:
        condition, _, why = text.partition(": ")
        yield condition if condition in _TITLES else "serving", why
    if why_late := _why_not_renewed(report.certificate, int(now) // 60 * 60):
        yield "certificate", why_late
    yield from (("ledger", f"behind: {text}") for text in report.behind)
    if report.policy_problem:
        yield "policy", report.policy_problem
    if report.registration:
        yield "registration", report.registration
    if report.stalled:
        yield "line", report.stalled
    if report.election:
        yield "election", report.election


@lru_cache(maxsize=64)
def _why_not_renewed(pem: str, at: int) -> str | None:
    """Return why a certificate needs attention; nothing where the report has none. Each is parsed once a minute."""
    try:
        leaf = read_certificates(pem.encode(), name="its certificate")[0] if pem else None
    except CertificateError as error:
        return str(error)
    return why_not_renewed(leaf, datetime.fromtimestamp(at, UTC), name="its certificate") if leaf else None


LIMIT_SETTLE_SECONDS: Final = 30.0
"""How long use must be that high: a pod that ends and one that starts make a peak for a moment."""


class _Level(NamedTuple):
    name: str
    held: Units
    limit: Limit


def limit_states(world: World, share: Fraction) -> dict[Subject, State]:
    """Return each team and department that holds at least this share of a limit above 0, of all GPUs or of a model."""
    found: dict[Subject, State] = {}
    part, whole = share.as_integer_ratio()  # products of fractions take most of the time
    for each in _levels(world):
        if not isinstance(each.limit, Unlimited) and each.limit and each.held * whole >= each.limit * part:
            is_full = each.held >= each.limit
            left = "nothing is left" if is_full else f"{plural_gpus(each.limit - each.held)} left"
            text = f"{each.name} holds {gpus_text(each.held)} of at most {plural_gpus(each.limit)}: {left}"
            severity = Severity.WARNING if is_full else Severity.INFO
            subject = Subject(NotifyKind.LIMITS, each.name.removeprefix("team "), severity)
            found[subject] = State(text, settle_seconds=LIMIT_SETTLE_SECONDS)
    return found


def _levels(world: World) -> Iterator[_Level]:
    for team in world.policy.teams:
        usage = world.usage(team.name)
        yield _Level(f"team {team.name}", usage.total, team.gpus.limit)
        for model, share in team.models.items():
            yield _Level(f"team {team.name}, model {model}", usage.model(model), share.limit)
    for level in world.departments():
        of = level.department
        yield _Level(f"department {of.name}", level.total, of.gpus.limit)
        for model, share in of.models.items():
            yield _Level(f"department {of.name}, model {model}", level.model(model), share.limit)


class StateNotifier:
    """Finds what lasts, and gives it to a notifier. Start `run` as a task."""

    def __init__(self, notifier: Notifier, cluster: ServedCluster) -> None:
        self._notifier = notifier
        self._cluster = cluster
        self._refusals = RefusalWindow()
        self._limits: Mapping[Subject, State] = {}

    async def run(self) -> NoReturn:
        """Look until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Report what lasts now, if this replica should."""
        is_alone = self._cluster.lease.problem is not None
        if not self._notifier.rules.targets or not (self._cluster.lease.is_leading or is_alone):
            self._refusals.forget()
            self._notifier.forget_states()
            return
        now, rules = self._cluster.connection.unix_time(), self._notifier.rules
        replicas = {self._cluster.lease.identity: self._cluster.describe(written_at(now))}
        if self._cluster.lease.is_leading:
            replicas = {**self._cluster.reporter.replicas, **replicas}
        states = trouble_states(replicas, now)
        if self._cluster.lease.is_leading:
            self._refusals.update(replicas, now)
            if self._cluster.why_stale() is None:
                self._limits = limit_states(self._cluster.world, rules.limit_share)
            states |= {**self._refusals.states(rules, now), **self._limits}
        self._notifier.set_states(states)


# What one server counts, its notifier, and what lasts, wired together.


KINDS: Final = frozenset({NotifyKind.REFUSALS, NotifyKind.LIMITS, NotifyKind.TROUBLE})
"""What servers send messages about; evictors have the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `fairgate serve`. Calling it makes the add-on."""

    notify_secrets: Path | None = of(notify_secrets_option)

    def __call__(self, parts: ServerParts) -> ServerAddon:
        """Return the messages of one server."""
        return ServerMessages(parts, secrets=self.notify_secrets)


class ServerMessages(ServerAddon):
    """Messages of one server, once it has a cluster. `secrets` is the folder of the files that policy names."""

    def __init__(self, parts: ServerParts, *, secrets: Path | None) -> None:
        self._world = parts.world
        self._logs = parts.logs
        self._metrics = parts.metrics
        self._secrets = secrets
        self._counter = RefusalCounter()
        self._notifier: Notifier | None = None
        self._states: StateNotifier | None = None

    def connected(self, cluster: ServedCluster) -> None:
        """Make the notifier."""
        self._notifier = Notifier(
            lambda: self._world.policy,
            self._logs,
            kinds=KINDS,
            secrets=self._secrets,
            clock=cluster.connection.unix_time,
        )
        watch_notify(self._metrics, self._notifier)
        self._states = StateNotifier(self._notifier, cluster)

    def refused(self, review: Review, _pod: Pod | None, reason: Reason) -> None:
        """Count a refused request, if policy asks for that."""
        if self._world.policy.notify.wants(NotifyKind.REFUSALS):
            self._counter.note(self._world.tenancy(review.namespace).team_name, reason.code)

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return what runs for as long as the server does."""
        return [each.run() for each in (self._notifier, self._states) if each is not None]

    def report(self) -> Mapping[str, Any]:
        """Return what this replica refused, and which targets it cannot reach."""
        refused = self._counter.published(asyncio.get_running_loop().time())
        problems = [] if self._notifier is None else self._notifier.problems()
        return {"refused": refused, "notify": [shortened(text) for text in problems[:MAX_NODES]]}
