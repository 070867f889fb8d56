"""The kinds that bound evictions: disruption budgets, and workloads that count the failures of their pods."""

from collections.abc import Callable
from typing import Any

from webhook.cluster.watch.kinds import grouped_kind, split_path
from webhook.cluster.watch.watched_kind import WatchedKind
from webhook.core.model.names import Namespace
from webhook.core.reclaim.failures import FailureBudget, WorkloadId
from webhook.core.reclaim.reclaim_pod import Disruption
from webhook.kube.kinds.job_failures import workload_id
from webhook.kube.kinds.kind_row import Failures, Row
from webhook.kube.kinds.table import BUILT_IN
from webhook.kube.objects import keys
from webhook.kube.reclaim.disruptions import DisruptionBudget, to_disruption

SetBudget = Callable[[WorkloadId, FailureBudget | None], None]


def disruption_kind(
    set_budget: Callable[[Disruption], None], remove_budget: Callable[[Namespace, str], None]
) -> WatchedKind[DisruptionBudget]:
    """Watch PodDisruptionBudgets."""

    def apply(budget: DisruptionBudget) -> bool:
        set_budget(to_disruption(budget))
        return True

    return grouped_kind(
        "poddisruptionbudgets",
        keys.BUDGET_API,
        DisruptionBudget,
        apply=apply,
        remove=lambda path: remove_budget(*split_path(path)),
        is_optional=False,
    )


def failure_kinds(set_budget: SetBudget) -> tuple[WatchedKind[Any], ...]:
    """Watch how many failures each workload survives; those that survive any number are not kept."""
    return tuple(_kind(row, row.failures, set_budget) for row in BUILT_IN if row.failures is not None)


def _kind(row: Row, failures: Failures, set_: SetBudget) -> WatchedKind[Any]:
    def apply(found: Any) -> bool:  # noqa: ANN401 - of the type that the row names
        budget = failures.budget(found)
        if budget is not None:
            set_(WorkloadId(handle(found)), budget)
        return budget is not None

    def handle(found: Any) -> str:  # noqa: ANN401
        return workload_id(found.metadata.namespace, found.metadata.uid) or ""

    def remove(gone: str) -> None:
        set_(WorkloadId(gone), None)

    api = f"{row.kind.group}/{row.versions[0]}"
    return grouped_kind(row.kind.resource, api, failures.item, apply=apply, remove=remove, handle=handle)
