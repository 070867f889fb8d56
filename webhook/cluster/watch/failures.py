"""The kinds that bound evictions: disruption budgets, and workloads that count the failures of their pods."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from webhook.cluster.watch.kinds import optional_kind
from webhook.cluster.watch.watched_kind import WatchedKind
from webhook.core.model.names import Namespace
from webhook.core.reclaim.failures import FailureBudget, WorkloadId
from webhook.core.reclaim.reclaim_pod import Disruption
from webhook.kube.objects import keys
from webhook.kube.objects.large_objects import without_large_parts
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

    def remove(path: str) -> None:
        namespace, _, name = path.partition("/")
        remove_budget(Namespace(namespace), name)

    budgets = optional_kind("poddisruptionbudgets", keys.BUDGET_API, DisruptionBudget, apply=apply, remove=remove)
    return replace(budgets, is_optional=False)


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

    return WatchedKind(
        name=name,
        path=f"/apis/{api}/{name}",
        item=item,
        trim=without_large_parts,
        key=lambda found: f"{found.metadata.namespace}/{found.metadata.name}",
        handle=handle,
        apply=apply,
        remove=lambda gone: set_(WorkloadId(gone), None),
        is_optional=True,
    )
