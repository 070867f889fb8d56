"""The kinds that bound evictions: disruption budgets, and workloads that count the failures of their pods."""

from collections.abc import Callable
from typing import TypeVar

from webhook.cluster.watch.kinds import grouped_kind, split_path
from webhook.cluster.watch.watched_kind import WatchedKind
from webhook.core.model.names import Namespace
from webhook.core.reclaim.failures import FailureBudget, WorkloadId
from webhook.core.reclaim.reclaim_pod import Disruption
from webhook.kube.objects import keys
from webhook.kube.reclaim.disruptions import DisruptionBudget, to_disruption
from webhook.kube.reclaim.job_failures import (
    TRAINING_API,
    TRAINING_JOBS,
    Job,
    TrainingJob,
    job_budget,
    training_budget,
    workload_id,
)

_Counting = TypeVar("_Counting", Job, TrainingJob)
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


def failure_kinds(set_budget: SetBudget) -> tuple[WatchedKind[Job] | WatchedKind[TrainingJob], ...]:
    """Watch how many failures each workload survives; those that survive any number are not kept."""
    training = (_kind(name, TRAINING_API, TrainingJob, training_budget, set_budget) for name in TRAINING_JOBS)
    return (_kind("jobs", "batch/v1", Job, job_budget, set_budget), *training)


def _kind(
    name: str, api: str, item: type[_Counting], budget_of: Callable[[_Counting], FailureBudget | None], set_: SetBudget
) -> WatchedKind[_Counting]:
    def apply(found: _Counting) -> bool:
        budget = budget_of(found)
        if budget is not None:
            set_(WorkloadId(handle(found)), budget)
        return budget is not None

    def handle(found: _Counting) -> str:
        return workload_id(found.metadata.namespace, found.metadata.uid) or ""

    def remove(gone: str) -> None:
        set_(WorkloadId(gone), None)

    return grouped_kind(name, api, item, apply=apply, remove=remove, handle=handle)
