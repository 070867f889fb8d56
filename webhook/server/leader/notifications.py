"""What a server sends as messages.

Reports to people what lasts: refusals above a rate, limits near their end, trouble. One replica does it for all.

The leader does, from the reports of all processes. A replica that cannot read the Lease, such as for an API server that
is away, reports its own trouble, since it cannot know whether any replica leads: then each sends one message.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.writes.lease import Lease
from webhook.cluster.writes.reports import ReplicaReporter
from webhook.core.model.policy_addons import NotifyKind
from webhook.core.world.world import World
from webhook.history.recorder import UsageRecorder
from webhook.history.store import PodRow
from webhook.kube.ledger.reports import RefusedReport, ReplicaReport, written_at
from webhook.notify.delivery import State
from webhook.notify.notifier import Notifier, RefusalCounter, RefusalWindow, trouble_states
from webhook.notify.outbox import limit_states
from webhook.observe.logs import Logs
from webhook.observe.metrics import Metrics

LOOK_SECONDS: Final = 5.0
"""Between two looks: reports of processes are up to ten seconds old, and a look at a thousand teams takes 0.6 ms."""


class Cluster(Protocol):
    """The cluster as a server sees it."""

    @property
    def connection(self) -> ApiConnection:
        """The API server, which has the time of day."""
        ...

    @property
    def world(self) -> World:
        """The state that decisions are made from."""
        ...

    def why_stale(self) -> str | None:
        """Return why the world may not be current."""
        ...


class StateNotifier:
    """Finds what lasts, and gives it to a notifier. Start `run` as a task."""

    def __init__(
        self,
        notifier: Notifier,
        live: Cluster,
        lease: Lease,
        *,
        reporter: ReplicaReporter,
        describe: Callable[[str], ReplicaReport],
    ) -> None:
        self._notifier = notifier
        self._live = live
        self._lease = lease
        self._reporter = reporter
        self._describe = describe
        self._refusals = RefusalWindow()
        self._limits: Mapping[str, State] = {}

    async def run(self) -> NoReturn:
        """Look until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Report what lasts now, if this replica should."""
        is_alone = self._lease.problem is not None
        if not self._notifier.rules.targets or not (self._lease.is_leading or is_alone):
            self._refusals.forget()
            self._notifier.forget_states()
            return
        now, rules = self._live.connection.unix_time(), self._notifier.rules
        replicas = {self._lease.identity: self._describe(written_at(now))}
        if self._lease.is_leading:
            replicas = {**self._reporter.replicas, **replicas}
        states: dict[NotifyKind, Mapping[str, State]] = {NotifyKind.TROUBLE: trouble_states(replicas, now)}
        if self._lease.is_leading:
            self._refusals.update(replicas, now)
            if self._live.why_stale() is None:
                self._limits = limit_states(self._live.world, rules.limit_share)
            states |= {NotifyKind.REFUSALS: self._refusals.states(rules, now), NotifyKind.LIMITS: self._limits}
        self._notifier.set_states(states)


# One server's messages to people: what it counts, its notifier, and what lasts, wired together.


KINDS: Final = frozenset({NotifyKind.REFUSALS, NotifyKind.LIMITS, NotifyKind.TROUBLE})
"""What servers send messages about; the evictor has the others."""


class Notifications:
    """Messages of one server. `secrets` is the folder of the files that policy names."""

    def __init__(
        self,
        live: Cluster,
        lease: Lease,
        logs: Logs,
        recorder: UsageRecorder,
        *,
        metrics: Metrics,
        secrets: Path | None,
    ) -> None:
        clock = live.connection.unix_time
        self.notifier = Notifier(
            lambda: live.world.policy, logs, process=lease.identity, kinds=KINDS, secrets=secrets, clock=clock
        )
        metrics.watch_notify(self.notifier.counts, self.notifier.states)
        recorder.on_refused = self._note_refusal
        self._live = live
        self._lease = lease
        self._counter = RefusalCounter()

    def refused(self) -> list[RefusedReport]:
        """Return what this replica refused, for its report."""
        return self._counter.published(asyncio.get_running_loop().time())

    def tasks(
        self, reporter: ReplicaReporter, describe: Callable[[str], ReplicaReport]
    ) -> list[Coroutine[Any, Any, None]]:
        """Return what runs for as long as the server does."""
        states = StateNotifier(self.notifier, self._live, self._lease, reporter=reporter, describe=describe)
        return [self.notifier.run(), states.run()]

    def _note_refusal(self, row: PodRow) -> None:
        """Count a refused request, if policy asks for that."""
        if self.notifier.rules.wants(NotifyKind.REFUSALS):
            self._counter.note(row.team, row.code)
