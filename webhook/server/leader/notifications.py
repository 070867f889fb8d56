"""One server's messages to people: what it counts, its notifier, and what lasts, wired together."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from webhook.cluster.writes.lease import Lease
from webhook.cluster.writes.reports import ReplicaReporter
from webhook.core.model.notify_rules import NotifyKind
from webhook.history.recorder import UsageRecorder
from webhook.history.trace_row import PodRow
from webhook.kube.ledger.reports import RefusedReport, ReplicaReport
from webhook.notify.notifier import Notifier
from webhook.notify.refusals import RefusalCounter
from webhook.observe.logs import Logs
from webhook.observe.metrics import Metrics
from webhook.server.leader.notify_states import Cluster, StateNotifier

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
