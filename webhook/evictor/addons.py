"""What an add-on of an evictor may do: tasks and steps of the leader, messages to people, its part of the report.

Reclaim knows no add-on: what it plans is the same without any. A method that one does not override does nothing.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.writes.events import OwnerLookup
from webhook.core.model.policy_addons import NotifyKind
from webhook.core.reclaim.reclaim_plan import Round
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.evictor.cluster_view import ClusterView, EvictorContext
from webhook.evictor.executor import Executor
from webhook.evictor.hold_manager import HoldManager
from webhook.evictor.reporter import EvictionReporter
from webhook.observe.evictor import ReclaimMetrics
from webhook.observe.logs import Logs


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictorParts:
    """What an add-on is made from when an evictor starts, also for a dry run. `process` names this evictor."""

    cluster_view: ClusterView
    connection: ApiConnection
    logs: Logs
    metrics: ReclaimMetrics
    process: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leading:
    """The parts of an evictor that leads."""

    context: EvictorContext
    manager: HoldManager
    executor: Executor
    reporter: EvictionReporter
    owners: OwnerLookup


class EvictorAddon:
    """One add-on in an evictor. `notify` may neither raise nor block."""

    def notify(self, kind: NotifyKind, gpu_pod: ReclaimPod, text: str) -> None:
        """Take note of what the people of a pod's team should know."""

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return what runs for as long as the evictor does; not in a dry run."""
        return ()

    def lead(self, leading: Leading) -> Sequence[Coroutine[Any, Any, None]]:  # noqa: ARG002
        """Begin to lead; return what runs meanwhile."""
        return ()

    def ended(self) -> None:
        """Take note that this evictor no longer leads."""

    async def after_round(self, found: Round) -> None:
        """Do what comes after reclaim `found` what it does, before anything of it is carried out."""

    async def preview(self) -> list[str]:
        """Return what it would do where reclaim has nothing to do, as lines for people."""
        return []

    def report(self) -> Mapping[str, Any]:
        """Return its fields of this evictor's report."""
        return {}


MakeEvictorAddon = Callable[[EvictorParts], EvictorAddon]
