"""Sends messages to the targets of the policy, in the background: who reports something never waits for it.

Each target has a task of its own, so one that hangs delays no other; one message a second at most.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from webhook.addons.messages.alerts import Alert, Outbox, State, Subject, render
from webhook.addons.messages.delivery import Delivery, DeliveryError
from webhook.cluster.watch.event_stream import Pace
from webhook.core.model.policy import Policy
from webhook.core.model.policy_addons import NotifyKind, NotifyRules, NotifyTarget
from webhook.observe.logs import Logs
from webhook.observe.processes import ProcessMetrics, Row

TURN_SECONDS: Final = 1.0
"""Between two messages to a target."""

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
        kinds: frozenset[NotifyKind],
        secrets: Path | None,
        clock: Callable[[], float],
        pace: Pace = _PACE,
    ) -> None:
        self._policy = policy
        self._logs = logs
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

    def note(self, subject: Subject, line: str) -> None:
        """Take note of something that happened; never blocks and never raises."""
        for target in self.targets:
            if subject.kind in target.kinds:
                self._worker(target).outbox.add(subject, line, self._clock())

    def set_states(self, states: Mapping[Subject, State]) -> None:
        """Take note of all states that last now."""
        for target in self.targets:
            wanted = {subject: state for subject, state in states.items() if subject.kind in target.kinds}
            self._worker(target).outbox.set_states(wanted, self._clock())

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
        alerts = worker.outbox.due(target, now)
        pause = 0.0
        if alerts:
            pause = await self._try(target, worker, alerts)
        elif not 0 <= now - worker.contact_at < PROBE_SECONDS:
            worker.contact_at = now
            worker.unreachable = await self._delivery.why_unreachable(target)
        if worker.problem is None and before is not None:
            self._logs.event.info("notify target reached", target=target.name)
        elif worker.problem != before:
            self._logs.event.warning("notify target not reached", target=target.name, why=worker.problem)
        return pause

    async def _try(self, target: NotifyTarget, worker: _Worker, alerts: list[Alert]) -> float:
        """Send a message once, and return for how long to leave the target alone."""
        worker.contact_at = self._clock()
        try:
            await self._delivery.send(target, render(alerts, target, self.rules.cluster))
        except DeliveryError as error:
            worker.failures += 1
            worker.counts["failed"] += 1
            worker.failure = str(error)
            if error.is_hopeless:
                worker.outbox.give_up(alerts, self._clock())
            return self._pace.backoff(worker.failures, retry_after=error.retry_after)
        worker.failures, worker.failure, worker.unreachable = 0, None, None
        worker.counts["sent"] += 1
        worker.outbox.delivered(alerts, self._clock())
        return 0.0

    async def _flush(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS), asyncio.TaskGroup() as group:
                for target in self.targets:
                    worker = self._worker(target)
                    worker.outbox.forget_states()
                    group.create_task(self._send_rest(target, worker))

    async def _send_rest(self, target: NotifyTarget, worker: _Worker) -> None:
        while alerts := worker.outbox.due(target, self._clock(), is_end=True):
            if await self._try(target, worker, alerts):
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
        "fairgate_notify_waiting": "Alerts that a target has yet to get, or to get the end of.",
    }
    metrics.add_table(
        columns, lambda: [Row((name,), each) for name, each in notifier.states().items()], labels=["target"]
    )
