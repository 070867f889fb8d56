"""Whether a workload survives the eviction of some of its pods, by its manifest."""

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from webhook.core.reclaim.failures import FailureBudget
from webhook.kube.admission.job_review import ReviewedJob, gets_rule
from webhook.kube.objects import objects
from webhook.kube.reclaim.job_failures import Job, TrainingJob, job_budget, training_budget
from webhook.kube.workloads.budget import Budget
from webhook.kube.workloads.model import SURVIVES, EvictionEffect, Json, mapping
from webhook.kube.workloads.paths import dig, entries

_Kind = TypeVar("_Kind", Job, TrainingJob, ReviewedJob)

_NO_LIMIT: Final = 2**31 - 1
"""The backoffLimit that means no limit: JobSet's documentation recommends it for in-place restarts."""

_TRAINING: Final = frozenset({"PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MXJob"})


def eviction_effect(document: Json, group: str, kind: str, budget: Budget) -> EvictionEffect:
    """Return the effect of evictions on an object of this kind."""
    match group, kind:
        case "batch", "Job":
            return _of_jobs([(document, "Never")])
        case "batch", "CronJob":
            return _of_jobs([(mapping(dig(document, "spec.jobTemplate")), "Never")])
        case "jobset.x-k8s.io", "JobSet":
            return _of_jobs(list(_jobs_of_set(document, budget)))
        case "kubeflow.org", "MPIJob":
            return EvictionEffect(always="its launcher fails with each worker that is evicted")
        case "kubeflow.org", _ if kind in _TRAINING:
            job = _converted(document, TrainingJob)
            fails = job is not None and training_budget(job) is not None
            return EvictionEffect(always="it fails with its first evicted pod") if fails else SURVIVES
        case _:
            return SURVIVES


def _jobs_of_set(document: Json, budget: Budget) -> Iterator[tuple[Json, str]]:
    for _, _, entry in entries(document, "spec.replicatedJobs", budget):
        yield mapping(mapping(entry).get("template")), "OnFailure"  # JobSet's own default


def _of_jobs(jobs: list[tuple[Json, str]]) -> EvictionEffect:
    """Return the effect on Jobs, each given with its default restartPolicy."""
    without_rule = ""
    for document, default in jobs:
        job, reviewed = _converted(document, Job), _converted(document, ReviewedJob)
        if job is None or reviewed is None:
            continue
        budget = job_budget(job)
        if budget is None or budget.limit >= _NO_LIMIT:
            continue
        if not gets_rule(reviewed, restart_policy=default):
            return EvictionEffect(always=_described(budget))
        without_rule = without_rule or _described(budget)
    return EvictionEffect(without_rule=without_rule)


def _described(budget: FailureBudget) -> str:
    if budget.limit == 0:
        return "it fails with its first evicted pod"
    return f"it fails after more than {budget.limit} evicted pods"


def _converted(document: Mapping[str, object], what: type[_Kind]) -> _Kind | None:
    """Convert an object; None if it is malformed, which the API server reports."""
    try:
        return msgspec.convert({"metadata": {}, **document}, what)
    except objects.UNREADABLE:
        return None
