"""What an evictor sends as messages: evictions and idle GPUs, as they happen."""

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from webhook.addons.messages.alerts import Subject, bounded
from webhook.addons.messages.notifier import Notifier, watch_notify
from webhook.cli.options import PATH, of
from webhook.core.model.amounts import plural_gpus
from webhook.core.model.policy_addons import NotifyKind
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.evictor.addons import EvictorAddon, EvictorParts
from webhook.kube.ledger.reports import shortened
from webhook.kube.nodes.holds import rfc3339

KINDS: Final = frozenset({NotifyKind.EVICTIONS, NotifyKind.IDLE})
"""What evictors send messages about; servers have the others."""

notify_secrets_option = click.option(
    "--notify-secrets",
    type=PATH,
    metavar="DIR",
    help="Folder of the files that `notify` in the policy names: addresses, tokens, CAs. Read for each message.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `fairgate evict`. Calling it makes the add-on."""

    notify_secrets: Path | None = of(notify_secrets_option)

    def __call__(self, parts: EvictorParts) -> EvictorAddon:
        """Return the messages of one evictor."""
        return EvictorMessages(parts, secrets=self.notify_secrets)


class EvictorMessages(EvictorAddon):
    """Messages of one evictor. `secrets` is the folder of the files that policy names."""

    def __init__(self, parts: EvictorParts, *, secrets: Path | None) -> None:
        self._clock = parts.connection.unix_time
        self._notifier = Notifier(
            lambda: parts.cluster_view.world.policy,
            parts.logs,
            kinds=KINDS,
            secrets=secrets,
            clock=self._clock,
        )
        watch_notify(parts.metrics, self._notifier)

    def notify(self, kind: NotifyKind, gpu_pod: ReclaimPod, text: str) -> None:
        """Have people of a pod's team get a message about it."""
        at, pod = rfc3339(int(self._clock())), f"{gpu_pod.namespace}/{gpu_pod.name}"
        line = bounded(f"{at}: {pod} of {plural_gpus(gpu_pod.demand.gpus)}: {text}")
        self._notifier.note(Subject(kind, gpu_pod.team), line)

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return what runs for as long as the evictor does."""
        return (self._notifier.run(),)

    def report(self) -> Mapping[str, Any]:
        """Return which targets it cannot reach."""
        return {"notify": [shortened(text) for text in self._notifier.problems()]}
