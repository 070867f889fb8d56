"""What a server sends as messages.

Reports to people what lasts: refusals above a rate, limits near their end, trouble. One replica does it for all.

The leader does, from the reports of all processes. A replica that cannot read the Lease, such as for an API server that
is away, reports its own trouble, since it cannot know whether any replica leads: then each sends one message.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from webhook.addons.messages.delivery import State
from webhook.addons.messages.evictor import notify_secrets_option
from webhook.addons.messages.notifier import Notifier, RefusalCounter, RefusalWindow, trouble_states, watch_notify
from webhook.addons.messages.outbox import limit_states
from webhook.cli.options import of
from webhook.core.model.pod import Pod
from webhook.core.model.policy_addons import NotifyKind
from webhook.core.model.reasons import Reason
from webhook.kube.admission.reviews import Review
from webhook.kube.ledger.reports import MAX_NODES, shortened, written_at
from webhook.server.addons import ServedCluster, ServerAddon, ServerParts

LOOK_SECONDS: Final = 5.0
"""Between two looks: reports of processes are up to ten seconds old, and a look at a thousand teams takes 0.6 ms."""


class StateNotifier:
    """Finds what lasts, and gives it to a notifier. Start `run` as a task."""

    def __init__(self, notifier: Notifier, cluster: ServedCluster) -> None:
        self._notifier = notifier
        self._cluster = cluster
        self._refusals = RefusalWindow()
        self._limits: Mapping[str, State] = {}

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
        states: dict[NotifyKind, Mapping[str, State]] = {NotifyKind.TROUBLE: trouble_states(replicas, now)}
        if self._cluster.lease.is_leading:
            self._refusals.update(replicas, now)
            if self._cluster.why_stale() is None:
                self._limits = limit_states(self._cluster.world, rules.limit_share)
            states |= {NotifyKind.REFUSALS: self._refusals.states(rules, now), NotifyKind.LIMITS: self._limits}
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
            process=cluster.lease.identity,
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
