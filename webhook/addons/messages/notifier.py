"""Sends messages about refusals and troubles.

Sends messages to the targets of the policy, in the background: who reports something never waits for it.

Each target has a task of its own, so one that hangs delays no other; one message a second at most.
"""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from certs.authority import CertificateError, read_certificates, why_not_renewed
from webhook.addons.messages.delivery import (
    MAX_ITEMS,
    Delivery,
    DeliveryError,
    Item,
    Message,
    Severity,
    State,
    Subject,
    item,
    render,
)
from webhook.addons.messages.outbox import Outbox, Sender
from webhook.cluster.watch.event_stream import Pace
from webhook.core.model.amounts import duration, plural
from webhook.core.model.policy import Policy
from webhook.core.model.policy_addons import NotifyKind, NotifyRules, NotifyTarget
from webhook.kube.ledger.reports import MAX_REFUSED, SILENT_SECONDS, RefusedReport, ReplicaReport, read_at
from webhook.observe.logs import Logs
from webhook.observe.processes import ProcessMetrics, Row

TURN_SECONDS: Final = 1.0
"""Between two messages to a target: Slack allows one a second."""

PROBE_SECONDS: Final = 300.0
"""How often a target without messages is connected to, so that `fairgate doctor` can say what is wrong."""

FLUSH_SECONDS: Final = 3.0
"""How long the end of the process waits for what happened in its last seconds."""

OUTCOMES: Final = ("sent", "failed", "dropped")

_PACE: Final = Pace(initial_backoff=2.0, max_backoff=300.0, uniform=random.uniform)


class _Worker:
    """One target's messages, and what is known of it: why the last message failed, or why it cannot be reached."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.counts = Counter(dict.fromkeys(OUTCOMES, 0))
        self.failure: str | None = None
        self.unreachable: str | None = None
        self.failures = 0
        self.contact_at = float("-inf")

    @property
    def problem(self) -> str | None:
        return self.failure or self.unreachable


class Notifier:
    """Messages of one process. Start `run` as a task.

    `policy` returns the policy in force, `kinds` are what this process sends messages about, `secrets` is the folder of
    secrets, `clock` gives Unix time.
    """

    def __init__(
        self,
        policy: Callable[[], Policy],
        logs: Logs,
        *,
        process: str,
        kinds: frozenset[NotifyKind],
        secrets: Path | None,
        clock: Callable[[], float],
        pace: Pace = _PACE,
    ) -> None:
        self._policy = policy
        self._logs = logs
        self._process = process
        self._kinds = kinds
        self._clock = clock
        self._pace = pace
        self._delivery = Delivery(secrets)
        self._workers: dict[str, _Worker] = {}

    @property
    def rules(self) -> NotifyRules:
        """The rules in force."""
        return self._policy().notify

    @property
    def targets(self) -> list[NotifyTarget]:
        """The targets that this process sends to."""
        return [target for target in self.rules.targets if target.kinds & self._kinds]

    def note(self, subject: Subject, item: Item) -> None:
        """Take note of something that happened; never blocks and never raises."""
        for target in self.targets:
            if subject.kind in target.kinds:
                self._worker(target).outbox.add(subject, item, self._clock())

    def set_states(self, states: Mapping[NotifyKind, Mapping[str, State]]) -> None:
        """Take note of all states that last now."""
        now = self._clock()
        for target in self.targets:
            wanted = {
                Subject(kind, name): state for kind in target.kinds for name, state in states.get(kind, {}).items()
            }
            self._worker(target).outbox.set_states(wanted, now)

    def forget_states(self) -> None:
        """Leave the states to another process."""
        for worker in self._workers.values():
            worker.outbox.forget_states()

    def counts(self) -> dict[tuple[str, str], int]:
        """Return how many messages were sent, failed and were dropped, by target and outcome."""
        return {
            (name, outcome): count + (worker.outbox.dropped if outcome == "dropped" else 0)
            for name, worker in self._workers.items()
            for outcome, count in worker.counts.items()
        }

    def states(self) -> dict[str, tuple[int, int]]:
        """Return by target whether it failed last, and how many messages wait."""
        return {name: (worker.problem is not None, worker.outbox.waiting) for name, worker in self._workers.items()}

    def problems(self) -> list[str]:
        """Return why targets cannot be reached."""
        found = sorted((name, worker) for name, worker in self._workers.items() if worker.problem is not None)
        return [f"target {name}: {worker.problem}" for name, worker in found]

    async def run(self) -> None:
        """Serve the targets of the policy until cancelled; then send what happened and waits for others of its kind."""
        running: dict[str, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    for target in self.targets:
                        if target.name not in running or running[target.name].done():
                            running[target.name] = group.create_task(self._serve(target.name))
                    await asyncio.sleep(TURN_SECONDS)
        finally:
            await self._flush()

    def _worker(self, target: NotifyTarget) -> _Worker:
        return self._workers.setdefault(target.name, _Worker())

    def _target(self, name: str) -> NotifyTarget | None:
        return next((each for each in self.targets if each.name == name), None)

    async def _serve(self, name: str) -> None:
        """Send one target's messages until the policy no longer has it."""
        while (target := self._target(name)) is not None:
            try:
                await asyncio.sleep(await self._turn(target, self._worker(target)))
            except Exception as bug:
                self._logs.event.error("bug", task="notify", exc_info=bug)
            await asyncio.sleep(TURN_SECONDS)
        self._workers.pop(name, None)

    async def _turn(self, target: NotifyTarget, worker: _Worker) -> float:
        """Send the next message, or see whether the target can be reached; return for how long to leave it alone."""
        now, before = self._clock(), worker.problem
        message = worker.outbox.next_message(target, self._sender, now)
        pause = 0.0
        if message is not None:
            pause = await self._try(target, worker, message)
        elif not 0 <= now - worker.contact_at < PROBE_SECONDS:
            worker.contact_at = now
            worker.unreachable = await self._delivery.why_unreachable(target)
        if worker.problem is None and before is not None:
            self._logs.event.info("notify target reached", target=target.name)
        elif worker.problem != before:
            self._logs.event.warning("notify target not reached", target=target.name, why=worker.problem)
        return pause

    @property
    def _sender(self) -> Sender:
        return Sender(self._process, self.rules.cluster)

    async def _try(self, target: NotifyTarget, worker: _Worker, message: Message) -> float:
        """Send a message once, and return for how long to leave the target alone."""
        worker.contact_at = self._clock()
        try:
            await self._delivery.send(target, render(message, target.template))
        except DeliveryError as error:
            worker.failures += 1
            worker.counts["failed"] += 1
            worker.failure = str(error)
            if error.is_hopeless:
                worker.outbox.give_up(self._clock())
            return self._pace.backoff(worker.failures, retry_after=error.retry_after)
        worker.failures, worker.failure, worker.unreachable = 0, None, None
        worker.counts["sent"] += 1
        worker.outbox.delivered(self._clock())
        return 0.0

    async def _flush(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS), asyncio.TaskGroup() as group:
                for target in self.targets:
                    worker = self._worker(target)
                    worker.outbox.forget_states()
                    group.create_task(self._send_rest(target, worker))

    async def _send_rest(self, target: NotifyTarget, worker: _Worker) -> None:
        while message := worker.outbox.next_message(target, self._sender, self._clock(), gather_seconds=0.0):
            if await self._try(target, worker, message):
                return


def watch_notify(metrics: ProcessMetrics, notifier: Notifier) -> None:
    """Export the messages to each target by outcome; and whether the last one failed, and how many wait."""
    metrics.add_counts(
        "fairgate_notify_messages",
        "Attempts to send messages to people. `outcome`: sent, failed (it is tried again), dropped (too old, or "
        "the target rejects it).",
        notifier.counts,
        labels=["target", "outcome"],
    )
    columns = {
        "fairgate_notify_failing": "1 while a target does not accept messages or cannot be reached, otherwise 0.",
        "fairgate_notify_waiting": "Subjects of which a target has yet to get a message.",
    }
    metrics.add_table(
        columns, lambda: [Row((name,), each) for name, each in notifier.states().items()], labels=["target"]
    )


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


# Trouble with certificates, the ledger, the policy and processes, from what the processes report. Pure.


SETTLE_SECONDS: Final = 60.0
"""How long trouble must last: a process that starts, or drains, is not ready for a while."""


class _Trouble(NamedTuple):
    condition: str
    process: str
    text: str


_TITLES: Final = {
    "certificate": "a certificate is not usable, or not renewed",
    "ledger": "the ledger of GPUs is behind, or not available",
    "world": "a server does not see the cluster as it is",
    "policy": "an edit of the policy is not in force",
    "registration": "the webhook configurations do not match the policy",
    "election": "a process cannot take part in the election of a leader",
    "process": "a process no longer reports",
    "serving": "a server does not serve",
    "line": "pods in line that may start are not released",
}
"""The conditions, which are the subjects of messages, with a line for people."""


def trouble_states(replicas: Mapping[str, ReplicaReport], now: float) -> dict[str, State]:
    """Return the conditions that do not hold in some process; `now` is in seconds of Unix time."""
    found: dict[str, dict[str, str]] = {}
    for process, report in sorted(replicas.items()):
        for each in _troubles(process, report, now):
            found.setdefault(each.condition, {}).setdefault(each.process, each.text)
    return {
        condition: State(
            Severity.CRITICAL,
            _TITLES[condition],
            tuple(item(f"{process}: {text}") for process, text in list(by_process.items())[:MAX_ITEMS]),
            key=" ".join(by_process),
            settle_seconds=SETTLE_SECONDS,
        )
        for condition, by_process in found.items()
    }


def _troubles(process: str, report: ReplicaReport, now: float) -> Iterator[_Trouble]:
    at = read_at(report.at)
    if at is None or now - at > SILENT_SECONDS:
        yield _Trouble("process", process, f"its last report is of {report.at}")
        return
    for text in report.not_ready:
        condition, _, why = text.partition(": ")
        yield _Trouble(condition if condition in _TITLES else "serving", process, why)
    if why_late := _why_not_renewed(report.certificate, int(now) // 60 * 60):
        yield _Trouble("certificate", process, why_late)
    yield from (_Trouble("ledger", process, f"behind: {text}") for text in report.behind)
    if report.policy_problem:
        yield _Trouble("policy", process, report.policy_problem)
    if report.registration:
        yield _Trouble("registration", process, report.registration)
    if report.stalled:
        yield _Trouble("line", process, report.stalled)
    if report.election:
        yield _Trouble("election", process, report.election)


@lru_cache(maxsize=64)
def _why_not_renewed(pem: str, at: int) -> str | None:
    """Return why a certificate needs attention; nothing where the report has none. Each is parsed once a minute."""
    try:
        leaf = read_certificates(pem.encode(), name="its certificate")[0] if pem else None
    except CertificateError as error:
        return str(error)
    return why_not_renewed(leaf, datetime.fromtimestamp(at, UTC), name="its certificate") if leaf else None
