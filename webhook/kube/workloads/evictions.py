"""Whether a workload survives the eviction of some of its pods, as far as its manifest tells."""

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from webhook.core.reclaim.failures import FailureBudget
from webhook.kube.admission.job_review import ReviewedJob, is_rewritten
from webhook.kube.reclaim.job_failures import Job, TrainingJob, job_budget, training_budget
from webhook.kube.workloads.model import SURVIVES, Evictions, Json, mapping
from webhook.kube.workloads.paths import dig, entries

_Kind = TypeVar("_Kind", Job, TrainingJob, ReviewedJob)

_MOST_LIMIT: Final = 2**31 - 1
"""What stands for no limit: JobSets with in-place restarts are told to set it."""

_TRAINING: Final = frozenset({"PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MXJob"})


def on_evictions(document: Json, group: str, kind: str) -> Evictions:
    """Tell what evictions do to an object of this kind."""
    match group, kind:
        case "batch", "Job":
            return _of_jobs([(document, "Never")])
        case "batch", "CronJob":
            return _of_jobs([(mapping(dig(document, "spec.jobTemplate")), "Never")])
        case "jobset.x-k8s.io", "JobSet":
            return _of_jobs(list(_jobs_of_set(document)))
        case "kubeflow.org", "MPIJob":
            return Evictions(always="its launcher fails with each worker that is evicted")
        case "kubeflow.org", _ if kind in _TRAINING:
            job = _converted(document, TrainingJob)
            fails = job is not None and training_budget(job) is not None
            return Evictions(always="it fails with its first evicted pod") if fails else SURVIVES
        case _:
            return SURVIVES


def _jobs_of_set(document: Json) -> Iterator[tuple[Json, str]]:
    for _, _, entry in entries(document, "spec.replicatedJobs"):
        yield mapping(mapping(entry).get("template")), "OnFailure"  # JobSet's own default


def _of_jobs(jobs: list[tuple[Json, str]]) -> Evictions:
    """Tell of Jobs, each with the restartPolicy that it has where it names none."""
    told = ""
    for document, default in jobs:
        job, reviewed = _converted(document, Job), _converted(document, ReviewedJob)
        if job is None or reviewed is None:
            continue
        budget = job_budget(job)
        if budget is None or budget.limit >= _MOST_LIMIT:
            continue
        if not is_rewritten(reviewed, restart_policy=default):
            return Evictions(always=_described(budget))
        told = told or _described(budget)
    return Evictions(without_rule=told)


def _described(budget: FailureBudget) -> str:
    if budget.limit == 0:
        return "it fails with its first evicted pod"
    return f"it fails once more than {budget.limit} pods were evicted"


def _converted(document: Mapping[str, object], what: type[_Kind]) -> _Kind | None:
    """Read an object; None where the API server will say that it is none."""
    try:
        return msgspec.convert({"metadata": {}, **document}, what)
    except (msgspec.ValidationError, RecursionError):
        return None
